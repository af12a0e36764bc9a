// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Proxy locking: a mutex is taken, or waited for, on behalf of another task.
//!
//! What a PI futex and a requeue need: the lock is created as already owned by somebody who took it without us, and a task
//! that sleeps somewhere else is put into the lock's queue by the one who moves it there.
//!
//! The order of calls for a waiter: `start` by anybody; if that says [`Started::Queued`], `wait` by the waiting task itself;
//! if that fails, `cleanup` by the same task, whose word is the last.

use core::ptr;

use super::block::LockError;
use super::lock::Flavour;
use super::mutex::{RawMutex, Wait};
use super::sched::{Detect, Scheduler};
use super::sleep::{TaskState, Wake};
use super::task::Task;
use super::waiter::Waiter;

/// What [`Proxy::start`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Started {
    /// The task owns the lock now. The waiter is not used.
    Acquired,
    /// The task is queued: it has to [`wait`](Proxy::wait).
    Queued,
}

/// What [`Proxy::cleanup`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cleanup {
    /// The task is out of the queue and does not own the lock.
    Removed,
    /// The lock came in the meantime: the task owns it, and the error that led here is void.
    Acquired,
}

/// A [`RawMutex`] as its proxies see it.
#[derive(Debug)]
pub struct Proxy<'a, S: Scheduler>(pub(crate) &'a RawMutex<S>);

impl<S: Scheduler> RawMutex<S> {
    /// Proxy locking of this mutex.
    pub fn proxy(&self) -> Proxy<'_, S> {
        Proxy(self)
    }
}

impl<S: Scheduler> Proxy<'_, S> {
    /// Makes `owner` the owner of a new lock.
    ///
    /// # Safety
    ///
    /// Nobody else knows the lock yet. `owner` will unlock it, or [`clear_owner`](Self::clear_owner) be called.
    #[doc(alias = "rt_mutex_init_proxy_locked")]
    pub unsafe fn init_locked(&self, owner: &'static Task<S>) {
        self.0.base().init_owner(owner);
    }

    /// Makes a lock free that [`init_locked`](Self::init_locked) or [`start`](Self::start) gave to a task.
    ///
    /// # Safety
    ///
    /// Nobody waits for the lock, and nobody else is using it.
    #[doc(alias = "rt_mutex_proxy_unlock")]
    pub unsafe fn clear_owner(&self) {
        self.0.base().init_owner(ptr::null());
    }

    /// Takes the lock for `task`, or queues it. Looks for deadlocks along the whole chain.
    ///
    /// # Errors
    ///
    /// [`LockError::Deadlock`]: the task is not queued. If the lock lost its owner while the chain was being looked at, that
    /// is not an error: the task is queued and will find out.
    ///
    /// # Safety
    ///
    /// `task` waits for no lock, and until this returns does nothing to change that; it is about to call
    /// [`wait`](Self::wait), and sleeps in a way that an ordinary wake-up ends. `waiter` is queued nowhere, and stays where
    /// it is until `wait` or `cleanup` says that it is queued no more.
    #[doc(alias = "rt_mutex_start_proxy_lock")]
    pub unsafe fn start(&self, waiter: &Waiter<S>, task: &'static Task<S>) -> Result<Started, LockError> {
        // SAFETY: the caller's.
        unsafe { self.start_unless_owned(waiter, task) }.unwrap_or(Err(LockError::Deadlock))
    }

    /// The same; `None` if the task owns the lock already.
    ///
    /// # Safety
    ///
    /// As for [`start`](Self::start).
    pub(crate) unsafe fn start_unless_owned(
        &self,
        waiter: &Waiter<S>,
        task: &'static Task<S>,
    ) -> Option<Result<Started, LockError>> {
        let base = self.0.base();
        let mut held = base.enter();
        waiter.wake.set(Wake::Normal);
        waiter.context.set(ptr::null());
        let result = if base.try_to_take(task, None, Flavour::Mutex) {
            Some(Ok(Started::Acquired))
        } else {
            match base.queue(&mut held, waiter, task, None, Detect::Full) {
                // Not queued.
                Err(_) if ptr::eq(base.owner_ptr(), task) => None,
                Err(error) if !base.owner_ptr().is_null() => {
                    base.remove_waiter(&mut held, waiter);
                    Some(Err(error))
                }
                _ => Some(Ok(Started::Queued)),
            }
        };
        base.fixup();
        held.release();
        result
    }

    /// Waits for the lock that [`start`](Self::start) queued the calling task for.
    ///
    /// # Errors
    ///
    /// As for [`RawMutex::lock_with`]. The task is still queued: call [`cleanup`](Self::cleanup).
    ///
    /// # Safety
    ///
    /// `waiter` was queued for the calling task by `start`, and neither `wait` nor `cleanup` has ended that.
    #[doc(alias = "rt_mutex_wait_proxy_lock")]
    pub unsafe fn wait(&self, waiter: &Waiter<S>, wait: Wait) -> Result<(), LockError> {
        let base = self.0.base();
        let how = wait.how();
        let me = S::current();
        let mut held = base.enter();
        me.set_state(how.state);
        let result = base.wait(&mut held, waiter, &how);
        me.set_state(TaskState::Running);
        base.fixup();
        held.release();
        result
    }

    /// Ends a wait that failed: unless the lock can be had after all.
    ///
    /// # Safety
    ///
    /// As for [`wait`](Self::wait); or `waiter` was never queued, which is no harm.
    #[doc(alias = "rt_mutex_cleanup_proxy_lock")]
    #[must_use = "the lock may have been acquired"]
    pub unsafe fn cleanup(&self, waiter: &Waiter<S>) -> Cleanup {
        let base = self.0.base();
        let me = S::current();
        let mut held = base.enter();
        let queued = ptr::eq(waiter.lock.get(), base);
        let result = if queued && base.try_to_take(me, Some(waiter), Flavour::Mutex) {
            Cleanup::Acquired
        } else {
            base.remove_waiter(&mut held, waiter);
            Cleanup::Removed
        };
        base.fixup();
        held.release();
        result
    }

    /// The task that a hand-over now would go to.
    #[doc(alias = "rt_mutex_next_owner")]
    pub fn next_owner(&self) -> Option<&'static Task<S>> {
        let base = self.0.base();
        let held = base.enter();
        let top = base.top();
        // SAFETY: queued, so alive, while the raw lock is held.
        let task = if top.is_null() { None } else { unsafe { (*top).task.get() } };
        held.release();
        task
    }
}
