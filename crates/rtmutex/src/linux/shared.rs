// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! [`SharedRtMutex`]: robust, and shared between processes, in memory that the user supplies.
//!
//! # Why this one is the C library's mutex
//!
//! A robust mutex must be on the list that the kernel walks when its owner ends. There is one list per thread, and the
//! C library owns it, with a layout of its own: replacing it breaks every robust mutex of the C library, and joining it
//! means writing into the library's private list nodes. So this type holds a `pthread_mutex_t` with the attributes
//! robust, process-shared, priority inheritance and error checking, and adds what C leaves out: typed errors, a guard,
//! a check that the memory holds such a mutex, and deadlines on either clock. A C program that maps the same memory
//! can lock the same mutex ([`SharedRtMutex::as_pthread`]).
//!
//! What that costs: there is no spinning, so a contended lock always goes to the kernel; see `fastpath bench rtmutex`.

#![expect(unsafe_code, reason = "calls the C library on memory the user supplies")]

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::fmt;
use core::marker::PhantomData;
use core::mem::{self, MaybeUninit};
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fastpath_sys::pi_support;

use super::error::{LockError, LockResult, TryLockError, TryLockResult, UnlockError};

/// Says that the rest is initialised. Eight bytes that no accident makes.
const MAGIC: u64 = 0x6670_7274_6d75_7401;

/// A robust, priority-inheriting mutex with its data, in memory that several processes may map at different addresses.
///
/// It has no public constructor by value: it lives where it was made. See [`SharedRtMutex::init_at`] and
/// [`SharedRtMutex::attach_at`].
///
/// When a thread ends while it owns the lock, however it ends (return, exec, SIGKILL of the process), the next owner,
/// in any process, gets [`LockError::OwnerDied`] with the guard. If it releases without
/// [`make_consistent`](SharedRtMutexGuard::make_consistent), the mutex is closed: [`LockError::NotRecoverable`].
///
/// # Limits
///
/// * All processes must be in the same PID namespace, on the same architecture and with the same C library: the word
///   holds a thread id, and the layout is the library's.
/// * The kernel cleans up at most 2048 robust mutexes per thread.
/// * With glibc, releasing a mutex while another thread unmaps its memory can make the kernel write to that memory's
///   next use (a race in the robust list protocol that a library cannot close): keep the memory mapped while other
///   threads may be in `unlock`.
///
/// ```
/// use fastpath_rtmutex::linux::SharedRtMutex;
/// use std::mem::MaybeUninit;
///
/// // Anywhere; to share it between processes, map it shared.
/// let mut memory = Box::new(MaybeUninit::<SharedRtMutex<u64>>::uninit());
/// let place = memory.as_mut_ptr();
/// // SAFETY: the memory is ours alone, and stays where it is until the end of this example.
/// let counter = unsafe { SharedRtMutex::init_at(place, 5).unwrap() };
/// *counter.lock().unwrap() += 1;
///
/// // Another process, or another part of this one:
/// // SAFETY: as above, and nothing but `init_at` wrote there.
/// let same = unsafe { SharedRtMutex::<u64>::attach_at(place).unwrap() };
/// assert_eq!(*same.lock().unwrap(), 6);
/// ```
#[repr(C)]
pub struct SharedRtMutex<T> {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    magic: AtomicU64,
    size: u64,
    data: UnsafeCell<T>,
}

// SAFETY: the lock hands the data to one thread at a time.
unsafe impl<T: Send> Sync for SharedRtMutex<T> {}

/// Why memory cannot be used as a [`SharedRtMutex`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SharedError {
    /// The address is not aligned for the type.
    Misaligned,
    /// There is no initialised mutex: nobody has called `init_at` there, or not to its end yet.
    NotInitialised,
    /// There is one, but for data of another size.
    OtherSize {
        /// The size of the data it was made for, in bytes.
        found: u64,
    },
    /// The C library or the kernel refused, with this errno: `ENOTSUP` without PI futexes.
    System(i32),
}

