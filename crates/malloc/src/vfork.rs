// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `vfork`. Its child runs on the parent's memory and thread area, but the kernel does not restart sequences for it: a
//! child that allocates would work on another CPU's sheaves unprotected. So the parent's registration is taken back
//! first, which makes the child (and the parent's signal handlers) find the guard; the parent registers again when it
//! comes back.

use core::arch::naked_asm;
use core::ffi::c_int;

use fastpath_alloc::fast::{RSEQ_OFFSET, RSEQ_SIZE};

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

extern "C" fn set_errno(value: c_int) {
    fastpath_alloc::errno::set(value);
}
