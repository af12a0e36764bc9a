// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `operator new` for AArch64. The exception it throws passes through these frames, so they are described to the
//! unwinder; what the compiler makes would end the process there.

use core::arch::naked_asm;
use core::ffi::c_void;

use super::malloc;
use crate::cxx::{new_bad_alloc, new_handler, throw_bad_alloc, try_again};

/// `operator new(size_t)` and its array form: `malloc`, then the handler, then `std::bad_alloc`.
macro_rules! operator_new {
    ($($name:ident),*) => {$(
        /// `operator new`, plain or array form.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub extern "C" fn $name(size: usize) -> *mut c_void {
            naked_asm!(
                ".cfi_startproc",
                "stp x29, x30, [sp, #-32]!",
                ".cfi_adjust_cfa_offset 32",
                ".cfi_rel_offset x29, 0",
                ".cfi_rel_offset x30, 8",
                "str x0, [sp, #16]",
                "bl {malloc}",
                "ldr x1, [sp, #16]",
                "ldp x29, x30, [sp], #32",
                ".cfi_adjust_cfa_offset -32",
                ".cfi_restore x29",
                ".cfi_restore x30",
                "cbz x0, 40f",
                "ret",
                "40: mov x0, x1",
                "mov x1, #16",
                "b {failed}",
                ".cfi_endproc",
                malloc = sym malloc,
                failed = sym new_failed,
            )
        }
    )*};
}
operator_new!(_Znwm, _Znam);

/// The aligned forms.
macro_rules! operator_new_aligned {
    ($($name:ident),*) => {$(
        /// `operator new`, aligned, plain or array form.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub extern "C" fn $name(size: usize, align: usize) -> *mut c_void {
            naked_asm!(
                ".cfi_startproc",
                "stp x29, x30, [sp, #-32]!",
                ".cfi_adjust_cfa_offset 32",
                ".cfi_rel_offset x29, 0",
                ".cfi_rel_offset x30, 8",
                "stp x0, x1, [sp, #16]",
                "bl {aligned}",
                "ldp x2, x1, [sp, #16]",
                "ldp x29, x30, [sp], #32",
                ".cfi_adjust_cfa_offset -32",
                ".cfi_restore x29",
                ".cfi_restore x30",
                "cbz x0, 40f",
                "ret",
                "40: mov x0, x2",
                "b {failed}",
                ".cfi_endproc",
                aligned = sym try_again,
                failed = sym new_failed,
            )
        }
    )*};
}
operator_new_aligned!(_ZnwmSt11align_val_t, _ZnamSt11align_val_t);

/// No memory: call the handler and try again until there is none, then throw as if from `operator new` itself.
#[unsafe(naked)]
extern "C" fn new_failed(size: usize, align: usize) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-32]!",
        ".cfi_adjust_cfa_offset 32",
        ".cfi_rel_offset x29, 0",
        ".cfi_rel_offset x30, 8",
        "stp x19, x20, [sp, #16]",
        ".cfi_rel_offset x19, 16",
        ".cfi_rel_offset x20, 24",
        "mov x19, x0",
        "mov x20, x1",
        "40: bl {handler}",
        "cbz x0, 50f",
        "blr x0",
        "mov x0, x19",
        "mov x1, x20",
        "bl {try_again}",
        "cbz x0, 40b",
        ".cfi_remember_state",
        "ldp x19, x20, [sp, #16]",
        ".cfi_restore x19",
        ".cfi_restore x20",
        "ldp x29, x30, [sp], #32",
        ".cfi_adjust_cfa_offset -32",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_restore_state",
        "50: bl {thrower}",
        "ldp x19, x20, [sp, #16]",
        ".cfi_restore x19",
        ".cfi_restore x20",
        "ldp x29, x30, [sp], #32",
        ".cfi_adjust_cfa_offset -32",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "br x0",
        ".cfi_endproc",
        handler = sym new_handler,
        try_again = sym try_again,
        thrower = sym throw_bad_alloc,
    )
}

/// The address of the function that throws a `std::bad_alloc` made by hand.
pub(crate) fn throw_by_parts() -> *mut c_void {
    throw_made as *mut c_void
}

#[unsafe(naked)]
extern "C" fn throw_made() {
    naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_adjust_cfa_offset 16",
        ".cfi_rel_offset x29, 0",
        ".cfi_rel_offset x30, 8",
        "bl {make}",
        "ldp x29, x30, [sp], #16",
        ".cfi_adjust_cfa_offset -16",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "adrp x1, :got:_ZTISt9bad_alloc",
        "ldr x1, [x1, :got_lo12:_ZTISt9bad_alloc]",
        "adrp x2, :got:_ZNSt9bad_allocD1Ev",
        "ldr x2, [x2, :got_lo12:_ZNSt9bad_allocD1Ev]",
        "adrp x9, :got:__cxa_throw",
        "ldr x9, [x9, :got_lo12:__cxa_throw]",
        "br x9",
        ".cfi_endproc",
        ".weak _ZTISt9bad_alloc",
        ".weak _ZNSt9bad_allocD1Ev",
        ".weak __cxa_throw",
        make = sym new_bad_alloc,
    )
}
