// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! x86-64: six registers and the return address.

core::arch::global_asm!(
    ".section .text.kernel_switch, \"ax\"",
    ".global kernel_switch",
    "kernel_switch:",
    "    push rbp",
    "    push rbx",
    "    push r12",
    "    push r13",
    "    push r14",
    "    push r15",
    "    mov [rdi], rsp",
    "    mov rsp, rsi",
    "    pop r15",
    "    pop r14",
    "    pop r13",
    "    pop r12",
    "    pop rbx",
    "    pop rbp",
    "    ret",
    ".text",
);

/// Words of a frame. One more than is popped: a function starts with a stack that is 8 bytes off a multiple of 16.
pub(super) const FRAME: usize = 8;
/// Which of them is returned to.
pub(super) const RETURN: usize = 6;
