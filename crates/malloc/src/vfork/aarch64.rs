// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! AArch64: `clone` with `CLONE_VM` and `CLONE_VFORK`. The return address is in a register, and the kernel keeps the
//! parent's registers, all but the result.

use core::arch::naked_asm;
use core::ffi::c_int;

use fastpath_alloc::fast::{RSEQ_OFFSET, RSEQ_SIZE};

use super::set_errno;

/// As the C library's.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub extern "C" fn vfork() -> c_int {
    naked_asm!(
        "adrp x9, {area}",
        "ldr x9, [x9, :lo12:{area}]",
        "cbz x9, 50f",
        "mrs x10, tpidr_el0",
        "add x9, x9, x10",
        "adrp x10, {size}",
        "ldr x10, [x10, :lo12:{size}]",
        // rseq(area, size, UNREGISTER, signature)
        "mov x0, x9",
        "mov x1, x10",
        "mov x2, #1",
        "movz w3, #0xbc00",
        "movk w3, #0xd428, lsl #16",
        "mov x8, #293",
        "svc #0",
        "cbnz x0, 50f",
        // clone(CLONE_VFORK | CLONE_VM | SIGCHLD, 0, 0, 0, 0)
        "mov x0, #0x4111",
        "mov x1, xzr",
        "mov x2, xzr",
        "mov x3, xzr",
        "mov x4, xzr",
        "mov x8, #220",
        "svc #0",
        "cbz x0, 40f",
        // The parent: register again.
        "mov x11, x0",
        "mov x0, x9",
        "mov x1, x10",
        "mov x2, xzr",
        "movz w3, #0xbc00",
        "movk w3, #0xd428, lsl #16",
        "mov x8, #293",
        "svc #0",
        "mov x0, x11",
        "40: cmn x0, #4095",
        "b.hs 60f",
        "ret",
        // Nothing registered: only the call itself.
        "50: mov x0, #0x4111",
        "mov x1, xzr",
        "mov x2, xzr",
        "mov x3, xzr",
        "mov x4, xzr",
        "mov x8, #220",
        "svc #0",
        "b 40b",
        "60: stp x29, x30, [sp, #-16]!",
        "neg w0, w0",
        "bl {set_errno}",
        "ldp x29, x30, [sp], #16",
        "mov w0, #-1",
        "ret",
        area = sym RSEQ_OFFSET,
        size = sym RSEQ_SIZE,
        set_errno = sym set_errno,
    )
}
