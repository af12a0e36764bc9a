// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `membarrier(2)`: fences of other CPUs, and the restart of their critical sections.

use rustix::thread::{Cpuid, MembarrierCommand, membarrier, membarrier_cpu, membarrier_query};

use crate::{Errno, arch, result};

pub use rustix::thread::MembarrierQuery;

/// The commands this kernel knows; empty if it knows no membarrier.
///
/// ```
/// // Linux 5.10 and newer list the rseq commands.
/// println!("{:?}", fastpath_sys::membarrier::supported());
/// ```
#[doc(alias = "MEMBARRIER_CMD_QUERY")]
pub fn supported() -> MembarrierQuery {
    membarrier_query()
}

/// Does the kernel have the rseq commands (Linux 5.10)?
pub fn has_rseq() -> bool {
    supported()
        .contains(MembarrierQuery::PRIVATE_EXPEDITED_RSEQ | MembarrierQuery::REGISTER_PRIVATE_EXPEDITED_RSEQ)
}

/// Declares that this process will use the rseq fences below. Once per process; a forked child inherits it, a new
/// program does not. Repeating it is harmless.
///
/// # Errors
///
/// `INVAL` or `NOSYS` when the kernel does not know the command.
///
/// ```
/// use fastpath_sys::membarrier;
/// if membarrier::has_rseq() {
///     membarrier::register_rseq().unwrap();
///     membarrier::rseq_all().unwrap();
/// }
/// ```
#[doc(alias = "MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ")]
pub fn register_rseq() -> Result<(), Errno> {
    membarrier(MembarrierCommand::RegisterPrivateExpeditedRseq)
}

/// Aborts the critical section of every other running thread of this process.
///
/// When it returns, every thread of the process is outside any section it was in before the call, and every section
/// that starts later sees the memory written before the call. About 10 µs.
///
/// # Errors
///
/// `PERM` before [`register_rseq`]; `INVAL` or `NOSYS` when the kernel does not know the command.
#[doc(alias = "MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ")]
pub fn rseq_all() -> Result<(), Errno> {
    membarrier(MembarrierCommand::PrivateExpeditedRseq)
}

/// As [`rseq_all`], for threads running on `cpu` only. A CPU that does not exist or runs another process succeeds.
///
/// # Errors
///
/// As [`rseq_all`].
#[doc(alias = "MEMBARRIER_CMD_FLAG_CPU")]
pub fn rseq_cpu(cpu: u32) -> Result<(), Errno> {
    // SAFETY: the kernel accepts any number; one that names no CPU fences nothing.
    let cpu = unsafe { Cpuid::from_raw(cpu) };
    membarrier_cpu(MembarrierCommand::PrivateExpeditedRseq, cpu)
}

/// Declares that this process will use [`expedited`].
///
/// # Errors
///
/// `INVAL` or `NOSYS` when the kernel does not know the command.
pub fn register_expedited() -> Result<(), Errno> {
    membarrier(MembarrierCommand::RegisterPrivateExpedited)
}

/// A full memory fence on every CPU that runs a thread of this process. It aborts no critical section.
///
/// # Errors
///
/// `PERM` before [`register_expedited`].
pub fn expedited() -> Result<(), Errno> {
    membarrier(MembarrierCommand::PrivateExpedited)
}

/// The commands this process has registered for. Since Linux 6.3.
///
/// # Errors
///
/// `INVAL` on older kernels.
#[doc(alias = "MEMBARRIER_CMD_GET_REGISTRATIONS")]
pub fn registrations() -> Result<u32, Errno> {
    raw(512, 0, 0).map(|bits| bits as u32)
}

/// The system call with any arguments: for commands and flags this module has no name for.
///
/// # Errors
///
/// The kernel's.
pub fn raw(command: u32, flags: u32, cpu: i32) -> Result<usize, Errno> {
    // SAFETY: membarrier reads and writes no memory of its caller.
    result(unsafe {
        arch::syscall6(arch::NR_MEMBARRIER, [command as usize, flags as usize, cpu as usize, 0, 0, 0])
    })
}
