// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Futexes: plain wait and wake, and the priority-inheritance operations with typed errors.
//!
//! The word of a PI futex: 0 is free; else the owner's thread id in [`TID_MASK`], with [`WAITERS`] while somebody
//! sleeps in the kernel and [`OWNER_DIED`] after the owner ended. The uncontended path is a compare-and-exchange of
//! 0 and the thread id in user space; everything else is here.
//!
//! | operation | blocks | deadline | since |
//! |---|---|---|---|
//! | [`lock_pi`] | yes | absolute, `CLOCK_REALTIME` | 2.6.18 |
//! | [`lock_pi2`] | yes | absolute, either clock | 5.14 |
//! | [`trylock_pi`] | no | - | 2.6.18 |
//! | [`unlock_pi`] | no | - | 2.6.18 |
//! | [`wait_requeue_pi`] | yes | absolute, either clock | 2.6.31 |
//! | [`cmp_requeue_pi`] | no | - | 2.6.31 |

use core::fmt;
use core::num::NonZeroU32;
use core::sync::atomic::AtomicU32;

use rustix::thread::futex as raw;
use rustix::thread::futex::Flags;

use crate::Errno;

pub use rustix::thread::futex::Timespec;

/// The bits of the word that hold the owner's thread id.
#[doc(alias = "FUTEX_TID_MASK")]
pub const TID_MASK: u32 = 0x3fff_ffff;
/// The owner ended without unlocking.
#[doc(alias = "FUTEX_OWNER_DIED")]
pub const OWNER_DIED: u32 = 0x4000_0000;
/// Somebody waits in the kernel: unlocking needs [`unlock_pi`]. Only the kernel may clear it.
#[doc(alias = "FUTEX_WAITERS")]
pub const WAITERS: u32 = 0x8000_0000;

/// Who may share the word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Threads of this process (`FUTEX_PRIVATE_FLAG`). Cheaper; a forked child gets a futex of its own.
    Private,
    /// Every process that maps the memory. All users of one word must say the same.
    Shared,
}

impl Scope {
    fn flags(self) -> Flags {
        match self {
            Self::Private => Flags::PRIVATE,
            Self::Shared => Flags::empty(),
        }
    }
}

/// The clock of an absolute deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Clock {
    /// `CLOCK_MONOTONIC`, what `std::time::Instant` reads.
    Monotonic,
    /// `CLOCK_REALTIME`, what `std::time::SystemTime` reads.
    Realtime,
}

impl Clock {
    fn flags(self) -> Flags {
        match self {
            Self::Monotonic => Flags::empty(),
            Self::Realtime => Flags::CLOCK_REALTIME,
        }
    }
}

/// Why a PI operation did not do what was asked. The operations say which of these they can return.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PiError {
    /// `EDEADLK`: the caller owns the futex already, or waits for it in a cycle.
    Deadlock,
    /// `EAGAIN`. For [`trylock_pi`]: held by somebody else. For the blocking locks: the owner is about to exit, try
    /// again. For the requeue operations: the word no longer has the expected value, or (for [`wait_requeue_pi`]) the
    /// wait ended without the PI futex.
    Again,
    /// `ETIMEDOUT`: the deadline passed. `WAITERS` stays set in the word.
    TimedOut,
    /// `ESRCH`: the word names a thread that no longer exists. `WAITERS` may have been set in the word.
    OwnerGone,
    /// `EPERM`: unlock by a thread that is not the owner; or an owner that may not be boosted: a kernel thread, or a
    /// thread of another process with [`Scope::Private`].
    NotPermitted,
    /// `EINVAL`: misaligned word, bad time, mixed scopes, a plain waiter on a PI word, or an inconsistent word.
    Invalid,
    /// `EFAULT`: the word is not mapped writable.
    Fault,
    /// `ENOMEM`: the kernel could not allocate its state.
    NoMemory,
    /// `ENOSYS`: the kernel has no such operation.
    Unsupported,
    /// `EINTR`: a signal ended the wait.
    Interrupted,
    /// An errno the manual pages do not list.
    Other(Errno),
}

