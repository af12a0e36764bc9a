// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Wound/wait and wait/die mutexes: several locks taken in any order, without deadlock.
//!
//! A task that wants several locks begins with a [`Context`], whose stamp is its age. If a cycle threatens, one of the
//! contexts in it gets [`WwError::Deadlock`]: it gives back all it holds and starts again, with the same context, so that
//! in the end it is the oldest and gets through.
//!
//! | policy | an older context waits for a younger holder | a younger context waits for an older holder |
//! |---|---|---|
//! | [`Policy::WoundWait`] | the holder is *wounded*: its next wait fails | it waits |
//! | [`Policy::WaitDie`] | it waits | it *dies*: its wait fails at once, if it holds anything |
//!
//! "Older" means: more urgent ([`Key`](super::Key)) first, and only then the smaller stamp.
//!
//! # Invariants
//!
//! 1. A context that holds nothing is never told to back off: it cannot be part of a cycle.
//! 2. `holder` is the owner's context or null, and is cleared before the lock is given back. Whoever looks at it holds
//!    `wait_lock`, and the owner has to take that to unlock while anybody is queued: the context is alive.
//! 3. Whoever should back off and sleeps is woken at once, while `wait_lock` is held: nothing to be woken is kept across a
//!    walk or a sleep.
//!
//! # Ordering
//!
//! A fast lock writes `holder`, then looks for waiters. A waiter queues itself, bit 0 set, then looks at `holder`. Each has a
//! `SeqCst` fence in between, so at least one sees the other: either the waiter wounds the holder, or the holder finds the
//! waiter and wounds itself.

use core::fmt;
use core::marker::PhantomPinned;
use core::ptr;
use core::sync::atomic::Ordering;

use super::block::{How, LockError};
use super::lock::{Flavour, LockBase};
use super::sched::{Detect, Scheduler};
use super::sleep::{TaskState, Wake};
use super::task::Task;
use super::tree::Tree;
use super::waiter::Waiter;
use crate::sync::{Count, Word, const_unless_loom, fence};

/// What is done about a cycle that threatens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// The older one preempts: it makes the younger holder give way.
    WoundWait,
    /// The younger one gives way by itself, whenever it would have to wait for an older one.
    WaitDie,
}

/// Locks that are taken together, and the clock of their contexts.
///
/// ```
/// use fastpath_rtmutex::kernel::{Policy, WwClass};
/// static RESERVATIONS: WwClass = WwClass::new(Policy::WoundWait);
/// ```
#[doc(alias = "ww_class")]
pub struct WwClass {
    stamps: Count,
    policy: Policy,
}

impl WwClass {
    const_unless_loom! {
        /// A class without contexts yet.
        pub fn new(policy: Policy) -> Self {
            Self { stamps: Count::new(0), policy }
        }
    }
}

impl fmt::Debug for WwClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WwClass").field("policy", &self.policy).finish_non_exhaustive()
    }
}

/// One attempt to take several locks of a class. Keep it over the retries: its age is what makes them end.
#[doc(alias = "ww_acquire_ctx")]
pub struct Context<S: Scheduler> {
    task: &'static Task<S>,
    stamp: u32,
    policy: Policy,
    acquired: Count,
    wounded: Count,
    _pin: PhantomPinned,
}

impl<S: Scheduler> Context<S> {
    /// A context of the calling task, younger than all before it.
    #[doc(alias = "ww_acquire_init")]
    pub fn new(class: &WwClass) -> Self {
        Self {
            task: S::current(),
            // ORDERING: Relaxed: a number, unique by the read-modify-write; it publishes nothing.
            stamp: class.stamps.fetch_add(1, Ordering::Relaxed),
            policy: class.policy,
            acquired: Count::new(0),
            wounded: Count::new(0),
            _pin: PhantomPinned,
        }
    }

    /// How many locks it holds.
    pub fn acquired(&self) -> u32 {
        // ORDERING: Relaxed: written by the context's task only; others read it after an Acquire load of `holder`, or
        // under the `wait_lock` under which the waiter of this context was queued.
        self.acquired.load(Ordering::Relaxed)
    }

    /// Was it told to give way?
    pub fn is_wounded(&self) -> bool {
        // ORDERING: Relaxed: a flag; what follows from it is found out under `wait_lock`.
        self.wounded.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn stamp(&self) -> u32 {
        self.stamp
    }

    /// Has `self` to give way to `other`?
    #[doc(alias = "__ww_ctx_less")]
    fn yields_to(&self, other: &Self) -> bool {
        let (mine, theirs) = (self.task.effective(), other.task.effective());
        if mine.before(theirs) {
            return false;
        }
        theirs.before(mine) || (self.stamp.wrapping_sub(other.stamp) as i32) > 0
    }

    /// Invariant 1: only who holds something has to back off.
    fn back_off(&self) -> Result<(), LockError> {
        if self.acquired() > 0 { Err(LockError::Deadlock) } else { Ok(()) }
    }
}

impl<S: Scheduler> fmt::Debug for Context<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("stamp", &self.stamp)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// Why a [`WwMutex`] was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WwError {
    /// Give back everything the context holds, and start again.
    #[doc(alias = "EDEADLK")]
    Deadlock,
    /// The context holds this lock already.
    #[doc(alias = "EALREADY")]
    Already,
    /// A signal came first.
    #[doc(alias = "EINTR")]
    Interrupted,
}

