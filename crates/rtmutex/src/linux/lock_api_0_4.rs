// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The traits of `lock_api` 0.4 for the lock without data, and the types they make.

#![expect(unsafe_code, reason = "implements unsafe traits")]

use std::time::{Duration, Instant};

use lock_api_0_4::{GuardNoSend, RawMutex, RawMutexFair, RawMutexTimed};

use super::raw::RawRtMutex;
use super::tid;

/// `lock_api` 0.4's mutex on this lock.
///
/// `lock_api` has no words for errors. A lock whose owner died is simply locked; what can never be locked (a deadlock,
/// a foreign owner) stops the calling thread for ever, after one line on standard error, as the kernel's own mutex
/// does. Use [`RtMutex`](super::RtMutex) to get errors.
///
/// ```
/// use fastpath_rtmutex::linux::lock_api_0_4::Mutex;
/// static LOCK: Mutex<u32> = Mutex::new(1);
/// *LOCK.lock() += 1;
/// assert_eq!(*LOCK.lock(), 2);
/// ```
pub type Mutex<T> = lock_api_0_4::Mutex<RawRtMutex, T>;

/// The guard of [`Mutex`].
pub type MutexGuard<'a, T> = lock_api_0_4::MutexGuard<'a, RawRtMutex, T>;

// SAFETY: the word names one owner at a time; it is acquired with Acquire and released with Release (`raw.rs`).
unsafe impl RawMutex for RawRtMutex {
    const INIT: Self = Self::new();

    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock(&self) {
        if let Err(refusal) = Self::lock(self) {
            self.stop(refusal);
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        Self::try_lock(self).is_ok()
    }

    #[inline]
    unsafe fn unlock(&self) {
        // The owner is the caller, under the id it has now, unless it forked since: then under the one in the word.
        // A release that the kernel refuses leaves nothing to undo.
        let _ = Self::unlock(self, self.id_of_owner(tid::current()));
    }

    fn is_locked(&self) -> bool {
        Self::is_locked(self)
    }
}

// SAFETY: as for `RawMutex`; with waiters every release is a hand-over by the kernel to the first in order.
unsafe impl RawMutexFair for RawRtMutex {
    unsafe fn unlock_fair(&self) {
        // SAFETY: the caller's promise is the same.
        unsafe { RawMutex::unlock(self) };
    }
}

// SAFETY: as for `RawMutex`; a time-out is reported only after the deadline and without the lock.
unsafe impl RawMutexTimed for RawRtMutex {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_for(&self, timeout: Duration) -> bool {
        if let Some(deadline) = Instant::now().checked_add(timeout) {
            return self.try_lock_until(deadline);
        }
        RawMutex::lock(self);
        true
    }

    fn try_lock_until(&self, timeout: Instant) -> bool {
        self.lock_or_wait_out(timeout).is_some()
    }
}
