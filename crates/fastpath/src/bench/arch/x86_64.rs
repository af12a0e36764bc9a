// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The time stamp counter of x86-64.
#![expect(unsafe_code, reason = "intrinsics that read the counter")]

use core::arch::x86_64::{_mm_lfence, _rdtsc};

/// What the counter is called.
pub(in crate::bench) const NAME: &str = "tsc";

/// The counter, read after every earlier instruction has completed and before any later one starts.
#[inline]
pub(in crate::bench) fn read() -> u64 {
    // SAFETY: LFENCE and RDTSC exist on every x86-64 CPU and touch no memory. Linux lets user space read the counter
    // unless a process asked for the opposite (PR_SET_TSC), which we do not.
    unsafe {
        _mm_lfence();
        let now = _rdtsc();
        _mm_lfence();
        now
    }
}

/// True: the counter ticks at the CPU's nominal frequency, so a tick is called a cycle, as the seeds call it.
pub(in crate::bench) const fn reads_cycles() -> bool {
    true
}
