// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a PI mutex and its condition variable need beside [`futex`](crate::futex): a requeue to a word that may be gone,
//! memory that a forked child finds zeroed, the clock of deadlines, and the deadline scheduler.

use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;
use core::time::Duration;

use rustix::mm::Advice;
use rustix::time::ClockId;

use crate::futex::{PiError, Scope, Timespec};
use crate::{Errno, arch, result};

/// `FUTEX_CMP_REQUEUE_PI`.
const CMP_REQUEUE_PI: usize = 12;
/// `FUTEX_PRIVATE_FLAG`.
const PRIVATE: usize = 128;
/// `SCHED_DEADLINE`.
const SCHED_DEADLINE: u32 = 6;

/// As [`cmp_requeue_pi`](crate::futex::cmp_requeue_pi), with the mutex as an address that need not be valid any more.
///
/// A condition variable remembers where its waiters' mutex is. By the time it notifies, the last waiter may have left
/// and the mutex may be gone; the kernel then finds no waiter, or one that waits for another mutex, and writes nothing.
///
/// # Errors
///
/// As `cmp_requeue_pi`; `Fault` and `Invalid` also say that the mutex is gone or another one.
///
/// ```
/// use fastpath_sys::{futex::{PiError, Scope}, pi_support::cmp_requeue_pi_at};
/// use std::sync::atomic::AtomicU32;
/// let (condition, mutex) = (AtomicU32::new(3), AtomicU32::new(0));
/// assert_eq!(cmp_requeue_pi_at(&condition, 3, &raw const mutex, 0, Scope::Private), Ok(0));
/// assert_eq!(cmp_requeue_pi_at(&condition, 4, &raw const mutex, 0, Scope::Private), Err(PiError::Again));
/// ```
#[doc(alias = "FUTEX_CMP_REQUEUE_PI")]
pub fn cmp_requeue_pi_at(
    condition: &AtomicU32,
    expected: u32,
    mutex: *const AtomicU32,
    requeue: u32,
    scope: Scope,
) -> Result<usize, PiError> {
    let operation = match scope {
        Scope::Private => CMP_REQUEUE_PI | PRIVATE,
        Scope::Shared => CMP_REQUEUE_PI,
    };
    let arguments = [
        core::ptr::from_ref(condition).addr(),
        operation,
        1, // The kernel wakes or moves one waiter, and insists on this number.
        requeue as usize,
        mutex.addr(),
        expected as usize,
    ];
    // SAFETY: the kernel checks both addresses. It writes to `mutex` only on behalf of a thread that waits in
    // `wait_requeue_pi` with this very address as its mutex, and such a thread keeps the mutex alive.
    result(unsafe { arch::syscall6(arch::NR_FUTEX, arguments) }).map_err(Into::into)
}

/// Lets a child made by fork, whichever way, find these pages filled with zeroes.
///
/// # Errors
///
/// `INVAL` if the range is not private anonymous memory in whole pages, or before Linux 4.14.
///
/// # Safety
///
/// The caller owns the pages, and zeroes are valid contents for a child.
#[doc(alias = "MADV_WIPEONFORK")]
pub unsafe fn wipe_on_fork(memory: NonNull<u8>, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the caller's contract; nothing changes in this process.
    unsafe { rustix::mm::madvise(memory.as_ptr().cast(), bytes, Advice::LinuxWipeOnFork) }
}

/// The time of `CLOCK_MONOTONIC`, on which absolute deadlines are given to the kernel.
///
/// ```
/// use fastpath_sys::pi_support::monotonic_now;
/// assert!(monotonic_now() <= monotonic_now());
/// ```
#[doc(alias = "clock_gettime")]
pub fn monotonic_now() -> Duration {
    crate::clock::now(ClockId::Monotonic)
}

/// A duration since a clock's zero as the kernel's absolute time. Beyond what it can say: its last moment.
///
/// ```
/// use fastpath_sys::pi_support::timespec;
/// use std::time::Duration;
/// assert_eq!(timespec(Duration::from_millis(1500)).tv_nsec, 500_000_000);
/// assert_eq!(timespec(Duration::MAX).tv_sec, i64::MAX);
/// ```
pub fn timespec(since_zero: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(since_zero.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: since_zero.subsec_nanos().into(),
    }
}

/// The kernel's `struct sched_attr`, first version.
#[repr(C)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

const _: () = assert!(size_of::<SchedAttr>() == 48);

/// Puts thread `thread` (0 is the caller) under the deadline scheduler: in each `period` it may run for `runtime`, and
/// gets it before `deadline` has passed.
///
/// # Errors
///
/// `PERM` without the privilege, or if the thread's affinity is not a whole scheduling domain; `BUSY` when the machine
/// has no such share left; `INVAL` unless 1 µs <= runtime <= deadline <= period; `SRCH`.
#[doc(alias = "SCHED_DEADLINE")]
#[doc(alias = "sched_setattr")]
pub fn set_deadline(
    thread: u32,
    runtime: Duration,
    deadline: Duration,
    period: Duration,
) -> Result<(), Errno> {
    let nanoseconds = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
    let attributes = SchedAttr {
        size: size_of::<SchedAttr>() as u32,
        policy: SCHED_DEADLINE,
        flags: 0,
        nice: 0,
        priority: 0,
        runtime: nanoseconds(runtime),
        deadline: nanoseconds(deadline),
        period: nanoseconds(period),
    };
    let address = core::ptr::from_ref(&attributes).expose_provenance();
    // SAFETY: the kernel reads `attributes`, whose size is in its first field.
    result(unsafe { arch::syscall6(arch::NR_SCHED_SETATTR, [thread as usize, address, 0, 0, 0, 0]) })
        .map(drop)
}

/// The highest real-time priority this process may set without a privilege (`RLIMIT_RTPRIO`); `None` for no limit.
///
/// ```
/// println!("{:?}", fastpath_sys::pi_support::real_time_limit());
/// ```
#[doc(alias = "RLIMIT_RTPRIO")]
pub fn real_time_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Rtprio).current
}
