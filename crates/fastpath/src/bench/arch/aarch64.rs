// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The virtual counter of AArch64. It ticks slower than the CPU (often 24 MHz to 1 GHz), so a tick is not a cycle.
#![expect(unsafe_code, reason = "asm that reads the counter")]

use core::arch::asm;

/// What the counter is called.
pub(in crate::bench) const NAME: &str = "cntvct_el0";

/// The counter, read after every earlier instruction has completed.
#[inline]
pub(in crate::bench) fn read() -> u64 {
    let now: u64;
    // SAFETY: Linux enables CNTVCT_EL0 for user space; the read has no effect. No `nomem`: memory accesses of the
    // measured code must stay on their side of the barrier.
    unsafe { asm!("isb", "mrs {}, cntvct_el0", "isb", out(reg) now, options(nostack, preserves_flags)) };
    now
}

/// False: see the head of this file.
pub(in crate::bench) const fn reads_cycles() -> bool {
    false
}
