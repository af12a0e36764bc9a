// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! [`RtMutex`]: the lock with its data.

#![expect(
    unsafe_code,
    reason = "the data is reachable only through a guard, which proves ownership of the lock"
)]

use core::cell::UnsafeCell;
use core::fmt;
use std::time::{Duration, Instant, SystemTime};

use super::backend::Deadline;
use super::error::{LockError, LockResult, TryLockError, TryLockResult};
use super::guard::RtMutexGuard;
use super::protocol::Refusal;
use super::raw::{CLOSED, NO_SPIN, POISONED, REMARKABLE, RawRtMutex, STRICT_RECOVERY};
use super::rwlock::RtRwLock;

/// A mutual exclusion lock with priority inheritance: while a thread waits, the owner runs with at least the waiter's
/// priority, and so does whoever the owner waits for.
///
/// Uncontended, locking and unlocking are one compare-and-exchange each. Contended, a thread watches the lock for a
/// moment while the owner runs on another CPU and nobody sleeps, and then waits in the kernel, which hands the lock
/// over in order of priority (equal priorities: first come, first served).
///
/// # Differences from `std::sync::Mutex`
///
/// * Errors say what happened: [`LockError`]. Locking a mutex twice is an error, not a hang.
/// * A thread that ends while it owns the lock is noticed; so is a panic, as in the standard library ("poisoning").
/// * A copy of a held lock in a forked child belongs to the thread that forked.
///
/// # Limits
///
/// * Priorities are those of SCHED_FIFO, SCHED_RR and SCHED_DEADLINE. Between nice levels nothing is inherited.
/// * An owner that ended without anybody waiting is noticed because its thread id is no longer in use. If a new thread
///   gets the same id before anybody else locks, that thread gets [`LockError::Deadlock`], and others wait for it. Use
///   [`SharedRtMutex`](super::SharedRtMutex) (a robust mutex) where threads are killed while they hold locks.
/// * It is for the threads of one process; the memory must not be shared with others.
///
/// ```
/// use fastpath_rtmutex::linux::RtMutex;
///
/// static TOTAL: RtMutex<u64> = RtMutex::new(0);
///
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| *TOTAL.lock().unwrap() += 1);
///     }
/// });
/// assert_eq!(*TOTAL.lock().unwrap(), 4);
/// ```
///
/// The guard stays with its thread, and data that may not be sent may not be shared through the lock:
///
/// ```compile_fail,E0277
/// use fastpath_rtmutex::linux::RtMutex;
/// let lock = RtMutex::new(0);
/// let guard = lock.lock().unwrap();
/// std::thread::scope(|scope| scope.spawn(move || drop(guard)).join());
/// ```
///
/// ```compile_fail,E0277
/// use fastpath_rtmutex::linux::RtMutex;
/// use std::rc::Rc;
/// let lock = RtMutex::new(Rc::new(0));
/// std::thread::scope(|scope| {
///     scope.spawn(|| drop(lock.lock()));
/// });
/// ```
#[repr(C)]
pub struct RtMutex<T: ?Sized> {
    raw: RawRtMutex,
    data: UnsafeCell<T>,
}

// SAFETY: the lock hands the data to one thread at a time, which needs `T: Send`; a shared reference gives nothing else.
unsafe impl<T: ?Sized + Send> Sync for RtMutex<T> {}

// SAFETY: a mutex that can be moved is not borrowed, so no guard exists and moving it moves the data.
unsafe impl<T: ?Sized + Send> Send for RtMutex<T> {}

impl<T: ?Sized> core::panic::UnwindSafe for RtMutex<T> {}
impl<T: ?Sized> core::panic::RefUnwindSafe for RtMutex<T> {}

/// Options of an [`RtMutex`].
///
/// ```
/// use fastpath_rtmutex::linux::{Builder, RtMutex};
///
/// static STRICT: RtMutex<u32> = Builder::new().spin(false).build(7);
/// assert_eq!(*STRICT.lock().unwrap(), 7);
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[must_use = "a builder does nothing until `build`"]
pub struct Builder {
    options: u8,
}

impl Builder {
    /// The options of [`RtMutex::new`]: spinning, and recovery as in the standard library.
    pub const fn new() -> Self {
        Self { options: 0 }
    }

