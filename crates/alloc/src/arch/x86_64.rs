// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! x86-64.

use core::arch::asm;

/// Registers as they are numbered by DWARF.
pub(crate) const REGISTERS: usize = 17;
/// The register that leads from frame to frame in code without tables.
pub(crate) const FRAME_POINTER: usize = 6;
pub(crate) const STACK_POINTER: usize = 7;
/// The register whose place the tables give for where a call returns to: no register here, but a number.
pub(crate) const RETURN: usize = 16;
/// Where the instruction pointer is kept.
pub(crate) const INSTRUCTION: usize = 16;
/// The registers that a call preserves, and [`RETURN`].
pub(crate) const SAVED: [usize; 7] = [16, 3, 6, 12, 13, 14, 15];

/// A return address as an address.
#[inline(always)]
pub(crate) fn plain(address: usize) -> usize {
    address
}

/// The registers a call preserves, as they are here.
#[inline(always)]
#[expect(clippy::unnecessary_wraps, reason = "other machines have none")]
pub(crate) fn registers() -> Option<[usize; REGISTERS]> {
    let mut all = [0usize; REGISTERS];
    // SAFETY: stores registers into the array.
    unsafe {
        asm!(
            "mov [{all} + 24], rbx",
            "mov [{all} + 48], rbp",
            "mov [{all} + 56], rsp",
            "mov [{all} + 96], r12",
            "mov [{all} + 104], r13",
            "mov [{all} + 112], r14",
            "mov [{all} + 120], r15",
            "lea {ip}, [rip]",
            "mov [{all} + 128], {ip}",
            all = in(reg) all.as_mut_ptr(),
            ip = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
    Some(all)
}
