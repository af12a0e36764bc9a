// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The slow path to a lock: queue, boost the owner, sleep or spin, take or give up.
//!
//! # Contract
//!
//! ```text
//! slow_lock:  under wait_lock
//!     try_to_take without a waiter                                → done
//!     state = the wanted sleep state
//!     queue: own lock already → Deadlock, and nothing was queued
//!            into the tree, blocked_on = waiter
//!            owner inherits from the new top waiter; walk on if the owner is blocked itself
//!     loop:  try_to_take(waiter)                                  → done
//!            deadline passed                                      → TimedOut
//!            a signal that ends this state                        → Interrupted
//!            a wound/wait context that has to back off            → Deadlock
//!            without wait_lock: top waiter and the owner runs → spin; otherwise sleep
//!            state = the wanted sleep state
//!     done:  state = Running
//!     error: state = Running; leave the queue, the owner inherits from the new top waiter, walk on if it is blocked
//!     always: fixup
//! ```
//!
//! # Invariants
//!
//! 1. An error means: not the owner, not queued. Success means: the owner, not queued.
//! 2. Taking beats the deadline, the deadline beats the signal: the order of the tests in the loop.
//! 3. What leaves the queue is `waiter.task`, which under proxy locking is not the caller: the caller's own `blocked_on` is
//!    never touched for somebody else's wait. A waiter that was never queued is left alone. (Both were real bugs, fixed
//!    in 2026; the first left a pointer to a dead stack frame behind.)
//! 4. The self-deadlock test comes before queueing: otherwise the walk of an innocent task could meet our half-made wait.

use core::ptr;

use super::chain::{self, Walk};
use super::lock::{Flavour, Held, LockBase};
use super::sched::{Detect, Point, Scheduler};
use super::sleep::{TaskState, Wake};
use super::task::Task;
use super::waiter::Waiter;
use super::ww::{Context, WwMutex};

/// Why a lock was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockError {
    /// Waiting would close a cycle (`EDEADLK`), or the chain is longer than the scheduler's limit.
    #[doc(alias = "EDEADLK")]
    Deadlock,
    /// The deadline passed first.
    #[doc(alias = "ETIMEDOUT")]
    TimedOut,
    /// A signal came first.
    #[doc(alias = "EINTR")]
    Interrupted,
}

impl core::fmt::Display for LockError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Deadlock => "waiting for this lock would never end",
            Self::TimedOut => "the deadline passed before the lock was free",
            Self::Interrupted => "a signal came before the lock was free",
        })
    }
}

impl core::error::Error for LockError {}

/// How to wait.
pub(crate) struct How<'a, S: Scheduler> {
    pub(crate) state: TaskState,
    pub(crate) deadline: Option<u64>,
    pub(crate) detect: Detect,
    pub(crate) flavour: Flavour,
    pub(crate) ww: Option<(&'a WwMutex<S>, &'a Context<S>)>,
}

impl<S: Scheduler> How<'_, S> {
    /// Uninterruptible, without a deadline, as the kinds of lock wait that cannot fail.
    pub(crate) fn endless(flavour: Flavour) -> Self {
        let state = match flavour {
            Flavour::Mutex => TaskState::Uninterruptible,
            Flavour::Spin => TaskState::LockWait,
        };
        Self { state, deadline: None, detect: Detect::Min, flavour, ww: None }
    }
}

/// Which wake-up a sleeper in `flavour`'s wait state listens to.
pub(crate) fn wake_for(flavour: Flavour) -> Wake {
    match flavour {
        Flavour::Mutex => Wake::Normal,
        Flavour::Spin => Wake::Lock,
    }
}

impl<S: Scheduler> LockBase<S> {
    /// Takes the lock, the slow way, and calls `then` on success while `wait_lock` is still held.
    #[cold]
    #[doc(alias = "rt_mutex_slowlock")]
    pub(crate) fn slow_lock(&self, how: &How<'_, S>) -> Result<(), LockError> {
        S::at(Point::SlowLock);
        let mut held = self.enter();
        let result = self.slow_lock_held(&mut held, how);
        held.release();
        result
    }

