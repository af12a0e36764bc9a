// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Threads and CPUs: ids, affinity, scheduling policy.

use crate::{Errno, arch, result};

pub use rustix::thread::{CpuSet, sched_yield as yield_now};

/// The calling thread's id (`gettid`): a system call each time, about 200 ns. Caches of it must survive `fork`.
///
/// ```
/// // The main thread's id is the process id; this test runs in another thread, perhaps.
/// assert!(fastpath_sys::sched::thread_id() > 0);
/// ```
#[doc(alias = "gettid")]
pub fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

/// The process id (`getpid`): a system call each time.
#[doc(alias = "getpid")]
pub fn process_id() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get() as u32
}

/// The CPU the calling thread was on a moment ago: a few ns by libc (rseq or vDSO), a system call without one.
///
/// Not rustix's: that parses the vDSO itself, and Valgrind hides the vDSO's pages while it still announces them.
///
/// ```
/// assert!(fastpath_sys::sched::current_cpu() < fastpath_sys::sched::possible_cpus());
/// ```
#[doc(alias = "sched_getcpu")]
pub fn current_cpu() -> usize {
    let found = arch::symbol!("sched_getcpu");
    if !found.is_null() {
        // SAFETY: the only symbol of this name is libc's, with this signature.
        let call = unsafe { core::mem::transmute::<*mut core::ffi::c_void, extern "C" fn() -> i32>(found) };
        return call().max(0) as usize;
    }
    let mut cpu = 0_u32;
    // SAFETY: the kernel writes one word; the other pointers may be null.
    let _ = unsafe { arch::syscall6(arch::NR_GETCPU, [&raw mut cpu as usize, 0, 0, 0, 0, 0]) };
    cpu as usize
}

/// How many CPU numbers the kernel may ever use, as `sched_getaffinity` tells it: the size of its CPU masks.
///
/// This bounds `cpu_id` also where `/sys` is not mounted or a container shows a part of the machine. It is a multiple
/// of the machine word: 64 on small machines. Tables of this size cost address space only, if mapped lazily.
///
/// ```
/// assert!(fastpath_sys::sched::possible_cpus() >= fastpath_sys::sched::affinity().unwrap().count() as usize);
/// ```
#[doc(alias = "nr_cpu_ids")]
pub fn possible_cpus() -> usize {
    let mut mask = [0_usize; 8192 / usize::BITS as usize];
    let bytes = size_of_val(&mask);
    // SAFETY: the kernel writes at most `bytes` bytes to `mask`.
    let written = unsafe {
        arch::syscall6(arch::NR_SCHED_GETAFFINITY, [0, bytes, mask.as_mut_ptr() as usize, 0, 0, 0])
    };
    result(written).map_or(8192, |bytes| bytes * 8)
}

/// The CPUs the calling thread may run on.
///
/// # Errors
///
/// `INVAL` on a machine with more than 1024 CPUs.
#[doc(alias = "sched_getaffinity")]
pub fn affinity() -> Result<CpuSet, Errno> {
    rustix::thread::sched_getaffinity(None)
}

/// Restricts the calling thread to `cpus`. When it returns, the thread runs on one of them.
///
/// # Errors
///
/// `INVAL` when none of them is online or allowed for this process.
#[doc(alias = "sched_setaffinity")]
pub fn set_affinity(cpus: &CpuSet) -> Result<(), Errno> {
    rustix::thread::sched_setaffinity(None, cpus)
}

/// Restricts the calling thread to one CPU.
///
/// # Errors
///
/// As [`set_affinity`].
///
/// ```
/// use fastpath_sys::sched;
/// let allowed = sched::affinity().unwrap();
/// let first = (0..1024).find(|cpu| allowed.is_set(*cpu)).unwrap();
/// sched::pin_to(first as u32).unwrap();
/// assert_eq!(sched::current_cpu(), first);
/// sched::set_affinity(&allowed).unwrap();
/// ```
pub fn pin_to(cpu: u32) -> Result<(), Errno> {
    if cpu as usize >= CpuSet::MAX_CPU {
        return Err(Errno::INVAL);
    }
    let mut one = CpuSet::new();
    one.set(cpu as usize);
    set_affinity(&one)
}

/// A scheduling policy, with its static priority where it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// `SCHED_OTHER`: the fair scheduler.
    Other,
    /// `SCHED_FIFO`, priority 1 to 99: runs until it blocks or something stronger comes.
    Fifo(u8),
    /// `SCHED_RR`, priority 1 to 99: as FIFO, with a time slice among equals.
    RoundRobin(u8),
}

/// Sets the policy of thread `thread` (0 is the caller).
///
/// # Errors
///
/// `PERM` without the privilege (CAP_SYS_NICE or RLIMIT_RTPRIO), `INVAL` for a priority out of range, `SRCH`.
///
/// ```
/// use fastpath_sys::sched::{Policy, set_policy};
/// set_policy(0, Policy::Other).unwrap();
/// ```
#[doc(alias = "sched_setscheduler")]
#[doc(alias = "SCHED_FIFO")]
pub fn set_policy(thread: u32, policy: Policy) -> Result<(), Errno> {
    let (number, priority) = match policy {
        Policy::Other => (0, 0),
        Policy::Fifo(priority) => (1, i32::from(priority)),
        Policy::RoundRobin(priority) => (2, i32::from(priority)),
    };
    // SAFETY: the kernel reads one `sched_param`, which is one int.
    let done = unsafe {
        arch::syscall6(
            arch::NR_SCHED_SETSCHEDULER,
            [thread as usize, number, core::ptr::from_ref(&priority) as usize, 0, 0, 0],
        )
    };
    result(done).map(|_| ())
}

/// The policy's number of thread `thread` (0 is the caller): 0 other, 1 FIFO, 2 round robin, 6 deadline.
///
/// # Errors
///
/// `SRCH` when there is no such thread.
#[doc(alias = "sched_getscheduler")]
pub fn policy_number(thread: u32) -> Result<u32, Errno> {
    // SAFETY: no memory is involved.
    result(unsafe { arch::syscall6(arch::NR_SCHED_GETSCHEDULER, [thread as usize, 0, 0, 0, 0, 0]) })
        .map(|number| number as u32)
}

/// Blocks all signals for the calling thread, libc's internal ones too; gives what was blocked before.
///
/// ```
/// let before = fastpath_sys::sched::block_signals();
/// // ... nothing can interrupt here ...
/// fastpath_sys::sched::restore_signals(before);
/// ```
#[doc(alias = "sigprocmask")]
#[must_use = "signals stay blocked until `restore_signals`"]
pub fn block_signals() -> u64 {
    set_mask(u64::MAX)
}

/// Blocks exactly the signals that [`block_signals`] found blocked.
pub fn restore_signals(mask: u64) {
    set_mask(mask);
}

fn set_mask(new: u64) -> u64 {
    const SIG_SETMASK: usize = 2;
    let mut old = 0_u64;
    // SAFETY: the kernel reads and writes 8 bytes each, the size of its signal sets.
    let _ = unsafe {
        arch::syscall6(
            arch::NR_RT_SIGPROCMASK,
            [SIG_SETMASK, &raw const new as usize, &raw mut old as usize, size_of::<u64>(), 0, 0],
        )
    };
    old
}
