// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What can go wrong, as values. No operation of this module panics on behalf of the kernel.

use core::fmt;

use super::protocol::Refusal;

/// Why a lock was not obtained, or was obtained with a warning. `G` is the guard.
///
/// It stands where the standard library has `PoisonError`, and says more: see [`sync`](super::sync) for the names that
/// let a program switch.
///
/// ```
/// use fastpath_rtmutex::linux::{LockError, RtMutex};
///
/// let lock = RtMutex::new(0);
/// let held = lock.lock().unwrap();
/// assert!(matches!(lock.lock(), Err(LockError::Deadlock)));
/// drop(held);
/// ```
#[non_exhaustive]
pub enum LockError<G> {
    /// The caller **has** the lock, but the previous owner ended or panicked while it held it: the data may be half
    /// changed. Repair it and call `make_consistent` on the guard; until then each new owner gets this error.
    OwnerDied(G),
    /// The caller already owns the lock, or waits for it in a circle with other threads. Nothing was acquired.
    Deadlock,
    /// The deadline passed. Nothing was acquired.
    TimedOut,
    /// A lock that was obtained with [`LockError::OwnerDied`] was released without being made consistent (see
    /// [`Builder::strict_recovery`](super::Builder::strict_recovery)). Nobody gets it any more.
    NotRecoverable,
    /// The owner is no thread of this process: another thread of the parent held the lock when this process was
    /// forked, or a mutex that is private to a process lies in shared memory. Nothing was acquired.
    ForeignOwner,
    /// A reader/writer lock has as many readers as it can count. Nothing was acquired.
    TooManyReaders,
    /// A condition variable has waiters that use another mutex. The caller still **has** its own.
    OtherMutex(G),
    /// The kernel refused with this errno: `ENOMEM` (no memory for its state), `ENOSYS` (built without PI futexes),
    /// `EINVAL` (the word was overwritten), `EAGAIN` (asked to repeat too often). Nothing was acquired.
    System(i32),
}

/// The result of locking: the guard, or why not.
pub type LockResult<G> = Result<G, LockError<G>>;

impl<G> LockError<G> {
    #[inline(always)]
    pub(super) fn from_refusal(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Deadlock => Self::Deadlock,
            Refusal::TimedOut => Self::TimedOut,
            Refusal::NotOurs => Self::ForeignOwner,
            // `NoSuchOwner` only when each of many attempts found a different dead owner.
            other => Self::System(other.errno()),
        }
    }

    /// The guard, if this error comes with the lock.
    ///
    /// ```
    /// use fastpath_rtmutex::linux::RtMutex;
    ///
    /// let lock = RtMutex::new(0);
    /// let _held = lock.lock().unwrap();
    /// assert!(lock.lock().unwrap_err().into_guard().is_none());
    /// ```
    pub fn into_guard(self) -> Option<G> {
        match self {
            Self::OwnerDied(guard) | Self::OtherMutex(guard) => Some(guard),
            _ => None,
        }
    }

    /// The guard, as `PoisonError::into_inner` of the standard library gives it.
    ///
    /// # Panics
    ///
    /// If the error comes without the lock: then there is no guard to give. [`LockError::into_guard`] never panics.
    #[track_caller]
    pub fn into_inner(self) -> G {
        let why = self.describe();
        match self.into_guard() {
            Some(guard) => guard,
            None => panic!("no guard: {why}"),
        }
    }

    /// A reference to the guard, if this error comes with the lock.
    pub fn get_ref(&self) -> Option<&G> {
        match self {
            Self::OwnerDied(guard) | Self::OtherMutex(guard) => Some(guard),
            _ => None,
        }
    }

    /// A mutable reference to the guard, if this error comes with the lock.
    pub fn get_mut(&mut self) -> Option<&mut G> {
        match self {
            Self::OwnerDied(guard) | Self::OtherMutex(guard) => Some(guard),
            _ => None,
        }
    }

    pub(super) fn map<H>(self, f: impl FnOnce(G) -> H) -> LockError<H> {
        match self {
            Self::OwnerDied(guard) => LockError::OwnerDied(f(guard)),
            Self::Deadlock => LockError::Deadlock,
            Self::TimedOut => LockError::TimedOut,
            Self::NotRecoverable => LockError::NotRecoverable,
            Self::ForeignOwner => LockError::ForeignOwner,
            Self::TooManyReaders => LockError::TooManyReaders,
            Self::OtherMutex(guard) => LockError::OtherMutex(f(guard)),
            Self::System(errno) => LockError::System(errno),
        }
    }

    const fn describe(&self) -> &'static str {
        match self {
            Self::OwnerDied(_) => "the previous owner died or panicked while it held the lock",
            Self::Deadlock => "deadlock: the calling thread owns the lock, or waits for it in a circle",
            Self::TimedOut => "the deadline passed before the lock was free",
            Self::NotRecoverable => "the protected data was left inconsistent; the lock is closed for good",
            Self::ForeignOwner => "the lock is owned by a thread outside this process",
            Self::TooManyReaders => "the lock has as many readers as it can count",
            Self::OtherMutex(_) => "the condition variable has waiters that use another mutex",
            Self::System(_) => "the kernel refused the lock",
        }
    }
}