    /// The same with `wait_lock` held on entry and exit; it is dropped in between.
    pub(crate) fn slow_lock_held(&self, held: &mut Held<'_, S>, how: &How<'_, S>) -> Result<(), LockError> {
        let me = S::current();
        let result = if self.try_to_take(me, None, how.flavour) {
            Ok(())
        } else {
            let waiter = Waiter::new();
            waiter.wake.set(wake_for(how.flavour));
            if let Some((_, context)) = how.ww {
                waiter.context.set(context);
            }
            match how.flavour {
                Flavour::Mutex => me.set_state(how.state),
                // An outer wait's state must survive this one.
                Flavour::Spin => me.enter_lock_wait(),
            }
            let mut result = self.queue(held, &waiter, me, how.ww, how.detect);
            if result.is_ok() {
                result = self.wait(held, &waiter, how);
            }
            match how.flavour {
                Flavour::Mutex => me.set_state(TaskState::Running),
                Flavour::Spin => me.leave_lock_wait(),
            }
            if result.is_err() {
                self.remove_waiter(held, &waiter);
            }
            result
        };
        if let (Ok(()), Some((mutex, context))) = (result, how.ww) {
            mutex.acquired_slowly(context);
        }
        self.fixup();
        result
    }

    /// Takes the lock if nothing is to wait for, the slow way.
    #[cold]
    #[doc(alias = "rt_mutex_slowtrylock")]
    pub(crate) fn slow_try_lock(&self, flavour: Flavour) -> bool {
        // A lock that is held is not worth `wait_lock`. One that is free but promised to someone may be stolen.
        if !self.owner_ptr().is_null() {
            return false;
        }
        S::at(Point::SlowLock);
        let held = self.enter();
        let taken = self.try_to_take(S::current(), None, flavour);
        self.fixup();
        held.release();
        taken
    }

    /// Queues `task` by `waiter`, lets the owner inherit, and walks on if need be. `wait_lock` is held, and dropped for the
    /// walk.
    ///
    /// After an error of the self-deadlock test and of wound/wait the waiter is not queued; after one of the walk it is.
    #[doc(alias = "task_blocks_on_rt_mutex")]
    pub(crate) fn queue(
        &self,
        held: &mut Held<'_, S>,
        waiter: &Waiter<S>,
        task: &'static Task<S>,
        ww: Option<(&WwMutex<S>, &Context<S>)>,
        detect: Detect,
    ) -> Result<(), LockError> {
        // SAFETY: `wait_lock` is held and `try_to_take` has just set bit 0.
        let owner = unsafe { self.owner() };
        if ww.is_none() && owner.is_some_and(|owner| ptr::eq(owner, task)) {
            return Err(LockError::Deadlock);
        }
        let former_top = self.top();
        task.locked(|| {
            waiter.task.set(Some(task));
            self.enqueue(waiter, task.key());
            task.blocked_on.set(waiter);
        });
        if let Some((mutex, context)) = ww
            && let Err(error) = mutex.joined(waiter, context)
        {
            task.locked(|| {
                self.dequeue(waiter);
                task.blocked_on.set(ptr::null());
            });
            return Err(error);
        }
        S::at(Point::Queued);
        let Some(owner) = owner else { return Ok(()) };
        let mut walk = detect == Detect::Full || S::DETECT_ALWAYS;
        let next = owner.locked(|| {
            if ptr::eq(self.top(), waiter) {
                // SAFETY: the owner's lock and `wait_lock` are held; both waiters are, or were until now, this lock's top.
                unsafe {
                    if !former_top.is_null() {
                        owner.pi_remove(former_top);
                    }
                    owner.pi_insert(waiter);
                }
                owner.recompute();
                walk = true;
            }
            owner.blocked_lock()
        });
        if !walk || next.is_null() {
            return Ok(());
        }
        S::get_task(owner);
        let walk = Walk { detect, origin: self, next, waiter, starter: task };
        held.without(|| chain::adjust(owner, &walk)).map_err(|chain::Cycle| LockError::Deadlock)
    }

