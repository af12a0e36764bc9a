// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! AArch64: the I bit of DAIF. FIQ, SError and debug exceptions stay as they are (Arm ARM, C5.2 "DAIF").

use super::{InterruptControl, SINGLE_PROCESSOR};
use core::arch::asm;

/// The processor's IRQ mask. Needs EL1 or higher.
#[derive(Debug, Clone, Copy)]
pub struct Interrupts;

// SAFETY: with I set, no IRQ is taken on this processor. Neither asm block is `nomem`: accesses must not cross them.
// Nesting: the whole mask is saved and put back.
unsafe impl InterruptControl for Interrupts {
    type State = u64;
    const EXCLUDES_OTHER_PROCESSORS: bool = SINGLE_PROCESSOR;

    #[inline(always)]
    fn disable() -> u64 {
        let daif;
        // SAFETY: reading and setting the mask has no other effect; EL1 is the documented requirement of the type.
        unsafe { asm!("mrs {}, daif", "msr daifset, #2", out(reg) daif, options(nostack, preserves_flags)) };
        daif
    }

    #[inline(always)]
    unsafe fn restore(daif: u64) {
        // SAFETY: the caller passes what `disable` read.
        unsafe { asm!("msr daif, {}", in(reg) daif, options(nostack, preserves_flags)) };
    }
}
