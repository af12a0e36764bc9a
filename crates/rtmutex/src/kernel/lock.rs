// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The lock word, and taking and giving back what it says.
//!
//! # The word
//!
//! A task's address and, in bit 0, "has waiters".
//!
//! | owner | bit 0 | meaning |
//! |---|---|---|
//! | none | 0 | free; a fast lock may succeed |
//! | none | 1 | free and handed over: the top waiter was woken and will take it, unless someone more urgent comes first; or, briefly, somebody with the raw lock is about to take it |
//! | T | 0 | T holds it, nobody waits; a fast unlock may succeed |
//! | T | 1 | T holds it and somebody waits; or, briefly, somebody with the raw lock looks at it |
//!
//! # Invariants
//!
//! 1. Bit 0 is set and cleared under `wait_lock` only.
//! 2. While bit 0 is set no fast path succeeds, so the owner changes under `wait_lock` only.
//! 3. The tree is not empty ⇒ bit 0 is set, whenever `wait_lock` is free. The tree is empty ⇒ bit 0 is clear after each
//!    slow operation.
//! 4. The tree holds each waiter once, in order of rank, and `waiter.lock` is this lock.
//! 5. If there is an owner, its `pi_waiters` holds this lock's top waiter and no other waiter of this lock.
//! 6. If there is no owner and the tree is not empty, the top waiter's task is running or has a wake-up coming.
//! 7. After the store that makes the lock free, an unlocker does not touch the lock: its memory may be gone.
//!
//! # Ordering
//!
//! What an owner did is visible to the next one by exactly one of these edges:
//!
//! * fast unlock, fast lock: the Release `cmpxchg` to none is read by the Acquire `cmpxchg` from none.
//! * fast unlock, slow lock: between the Release `cmpxchg` and the taking there is only the read-modify-write that sets bit
//!   0, which continues the release sequence; the Acquire exchange in `set_owner` reads from it. (A plain store there
//!   was a real bug: "rtmutex: Add acquire semantics for rtmutex lock acquisition slow path", Mel Gorman, December 2022.)
//! * slow unlock, any lock: the plain store of none under `wait_lock` is followed by its Release; the next owner took
//!   `wait_lock` after that (bit 0 is set, so there is no other way), or read a word that someone stored who had. The last
//!   case is `fixup` clearing bit 0 of a free lock: it stores nothing new about the owner, and is followed by a fast
//!   lock only through the Release of `wait_lock`... which a fast lock does not acquire; therefore `fixup` on a free word
//!   releases by itself.
//!
//! Setting bit 0 needs no order of its own: it is read back from the same word, and what the bit is about is under
//! `wait_lock`. (The kernel puts a full barrier behind it; here the one reader that pairs a second variable with the bit,
//! wound/wait, has its own fence.)

use core::fmt;
use core::ptr;
use core::sync::atomic::Ordering;

use super::key::{Key, Rank};
use super::sched::{OwnerWord, Point, RawSpin, Scheduler};
use super::sleep::Wake;
use super::task::Task;
use super::tree::Tree;
use super::waiter::Waiter;

/// Bit 0 of the owner word.
#[doc(alias = "RT_MUTEX_HAS_WAITERS")]
const HAS_WAITERS: usize = 1;

fn marked<T>(task: *const T) -> *const T {
    task.map_addr(|address| address | HAS_WAITERS)
}

fn unmarked<T>(word: *const T) -> *const T {
    word.map_addr(|address| address & !HAS_WAITERS)
}

fn is_marked<T>(word: *const T) -> bool {
    word.addr() & HAS_WAITERS != 0
}

/// Which kind of lock takes: they differ in who may steal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flavour {
    /// Only a strictly more urgent task may take a lock that was handed to another.
    Mutex,
    /// Moreover, among tasks that are neither real-time nor deadline, an equally urgent one may.
    Spin,
}

/// The part all locks share. See the module for its states.
#[doc(alias = "rt_mutex_base")]
pub(crate) struct LockBase<S: Scheduler> {
    wait_lock: S::RawLock,
    owner: S::Owner,
    pub(crate) waiters: Tree<Waiter<S>>,
}