impl fmt::Display for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misaligned => f.write_str("the address is not aligned for a shared mutex"),
            Self::NotInitialised => f.write_str("there is no initialised shared mutex"),
            Self::OtherSize { found } => write!(f, "the shared mutex there is for {found} bytes of data"),
            Self::System(errno) => fmt::Display::fmt(&std::io::Error::from_raw_os_error(*errno), f),
        }
    }
}

impl core::error::Error for SharedError {}

impl<T> SharedRtMutex<T> {
    /// Makes a mutex at `place`.
    ///
    /// # Errors
    ///
    /// [`SharedError::Misaligned`], [`SharedError::System`].
    ///
    /// # Safety
    ///
    /// * `place` is valid for reads and writes of a `SharedRtMutex<T>`, and stays mapped for `'a`.
    /// * Nobody else accesses it until this returns, other than by [`attach_at`](SharedRtMutex::attach_at).
    /// * Nobody moves or overwrites the memory while a mutex reference to it exists, in any process.
    /// * If other processes attach, `T` means the same there: no pointers, no handles of this process, no type whose
    ///   layout another build could choose differently.
    pub unsafe fn init_at<'a>(place: *mut Self, value: T) -> Result<&'a Self, SharedError> {
        if !place.is_aligned() {
            return Err(SharedError::Misaligned);
        }
        // SAFETY: the caller's promise: valid, and only we write. The fields are written one by one in place.
        unsafe {
            // ORDERING: Relaxed, a stale magic goes before anything else is written by the same thread; an attaching
            // process that still sees it breaks the caller's promise that memory is not re-used under its users.
            (*place).magic.store(0, Ordering::Relaxed);
            initialise((&raw mut (*place).mutex).cast()).map_err(SharedError::System)?;
            (&raw mut (*place).size).write(size_of::<T>() as u64);
            (&raw mut (*place).data).write(UnsafeCell::new(value));
            // ORDERING: Release pairs with the Acquire in `attach_at`: who sees the magic sees the rest.
            (*place).magic.store(MAGIC, Ordering::Release);
            Ok(&*place)
        }
    }

    /// The mutex that somebody has made at `place`.
    ///
    /// # Errors
    ///
    /// [`SharedError::Misaligned`], [`SharedError::NotInitialised`], [`SharedError::OtherSize`].
    ///
    /// # Safety
    ///
    /// * `place` is valid for reads and writes of a `SharedRtMutex<T>`, and stays mapped for `'a`; what nobody has
    ///   written yet is zero, as fresh shared memory is.
    /// * If there is a mutex, [`init_at`](SharedRtMutex::init_at) made it, for the same `T`, and its promises hold.
    pub unsafe fn attach_at<'a>(place: *mut Self) -> Result<&'a Self, SharedError> {
        if !place.is_aligned() {
            return Err(SharedError::Misaligned);
        }
        // SAFETY: the caller's promise: the magic and the size are integers, valid whatever their bytes.
        let (magic, size) = unsafe {
            // ORDERING: Acquire pairs with the Release in `init_at`.
            let magic = (*place).magic.load(Ordering::Acquire);
            (magic, if magic == MAGIC { (*place).size } else { 0 })
        };
        if magic != MAGIC {
            return Err(SharedError::NotInitialised);
        }
        if size != size_of::<T>() as u64 {
            return Err(SharedError::OtherSize { found: size });
        }
        // SAFETY: initialised, as the magic says, by `init_at` for the same type.
        Ok(unsafe { &*place })
    }

