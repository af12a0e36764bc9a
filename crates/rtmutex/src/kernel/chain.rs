// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The chain walk: a change of one task's urgency travels along "waits for a lock, whose owner waits for a lock, ...".
//!
//! # Contract
//!
//! The walk starts without locks, with a task that is held ([`Scheduler::get_task`]) and whose urgency, or whose place in a
//! queue, may be out of date. Each turn handles one task and the lock it waits for:
//!
//! ```text
//!  1  lock the task
//!  2  what is it blocked on?
//!  3  stop if: nothing; the lock this is all about has no owner any more; it is another lock than was seen before;
//!     the task's top waiter is not the one that brought us here; nothing would change
//!  4  from the waiter to its lock
//!  5  try that lock; the usual order is lock before task, so never wait for it: on failure unlock the task, start anew
//!  6  deadlock if this is the lock we started from, or its owner is the task that started, and that one joins a queue
//!  7  take the waiter out, give it the task's urgency, put it back
//!  8  unlock the task
//!  9  no owner? wake the queue's top waiter if that is another one now, and stop
//! 10  lock the owner
//! 11  adjust what the owner inherits from this lock, and the owner's urgency
//! 12  note which lock the owner is blocked on, and this lock's top waiter, to recognise the chain in step 3
//! 13  unlock both; stop if the owner is not blocked or need not be looked at; go on with the owner
//! ```
//!
//! # Invariants
//!
//! 1. At most two raw locks are held: one task's and one lock's. Between turns none is, so anything may change there:
//!    step 3 compares what it finds with what the last turn saw. Pointers kept between turns are compared, never followed.
//! 2. A turn leaves the lock's tree, the owner's tree and the owner's urgency consistent with each other.
//! 3. It ends after at most `max_depth` turns, whatever the locks do meanwhile. Retries of step 5 are not turns: each
//!    means that someone else holds that lock for a bounded time.
//! 4. It stops early only where nothing behind that point can change, unless it looks for deadlocks, when it goes on
//!    without requeueing.

use core::ptr;

use super::lock::LockBase;
use super::sched::{Detect, Point, RawSpin, Scheduler};
use super::task::Task;
use super::waiter::Waiter;

/// A cycle, or a chain over the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cycle;

/// Why a walk is made.
pub(crate) struct Walk<S: Scheduler> {
    pub(crate) detect: Detect,
    /// The lock whose queue changed; null for a change of urgency from outside.
    pub(crate) origin: *const LockBase<S>,
    /// The lock the first task was seen blocked on.
    pub(crate) next: *const LockBase<S>,
    /// The waiter that was put into `origin`'s queue; null if one was taken out.
    pub(crate) waiter: *const Waiter<S>,
    /// The task on whose behalf: closing the chain at it is a deadlock.
    pub(crate) starter: *const Task<S>,
}

/// The walk after a change of `task`'s own urgency, seen blocked on `next`. Consumes one hold on the task.
pub(crate) fn adjust_after_change<S: Scheduler>(task: &'static Task<S>, next: *const LockBase<S>) {
    let walk = Walk { detect: Detect::Min, origin: ptr::null(), next, waiter: ptr::null(), starter: task };
    // A cycle that is met on the way was reported to the one who closed it.
    let _ = adjust(task, &walk);
}

