// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! RISC-V: s0 to s11 and the return address.

core::arch::global_asm!(
    ".section .text.kernel_switch, \"ax\"",
    ".global kernel_switch",
    "kernel_switch:",
    "    addi sp, sp, -112",
    "    sd ra, 0(sp)",
    // No reservation outlives its task's turn.
    ".option push",
    ".option arch, +a",
    "    sc.d zero, ra, (sp)",
    ".option pop",
    "    sd s0, 8(sp)",
    "    sd s1, 16(sp)",
    "    sd s2, 24(sp)",
    "    sd s3, 32(sp)",
    "    sd s4, 40(sp)",
    "    sd s5, 48(sp)",
    "    sd s6, 56(sp)",
    "    sd s7, 64(sp)",
    "    sd s8, 72(sp)",
    "    sd s9, 80(sp)",
    "    sd s10, 88(sp)",
    "    sd s11, 96(sp)",
    "    sd sp, 0(a0)",
    "    mv sp, a1",
    "    ld ra, 0(sp)",
    "    ld s0, 8(sp)",
    "    ld s1, 16(sp)",
    "    ld s2, 24(sp)",
    "    ld s3, 32(sp)",
    "    ld s4, 40(sp)",
    "    ld s5, 48(sp)",
    "    ld s6, 56(sp)",
    "    ld s7, 64(sp)",
    "    ld s8, 72(sp)",
    "    ld s9, 80(sp)",
    "    ld s10, 88(sp)",
    "    ld s11, 96(sp)",
    "    addi sp, sp, 112",
    "    ret",
    ".text",
);

/// Words of a frame.
pub(super) const FRAME: usize = 14;
/// Which of them is returned to.
pub(super) const RETURN: usize = 0;