impl fmt::Display for WwError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deadlock => "this context has to give way: unlock everything and start again",
            Self::Already => "this context holds the lock already",
            Self::Interrupted => "a signal came before the lock was free",
        })
    }
}

impl core::error::Error for WwError {}

/// A mutex that can be taken together with others in any order.
#[doc(alias = "ww_mutex")]
pub struct WwMutex<S: Scheduler> {
    base: LockBase<S>,
    /// The owner's context.
    holder: Word<Context<S>>,
}

impl<S: Scheduler> WwMutex<S> {
    const_unless_loom! {
        /// A free lock.
        pub fn new() -> Self {
            Self { base: LockBase::new(), holder: Word::new() }
        }
    }

    pub(crate) fn base(&self) -> &LockBase<S> {
        &self.base
    }

    /// Takes the lock as part of `context`, or, without one, as an ordinary mutex.
    ///
    /// `state` says which signals end the wait.
    ///
    /// # Errors
    ///
    /// [`WwError::Deadlock`]: give everything back and start again, best with the lock that failed. [`WwError::Already`]:
    /// nothing changed. [`WwError::Interrupted`]: a signal ended the wait.
    ///
    /// # Safety
    ///
    /// `context` belongs to the calling task, and stays where it is until it holds no lock any more.
    #[doc(alias = "ww_mutex_lock")]
    pub unsafe fn lock(&self, context: Option<&Context<S>>, state: TaskState) -> Result<(), WwError> {
        if let Some(context) = context {
            if ptr::eq(self.holder(), context) {
                return Err(WwError::Already);
            }
            if context.acquired() == 0 {
                // ORDERING: Relaxed: a context that holds nothing starts afresh; nobody can be wounding it.
                context.wounded.store(0, Ordering::Relaxed);
            }
        }
        if self.base.fast_lock(S::current()) {
            if let Some(context) = context {
                self.acquired_fast(context);
            }
            return Ok(());
        }
        let ww = context.map(|context| (self, context));
        let how = How { state, deadline: None, detect: Detect::Min, flavour: Flavour::Mutex, ww };
        match self.base.slow_lock(&how) {
            Ok(()) => Ok(()),
            Err(LockError::Deadlock) if context.is_none() => LockBase::<S>::sleep_for_ever(),
            Err(LockError::Interrupted) => Err(WwError::Interrupted),
            // There is no deadline.
            Err(LockError::Deadlock | LockError::TimedOut) => Err(WwError::Deadlock),
        }
    }

    /// Takes the lock if it is free.
    ///
    /// # Safety
    ///
    /// As for [`lock`](Self::lock).
    #[doc(alias = "ww_mutex_trylock")]
    pub unsafe fn try_lock(&self, context: Option<&Context<S>>) -> bool {
        let me = S::current();
        if !self.base.fast_lock(me) && !self.base.slow_try_lock(Flavour::Mutex) {
            return false;
        }
        if let Some(context) = context {
            if context.acquired() == 0 {
                // ORDERING: Relaxed, see `lock`.
                context.wounded.store(0, Ordering::Relaxed);
            }
            self.acquired_fast(context);
        }
        true
    }

    /// Gives the lock back.
    ///
    /// # Safety
    ///
    /// The calling task owns it.
    #[doc(alias = "ww_mutex_unlock")]
    pub unsafe fn unlock(&self) {
        let holder = self.holder();
        if !holder.is_null() {
            // SAFETY: our own context, which outlives its locks.
            let context = unsafe { &*holder };
            // ORDERING: Relaxed, both: see `acquired`; the context is ours. The unlock below releases.
            context.acquired.store(context.acquired() - 1, Ordering::Relaxed);
            self.holder.store(ptr::null(), Ordering::Relaxed);
        }
        if !self.base.fast_unlock(S::current()) {
            // SAFETY: the caller owns it.
            unsafe { self.base.slow_unlock() };
        }
    }

    fn holder(&self) -> *const Context<S> {
        // ORDERING: Acquire pairs with the Release in `set_holder`: `acquired` is seen with it.
        self.holder.load(Ordering::Acquire)
    }

    fn set_holder(&self, context: &Context<S>) {
        // ORDERING: Relaxed: written by the context's task only.
        context.acquired.store(context.acquired() + 1, Ordering::Relaxed);
        // ORDERING: Release pairs with the Acquire in `holder`.
        self.holder.store(context, Ordering::Release);
    }

