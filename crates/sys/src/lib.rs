// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

#![doc = include_str!("../README.md")]
#![no_std]
#![cfg(target_os = "linux")]

#[cfg(test)]
extern crate std;

#[expect(unsafe_code, reason = "system calls, the thread pointer and weak symbols are assembly")]
#[allow(missing_docs, reason = "each architecture repeats the same documented names")]
#[doc(hidden)]
pub mod arch;
#[expect(unsafe_code, reason = "calls libc's getauxval when it is there")]
pub mod auxv;
#[expect(unsafe_code, reason = "calls libc's clock_gettime when it is there")]
pub mod clock;
#[expect(unsafe_code, reason = "calls libc's getenv and reads the C string it returns")]
pub mod env;
pub mod futex;
#[expect(unsafe_code, reason = "loads entries of the global offset table")]
#[expect(non_snake_case, reason = "C++'s mangled names")]
pub mod libc_symbols;
#[expect(unsafe_code, reason = "calls libc's dynamic linker when it is there")]
pub mod linker;
#[expect(unsafe_code, reason = "one raw system call for arguments rustix's types cannot express")]
pub mod membarrier;
#[expect(unsafe_code, reason = "write(2) of a byte slice")]
pub mod message;
#[expect(unsafe_code, reason = "maps and unmaps memory")]
pub mod mm;
#[expect(unsafe_code, reason = "system calls on addresses rustix's types cannot express")]
pub mod pi_support;
#[expect(unsafe_code, reason = "the rseq system call and the thread's area")]
pub mod rseq;
#[expect(unsafe_code, reason = "scheduler system calls rustix does not have")]
pub mod sched;

pub use rustix::io::Errno;

/// Turns the kernel's result into a `Result`.
fn result(value: isize) -> Result<usize, Errno> {
    if (-4095..0).contains(&value) {
        Err(Errno::from_raw_os_error(-value as i32))
    } else {
        Ok(value as usize)
    }
}
