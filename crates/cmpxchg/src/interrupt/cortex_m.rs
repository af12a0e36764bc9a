// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The M profile: PRIMASK. NMI and HardFault still arrive (Armv6-M ARM, B1.4.3 "The special-purpose mask register").

use super::{InterruptControl, SINGLE_PROCESSOR};
use core::arch::asm;

/// The processor's PRIMASK. Needs privileged mode: unprivileged code silently changes nothing.
#[derive(Debug, Clone, Copy)]
pub struct Interrupts;

// SAFETY: with PRIMASK set, no exception of configurable priority is taken on this processor. Neither asm block is
// `nomem`: accesses must not cross them. Nesting: interrupts come back on only if PRIMASK was clear.
unsafe impl InterruptControl for Interrupts {
    type State = u32;
    const EXCLUDES_OTHER_PROCESSORS: bool = SINGLE_PROCESSOR;

    #[inline(always)]
    fn disable() -> u32 {
        let primask;
        // SAFETY: reading and setting PRIMASK has no other effect.
        unsafe { asm!("mrs {}, PRIMASK", "cpsid i", out(reg) primask, options(nostack, preserves_flags)) };
        primask
    }

    #[inline(always)]
    unsafe fn restore(primask: u32) {
        // SAFETY: the caller passes what `disable` read.
        unsafe { asm!("msr PRIMASK, {}", in(reg) primask, options(nostack, preserves_flags)) };
    }
}
