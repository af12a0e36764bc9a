// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The real kernel: what this half of the crate asks of Linux, and nothing else.

#![expect(unsafe_code, reason = "reads the thread's rseq area; registers a page and a handler for fork")]

use core::ffi::c_int;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fastpath_sys::futex::{self, Clock, PiError, Scope, Timespec, WaitError};
use fastpath_sys::{pi_support, rseq, sched};

use super::protocol::Refusal;

/// An absolute point in time, on one of the two clocks a PI futex knows.
#[derive(Clone, Copy, Debug)]
pub enum Deadline {
    /// On the clock that no setting moves.
    Monotonic(Instant),
    /// On the wall clock.
    Realtime(SystemTime),
}

impl Deadline {
    pub(super) fn has_passed(self) -> bool {
        match self {
            Self::Monotonic(at) => Instant::now() >= at,
            Self::Realtime(at) => SystemTime::now() >= at,
        }
    }

    const fn clock(self) -> Clock {
        match self {
            Self::Monotonic(_) => Clock::Monotonic,
            Self::Realtime(_) => Clock::Realtime,
        }
    }

    /// As the kernel's absolute time on the same clock; never later than the deadline, a little earlier perhaps.
    fn timespec(self) -> Timespec {
        pi_support::timespec(match self {
            // `Instant` is CLOCK_MONOTONIC but hides its number: a now, plus what remains as of a later now.
            Self::Monotonic(at) => {
                let now = pi_support::monotonic_now();
                now.saturating_add(at.saturating_duration_since(Instant::now()))
            }
            Self::Realtime(at) => since_1970(at),
        })
    }
}