    /// Taken by the fast path: nobody saw our context, so look after those who wait by now.
    #[doc(alias = "ww_mutex_set_context_fastpath")]
    fn acquired_fast(&self, context: &Context<S>) {
        self.set_holder(context);
        // ORDERING: SeqCst pairs with the fence in `joined`: see the module.
        fence(Ordering::SeqCst);
        if self.base.word().1 {
            let held = self.base.enter();
            self.check_waiters(context);
            self.base.fixup();
            held.release();
        }
    }

    /// Taken under `wait_lock`.
    pub(crate) fn acquired_slowly(&self, context: &Context<S>) {
        self.check_waiters(context);
        self.set_holder(context);
    }

    /// `waiter` has just been queued under `context`: whoever has to give way to it is told so; or it has to itself.
    #[doc(alias = "__ww_mutex_add_waiter")]
    pub(crate) fn joined(&self, waiter: &Waiter<S>, context: &Context<S>) -> Result<(), LockError> {
        // ORDERING: SeqCst pairs with the fence in `acquired_fast`: see the module. The look at `holder` is here for
        // wound/wait, in `must_back_off` for wait/die.
        fence(Ordering::SeqCst);
        if context.policy == Policy::WaitDie {
            let mut result = Ok(());
            self.each_context(|other, theirs| {
                if ptr::eq(other, waiter) {
                } else if context.yields_to(theirs) {
                    result = result.and(context.back_off());
                } else {
                    Self::die(other, theirs, context);
                }
            });
            return result;
        }
        let holder = self.holder();
        if !holder.is_null() {
            // SAFETY: Invariant 2.
            Self::wound(context, unsafe { &*holder });
        }
        Ok(())
    }

    /// Before it sleeps again: does `waiter` have to give up?
    #[doc(alias = "__ww_mutex_check_kill")]
    pub(crate) fn must_back_off(&self, waiter: &Waiter<S>, context: &Context<S>) -> Result<(), LockError> {
        if context.policy == Policy::WoundWait {
            return if context.is_wounded() { context.back_off() } else { Ok(()) };
        }
        let holder = self.holder();
        // SAFETY: Invariant 2.
        if !holder.is_null() && context.yields_to(unsafe { &*holder }) {
            return context.back_off();
        }
        let (mut ahead, mut found) = (true, false);
        self.each_context(|other, _| {
            ahead &= !ptr::eq(other, waiter);
            found |= ahead;
        });
        // Whoever waits in front with a context is older: we would have to die when it gets the lock.
        if found { context.back_off() } else { Ok(()) }
    }

    /// `context` is about to hold the lock: those who wait are told what that means for them, or for it.
    #[doc(alias = "__ww_mutex_check_waiters")]
    fn check_waiters(&self, context: &Context<S>) {
        self.each_context(|other, theirs| match context.policy {
            Policy::WaitDie => Self::die(other, theirs, context),
            Policy::WoundWait => Self::wound(theirs, context),
        });
    }

    /// Wait/die: wakes `waiter`, whose context `theirs` has to give way to `context`, so that it finds out.
    #[doc(alias = "__ww_mutex_die")]
    fn die(waiter: &Waiter<S>, theirs: &Context<S>, context: &Context<S>) {
        if theirs.acquired() > 0
            && theirs.yields_to(context)
            && let Some(task) = waiter.task.get()
        {
            task.wake(Wake::Normal);
        }
    }

    /// Wound/wait: tells `holder` to give way if it has to, and wakes it if it sleeps for another lock.
    #[doc(alias = "__ww_mutex_wound")]
    fn wound(context: &Context<S>, holder: &Context<S>) {
        // Who holds nothing closes no cycle by waiting.
        if context.acquired() > 0 && holder.yields_to(context) {
            // ORDERING: Relaxed: the wake-up below orders it before the holder's next look at it; a holder that is running
            // looks under a raw lock before it sleeps.
            holder.wounded.store(1, Ordering::Relaxed);
            if !ptr::eq(holder.task, S::current()) {
                holder.task.wake(Wake::Normal);
            }
        }
    }

    /// Calls `each` for the queued waiters that have a context, in order. Under `wait_lock`.
    fn each_context(&self, mut each: impl FnMut(&Waiter<S>, &Context<S>)) {
        let mut at = self.base.top();
        while !at.is_null() {
            // SAFETY: queued, so alive, while `wait_lock` is held; a context outlives the wait it was given to.
            unsafe {
                let context = (*at).context.get();
                if !context.is_null() {
                    each(&*at, &*context);
                }
                at = Tree::next(&(*at).node);
            }
        }
    }
}

impl<S: Scheduler> Default for WwMutex<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Scheduler> fmt::Debug for WwMutex<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WwMutex").field("base", &self.base).finish_non_exhaustive()
    }
}