impl From<Errno> for PiError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::DEADLK => Self::Deadlock,
            Errno::AGAIN => Self::Again,
            Errno::TIMEDOUT => Self::TimedOut,
            Errno::SRCH => Self::OwnerGone,
            Errno::PERM => Self::NotPermitted,
            Errno::INVAL => Self::Invalid,
            Errno::FAULT => Self::Fault,
            Errno::NOMEM => Self::NoMemory,
            Errno::NOSYS => Self::Unsupported,
            Errno::INTR => Self::Interrupted,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for PiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deadlock => "the caller owns the lock, or waits for it in a cycle",
            Self::Again => "not now: held, the owner is exiting, or the word changed",
            Self::TimedOut => "the deadline passed",
            Self::OwnerGone => "the owner named by the word no longer exists",
            Self::NotPermitted => "not the owner, or an owner that may not be boosted",
            Self::Invalid => "invalid word, time or mixture of users",
            Self::Fault => "the word is not writable memory",
            Self::NoMemory => "the kernel is out of memory",
            Self::Unsupported => "the kernel has no such operation",
            Self::Interrupted => "a signal ended the wait",
            Self::Other(errno) => return write!(f, "unexpected error: {errno}"),
        })
    }
}

impl core::error::Error for PiError {}

/// Locks the PI futex, boosting its owner to the caller's priority while waiting.
///
/// `deadline` is absolute on `CLOCK_REALTIME`. Never returns [`PiError::Interrupted`]: signals are handled and the
/// wait goes on.
///
/// # Errors
///
/// `Deadlock`, `TimedOut`, `OwnerGone`, `Again` (owner exiting: retry), `NotPermitted`, `NoMemory`, `Invalid`,
/// `Fault`, `Unsupported`. Success may leave `OWNER_DIED` in the word: the caller owns it and must repair its data.
///
/// ```
/// use fastpath_sys::{futex::{self, PiError, Scope}, sched};
/// use std::sync::atomic::{AtomicU32, Ordering};
/// let word = AtomicU32::new(0);
/// futex::lock_pi(&word, Scope::Private, None).unwrap();
/// assert_eq!(word.load(Ordering::Relaxed), sched::thread_id());
/// assert_eq!(futex::lock_pi(&word, Scope::Private, None), Err(PiError::Deadlock));
/// futex::unlock_pi(&word, Scope::Private).unwrap();
/// assert_eq!(word.load(Ordering::Relaxed), 0);
/// ```
#[doc(alias = "FUTEX_LOCK_PI")]
pub fn lock_pi(word: &AtomicU32, scope: Scope, deadline: Option<&Timespec>) -> Result<(), PiError> {
    raw::lock_pi(word, scope.flags(), deadline).map_err(Into::into)
}

/// As [`lock_pi`], with the clock of the caller's choice.
///
/// # Errors
///
/// As [`lock_pi`]; `Unsupported` before Linux 5.14.
#[doc(alias = "FUTEX_LOCK_PI2")]
pub fn lock_pi2(
    word: &AtomicU32,
    scope: Scope,
    clock: Clock,
    deadline: Option<&Timespec>,
) -> Result<(), PiError> {
    raw::lock_pi2(word, scope.flags() | clock.flags(), deadline).map_err(Into::into)
}

/// Takes the PI futex if that needs no waiting, also where user space alone cannot: a word with only `WAITERS` or
/// `OWNER_DIED`, or a hand-over in progress to a strictly weaker thread.
///
/// # Errors
///
/// `Again` when it is held, `Deadlock` when the caller holds it, `OwnerGone`, `NotPermitted`, `NoMemory`, `Invalid`,
/// `Fault`, `Unsupported`.
#[doc(alias = "FUTEX_TRYLOCK_PI")]
pub fn trylock_pi(word: &AtomicU32, scope: Scope) -> Result<(), PiError> {
    match raw::trylock_pi(word, scope.flags()) {
        Ok(true) => Ok(()),
        // The kernel reports failure as EAGAIN; a positive result is not documented and means the same.
        Ok(false) => Err(PiError::Again),
        Err(errno) => Err(errno.into()),
    }
}

/// Unlocks the PI futex and hands it to the strongest waiter. Clears `OWNER_DIED`.
///
/// # Errors
///
/// `NotPermitted` when the caller is not the owner, `Invalid`, `Fault`, `Unsupported`.
#[doc(alias = "FUTEX_UNLOCK_PI")]
pub fn unlock_pi(word: &AtomicU32, scope: Scope) -> Result<(), PiError> {
    raw::unlock_pi(word, scope.flags()).map_err(Into::into)
}