impl<G> fmt::Debug for LockError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::OwnerDied(_) => "OwnerDied(..)",
            Self::Deadlock => "Deadlock",
            Self::TimedOut => "TimedOut",
            Self::NotRecoverable => "NotRecoverable",
            Self::ForeignOwner => "ForeignOwner",
            Self::TooManyReaders => "TooManyReaders",
            Self::OtherMutex(_) => "OtherMutex(..)",
            Self::System(errno) => return write!(f, "System({errno})"),
        };
        f.write_str(name)
    }
}

impl<G> fmt::Display for LockError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.describe())?;
        if let Self::System(errno) = self {
            write!(f, ": {}", std::io::Error::from_raw_os_error(*errno))?;
        }
        Ok(())
    }
}

impl<G> core::error::Error for LockError<G> {}

/// Why a try did not give the lock, or gave it with a warning.
///
/// ```
/// use fastpath_rtmutex::linux::{RtMutex, TryLockError};
///
/// let lock = RtMutex::new(0);
/// let held = lock.lock().unwrap();
/// assert!(matches!(lock.try_lock(), Err(TryLockError::WouldBlock)));
/// ```
pub enum TryLockError<G> {
    /// Anything but "held by somebody": see [`LockError`]. Named as in the standard library.
    Poisoned(LockError<G>),
    /// The lock is held, perhaps by the caller itself.
    WouldBlock,
}

/// The result of a try.
pub type TryLockResult<G> = Result<G, TryLockError<G>>;

impl<G> From<LockError<G>> for TryLockError<G> {
    fn from(error: LockError<G>) -> Self {
        Self::Poisoned(error)
    }
}

impl<G> fmt::Debug for TryLockError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poisoned(error) => write!(f, "Poisoned({error:?})"),
            Self::WouldBlock => f.write_str("WouldBlock"),
        }
    }
}

impl<G> fmt::Display for TryLockError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poisoned(error) => error.fmt(f),
            Self::WouldBlock => f.write_str("the lock is held"),
        }
    }
}

impl<G> core::error::Error for TryLockError<G> {}

/// Why a lock could not be released: the caller does not own it any more (its word was overwritten).
///
/// Dropping a guard ignores this; [`RtMutexGuard::unlock`](super::RtMutexGuard::unlock) reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnlockError {
    pub(super) errno: i32,
}

impl UnlockError {
    pub(super) fn from_refusal(refusal: Refusal) -> Self {
        Self { errno: refusal.errno() }
    }

    /// What the kernel said.
    pub const fn raw_os_error(self) -> i32 {
        self.errno
    }
}

impl fmt::Display for UnlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the lock is not the caller's to release: {}",
            std::io::Error::from_raw_os_error(self.errno)
        )
    }
}

impl core::error::Error for UnlockError {}
