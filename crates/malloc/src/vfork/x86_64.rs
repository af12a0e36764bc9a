// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! x86-64. The call pushes its return address where the child will write: it waits in a register meanwhile.

use core::arch::naked_asm;
use core::ffi::c_int;

use fastpath_alloc::fast::{RSEQ_OFFSET, RSEQ_SIZE};

use super::set_errno;

/// As the C library's.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub extern "C" fn vfork() -> c_int {
    naked_asm!(
        ".cfi_startproc",
        // The return address must survive the child's use of the stack: it waits in a register, and the kernel keeps
        // the parent's registers.
        "pop r9",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_register rip, r9",
        "mov r8, [rip + {area}]",
        "test r8, r8",
        "je 50f",
        // rseq(area, size, UNREGISTER, signature)
        "mov rdi, fs:[0]",
        "add rdi, r8",
        "mov rsi, [rip + {size}]",
        "mov edx, 1",
        "mov r10d, 0x53053053",
        "mov eax, 334",
        "syscall",
        "test rax, rax",
        "jne 50f",
        "mov eax, 58",
        "syscall",
        "test rax, rax",
        "je 40f",
        // The parent: register again.
        "mov r8, rax",
        "xor edx, edx",
        "mov eax, 334",
        "syscall",
        "mov rax, r8",
        "40: push r9",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset rip, 0",
        "cmp rax, -4095",
        "jae 60f",
        "ret",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_register rip, r9",
        // Nothing registered: only the call itself.
        "50: mov eax, 58",
        "syscall",
        "jmp 40b",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset rip, 0",
        "60: mov edi, eax",
        "neg edi",
        "push rax",
        ".cfi_adjust_cfa_offset 8",
        "call {set_errno}",
        "pop rax",
        ".cfi_adjust_cfa_offset -8",
        "mov eax, -1",
        "ret",
        ".cfi_endproc",
        area = sym RSEQ_OFFSET,
        size = sym RSEQ_SIZE,
        set_errno = sym set_errno,
    )
}
