// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! x86-64.

use core::arch::asm;

/// The registers a call preserves, by their DWARF numbers (16 is the instruction pointer), as they are here.
#[inline(always)]
#[expect(clippy::unnecessary_wraps, reason = "other machines have none")]
pub(crate) fn registers() -> Option<[usize; 17]> {
    let mut all = [0usize; 17];
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
