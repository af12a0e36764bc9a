// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The `time` counter of RISC-V. Newer kernels keep `cycle` from user space, so a tick is not a cycle.
#![expect(unsafe_code, reason = "asm that reads the counter")]

use core::arch::asm;

/// What the counter is called.
pub(in crate::bench) const NAME: &str = "rdtime";

/// The counter, read after every earlier memory access has completed.
#[inline]
pub(in crate::bench) fn read() -> u64 {
    let now: u64;
    // SAFETY: Linux lets user space read `time`; the read has no effect. No `nomem`: memory accesses of the measured
    // code must stay on their side of the fence.
    unsafe { asm!("fence", "rdtime {}", out(reg) now, options(nostack, preserves_flags)) };
    now
}

/// False: see the head of this file.
pub(in crate::bench) const fn reads_cycles() -> bool {
    false
}
