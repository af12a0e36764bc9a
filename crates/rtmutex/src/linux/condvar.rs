// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! [`RtCondvar`]: a condition variable whose waiters are moved to the mutex inside the kernel.
//!
//! A waiter sleeps on the sequence number with the mutex's address in the kernel's hand. A notification does not wake
//! it to fight for the mutex: the kernel gives it the mutex if it is free, and else queues it there by priority,
//! boosting the owner. `wait` therefore returns owning the mutex, in order of priority, with one wake-up.
//!
//! # The words
//!
//! `sequence` grows by one with each notification; a waiter reads it before it releases the mutex, and the kernel
//! refuses to put it to sleep if it has changed since. `waiting` packs the address of the waiters' mutex and how many
//! they are, so that both change in one step: the address may change only while nobody waits.
//!
//! # Ordering
//!
//! Nothing is published through these two words. A notifier that has held the mutex after a waiter released it sees the
//! waiter's `waiting` and increments a newer `sequence`, since both were accessed under the mutex; a notifier that
//! never holds the mutex can miss a waiter that is about to sleep, as with every condition variable.
//!
//! # Invariants
//!
//! 1. A thread sleeps on `sequence` only while it is counted in `waiting`, with its mutex's address there.
//! 2. Whoever is counted borrows the mutex. A notifier may hold an address that is out of date: it never follows it,
//!    the kernel compares it with what the waiters gave.
//! 3. `wait` returns a guard only when the kernel granted the mutex or the thread has locked it again: each errno but
//!    success leaves the thread without it.

use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use super::backend::{self, Deadline};
use super::error::{LockError, LockResult};
use super::guard::RtMutexGuard;
use super::protocol::{self, Port as _, RETRIES, Refusal};
use super::raw::RawRtMutex;
use super::tid;

/// How many waiters `waiting` can count, as a mask. The address needs no more bits: words are four bytes apart, and a
/// program's addresses end at 2^48 (unless it asks the kernel for more).
const COUNT: u64 = (1 << 18) - 1;

/// Whether a wait with a deadline ended because of it.
///
/// ```
/// use fastpath_rtmutex::linux::{RtCondvar, RtMutex};
/// use std::time::Duration;
/// let (lock, never) = (RtMutex::new(()), RtCondvar::new());
/// let (_guard, result) = never.wait_timeout(lock.lock().unwrap(), Duration::from_millis(1)).unwrap();
/// assert!(result.timed_out());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// True if the deadline passed.
    pub const fn timed_out(&self) -> bool {
        self.0
    }
}

/// Why a notification did not reach anybody although somebody waits.
///
/// `ESRCH`: the thread that owns the mutex ended, and nobody has locked it since; lock it (which reports the death) and
/// notify again. `ENOMEM`, `ENOSYS`: as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotifyError {
    errno: i32,
}

impl NotifyError {
    /// What the kernel said.
    pub const fn raw_os_error(self) -> i32 {
        self.errno
    }
}

impl fmt::Display for NotifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the waiters could not be moved to their mutex: {}",
            std::io::Error::from_raw_os_error(self.errno)
        )
    }
}

impl core::error::Error for NotifyError {}

/// A condition variable for [`RtMutex`](super::RtMutex) with priority inheritance. Waiters wake in order of priority,
/// each owning the mutex.
///
/// As with every condition variable, a wait may end without a notification, so wait in a loop or use
/// [`wait_while`](RtCondvar::wait_while).
///
/// # Limits
///
/// * All threads that wait at the same time must use the same mutex ([`LockError::OtherMutex`]); at most 262,143 can.
/// * If the mutex's owner ended and nobody noticed, a notification cannot move anybody: see [`NotifyError`].
///
/// ```
/// use fastpath_rtmutex::linux::{RtCondvar, RtMutex};
///
/// static READY: RtMutex<bool> = RtMutex::new(false);
/// static CHANGED: RtCondvar = RtCondvar::new();
///
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         *READY.lock().unwrap() = true;
///         CHANGED.notify_one();
///     });
///     let ready = CHANGED.wait_while(READY.lock().unwrap(), |ready| !*ready).unwrap();
///     assert!(*ready);
/// });
/// ```
#[derive(Default)]
#[doc(alias = "pthread_cond_t")]
pub struct RtCondvar {
    sequence: AtomicU32,
    waiting: AtomicU64,
}