    /// Waits until the lock is the caller's.
    ///
    /// # Errors
    ///
    /// [`LockError::OwnerDied`] comes with the guard; [`LockError::Deadlock`], [`LockError::NotRecoverable`] and
    /// [`LockError::System`] without.
    #[doc(alias = "pthread_mutex_lock")]
    pub fn lock(&self) -> LockResult<SharedRtMutexGuard<'_, T>> {
        // SAFETY: the mutex is initialised: a reference to it exists.
        self.admit(unsafe { libc::pthread_mutex_lock(self.as_pthread()) })
    }

    /// Takes the lock if that needs no waiting.
    ///
    /// # Errors
    ///
    /// [`TryLockError::WouldBlock`] if it is held, also by the caller; else as [`SharedRtMutex::lock`].
    #[doc(alias = "pthread_mutex_trylock")]
    pub fn try_lock(&self) -> TryLockResult<SharedRtMutexGuard<'_, T>> {
        // SAFETY: as in `lock`.
        match unsafe { libc::pthread_mutex_trylock(self.as_pthread()) } {
            libc::EBUSY | libc::EDEADLK => Err(TryLockError::WouldBlock),
            answer => self.admit(answer).map_err(TryLockError::Poisoned),
        }
    }

    /// Waits for the lock, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`SharedRtMutex::lock`], and [`LockError::TimedOut`].
    pub fn try_lock_for(&self, timeout: Duration) -> LockResult<SharedRtMutexGuard<'_, T>> {
        match Instant::now().checked_add(timeout) {
            Some(deadline) => self.try_lock_until(deadline),
            None => self.lock(),
        }
    }

    /// Waits for the lock until `deadline` on the clock of [`Instant`].
    ///
    /// The C library is asked with the wall clock, which every version of it knows, and the right clock decides whether
    /// the time is over: never early, and late by as much as the wall clock is set back meanwhile.
    ///
    /// # Errors
    ///
    /// As [`SharedRtMutex::try_lock_for`].
    pub fn try_lock_until(&self, deadline: Instant) -> LockResult<SharedRtMutexGuard<'_, T>> {
        loop {
            let wall = SystemTime::now().checked_add(deadline.saturating_duration_since(Instant::now()));
            let Some(wall) = wall else { return self.lock() };
            match self.try_lock_until_system_time(wall) {
                Err(LockError::TimedOut) if Instant::now() < deadline => {}
                answer => return answer,
            }
        }
    }

    /// Waits for the lock until `deadline` on the wall clock.
    ///
    /// # Errors
    ///
    /// As [`SharedRtMutex::try_lock_for`].
    #[doc(alias = "pthread_mutex_timedlock")]
    pub fn try_lock_until_system_time(&self, deadline: SystemTime) -> LockResult<SharedRtMutexGuard<'_, T>> {
        let time = pi_support::timespec(deadline.duration_since(UNIX_EPOCH).unwrap_or_default());
        let time =
            libc::timespec { tv_sec: time.tv_sec as libc::time_t, tv_nsec: time.tv_nsec as libc::c_long };
        // SAFETY: as in `lock`; the time is valid during the call.
        self.admit(unsafe { libc::pthread_mutex_timedlock(self.as_pthread(), &raw const time) })
    }

    fn admit(&self, answer: c_int) -> LockResult<SharedRtMutexGuard<'_, T>> {
        let guard = || SharedRtMutexGuard { mutex: self, not_send: PhantomData };
        match answer {
            0 => Ok(guard()),
            libc::EOWNERDEAD => Err(LockError::OwnerDied(guard())),
            libc::EDEADLK => Err(LockError::Deadlock),
            libc::ETIMEDOUT => Err(LockError::TimedOut),
            libc::ENOTRECOVERABLE => Err(LockError::NotRecoverable),
            libc::EPERM => Err(LockError::ForeignOwner),
            errno => Err(LockError::System(errno)),
        }
    }

    /// The mutex as C knows it, at the start of the memory: robust, process-shared, with priority inheritance and error
    /// checking. Whoever locks it there owns the data here.
    pub const fn as_pthread(&self) -> *mut libc::pthread_mutex_t {
        self.mutex.get()
    }

    /// The word as the kernel sees it at this moment, for tests and diagnosis. glibc and musl differ in where it is;
    /// `None` where this crate does not know.
    pub fn word(&self) -> Option<u32> {
        if cfg!(target_env = "gnu") {
            // SAFETY: glibc's mutex starts with its futex word, which may be read at any time as an atomic.
            let word = unsafe { &*self.as_pthread().cast::<core::sync::atomic::AtomicU32>() };
            // ORDERING: Relaxed, a glance.
            return Some(word.load(Ordering::Relaxed));
        }
        None
    }
}

