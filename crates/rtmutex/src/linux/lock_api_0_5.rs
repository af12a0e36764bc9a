// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The traits of `lock_api` 0.5 for the lock without data, and the types they make.

#![expect(unsafe_code, reason = "implements unsafe traits")]

use core::marker::PhantomData;
use std::time::{Duration, Instant};

use lock_api_0_5::{RawCondvar, RawCondvarTimed, RawMutex, RawMutexFair, RawMutexTimed};

use super::backend::Deadline;
use super::condvar::{RtCondvar, Woken};
use super::protocol::Port as _;
use super::raw::RawRtMutex;

/// `lock_api` 0.5's mutex on this lock. See [`lock_api_0_4::Mutex`](super::lock_api_0_4::Mutex) for what it cannot say.
///
/// ```
/// use fastpath_rtmutex::linux::lock_api_0_5::Mutex;
/// static LOCK: Mutex<u32> = Mutex::new(1);
/// *LOCK.lock() += 1;
/// assert_eq!(*LOCK.lock(), 2);
/// ```
pub type Mutex<T> = lock_api_0_5::Mutex<RawRtMutex, T>;

/// `lock_api` 0.5's condition variable on [`RtCondvar`].
///
/// ```
/// use fastpath_rtmutex::linux::lock_api_0_5::{Condvar, Mutex};
/// use std::time::Duration;
/// let (lock, condvar) = (Mutex::new(false), Condvar::new());
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         *lock.lock() = true;
///         condvar.notify_one();
///     });
///     let mut ready = lock.lock();
///     while !*ready {
///         condvar.wait(&mut ready);
///     }
///     assert!(condvar.wait_for(&mut ready, Duration::from_millis(1)).timed_out());
/// });
/// ```
pub type Condvar = lock_api_0_5::Condvar<RtCondvar>;

/// The guard of [`Mutex`].
pub type MutexGuard<'a, T> = lock_api_0_5::MutexGuard<'a, RawRtMutex, T>;

/// Ownership as `lock_api` carries it: the thread id the lock was taken under, bound to its thread.
#[derive(Debug)]
pub struct Token {
    me: u32,
    not_send: PhantomData<*mut ()>,
}

impl Token {
    const fn new(me: u32) -> Self {
        Self { me, not_send: PhantomData }
    }
}

// SAFETY: the word names one owner at a time; it is acquired with Acquire and released with Release (`raw.rs`). A
// token is plain data: forgetting it leaves the lock held, and a held lock may be moved or dropped.
unsafe impl RawMutex for RawRtMutex {
    const INIT: Self = Self::new();

    type Guard = Token;

    #[inline]
    fn lock(&self) -> Token {
        match Self::lock(self) {
            Ok(me) => Token::new(me),
            Err(refusal) => self.stop(refusal),
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<Token> {
        Self::try_lock(self).ok().map(Token::new)
    }

    #[inline]
    unsafe fn unlock(&self, guard: Token) {
        // A release that the kernel refuses leaves nothing to undo.
        let _ = Self::unlock(self, guard.me);
    }

    fn is_locked(&self) -> bool {
        Self::is_locked(self)
    }
}

// SAFETY: as for `RawMutex`; the kernel hands the lock to the first waiter in order.
unsafe impl RawMutexFair for RawRtMutex {
    unsafe fn unlock_fair(&self, guard: Token) {
        // With waiters every release is a hand-over by the kernel.
        let _ = Self::unlock(self, guard.me);
    }
}

// SAFETY: as for `RawMutex`; a time-out is reported only after the deadline and without the lock.
unsafe impl RawMutexTimed for RawRtMutex {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_for(&self, timeout: Duration) -> Option<Token> {
        match Instant::now().checked_add(timeout) {
            Some(deadline) => self.try_lock_until(deadline),
            None => Some(RawMutex::lock(self)),
        }
    }

    fn try_lock_until(&self, timeout: Instant) -> Option<Token> {
        self.lock_or_wait_out(timeout).map(Token::new)
    }
}

// SAFETY: `wait_raw` releases the mutex, and returns only with it locked again or with an error; then we stop.
unsafe impl RawCondvar for RtCondvar {
    const INIT: Self = Self::new();

    type RawMutex = RawRtMutex;

    unsafe fn wait(&self, mutex: &RawRtMutex, guard: &mut Token) {
        self.wait_with_token(mutex, guard, None);
    }

    fn notify_one(&self) -> bool {
        // There are wake-ups for no reason, so the trait wants no number.
        Self::notify_one(self);
        false
    }

    fn notify_all(&self) -> usize {
        Self::notify_all(self);
        0
    }
}

// SAFETY: as for `RawCondvar`; a time-out is reported only after the deadline.
unsafe impl RawCondvarTimed for RtCondvar {
    fn checked_duration_to_instant(timeout: &Duration) -> Option<Instant> {
        Instant::now().checked_add(*timeout)
    }

    unsafe fn wait_until(&self, mutex: &RawRtMutex, guard: &mut Token, timeout: &Instant) -> bool {
        self.wait_with_token(mutex, guard, Some(Deadline::Monotonic(*timeout)))
    }

    unsafe fn wait_for(&self, mutex: &RawRtMutex, guard: &mut Token, timeout: &Duration) -> bool {
        self.wait_with_token(mutex, guard, Instant::now().checked_add(*timeout).map(Deadline::Monotonic))
    }
}

impl RtCondvar {
    /// Waits under the id in `guard` and leaves the new one there. True if the deadline passed.
    fn wait_with_token(&self, mutex: &RawRtMutex, guard: &mut Token, deadline: Option<Deadline>) -> bool {
        match self.wait_raw(mutex, guard.me, deadline) {
            Woken::Notified(me) => {
                guard.me = me;
                false
            }
            Woken::TimedOut(me) => {
                guard.me = me;
                true
            }
            // The mutex is still held: a wake-up for no reason. Others get a chance before the caller tries again.
            Woken::OtherMutex => {
                mutex.give_way(0);
                false
            }
            Woken::Lost(refusal) => mutex.stop(refusal),
        }
    }
}