/// How a raw wait ended; in each case but `Lost` the caller owns the mutex, under this id.
pub(super) enum Woken {
    Notified(u32),
    TimedOut(u32),
    /// Others wait with another mutex; this one was not released.
    OtherMutex,
    /// The mutex could not be locked again.
    Lost(Refusal),
}

impl RtCondvar {
    /// A condition variable nobody waits for.
    pub const fn new() -> Self {
        Self { sequence: AtomicU32::new(0), waiting: AtomicU64::new(0) }
    }

    /// Releases the mutex, waits for a notification, and returns with the mutex locked again.
    ///
    /// # Errors
    ///
    /// As [`RtMutex::lock`](super::RtMutex::lock), and [`LockError::OtherMutex`].
    #[doc(alias = "FUTEX_WAIT_REQUEUE_PI")]
    pub fn wait<'a, T: ?Sized>(&self, guard: RtMutexGuard<'a, T>) -> LockResult<RtMutexGuard<'a, T>> {
        self.wait_until_deadline(guard, None)
            .map(|(guard, _)| guard)
            .map_err(|error| error.map(|(guard, _)| guard))
    }

    /// As [`wait`](RtCondvar::wait), again and again while `condition` holds.
    ///
    /// # Errors
    ///
    /// As [`wait`](RtCondvar::wait).
    pub fn wait_while<'a, T: ?Sized, F>(
        &self,
        mut guard: RtMutexGuard<'a, T>,
        mut condition: F,
    ) -> LockResult<RtMutexGuard<'a, T>>
    where
        F: FnMut(&mut T) -> bool,
    {
        while condition(&mut *guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    /// As [`wait`](RtCondvar::wait), for at most `timeout`. The mutex is locked again in any case, however long that
    /// takes.
    ///
    /// # Errors
    ///
    /// As [`wait`](RtCondvar::wait).
    pub fn wait_timeout<'a, T: ?Sized>(
        &self,
        guard: RtMutexGuard<'a, T>,
        timeout: Duration,
    ) -> LockResult<(RtMutexGuard<'a, T>, WaitTimeoutResult)> {
        self.wait_until_deadline(guard, Instant::now().checked_add(timeout).map(Deadline::Monotonic))
    }

    /// As [`wait_timeout`](RtCondvar::wait_timeout), again and again while `condition` holds.
    ///
    /// # Errors
    ///
    /// As [`wait`](RtCondvar::wait).
    pub fn wait_timeout_while<'a, T: ?Sized, F>(
        &self,
        mut guard: RtMutexGuard<'a, T>,
        timeout: Duration,
        mut condition: F,
    ) -> LockResult<(RtMutexGuard<'a, T>, WaitTimeoutResult)>
    where
        F: FnMut(&mut T) -> bool,
    {
        let deadline = Instant::now().checked_add(timeout).map(Deadline::Monotonic);
        loop {
            if !condition(&mut *guard) {
                return Ok((guard, WaitTimeoutResult(false)));
            }
            if deadline.is_some_and(Deadline::has_passed) {
                return Ok((guard, WaitTimeoutResult(true)));
            }
            guard = self.wait_until_deadline(guard, deadline)?.0;
        }
    }

    /// As [`wait_timeout`](RtCondvar::wait_timeout), until `deadline` on the clock of [`Instant`].
    ///
    /// # Errors
    ///
    /// As [`wait`](RtCondvar::wait).
    pub fn wait_until<'a, T: ?Sized>(
        &self,
        guard: RtMutexGuard<'a, T>,
        deadline: Instant,
    ) -> LockResult<(RtMutexGuard<'a, T>, WaitTimeoutResult)> {
        self.wait_until_deadline(guard, Some(Deadline::Monotonic(deadline)))
    }

    /// As [`wait_timeout`](RtCondvar::wait_timeout), until `deadline` on the wall clock.
    ///
    /// # Errors
    ///
    /// As [`wait`](RtCondvar::wait).
    pub fn wait_until_system_time<'a, T: ?Sized>(
        &self,
        guard: RtMutexGuard<'a, T>,
        deadline: SystemTime,
    ) -> LockResult<(RtMutexGuard<'a, T>, WaitTimeoutResult)> {
        self.wait_until_deadline(guard, Some(Deadline::Realtime(deadline)))
    }

    fn wait_until_deadline<'a, T: ?Sized>(
        &self,
        guard: RtMutexGuard<'a, T>,
        deadline: Option<Deadline>,
    ) -> LockResult<(RtMutexGuard<'a, T>, WaitTimeoutResult)> {
        let (mutex, me) = guard.suspend();
        let (me, timed_out) = match self.wait_raw(mutex.raw(), me, deadline) {
            Woken::Notified(me) => (me, false),
            Woken::TimedOut(me) => (me, true),
            Woken::OtherMutex => {
                return Err(match mutex.admit(me) {
                    Ok(guard) => LockError::OtherMutex((guard, WaitTimeoutResult(false))),
                    Err(error) => error.map(|guard| (guard, WaitTimeoutResult(false))),
                });
            }
            Woken::Lost(refusal) => return Err(LockError::from_refusal(refusal)),
        };
        let pair = |guard| (guard, WaitTimeoutResult(timed_out));
        mutex.admit(me).map(pair).map_err(|error| error.map(pair))
    }

    /// The wait itself. The caller owns `mutex` under the id `me`.
    pub(super) fn wait_raw(&self, mutex: &RawRtMutex, me: u32, deadline: Option<Deadline>) -> Woken {
        if !self.enter(mutex) {
            return Woken::OtherMutex;
        }
        // ORDERING: Relaxed, read under the mutex; see the module's head.
        let seen = self.sequence.load(Ordering::Relaxed);
        let woken = match mutex.unlock(me) {
            Ok(()) => self.sleep(mutex, seen, deadline),
            Err(refusal) => Woken::Lost(refusal),
        };
        self.leave();
        woken
    }

    fn sleep(&self, mutex: &RawRtMutex, seen: u32, deadline: Option<Deadline>) -> Woken {
        // The kernel may move us to the mutex at any time: nobody should watch it as if it had no waiters.
        mutex.count_sleeper(true);
        let answer = backend::wait_requeue_pi(&self.sequence, seen, mutex.futex(), deadline);
        mutex.count_sleeper(false);
        match answer {
            Ok(()) => {
                mutex.note(protocol::granted(mutex));
                let me = tid::current();
                mutex.leave_hint(me);
                Woken::Notified(me)
            }
            Err(Refusal::TimedOut) => match mutex.lock() {
                // The deadline as the kernel saw it may have been a little early: then this is a wake for no reason.
                Ok(me) if deadline.is_some_and(Deadline::has_passed) => Woken::TimedOut(me),
                Ok(me) => Woken::Notified(me),
                Err(refusal) => Woken::Lost(refusal),
            },
            // A notification came before the sleep, a signal came after the move, or the mutex was in a state that its
            // next locker will hear about: in each case it is not ours yet.
            Err(_) => match mutex.lock() {
                Ok(me) => Woken::Notified(me),
                Err(refusal) => Woken::Lost(refusal),
            },
        }
    }

    /// Wakes one waiter, the one with the highest priority.
    ///
    /// The mutex need not be held; if it is, the waiter runs only after it is released.
    #[doc(alias = "FUTEX_CMP_REQUEUE_PI")]
    pub fn notify_one(&self) {
        // Who wants to know calls `try_notify_one`.
        let _ = self.notify(0);
    }

    /// Wakes all waiters, one after the other in order of priority as each releases the mutex.
    pub fn notify_all(&self) {
        // Who wants to know calls `try_notify_all`.
        let _ = self.notify(i32::MAX.unsigned_abs());
    }

    /// As [`notify_one`](RtCondvar::notify_one), and says whether somebody was asleep.
    ///
    /// # Errors
    ///
    /// See [`NotifyError`].
    ///
    /// ```
    /// use fastpath_rtmutex::linux::RtCondvar;
    /// assert_eq!(RtCondvar::new().try_notify_one(), Ok(0));
    /// ```
    pub fn try_notify_one(&self) -> Result<usize, NotifyError> {
        self.notify(0).map_err(NotifyError::from_refusal)
    }

    /// As [`notify_all`](RtCondvar::notify_all), and says how many were asleep.
    ///
    /// # Errors
    ///
    /// See [`NotifyError`].
    pub fn try_notify_all(&self) -> Result<usize, NotifyError> {
        self.notify(i32::MAX.unsigned_abs()).map_err(NotifyError::from_refusal)
    }

    /// Moves one waiter and up to `more` others.
    #[inline]
    fn notify(&self, more: u32) -> Result<usize, Refusal> {
        // ORDERING: Relaxed, see the module's head.
        if self.waiting.load(Ordering::Relaxed) & COUNT == 0 {
            return Ok(0);
        }
        self.notify_waiting(more)
    }

    #[cold]
    fn notify_waiting(&self, more: u32) -> Result<usize, Refusal> {
        // Whoever read the old number and is not asleep yet stays awake.
        // ORDERING: Relaxed, see the module's head.
        self.sequence.fetch_add(1, Ordering::Relaxed);
        let mut last = Refusal::Again;
        for attempt in 0..RETRIES {
            // Both are read again each time: with an old number the kernel would say the same for ever.
            // ORDERING: Relaxed, the kernel compares the number again, and the address with the waiters'.
            let waiting = self.waiting.load(Ordering::Relaxed);
            if waiting & COUNT == 0 {
                return Ok(0);
            }
            // ORDERING: Relaxed, as above.
            let sequence = self.sequence.load(Ordering::Relaxed);
            match backend::cmp_requeue_pi(&self.sequence, sequence, address(waiting), more) {
                Ok(count) => return Ok(count),
                Err(refusal @ (Refusal::Again | Refusal::Interrupted)) => last = refusal,
                Err(refusal) => {
                    // The last waiter left meanwhile, its mutex is gone perhaps, and others wait with another one.
                    // ORDERING: Relaxed, as above.
                    if self.waiting.load(Ordering::Relaxed) & !COUNT == waiting & !COUNT {
                        return Err(refusal);
                    }
                    last = refusal;
                }
            }
            backend::give_way(attempt);
        }
        Err(last)
    }

    /// Counts the caller in. False if others wait with another mutex, or too many do.
    fn enter(&self, mutex: &RawRtMutex) -> bool {
        let Some(mine) = packed(mutex.futex()) else { return false };
        let join = |waiting: u64| {
            let count = waiting & COUNT;
            let joined = count == 0 || waiting & !COUNT == mine;
            (joined && count < COUNT).then_some(mine | (count + 1))
        };
        // ORDERING: Relaxed, see the module's head.
        self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, join).is_ok()
    }

    /// Counts the caller out.
    fn leave(&self) {
        // ORDERING: Relaxed, see the module's head. The count is above 0: the caller is in it.
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl NotifyError {
    fn from_refusal(refusal: Refusal) -> Self {
        Self { errno: refusal.errno() }
    }
}

/// A word's address, above the bits of the count; `None` if it has more bits than there is room for.
fn packed(word: *const AtomicU32) -> Option<u64> {
    let address = word.expose_provenance() as u64;
    (address >> 48 == 0 && address.is_multiple_of(4)).then_some((address >> 2) << 18)
}

/// The address in `waiting`.
fn address(waiting: u64) -> *const AtomicU32 {
    core::ptr::without_provenance(((waiting >> 18) << 2) as usize)
}

impl fmt::Debug for RtCondvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // ORDERING: Relaxed, a glance.
        let waiting = self.waiting.load(Ordering::Relaxed) & COUNT;
        f.debug_struct("RtCondvar").field("waiting", &waiting).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_packing_beside_any_count() {
        let mutex = RawRtMutex::new();
        let here = core::ptr::from_ref(mutex.futex());
        let packed = packed(here).unwrap();
        assert_eq!(packed & COUNT, 0);
        assert_eq!(address(packed), here);
        assert_eq!(address(packed | COUNT), here);
    }

    #[test]
    fn addresses_beyond_48_bits_are_refused() {
        assert!(packed(core::ptr::without_provenance(1 << 48)).is_none());
        assert!(packed(core::ptr::without_provenance((1 << 48) - 4)).is_some());
    }

    #[test]
    fn the_mutex_may_change_only_while_nobody_waits() {
        let (one, other) = (RawRtMutex::new(), RawRtMutex::new());
        let condvar = RtCondvar::new();
        assert!(condvar.enter(&one));
        assert!(condvar.enter(&one));
        assert!(!condvar.enter(&other));
        condvar.leave();
        assert!(!condvar.enter(&other));
        condvar.leave();
        assert!(condvar.enter(&other));
        condvar.leave();
    }

    #[test]
    fn a_full_count_takes_nobody_else() {
        let mutex = RawRtMutex::new();
        let condvar = RtCondvar::new();
        condvar.waiting.store(packed(mutex.futex()).unwrap() | COUNT, Ordering::Relaxed);
        assert!(!condvar.enter(&mutex));
    }
}