// SAFETY: the tree is accessed under `wait_lock`, the word is atomic.
unsafe impl<S: Scheduler> Sync for LockBase<S> {}
// SAFETY: a lock nobody waits for is plain data.
unsafe impl<S: Scheduler> Send for LockBase<S> {}

/// `wait_lock` is held and interrupts are off. Ends with [`release`](Self::release): there is no `Drop`, because the
/// lock's memory may be gone after that.
#[must_use]
pub(crate) struct Held<'a, S: Scheduler> {
    lock: &'a LockBase<S>,
    irq: S::Irq,
}

impl<S: Scheduler> Held<'_, S> {
    /// Gives `wait_lock` back.
    pub(crate) fn release(self) {
        let Self { lock, irq } = self;
        // SAFETY: a `Held` is made by `enter` and ends here.
        unsafe { lock.wait_lock.unlock() };
        S::irq_restore(irq);
    }

    /// Runs `f` without `wait_lock`.
    pub(crate) fn without<R>(&mut self, f: impl FnOnce() -> R) -> R {
        // SAFETY: held now; taken again below.
        unsafe { self.lock.wait_lock.unlock() };
        S::irq_restore(self.irq);
        let result = f();
        self.irq = S::irq_save();
        self.lock.wait_lock.lock();
        result
    }
}