    /// Whether a contended thread may watch the lock for a moment (some 7 microseconds) before it waits in the kernel.
    ///
    /// Spinning makes short sections 15 to 50 times faster under contention. A spinning thread never passes one that
    /// waits in the kernel, and does not spin for an owner that last ran on the same CPU. But threads that spin at the
    /// same time get the lock in any order, whatever their priorities, and an owner that is preempted on another CPU
    /// is boosted only when the spinning is over. Without spinning every contended thread queues in the kernel at once.
    pub const fn spin(mut self, spin: bool) -> Self {
        if spin {
            self.options &= !NO_SPIN;
        } else {
            self.options |= NO_SPIN;
        }
        self
    }

    /// What happens when an owner that was told [`LockError::OwnerDied`] releases the lock without
    /// [`make_consistent`](RtMutexGuard::make_consistent).
    ///
    /// False, as in the standard library: the next owner is told again. True, as POSIX's robust mutexes have it: the
    /// lock is closed, and everybody gets [`LockError::NotRecoverable`].
    pub const fn strict_recovery(mut self, strict: bool) -> Self {
        if strict {
            self.options |= STRICT_RECOVERY;
        } else {
            self.options &= !STRICT_RECOVERY;
        }
        self
    }

    /// A free mutex with these options.
    pub const fn build<T>(self, value: T) -> RtMutex<T> {
        RtMutex { raw: RawRtMutex::with_options(self.options), data: UnsafeCell::new(value) }
    }

    /// A free reader/writer lock. [`spin`](Builder::spin) holds for those who wait for a writer; recovery is always as
    /// in the standard library.
    pub const fn build_rwlock<T>(self, value: T) -> RtRwLock<T> {
        RtRwLock::with_options(self.options & NO_SPIN, value)
    }
}

impl<T> RtMutex<T> {
    /// A free mutex.
    pub const fn new(value: T) -> Self {
        Builder::new().build(value)
    }

    /// The data.
    ///
    /// # Errors
    ///
    /// [`LockError::OwnerDied`] with the data if an owner died or panicked and nobody repaired it.
    ///
    /// ```
    /// use fastpath_rtmutex::linux::RtMutex;
    /// assert_eq!(RtMutex::new(3).into_inner().unwrap(), 3);
    /// ```
    pub fn into_inner(self) -> LockResult<T> {
        let poisoned = self.is_poisoned();
        let value = self.data.into_inner();
        if poisoned { Err(LockError::OwnerDied(value)) } else { Ok(value) }
    }
}

