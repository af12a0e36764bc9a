// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The mutex: raw, and around a value.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use super::block::{How, LockError};
use super::key::Key;
use super::lock::{Flavour, LockBase};
use super::sched::{Detect, Scheduler};
use super::sleep::TaskState;
use super::task::Task;
use crate::sync::const_unless_loom;

/// How a task waits for a lock.
///
/// ```
/// use fastpath_rtmutex::kernel::Wait;
/// let wait = Wait::interruptible().until(1_000).detecting();
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Wait {
    state: TaskState,
    deadline: Option<u64>,
    detect: Detect,
}

impl Wait {
    /// No signal ends the wait.
    pub const fn uninterruptible() -> Self {
        Self { state: TaskState::Uninterruptible, deadline: None, detect: Detect::Min }
    }

    /// A fatal signal ends the wait.
    pub const fn killable() -> Self {
        Self { state: TaskState::Killable, ..Self::uninterruptible() }
    }

    /// Any signal ends the wait.
    pub const fn interruptible() -> Self {
        Self { state: TaskState::Interruptible, ..Self::uninterruptible() }
    }

    /// The wait ends when [`Scheduler::now`] reaches `deadline`. The lock is tried once even if that is past.
    pub const fn until(self, deadline: u64) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    /// Looks for deadlocks along the whole chain, not only where priorities change.
    pub const fn detecting(self) -> Self {
        Self { detect: Detect::Full, ..self }
    }

    pub(crate) fn how<S: Scheduler>(self) -> How<'static, S> {
        How {
            state: self.state,
            deadline: self.deadline,
            detect: self.detect,
            flavour: Flavour::Mutex,
            ww: None,
        }
    }
}

/// A priority-inheriting mutex without a value.
///
/// One acquire `cmpxchg` locks it when it is free, one release `cmpxchg` unlocks it when nobody waits. Waiters are served
/// by urgency, equal ones in order of arrival. The owner runs at the urgency of the most urgent task that waits for it,
/// directly or through other locks. A strictly more urgent task may take a lock that was just handed to a waiter.
///
/// Recursion is an error: see [`lock`](Self::lock).
#[doc(alias = "rt_mutex")]
pub struct RawMutex<S: Scheduler> {
    base: LockBase<S>,
}

impl<S: Scheduler> RawMutex<S> {
    const_unless_loom! {
        /// A free lock.
        pub fn new() -> Self {
            Self { base: LockBase::new() }
        }
    }

    pub(crate) fn base(&self) -> &LockBase<S> {
        &self.base
    }

    /// Takes the lock, waiting as long as it takes.
    ///
    /// A deadlock that is met on the way (the calling task owns the lock already, or waits in a circle) is reported to
    /// [`Scheduler::deadlock`] and the task sleeps for ever: it must not enter a section it does not own. Use
    /// [`lock_with`](Self::lock_with) to get it as an error.
    ///
    /// Ordering: acquires what was released by [`unlock`](Self::unlock).
    #[doc(alias = "rt_mutex_lock")]
    #[inline]
    pub fn lock(&self) {
        if !self.base.fast_lock(S::current()) {
            self.lock_contended();
        }
    }

    #[cold]
    fn lock_contended(&self) {
        if self.base.slow_lock(&How::endless(Flavour::Mutex)).is_err() {
            LockBase::<S>::sleep_for_ever();
        }
    }

    /// Takes the lock, waiting as `wait` says.
    ///
    /// Taking beats the deadline, and the deadline beats a signal, if they come together.
    ///
    /// # Errors
    ///
    /// The task does not own the lock and waits for nothing. [`LockError::Deadlock`]: it owned the lock before, waiting
    /// would close a circle, or the chain is too long. [`LockError::TimedOut`], [`LockError::Interrupted`]: as asked.
    #[doc(alias = "rt_mutex_lock_interruptible")]
    #[doc(alias = "rt_mutex_lock_killable")]
    #[inline]
    pub fn lock_with(&self, wait: Wait) -> Result<(), LockError> {
        if self.base.fast_lock(S::current()) { Ok(()) } else { self.base.slow_lock(&wait.how()) }
    }

