// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! AArch64: x19 to x30. The images use no floating point.

core::arch::global_asm!(
    ".section .text.kernel_switch, \"ax\"",
    ".global kernel_switch",
    "kernel_switch:",
    "    stp x19, x20, [sp, #-96]!",
    "    stp x21, x22, [sp, #16]",
    "    stp x23, x24, [sp, #32]",
    "    stp x25, x26, [sp, #48]",
    "    stp x27, x28, [sp, #64]",
    "    stp x29, x30, [sp, #80]",
    "    mov x2, sp",
    "    str x2, [x0]",
    "    mov sp, x1",
    "    ldp x21, x22, [sp, #16]",
    "    ldp x23, x24, [sp, #32]",
    "    ldp x25, x26, [sp, #48]",
    "    ldp x27, x28, [sp, #64]",
    "    ldp x29, x30, [sp, #80]",
    "    ldp x19, x20, [sp], #96",
    "    ret",
    ".text",
);

/// Words of a frame.
pub(super) const FRAME: usize = 12;
/// Which of them is returned to.
pub(super) const RETURN: usize = 11;