/// The walk. Consumes one hold on `task`.
///
/// # Errors
///
/// [`Cycle`] in step 6, or if the chain is longer than the scheduler's limit.
#[doc(alias = "rt_mutex_adjust_prio_chain")]
pub(crate) fn adjust<S: Scheduler>(mut task: &'static Task<S>, walk: &Walk<S>) -> Result<(), Cycle> {
    let mut detect = walk.detect == Detect::Full || (S::DETECT_ALWAYS && !walk.waiter.is_null());
    let mut requeue = true;
    let mut next = walk.next;
    // The top waiter of the lock of the turn before: the one through which `task` inherits.
    let mut through: *const Waiter<S> = ptr::null();
    let mut depth = 0;
    loop {
        depth += 1;
        let limit = S::max_depth();
        if depth > limit {
            S::depth_exceeded(task, limit);
            S::put_task(task);
            return Err(Cycle);
        }
        let (irq, lock, waiter) = loop {
            let irq = S::irq_save();
            // Step 1.
            task.pi_lock.lock();
            S::at(Point::Walk(1));
            // Step 2.
            let waiter = task.blocked_on.get();
            // SAFETY: a waiter that `blocked_on` names is alive while the task's lock is held.
            if !waiter.is_null() && unsafe { !(*waiter).context.get().is_null() } {
                // Wound/wait resolves its cycles itself.
                detect = false;
            }
            // SAFETY: the task's lock is held (P3, P4).
            let end = match unsafe { step_three(task, walk, next, through, waiter) } {
                Step::End => true,
                Step::SameTop => false,
                // Nothing would change from here on: end, or only look.
                Step::NothingToChange => {
                    requeue = false;
                    !detect
                }
            };
            if end {
                // SAFETY: taken in step 1.
                unsafe { task.pi_lock.unlock() };
                S::irq_restore(irq);
                S::put_task(task);
                return Ok(());
            }
            // SAFETY: `blocked_on` names a live waiter while the task's lock is held, and a queued one's lock is alive:
            // whoever waits uses it.
            let (waiter, lock) = unsafe { (&*waiter, &*(*waiter).lock.get()) };
            // Step 5.
            if lock.try_enter_raw() {
                break (irq, lock, waiter);
            }
            // SAFETY: taken in step 1.
            unsafe { task.pi_lock.unlock() };
            S::irq_restore(irq);
            S::at(Point::WalkRetry);
            S::relax();
        };
        S::at(Point::Walk(5));
        // From here on the waiter cannot leave its queue, and the task's lock may be given back.
        let unlock_task = |task: &'static Task<S>| {
            // SAFETY: taken in step 1, or in step 10.
            unsafe { task.pi_lock.unlock() };
        };
        let unlock_lock = |lock: &LockBase<S>| {
            // SAFETY: taken in step 5.
            unsafe { lock.leave_raw() };
        };
        // Step 6. Only who joins a queue can close a ring. Who leaves one, or is changed while it waits, may find itself in a
        // ring that was not noticed; what it takes back has to travel around it like anywhere else. That ends where nothing
        // changes any more: after one round at the latest, every urgency in the ring is what the others make it.
        let joins = !walk.waiter.is_null();
        if joins && (ptr::eq(lock, walk.origin) || ptr::eq(lock.owner_ptr(), walk.starter)) {
            unlock_lock(lock);
            unlock_task(task);
            S::irq_restore(irq);
            S::put_task(task);
            // SAFETY: the waiter of the one who started this walk, which is us or waits for us.
            let wounding = unsafe { !(*walk.waiter).context.get().is_null() };
            return if wounding { Ok(()) } else { Err(Cycle) };
        }
        let former_top = lock.top();
        if requeue {
            // Step 7.
            let key = task.key();
            lock.dequeue(waiter);
            lock.enqueue(waiter, key);
            S::at(Point::Walk(7));
        }
        // Step 8.
        unlock_task(task);
        S::put_task(task);
        // Step 9.
        // SAFETY: `wait_lock` is held and a waiter is queued, so bit 0 is set.
        let Some(owner) = (unsafe { lock.owner() }) else {
            let top = lock.top();
            if requeue && top != former_top {
                // The new top waiter, which need not be the one that was moved: if the former top sank, it is another.
                // SAFETY: queued, so alive, under `wait_lock`.
                let (sleeper, wake) = unsafe { ((*top).task.get(), (*top).wake.get()) };
                if let Some(sleeper) = sleeper {
                    sleeper.wake(wake);
                }
            }
            S::at(Point::Walk(9));
            unlock_lock(lock);
            S::irq_restore(irq);
            return Ok(());
        };
        // Step 10.
        task = owner;
        S::get_task(task);
        task.pi_lock.lock();
        // Step 11.
        let top = lock.top();
        if requeue && (ptr::eq(waiter, top) || ptr::eq(waiter, former_top)) {
            // SAFETY: both are queued on this lock, whose owner `task` is; both locks are held.
            unsafe {
                task.pi_remove(former_top);
                task.pi_insert(top);
            }
            task.recompute();
            S::at(Point::Walk(11));
        }
        // Step 12.
        next = task.blocked_lock();
        through = top;
        let concerns_owner = ptr::eq(waiter, top) || ptr::eq(waiter, former_top);
        // Step 13.
        unlock_task(task);
        unlock_lock(lock);
        S::irq_restore(irq);
        S::at(Point::Walk(13));
        if next.is_null() || (!detect && !concerns_owner) {
            S::put_task(task);
            return Ok(());
        }
    }
}

/// What step 3 says.
enum Step {
    /// The chain is not what it was, or ends here.
    End,
    /// Go on and requeue.
    SameTop,
    /// Nothing changes from here on; go on only to look for deadlocks.
    NothingToChange,
}

/// # Safety
/// `task`'s lock is held and `waiter` is its `blocked_on`.
unsafe fn step_three<S: Scheduler>(
    task: &'static Task<S>,
    walk: &Walk<S>,
    next: *const LockBase<S>,
    through: *const Waiter<S>,
    waiter: *const Waiter<S>,
) -> Step {
    if waiter.is_null() {
        return Step::End;
    }
    // SAFETY: the lock this is about is in use by the one who started the walk, as long as the walk lasts.
    if !walk.waiter.is_null() && unsafe { (*walk.origin).owner_ptr().is_null() } {
        return Step::End;
    }
    if !ptr::eq(next, task.blocked_lock()) {
        return Step::End;
    }
    if !through.is_null() {
        let inherits = task.pi_waiters.first();
        if inherits.is_null() {
            return Step::End;
        }
        if inherits != through {
            return Step::NothingToChange;
        }
    }
    // SAFETY: `blocked_on` is alive under the task's lock, and queued: its rank changes under this lock too.
    if unsafe { (*waiter).node.rank().key } == task.key() {
        return Step::NothingToChange;
    }
    Step::SameTop
}