/// Waits on the plain word `condition`, to be moved to the PI futex `mutex` by [`cmp_requeue_pi`]. Returns owning
/// `mutex`.
///
/// # Errors
///
/// `Again` when `condition` is not `expected`, and also when a signal came after the move: in both cases the caller
/// does not own `mutex`. `TimedOut`, `Invalid` (both words the same), `Fault`, `OwnerGone`, `NotPermitted`,
/// `NoMemory`, `Unsupported`, `Deadlock`.
#[doc(alias = "FUTEX_WAIT_REQUEUE_PI")]
pub fn wait_requeue_pi(
    condition: &AtomicU32,
    expected: u32,
    mutex: &AtomicU32,
    scope: Scope,
    clock: Clock,
    deadline: Option<&Timespec>,
) -> Result<(), PiError> {
    raw::wait_requeue_pi(condition, scope.flags() | clock.flags(), expected, deadline, mutex)
        .map_err(Into::into)
}

/// Wakes the strongest waiter of `condition` if `mutex` is free (it wakes up owning it) and moves up to `requeue`
/// more to `mutex`. Returns how many were woken or moved.
///
/// # Errors
///
/// `Again` when `condition` is not `expected` (or an owner is exiting: retry), `Invalid` when waiters are not in
/// [`wait_requeue_pi`] for this `mutex`, `Fault`, `OwnerGone`, `NotPermitted`, `NoMemory`, `Unsupported`, `Deadlock`.
#[doc(alias = "FUTEX_CMP_REQUEUE_PI")]
pub fn cmp_requeue_pi(
    condition: &AtomicU32,
    expected: u32,
    mutex: &AtomicU32,
    requeue: u32,
    scope: Scope,
) -> Result<usize, PiError> {
    raw::cmp_requeue_pi(condition, scope.flags(), requeue, mutex, expected).map_err(Into::into)
}

/// Why a plain [`wait`] ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WaitError {
    /// `EAGAIN`: the word did not have the expected value.
    Changed,
    /// `EINTR`: a signal was handled.
    Interrupted,
    /// `ETIMEDOUT`: the deadline passed.
    TimedOut,
    /// Anything else: `EFAULT`, `EINVAL`, `ENOSYS`.
    Other(Errno),
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed => f.write_str("the word had another value"),
            Self::Interrupted => f.write_str("a signal ended the wait"),
            Self::TimedOut => f.write_str("the deadline passed"),
            Self::Other(errno) => write!(f, "unexpected error: {errno}"),
        }
    }
}

impl core::error::Error for WaitError {}

/// Sleeps while the word is `expected`, until a [`wake`]. `deadline` is absolute on `clock`. May return for no reason.
///
/// # Errors
///
/// See [`WaitError`].
///
/// ```
/// use fastpath_sys::futex::{self, Clock, Scope, WaitError};
/// use std::sync::atomic::AtomicU32;
/// let word = AtomicU32::new(1);
/// assert_eq!(futex::wait(&word, 0, Scope::Private, Clock::Monotonic, None), Err(WaitError::Changed));
/// assert_eq!(futex::wake(&word, 1, Scope::Private), Ok(0));
/// ```
#[doc(alias = "FUTEX_WAIT")]
#[doc(alias = "FUTEX_WAIT_BITSET")]
pub fn wait(
    word: &AtomicU32,
    expected: u32,
    scope: Scope,
    clock: Clock,
    deadline: Option<&Timespec>,
) -> Result<(), WaitError> {
    raw::wait_bitset(word, scope.flags() | clock.flags(), expected, deadline, NonZeroU32::MAX).map_err(
        |errno| match errno {
            Errno::AGAIN => WaitError::Changed,
            Errno::INTR => WaitError::Interrupted,
            Errno::TIMEDOUT => WaitError::TimedOut,
            other => WaitError::Other(other),
        },
    )
}

/// Wakes up to `count` waiters of the word; returns how many.
///
/// # Errors
///
/// `INVAL` when the waiters are PI waiters, `FAULT`, `NOSYS`.
#[doc(alias = "FUTEX_WAKE")]
pub fn wake(word: &AtomicU32, count: u32, scope: Scope) -> Result<usize, Errno> {
    raw::wake(word, scope.flags(), count)
}
