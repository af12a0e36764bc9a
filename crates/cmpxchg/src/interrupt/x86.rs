// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! x86 and x86-64 on bare metal: IF of the flags register (Intel SDM vol. 2, CLI and STI). NMI and #MC still arrive.

use super::{InterruptControl, SINGLE_PROCESSOR};
use core::arch::asm;

/// The processor's interrupt flag. Needs privilege level 0 (or IOPL).
#[derive(Debug, Clone, Copy)]
pub struct Interrupts;

const INTERRUPT_FLAG: usize = 1 << 9;

// SAFETY: with IF clear, no maskable interrupt is taken on this processor. No asm block is `nomem`: accesses must not
// cross them. Nesting: interrupts come back on only if IF was set.
unsafe impl InterruptControl for Interrupts {
    type State = usize;
    const EXCLUDES_OTHER_PROCESSORS: bool = SINGLE_PROCESSOR;

    #[inline(always)]
    fn disable() -> usize {
        let flags: usize;
        // SAFETY: reads the flags and clears IF; level 0 is the type's requirement. Not `nostack`: it pushes.
        // Preserves the arithmetic flags.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            asm!("pushfq", "pop {}", "cli", out(reg) flags, options(preserves_flags));
            #[cfg(target_arch = "x86")]
            asm!("pushfd", "pop {}", "cli", out(reg) flags, options(preserves_flags));
        }
        flags
    }

    #[inline(always)]
    unsafe fn restore(flags: usize) {
        if flags & INTERRUPT_FLAG != 0 {
            // SAFETY: they were on when the matching `disable` ran.
            unsafe { asm!("sti", options(nostack, preserves_flags)) };
        }
    }
}