/// Makes a robust, shared, priority-inheriting, error-checking mutex.
///
/// # Safety
///
/// `place` is valid for writing, and nobody else uses it.
unsafe fn initialise(place: *mut libc::pthread_mutex_t) -> Result<(), c_int> {
    let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
    let attributes = attributes.as_mut_ptr();
    let check = |answer: c_int| if answer == 0 { Ok(()) } else { Err(answer) };
    // SAFETY: `attributes` is initialised first and destroyed last; `place` by the caller's promise.
    unsafe {
        check(libc::pthread_mutexattr_init(attributes))?;
        let made = check(libc::pthread_mutexattr_setprotocol(attributes, libc::PTHREAD_PRIO_INHERIT))
            .and_then(|()| check(libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST)))
            .and_then(|()| {
                check(libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED))
            })
            .and_then(|()| check(libc::pthread_mutexattr_settype(attributes, libc::PTHREAD_MUTEX_ERRORCHECK)))
            .and_then(|()| check(libc::pthread_mutex_init(place, attributes)));
        libc::pthread_mutexattr_destroy(attributes);
        made
    }
}

impl<T> fmt::Debug for SharedRtMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRtMutex").field("word", &self.word()).finish_non_exhaustive()
    }
}

/// Access to the data of a locked [`SharedRtMutex`]; dropping it unlocks.
#[must_use = "the mutex unlocks as soon as the guard is dropped"]
pub struct SharedRtMutexGuard<'a, T> {
    mutex: &'a SharedRtMutex<T>,
    not_send: PhantomData<*mut ()>,
}

// SAFETY: a shared guard gives `&T` and nothing else.
unsafe impl<T: Sync> Sync for SharedRtMutexGuard<'_, T> {}

impl<T> SharedRtMutexGuard<'_, T> {
    /// Declares the data repaired after [`LockError::OwnerDied`]. Without it the release closes the mutex for good.
    ///
    /// Does nothing if no owner died.
    #[doc(alias = "pthread_mutex_consistent")]
    pub fn make_consistent(this: &mut Self) {
        // SAFETY: the guard proves that the mutex exists. The only error says that it is consistent already.
        unsafe { libc::pthread_mutex_consistent(this.mutex.as_pthread()) };
    }

    /// Unlocks, and says whether the C library agreed.
    ///
    /// # Errors
    ///
    /// [`UnlockError`] if the caller does not own the mutex: in a forked child, where the parent's thread does.
    pub fn unlock(this: Self) -> Result<(), UnlockError> {
        // SAFETY: as in `make_consistent`.
        let errno = unsafe { libc::pthread_mutex_unlock(this.mutex.as_pthread()) };
        mem::forget(this);
        if errno == 0 { Ok(()) } else { Err(UnlockError { errno }) }
    }
}

impl<T> Drop for SharedRtMutexGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: as in `make_consistent`. A release that is refused leaves nothing to undo.
        unsafe { libc::pthread_mutex_unlock(self.mutex.as_pthread()) };
    }
}

impl<T> Deref for SharedRtMutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard owns the lock, so nobody else reaches the data.
        unsafe { &*self.mutex.data.get() }
    }
}

impl<T> DerefMut for SharedRtMutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and the guard is borrowed exclusively.
        unsafe { &mut *self.mutex.data.get() }
    }
}

impl<T: fmt::Debug> fmt::Debug for SharedRtMutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