impl<T: ?Sized> RtMutex<T> {
    /// Waits until the lock is the caller's.
    ///
    /// # Errors
    ///
    /// [`LockError::OwnerDied`] comes with the guard; [`LockError::Deadlock`], [`LockError::NotRecoverable`],
    /// [`LockError::ForeignOwner`] and [`LockError::System`] without.
    ///
    /// ```
    /// use fastpath_rtmutex::linux::RtMutex;
    /// let lock = RtMutex::new(1);
    /// *lock.lock().unwrap() += 1;
    /// assert_eq!(*lock.lock().unwrap(), 2);
    /// ```
    #[inline(always)] // Only so does the result stay in registers.
    #[doc(alias = "rt_mutex_lock")]
    #[doc(alias = "pthread_mutex_lock")]
    pub fn lock(&self) -> LockResult<RtMutexGuard<'_, T>> {
        match self.raw.lock() {
            Ok(me) => self.admit(me),
            Err(refusal) => Err(LockError::from_refusal(refusal)),
        }
    }

    /// Takes the lock if that needs no waiting.
    ///
    /// Where the swap of the word fails but the kernel may still grant the lock, the kernel is asked: a lock that was
    /// just handed to a waiter of strictly lower priority which has not run yet, or that nobody owns but flags are set.
    ///
    /// # Errors
    ///
    /// [`TryLockError::WouldBlock`] if it is held, also by the caller; else as [`RtMutex::lock`].
    ///
    /// ```
    /// use fastpath_rtmutex::linux::RtMutex;
    /// let lock = RtMutex::new(1);
    /// let first = lock.try_lock().unwrap();
    /// assert!(lock.try_lock().is_err());
    /// drop(first);
    /// assert!(lock.try_lock().is_ok());
    /// ```
    #[inline]
    #[doc(alias = "rt_mutex_trylock")]
    #[doc(alias = "pthread_mutex_trylock")]
    pub fn try_lock(&self) -> TryLockResult<RtMutexGuard<'_, T>> {
        match self.raw.try_lock() {
            Ok(me) => self.admit(me).map_err(TryLockError::Poisoned),
            Err(Refusal::Again) => Err(TryLockError::WouldBlock),
            Err(refusal) => Err(TryLockError::Poisoned(LockError::from_refusal(refusal))),
        }
    }

    /// Waits for the lock, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`], never early; else as [`RtMutex::lock`]. A free lock is taken even if `timeout` is zero.
    ///
    /// ```
    /// use fastpath_rtmutex::linux::{LockError, RtMutex};
    /// use std::time::Duration;
    ///
    /// let lock = RtMutex::new(0);
    /// let held = lock.lock().unwrap();
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| {
    ///         let late = lock.try_lock_for(Duration::from_millis(5));
    ///         assert!(matches!(late, Err(LockError::TimedOut)));
    ///     });
    /// });
    /// ```
    pub fn try_lock_for(&self, timeout: Duration) -> LockResult<RtMutexGuard<'_, T>> {
        match Instant::now().checked_add(timeout) {
            Some(deadline) => self.lock_until(Deadline::Monotonic(deadline)),
            // Beyond what the clock can say: for ever.
            None => self.lock(),
        }
    }

    /// Waits for the lock until `deadline` on the clock of [`Instant`], which no clock setting moves.
    ///
    /// # Errors
    ///
    /// As [`RtMutex::try_lock_for`].
    #[doc(alias = "pthread_mutex_clocklock")]
    #[doc(alias = "FUTEX_LOCK_PI2")]
    pub fn try_lock_until(&self, deadline: Instant) -> LockResult<RtMutexGuard<'_, T>> {
        self.lock_until(Deadline::Monotonic(deadline))
    }

    /// Waits for the lock until `deadline` on the wall clock; setting that clock moves the deadline with it.
    ///
    /// # Errors
    ///
    /// As [`RtMutex::try_lock_for`].
    ///
    /// ```
    /// use fastpath_rtmutex::linux::RtMutex;
    /// use std::time::SystemTime;
    /// let lock = RtMutex::new(0);
    /// assert!(lock.try_lock_until_system_time(SystemTime::now()).is_ok());
    /// ```
    #[doc(alias = "pthread_mutex_timedlock")]
    pub fn try_lock_until_system_time(&self, deadline: SystemTime) -> LockResult<RtMutexGuard<'_, T>> {
        self.lock_until(Deadline::Realtime(deadline))
    }

    fn lock_until(&self, deadline: Deadline) -> LockResult<RtMutexGuard<'_, T>> {
        match self.raw.lock_until(deadline) {
            Ok(me) => self.admit(me),
            Err(refusal) => Err(LockError::from_refusal(refusal)),
        }
    }

    /// Turns ownership under the id `me` into a guard.
    #[inline(always)]
    pub(super) fn admit(&self, me: u32) -> LockResult<RtMutexGuard<'_, T>> {
        // SAFETY: the caller of this private function has just acquired the lock under `me`.
        let guard = unsafe { RtMutexGuard::new(self, me) };
        let flags = self.raw.flags();
        // Built here and not in a cold function, so that the result need not exist in memory.
        if flags & REMARKABLE == 0 {
            Ok(guard)
        } else if flags & CLOSED == 0 {
            Err(LockError::OwnerDied(guard))
        } else {
            Err(LockError::NotRecoverable)
        }
    }

    /// Whether an owner died or panicked and nobody has repaired the data yet.
    pub fn is_poisoned(&self) -> bool {
        self.raw.flags() & REMARKABLE != 0
    }

    /// Declares the data repaired, as [`RtMutexGuard::make_consistent`] does for whoever owns the lock.
    ///
    /// A closed lock ([`LockError::NotRecoverable`]) stays closed.
    pub fn clear_poison(&self) {
        self.raw.clear_flag(POISONED);
    }

    /// The data, without locking: the exclusive borrow proves that nobody else has it.
    ///
    /// # Errors
    ///
    /// [`LockError::OwnerDied`] with the data if an owner died or panicked and nobody repaired it.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        let poisoned = self.is_poisoned();
        let value = self.data.get_mut();
        if poisoned { Err(LockError::OwnerDied(value)) } else { Ok(value) }
    }

    /// The lock without its data.
    pub fn raw(&self) -> &RawRtMutex {
        &self.raw
    }

    pub(super) fn data_ptr(&self) -> *mut T {
        self.data.get()
    }
}

impl<T: Default> Default for RtMutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> From<T> for RtMutex<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RtMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("RtMutex");
        match self.try_lock() {
            Ok(guard) | Err(TryLockError::Poisoned(LockError::OwnerDied(guard))) => {
                out.field("data", &&*guard)
            }
            Err(_) => out.field("data", &format_args!("<locked>")),
        };
        out.field("poisoned", &self.is_poisoned()).finish_non_exhaustive()
    }
}
