// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! One trait over all mutexes that are measured.

#![expect(unsafe_code, reason = "the C library's mutexes")]

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::PoisonError;

use fastpath_rtmutex::linux::{Builder, RtMutex};

/// A mutex with a counter inside.
pub(super) trait Lock: Sync {
    /// Does `work` on the counter under the lock.
    fn with<R>(&self, work: impl FnOnce(&mut u64) -> R) -> R;

    /// `n` times lock and unlock, nothing else, as the seeds' loop does.
    fn pairs(&self, n: u64) {
        for _ in 0..n {
            black_box(self).with(|_| ());
        }
    }
}

impl Lock for std::sync::Mutex<u64> {
    #[inline]
    fn with<R>(&self, work: impl FnOnce(&mut u64) -> R) -> R {
        work(&mut self.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Lock for parking_lot::Mutex<u64> {
    #[inline]
    fn with<R>(&self, work: impl FnOnce(&mut u64) -> R) -> R {
        work(&mut self.lock())
    }
}

impl Lock for priority_inheriting_lock::PriorityInheritingLock<u64> {
    #[inline]
    fn with<R>(&self, work: impl FnOnce(&mut u64) -> R) -> R {
        work(&mut self.lock())
    }
}

impl Lock for RtMutex<u64> {
    #[inline]
    fn with<R>(&self, work: impl FnOnce(&mut u64) -> R) -> R {
        match self.lock() {
            Ok(mut guard) => work(&mut guard),
            // Nobody dies or locks twice here.
            Err(error) => work(&mut error.into_inner()),
        }
    }
}

/// The mutex without spinning.
pub(super) fn strict() -> RtMutex<u64> {
    Builder::new().spin(false).build(0)
}

/// The C library's mutex.
pub(super) struct Pthread {
    mutex: Box<UnsafeCell<libc::pthread_mutex_t>>,
    count: UnsafeCell<u64>,
}

// SAFETY: the counter is reached under the mutex only.
unsafe impl Sync for Pthread {}

impl Pthread {
    /// A normal mutex.
    pub(super) fn normal() -> Self {
        Self::with_protocol(libc::PTHREAD_PRIO_NONE)
    }

    /// With priority inheritance.
    pub(super) fn inheriting() -> Self {
        Self::with_protocol(libc::PTHREAD_PRIO_INHERIT)
    }

    fn with_protocol(protocol: libc::c_int) -> Self {
        let mutex = Box::new(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
        // SAFETY: the attributes live during the calls; the mutex is ours, and stays where it is, in its box.
        unsafe {
            let mut attributes = std::mem::zeroed();
            libc::pthread_mutexattr_init(&raw mut attributes);
            libc::pthread_mutexattr_setprotocol(&raw mut attributes, protocol);
            libc::pthread_mutex_init(mutex.get(), &raw const attributes);
            libc::pthread_mutexattr_destroy(&raw mut attributes);
        }
        Self { mutex, count: UnsafeCell::new(0) }
    }
}

impl Lock for Pthread {
    #[inline]
    fn with<R>(&self, work: impl FnOnce(&mut u64) -> R) -> R {
        // SAFETY: an initialised mutex; between the two calls we own it, and with it the counter. If `work` unwinds
        // the mutex stays locked, which is sound.
        unsafe {
            libc::pthread_mutex_lock(self.mutex.get());
            let result = work(&mut *self.count.get());
            libc::pthread_mutex_unlock(self.mutex.get());
            result
        }
    }
}