    /// Takes the lock if it is free, or was handed to a less urgent task that has not come to take it yet.
    #[doc(alias = "rt_mutex_trylock")]
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.base.fast_lock(S::current()) || self.base.slow_try_lock(Flavour::Mutex)
    }

    /// Gives the lock back.
    ///
    /// Ordering: releases to the next owner. The lock's memory is not touched once another task can have it.
    ///
    /// # Safety
    ///
    /// The calling task owns the lock.
    #[doc(alias = "rt_mutex_unlock")]
    #[inline]
    pub unsafe fn unlock(&self) {
        if !self.base.fast_unlock(S::current()) {
            // SAFETY: the caller owns it.
            unsafe { self.base.slow_unlock() };
        }
    }

    /// Does somebody own the lock? A snapshot.
    #[doc(alias = "rt_mutex_base_is_locked")]
    pub fn is_locked(&self) -> bool {
        !self.base.owner_ptr().is_null()
    }

    /// The address of the owner (null if none) and the waiters bit, as they are at this moment.
    pub fn word(&self) -> (*const Task<S>, bool) {
        self.base.word()
    }

    /// The urgency of the most urgent waiter, if any.
    pub fn top_waiter(&self) -> Option<Key> {
        let held = self.base.enter();
        let top = self.base.top();
        // SAFETY: queued, so alive, while the raw lock is held.
        let key = if top.is_null() { None } else { Some(unsafe { (*top).node.rank().key }) };
        held.release();
        key
    }
}

impl<S: Scheduler> Default for RawMutex<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Scheduler> fmt::Debug for RawMutex<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawMutex").field("base", &self.base).finish()
    }
}

/// A priority-inheriting mutex around a value. See [`RawMutex`].
pub struct Mutex<S: Scheduler, T: ?Sized> {
    raw: RawMutex<S>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by the owner of the lock only, one task at a time.
unsafe impl<S: Scheduler, T: ?Sized + Send> Sync for Mutex<S, T> {}
// SAFETY: an unlocked mutex is its value.
unsafe impl<S: Scheduler, T: ?Sized + Send> Send for Mutex<S, T> {}

impl<S: Scheduler, T> Mutex<S, T> {
    const_unless_loom! {
        /// A free lock around `value`.
        pub fn new(value: T) -> Self {
            Self { raw: RawMutex::new(), value: UnsafeCell::new(value) }
        }
    }
}

impl<S: Scheduler, T: ?Sized> Mutex<S, T> {
    /// The lock without its value.
    pub fn raw(&self) -> &RawMutex<S> {
        &self.raw
    }

    /// Waits for the lock; see [`RawMutex::lock`], also about deadlocks.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, S, T> {
        self.raw.lock();
        self.guard()
    }

    /// Waits for the lock as `wait` says.
    ///
    /// # Errors
    ///
    /// See [`RawMutex::lock_with`].
    #[inline]
    pub fn lock_with(&self, wait: Wait) -> Result<MutexGuard<'_, S, T>, LockError> {
        self.raw.lock_with(wait).map(|()| self.guard())
    }

    /// The lock, if it can be had at once.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, S, T>> {
        self.raw.try_lock().then(|| self.guard())
    }

    /// The value, by exclusive access.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    fn guard(&self) -> MutexGuard<'_, S, T> {
        MutexGuard { mutex: self, not_send: PhantomData }
    }
}

impl<S: Scheduler, T: ?Sized> fmt::Debug for Mutex<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").field("raw", &self.raw).finish_non_exhaustive()
    }
}

/// The right to a [`Mutex`]'s value. Stays with the task that locked: it is not `Send`.
#[must_use = "dropping it at once unlocks at once"]
pub struct MutexGuard<'a, S: Scheduler, T: ?Sized> {
    mutex: &'a Mutex<S, T>,
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives a shared reference to the value, nothing else.
unsafe impl<S: Scheduler, T: ?Sized + Sync> Sync for MutexGuard<'_, S, T> {}

impl<S: Scheduler, T: ?Sized> Deref for MutexGuard<'_, S, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so this task owns the lock.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<S: Scheduler, T: ?Sized> DerefMut for MutexGuard<'_, S, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; the guard is borrowed exclusively.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<S: Scheduler, T: ?Sized> Drop for MutexGuard<'_, S, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard exists, so this task owns the lock.
        unsafe { self.mutex.raw.unlock() };
    }
}

impl<S: Scheduler, T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}
