// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! RISC-V: MIE of `mstatus` in machine mode, SIE of `sstatus` in supervisor mode (Privileged spec, 3.1.6 and 10.1.1).

use super::{InterruptControl, SINGLE_PROCESSOR};
use core::arch::asm;

/// The machine-mode interrupt enable. Needs machine mode.
#[derive(Debug, Clone, Copy)]
pub struct Interrupts;

/// The supervisor-mode interrupt enable, for kernels above an SBI. Needs supervisor mode.
#[derive(Debug, Clone, Copy)]
pub struct SupervisorInterrupts;

// SAFETY: with MIE clear, no interrupt is taken on this hart in machine mode; one instruction reads and clears it.
// Neither asm block is `nomem`: accesses must not cross them. Nesting: only a bit that was set is set again.
unsafe impl InterruptControl for Interrupts {
    type State = usize;
    const EXCLUDES_OTHER_PROCESSORS: bool = SINGLE_PROCESSOR;

    #[inline(always)]
    fn disable() -> usize {
        let status: usize;
        // SAFETY: clearing MIE has no other effect; machine mode is the type's requirement.
        unsafe { asm!("csrrci {}, mstatus, 8", out(reg) status, options(nostack, preserves_flags)) };
        status & 8
    }

    #[inline(always)]
    unsafe fn restore(status: usize) {
        // SAFETY: the caller passes what `disable` found.
        unsafe { asm!("csrs mstatus, {}", in(reg) status, options(nostack, preserves_flags)) };
    }
}

// SAFETY: as above, with SIE and supervisor mode. Machine-mode interrupts stay with the firmware, which does not touch
// our words.
unsafe impl InterruptControl for SupervisorInterrupts {
    type State = usize;
    const EXCLUDES_OTHER_PROCESSORS: bool = SINGLE_PROCESSOR;

    #[inline(always)]
    fn disable() -> usize {
        let status: usize;
        // SAFETY: clearing SIE has no other effect; supervisor mode is the type's requirement.
        unsafe { asm!("csrrci {}, sstatus, 2", out(reg) status, options(nostack, preserves_flags)) };
        status & 2
    }

    #[inline(always)]
    unsafe fn restore(status: usize) {
        // SAFETY: the caller passes what `disable` found.
        unsafe { asm!("csrs sstatus, {}", in(reg) status, options(nostack, preserves_flags)) };
    }
}