/// Before 1970 is past, as 1970 is.
fn since_1970(at: SystemTime) -> Duration {
    at.duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl From<PiError> for Refusal {
    fn from(error: PiError) -> Self {
        match error {
            PiError::Deadlock => Self::Deadlock,
            PiError::TimedOut => Self::TimedOut,
            PiError::OwnerGone => Self::NoSuchOwner,
            PiError::NotPermitted => Self::NotOurs,
            PiError::Again => Self::Again,
            PiError::Interrupted => Self::Interrupted,
            PiError::Invalid => Self::Other(libc::EINVAL),
            PiError::Fault => Self::Other(libc::EFAULT),
            PiError::NoMemory => Self::Other(libc::ENOMEM),
            PiError::Unsupported => Self::Other(libc::ENOSYS),
            PiError::Other(errno) => Self::Other(errno.raw_os_error()),
        }
    }
}

/// Repeats `wait` while it says that the time is over before it really is: the conversion of an [`Instant`] may be
/// early by as long as the thread was not running meanwhile.
fn until<T>(deadline: Deadline, mut wait: impl FnMut(&Timespec) -> Result<T, PiError>) -> Result<T, PiError> {
    loop {
        match wait(&deadline.timespec()) {
            Err(PiError::TimedOut) if !deadline.has_passed() => {}
            answer => return answer,
        }
    }
}

pub(super) fn lock_pi(word: &AtomicU32, deadline: Option<Deadline>) -> Result<(), Refusal> {
    let Some(deadline) = deadline else { return Ok(futex::lock_pi(word, Scope::Private, None)?) };
    let answer = match deadline {
        Deadline::Realtime(_) => until(deadline, |time| futex::lock_pi(word, Scope::Private, Some(time))),
        Deadline::Monotonic(_) => {
            until(deadline, |time| futex::lock_pi2(word, Scope::Private, Clock::Monotonic, Some(time)))
        }
    };
    match (answer, deadline) {
        (Err(PiError::Unsupported), Deadline::Monotonic(at)) => Ok(lock_pi_before_5_14(word, at)?),
        (answer, _) => Ok(answer?),
    }
}

/// Before Linux 5.14 a PI futex knows the wall clock only: convert, and look at the right clock when the time is over.
fn lock_pi_before_5_14(word: &AtomicU32, at: Instant) -> Result<(), PiError> {
    loop {
        let remaining = at.saturating_duration_since(Instant::now());
        let wall = pi_support::timespec(since_1970(SystemTime::now()).saturating_add(remaining));
        match futex::lock_pi(word, Scope::Private, Some(&wall)) {
            Err(PiError::TimedOut) if Instant::now() < at => {}
            answer => return answer,
        }
    }
}

pub(super) fn trylock_pi(word: &AtomicU32) -> Result<(), Refusal> {
    Ok(futex::trylock_pi(word, Scope::Private)?)
}

pub(super) fn unlock_pi(word: &AtomicU32) -> Result<(), Refusal> {
    Ok(futex::unlock_pi(word, Scope::Private)?)
}

/// One wait; unlike a lock it is never repeated here, since the caller may have been woken for good.
pub(super) fn wait_requeue_pi(
    condition: &AtomicU32,
    expected: u32,
    mutex: &AtomicU32,
    deadline: Option<Deadline>,
) -> Result<(), Refusal> {
    let time = deadline.map(Deadline::timespec);
    let clock = deadline.map_or(Clock::Monotonic, Deadline::clock);
    Ok(futex::wait_requeue_pi(condition, expected, mutex, Scope::Private, clock, time.as_ref())?)
}

/// Wakes or moves one waiter of `condition`, and up to `more` others. The mutex need not exist any more.
pub(super) fn cmp_requeue_pi(
    condition: &AtomicU32,
    expected: u32,
    mutex: *const AtomicU32,
    more: u32,
) -> Result<usize, Refusal> {
    Ok(pi_support::cmp_requeue_pi_at(condition, expected, mutex, more, Scope::Private)?)
}

/// Sleeps while `word` is `expected`. True if the deadline passed; may return early for any other reason.
pub(super) fn wait(word: &AtomicU32, expected: u32, deadline: Option<Deadline>) -> bool {
    let time = deadline.map(Deadline::timespec);
    let clock = deadline.map_or(Clock::Monotonic, Deadline::clock);
    let answer = futex::wait(word, expected, Scope::Private, clock, time.as_ref());
    answer == Err(WaitError::TimedOut) && deadline.is_some_and(Deadline::has_passed)
}

/// Wakes one plain waiter.
pub(super) fn wake_one(word: &AtomicU32) {
    // The only errors are those of a bad address.
    let _ = futex::wake(word, 1, Scope::Private);
}

pub(super) fn gettid() -> u32 {
    sched::thread_id()
}

/// Lets others run before retry number `attempt`.
pub(super) fn give_way(attempt: u32) {
    if attempt < 8 {
        sched::yield_now();
    } else {
        // A yield does not let weaker threads run: sleep, should they be what is waited for.
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Lets a forked child find `length` bytes at `start` zeroed. False if the kernel cannot.
///
/// # Safety
///
/// The range is whole pages of the caller's, for which zeroes are valid contents in a child.
pub(super) unsafe fn wipe_on_fork(start: NonNull<u8>, length: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { pi_support::wipe_on_fork(start, length).is_ok() }
}

/// Lets the C library call `handler` in each child it forks.
pub(super) fn at_fork_in_child(handler: unsafe extern "C" fn()) -> bool {
    // SAFETY: the handler is a function of this crate that only stores to a static.
    let answer: c_int = unsafe { libc::pthread_atfork(None, None, Some(handler)) };
    answer == 0
}

/// Where each thread's rseq area is, from its thread pointer. Always that of an area that lives as long as its thread and
/// says whether the thread is registered.
pub(super) fn rseq_area() -> isize {
    match rseq::libc() {
        rseq::Libc::Registers { offset, .. } => offset,
        // Perhaps another part of the program registers its threads.
        rseq::Libc::Silent | rseq::Libc::Declined => rseq::area_offset(),
    }
}

/// The CPU the caller runs on, by the rseq area at `offset`; as a signed number it is negative if the thread is not
/// registered.
///
/// # Safety
///
/// `offset` comes from [`rseq_area`].
#[inline(always)]
pub(super) unsafe fn cpu_by(offset: isize) -> u32 {
    // SAFETY: the offset names the calling thread's area, which lives as long as the thread.
    let area = unsafe { &*rseq::area_at(offset) };
    // ORDERING: Relaxed, the kernel writes it for this thread.
    area.cpu_id.load(Ordering::Relaxed)
}
