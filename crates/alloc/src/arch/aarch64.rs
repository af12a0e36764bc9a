// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! AArch64.

use core::arch::asm;

/// Registers as they are numbered by DWARF, up to the stack pointer; behind them the instruction pointer.
pub(crate) const REGISTERS: usize = 33;
/// The register that leads from frame to frame in code without tables.
pub(crate) const FRAME_POINTER: usize = 29;
pub(crate) const STACK_POINTER: usize = 31;
/// The register whose place the tables give for where a call returns to.
pub(crate) const RETURN: usize = 30;
/// Where the instruction pointer is kept.
pub(crate) const INSTRUCTION: usize = 32;
/// The registers that a call preserves, and [`RETURN`].
pub(crate) const SAVED: [usize; 12] = [30, 29, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28];

/// A return address without the signature that pointer authentication puts into its upper bits.
#[inline(always)]
pub(crate) fn plain(address: usize) -> usize {
    address & ((1 << 48) - 1)
}

/// The registers a call preserves, as they are here.
#[inline(always)]
#[expect(clippy::unnecessary_wraps, reason = "other machines have none")]
pub(crate) fn registers() -> Option<[usize; REGISTERS]> {
    let mut all = [0usize; REGISTERS];
    // SAFETY: stores registers into the array.
    unsafe {
        asm!(
            "stp x19, x20, [{all}, #152]",
            "stp x21, x22, [{all}, #168]",
            "stp x23, x24, [{all}, #184]",
            "stp x25, x26, [{all}, #200]",
            "stp x27, x28, [{all}, #216]",
            "stp x29, x30, [{all}, #232]",
            "mov {scratch}, sp",
            "str {scratch}, [{all}, #248]",
            "adr {scratch}, .",
            "str {scratch}, [{all}, #256]",
            all = in(reg) all.as_mut_ptr(),
            scratch = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
    Some(all)
}
