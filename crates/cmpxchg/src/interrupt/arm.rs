// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! ARM other than the M profile: the I bit of CPSR. FIQ stays as it is (Arm ARM, "Program status registers").
//!
//! The functions are ARM code even in a Thumb program, because `mrs` does not exist in 16-bit Thumb.

use super::{InterruptControl, SINGLE_PROCESSOR};
use core::arch::asm;

/// The processor's IRQ mask. Needs a privileged mode.
#[derive(Debug, Clone, Copy)]
pub struct Interrupts;

// SAFETY: with I set, no IRQ is taken on this processor. Neither asm block is `nomem`: accesses must not cross them.
// An interrupt between `mrs` and `msr` restores CPSR when it returns, so the saved value is still right. Nesting: the
// control byte is saved and put back.
unsafe impl InterruptControl for Interrupts {
    type State = u32;
    const EXCLUDES_OTHER_PROCESSORS: bool = SINGLE_PROCESSOR;

    #[inline]
    #[instruction_set(arm::a32)]
    fn disable() -> u32 {
        let cpsr;
        // SAFETY: setting I in the control byte has no other effect; a privileged mode is the type's requirement.
        // Preserves the flags: `orr` without `s`, and `_c` writes the control byte only.
        unsafe {
            asm!(
                "mrs {cpsr}, cpsr",
                "orr {masked}, {cpsr}, #0x80",
                "msr cpsr_c, {masked}",
                cpsr = out(reg) cpsr,
                masked = out(reg) _,
                options(nostack, preserves_flags)
            );
        }
        cpsr
    }

    #[inline]
    #[instruction_set(arm::a32)]
    unsafe fn restore(cpsr: u32) {
        // SAFETY: the caller passes what `disable` read: the same mode, the earlier mask.
        unsafe { asm!("msr cpsr_c, {}", in(reg) cpsr, options(nostack, preserves_flags)) };
    }
}
