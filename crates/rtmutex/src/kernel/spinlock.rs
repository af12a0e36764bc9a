// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The sleeping spinlock of real-time kernels: a mutex that may be taken in the middle of another wait.

use core::fmt;

use super::block::How;
use super::lock::{Flavour, LockBase};
use super::sched::Scheduler;
use super::task::Task;
use crate::sync::const_unless_loom;

/// What `spinlock_t` is on a real-time kernel: it sleeps instead of spinning, and inherits priorities.
///
/// It differs from [`RawMutex`](super::RawMutex) in two ways. The task's sleep state survives it: a task that has set its
/// state for another wait may take it, and a wake-up for that wait that comes meanwhile is not lost. And among tasks that
/// are neither real-time nor deadline an equally urgent one may take a lock that was just handed to another, which costs
/// fairness and saves switches.
///
/// No signal or deadline ends the wait.
#[doc(alias = "rtlock")]
#[doc(alias = "spinlock_t")]
pub struct SpinLock<S: Scheduler> {
    base: LockBase<S>,
}

impl<S: Scheduler> SpinLock<S> {
    const_unless_loom! {
        /// A free lock.
        pub fn new() -> Self {
            Self { base: LockBase::new() }
        }
    }

    pub(crate) fn base(&self) -> &LockBase<S> {
        &self.base
    }

    /// Takes the lock. A deadlock is reported, and the task sleeps for ever, as in [`RawMutex::lock`](super::RawMutex::lock).
    #[doc(alias = "rt_spin_lock")]
    #[inline]
    pub fn lock(&self) {
        if !self.base.fast_lock(S::current()) {
            self.lock_contended();
        }
    }

    #[cold]
    #[doc(alias = "rtlock_slowlock")]
    fn lock_contended(&self) {
        if self.base.slow_lock(&How::endless(Flavour::Spin)).is_err() {
            LockBase::<S>::sleep_for_ever();
        }
    }

    /// Takes the lock if it is free, or was handed to a task that may be passed over.
    #[doc(alias = "rt_spin_trylock")]
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.base.fast_lock(S::current()) || self.base.slow_try_lock(Flavour::Spin)
    }

    /// Gives the lock back.
    ///
    /// # Safety
    ///
    /// The calling task owns the lock.
    #[doc(alias = "rt_spin_unlock")]
    #[inline]
    pub unsafe fn unlock(&self) {
        if !self.base.fast_unlock(S::current()) {
            // SAFETY: the caller owns it.
            unsafe { self.base.slow_unlock() };
        }
    }

    /// The address of the owner (null if none) and the waiters bit, as they are at this moment.
    pub fn word(&self) -> (*const Task<S>, bool) {
        self.base.word()
    }
}

impl<S: Scheduler> Default for SpinLock<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Scheduler> fmt::Debug for SpinLock<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpinLock").field("base", &self.base).finish()
    }
}