impl<S: Scheduler> LockBase<S> {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self { wait_lock: S::RawLock::UNLOCKED, owner: S::Owner::NONE, waiters: Tree::new() }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self { wait_lock: S::RawLock::unlocked(), owner: S::Owner::none(), waiters: Tree::new() }
    }

    /// Takes `wait_lock`, interrupts off.
    pub(crate) fn enter(&self) -> Held<'_, S> {
        let irq = S::irq_save();
        self.wait_lock.lock();
        Held { lock: self, irq }
    }

    /// Takes `wait_lock` if it is free; for the chain walk, which holds a task's lock and has interrupts off already.
    pub(crate) fn try_enter_raw(&self) -> bool {
        self.wait_lock.try_lock()
    }

    /// The end of [`try_enter_raw`](Self::try_enter_raw).
    ///
    /// # Safety
    /// The caller took it that way.
    pub(crate) unsafe fn leave_raw(&self) {
        // SAFETY: the caller's.
        unsafe { self.wait_lock.unlock() };
    }

    /// The owner, to be compared.
    pub(crate) fn owner_ptr(&self) -> *const Task<S> {
        // ORDERING: Relaxed: the pointer is compared, or dereferenced by those who know otherwise that the task lives.
        unmarked(self.owner.load(Ordering::Relaxed))
    }

    /// The word as it is: owner and bit 0.
    pub(crate) fn word(&self) -> (*const Task<S>, bool) {
        // ORDERING: Relaxed: a snapshot.
        let word = self.owner.load(Ordering::Relaxed);
        (unmarked(word), is_marked(word))
    }

    /// The owner.
    ///
    /// # Safety
    /// The caller holds `wait_lock` and bit 0 is set: the owner cannot go (Invariant 2). Or the caller is the owner.
    pub(crate) unsafe fn owner(&self) -> Option<&'static Task<S>> {
        let owner = self.owner_ptr();
        // SAFETY: an owner lives, see `Scheduler`.
        if owner.is_null() { None } else { Some(unsafe { &*owner }) }
    }

    /// Is anybody queued? Under `wait_lock`, or as a hint.
    #[doc(alias = "rt_mutex_has_waiters")]
    pub(crate) fn has_waiters(&self) -> bool {
        !self.waiters.first().is_null()
    }

    /// The most urgent waiter, or null.
    #[doc(alias = "rt_mutex_top_waiter")]
    pub(crate) fn top(&self) -> *const Waiter<S> {
        self.waiters.first()
    }

    /// none → `me`.
    #[inline(always)]
    pub(crate) fn fast_lock(&self, me: &'static Task<S>) -> bool {
        // ORDERING: Acquire pairs with the Release in `fast_unlock`, `slow_unlock` and `fixup`.
        S::Owner::FAST && self.owner.cmpxchg(ptr::null(), me, Ordering::Acquire).is_null()
    }

    /// `me` → none.
    #[inline(always)]
    pub(crate) fn fast_unlock(&self, me: &'static Task<S>) -> bool {
        let me: *const Task<S> = me;
        // ORDERING: Release pairs with the Acquire in `fast_lock` and `set_owner`.
        S::Owner::FAST && self.owner.cmpxchg(me, ptr::null(), Ordering::Release) == me
    }

    /// Sets bit 0, under `wait_lock`: from here on the owner changes only by us.
    fn mark_waiters(&self) {
        // ORDERING: Relaxed, both: see the module.
        let mut word = self.owner.load(Ordering::Relaxed);
        while !is_marked(word) {
            let was = self.owner.cmpxchg(word, marked(word), Ordering::Relaxed);
            if was == word {
                return;
            }
            word = was;
        }
    }

    /// Stores the new owner, bit 0 set if and only if somebody is queued. Under `wait_lock`, bit 0 set.
    pub(crate) fn set_owner(&self, task: &'static Task<S>) {
        let task: *const Task<S> = task;
        let word = if self.has_waiters() { marked(task) } else { task };
        // ORDERING: Acquire pairs with the Release in `fast_unlock`, through the read-modify-write that set bit 0.
        self.owner.xchg(word, Ordering::Acquire);
    }

    /// Names `task` the owner of a lock that nobody else can reach yet.
    pub(crate) fn init_owner(&self, task: *const Task<S>) {
        // ORDERING: Relaxed: not shared yet.
        self.owner.store(task, Ordering::Relaxed);
    }

    /// Clears bit 0 if nobody is queued. Under `wait_lock`; each slow operation ends with it (Invariant 3).
    ///
    /// The bit is looked at again here: if it is clear, a fast unlock may be storing "none" at this moment, and writing
    /// back the owner read before would resurrect it ("rtmutex: Prevent dequeue vs. unlock race", Thomas Gleixner,
    /// November 2016).
    #[doc(alias = "fixup_rt_mutex_waiters")]
    pub(crate) fn fixup(&self) {
        if self.has_waiters() {
            return;
        }
        // ORDERING: Relaxed: with the bit set the word cannot change (Invariant 2), with it clear nothing is written.
        let word = self.owner.load(Ordering::Relaxed);
        if is_marked(word) {
            // ORDERING: AcqRel: Release for a fast lock that reads a free word from here, see the module; Acquire for a
            // caller that took the lock.
            self.owner.xchg(unmarked(word), Ordering::AcqRel);
        }
    }

    /// May a task at `key` take the lock although `top` was promised it?
    #[doc(alias = "rt_mutex_steal")]
    fn may_steal(key: Key, top: Key, flavour: Flavour) -> bool {
        if key.before(top) {
            return true;
        }
        // Real-time tasks are excluded: among them an equal one could be passed over for ever.
        flavour == Flavour::Spin && !key.is_realtime() && !top.before(key)
    }

    /// Takes the lock for `task` if it is free and nobody with a better claim waits. Under `wait_lock`.
    ///
    /// With a `waiter`, which is queued, it leaves the queue on success. Bit 0 may be left set without waiters on
    /// failure: the caller ends with `fixup`.
    #[doc(alias = "try_to_take_rt_mutex")]
    pub(crate) fn try_to_take(
        &self,
        task: &'static Task<S>,
        waiter: Option<&Waiter<S>>,
        flavour: Flavour,
    ) -> bool {
        self.mark_waiters();
        if !self.owner_ptr().is_null() {
            return false;
        }
        let top = self.top();
        // SAFETY: the top waiter is queued, so alive, as long as `wait_lock` is held.
        let top_key = |top: *const Waiter<S>| unsafe { (*top).node.rank().key };
        match waiter {
            Some(waiter) => {
                let first = ptr::eq(top, waiter);
                if !first && !Self::may_steal(waiter.node.rank().key, top_key(top), flavour) {
                    return false;
                }
            }
            None if top.is_null() => {
                // Nobody waits and `task` was never queued: its lock need not be taken.
                self.set_owner(task);
                return true;
            }
            None => {
                if !Self::may_steal(task.effective(), top_key(top), flavour) {
                    return false;
                }
            }
        }
        task.locked(|| {
            if let Some(waiter) = waiter {
                self.dequeue(waiter);
                task.blocked_on.set(ptr::null());
            }
            if self.has_waiters() {
                // SAFETY: the top waiter is queued here; without an owner it is in nobody's `pi_waiters` (Invariant 5).
                unsafe { task.pi_insert(self.top()) };
                // The one who takes is at least as urgent as the waiters it found, unless its own urgency changed a
                // moment ago and the walk for that has not come here yet (and will not: we are not blocked any more).
                task.recompute();
            }
        });
        self.set_owner(task);
        true
    }

    /// Puts `waiter` into the tree at `key`. Under `wait_lock`; `waiter.task`'s lock held too.
    pub(crate) fn enqueue(&self, waiter: &Waiter<S>, key: Key) {
        waiter.lock.set(self);
        let rank = Rank { key, stamp: waiter.stamp() };
        // SAFETY: `wait_lock` is held; a waiter stays put while it is queued (W4).
        unsafe { self.waiters.insert(&waiter.node, rank, waiter) };
    }

    /// Takes `waiter`, which is queued here, out of the tree. Under `wait_lock`; `waiter.task`'s lock held too.
    pub(crate) fn dequeue(&self, waiter: &Waiter<S>) {
        // SAFETY: `wait_lock` is held and the waiter is queued here.
        unsafe { self.waiters.remove(&waiter.node) };
        waiter.lock.set(ptr::null());
    }

    /// Gives the lock back, the slow way.
    ///
    /// # Safety
    /// The calling task owns it.
    #[cold]
    #[doc(alias = "rt_mutex_slowunlock")]
    pub(crate) unsafe fn slow_unlock(&self) {
        let me = S::current();
        S::at(Point::SlowUnlock);
        let mut held = self.enter();
        while !self.has_waiters() {
            // Clearing the owner under `wait_lock` would be simpler and wrong: another processor could lock, unlock and
            // free the lock by fast paths while this one still has to give `wait_lock` back (Invariant 7).
            if !S::Owner::FAST {
                // Without fast paths nobody gets by `wait_lock`; its release is our last access.
                // ORDERING: Relaxed: the next owner takes `wait_lock`.
                self.owner.store(ptr::null(), Ordering::Relaxed);
                held.release();
                return;
            }
            // ORDERING: Relaxed: bit 0 says nothing about the data; if it is clear already, it is the same word.
            self.owner.store(me, Ordering::Relaxed);
            held.release();
            S::at(Point::UnlockWindow);
            if self.fast_unlock(me) {
                return;
            }
            held = self.enter();
        }
        let (task, wake) = self.hand_over(me);
        held.release();
        S::at(Point::BeforeWake);
        task.wake(wake);
        S::put_task(task);
        S::preempt_enable();
    }

    /// Deboosts the owner `me` and promises the lock to the top waiter, which the caller wakes as soon as it has released
    /// `wait_lock`. Preemption is off from here until then: the deboosted task could otherwise be preempted by a task
    /// less urgent than the one it has yet to wake.
    #[doc(alias = "mark_wakeup_next_waiter")]
    fn hand_over(&self, me: &'static Task<S>) -> (&'static Task<S>, Wake) {
        let top = self.top();
        me.locked(|| {
            // SAFETY: queued here, and recorded in our `pi_waiters` (Invariant 5).
            unsafe { me.pi_remove(top) };
            me.recompute();
            // ORDERING: Relaxed: bit 0 stays set, so the next owner takes `wait_lock`, which is released after this.
            self.owner.store(marked(ptr::null()), Ordering::Relaxed);
            S::preempt_disable();
            // SAFETY: queued, so alive, and its task too. After `wait_lock` is released the waiter may be gone: only the
            // task, which is held, may be used then.
            let (task, wake) = unsafe { ((*top).task.get(), (*top).wake.get()) };
            let Some(task) = task else { unreachable!("a queued waiter has a task (W1)") };
            S::get_task(task);
            (task, wake)
        })
    }
}

impl<S: Scheduler> fmt::Debug for LockBase<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (owner, waiters) = self.word();
        f.debug_struct("LockBase").field("owner", &owner).field("waiters", &waiters).finish_non_exhaustive()
    }
}