    /// Waits until `waiter`, which is queued, has the lock, or gives up; it then is still queued. `wait_lock` is held, and
    /// dropped meanwhile. The caller sets the sleep state before, and afterwards.
    #[doc(alias = "rt_mutex_slowlock_block")]
    pub(crate) fn wait(
        &self,
        held: &mut Held<'_, S>,
        waiter: &Waiter<S>,
        how: &How<'_, S>,
    ) -> Result<(), LockError> {
        let me = S::current();
        loop {
            if self.try_to_take(me, Some(waiter), how.flavour) {
                return Ok(());
            }
            if how.deadline.is_some_and(|deadline| S::now() >= deadline) {
                return Err(LockError::TimedOut);
            }
            if how.state.ended_by(S::signal(me)) {
                return Err(LockError::Interrupted);
            }
            if let Some((mutex, context)) = how.ww {
                mutex.must_back_off(waiter, context)?;
            }
            let owner = if ptr::eq(self.top(), waiter) { self.owner_ptr() } else { ptr::null() };
            held.without(|| {
                S::at(Point::BeforeSleep);
                if owner.is_null() || !self.spin_on_owner(waiter, owner, how) {
                    me.schedule(how.deadline);
                }
                S::at(Point::Awake);
            });
            me.set_state(how.state);
        }
    }

    /// Spins as long as that is likely to be short: `waiter` is the top one and the owner runs. True if the lock changed
    /// hands, so that taking it is worth a try.
    #[doc(alias = "rtmutex_spin_on_owner")]
    fn spin_on_owner(&self, waiter: &Waiter<S>, owner: *const Task<S>, how: &How<'_, S>) -> bool {
        S::read_lock();
        let changed = loop {
            if self.owner_ptr() != owner {
                break true;
            }
            // SAFETY: inside the read section it was seen owning the lock: it lives until the section is closed.
            let running = S::on_cpu(unsafe { &*owner });
            let top = ptr::eq(self.top(), waiter);
            let due = how.deadline.is_some_and(|deadline| S::now() >= deadline);
            if !running || !top || due || S::need_resched() || how.state.ended_by(S::signal(S::current())) {
                break false;
            }
            S::at(Point::Spin);
            S::relax();
        };
        S::read_unlock();
        changed
    }

    /// Takes `waiter` out of the queue after a failed wait. Does nothing if it was never queued. `wait_lock` is held, and
    /// dropped for a walk.
    pub(crate) fn remove_waiter(&self, held: &mut Held<'_, S>, waiter: &Waiter<S>) {
        let queued = ptr::eq(waiter.lock.get(), self);
        let Some(task) = waiter.task.get().filter(|_| queued) else { return };
        S::at(Point::Leave);
        let was_top = ptr::eq(self.top(), waiter);
        // SAFETY: `wait_lock` is held and a waiter is queued: bit 0 is set.
        let owner = unsafe { self.owner() };
        // Not the calling task: see Invariant 3.
        task.locked(|| {
            self.dequeue(waiter);
            task.blocked_on.set(ptr::null());
        });
        let Some(owner) = owner.filter(|_| was_top) else { return };
        let next = owner.locked(|| {
            // SAFETY: both locks are held; `waiter` was this lock's top one, the new top one is in no `pi_waiters`.
            unsafe {
                owner.pi_remove(waiter);
                if self.has_waiters() {
                    owner.pi_insert(self.top());
                }
            }
            owner.recompute();
            owner.blocked_lock()
        });
        if next.is_null() {
            return;
        }
        S::get_task(owner);
        let walk = Walk { detect: Detect::Min, origin: self, next, waiter: ptr::null(), starter: task };
        // A cycle on the way was reported to the one who closed it; leaving a queue closes none.
        let _ = held.without(|| chain::adjust(owner, &walk));
    }

    /// What a lock call that cannot fail does about a deadlock: report it, and never return, so that the caller does not
    /// enter a section it does not own.
    #[cold]
    pub(crate) fn sleep_for_ever() -> ! {
        let me = S::current();
        S::deadlock(me);
        loop {
            me.set_state(TaskState::Uninterruptible);
            me.schedule(None);
        }
    }
}
