// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The same increment by hand, to measure the compiler's against.
//!
//! `hand_inc` has all checks of ours: `lock xadd` leaves the sum's flags, so overflow is `jo` without a comparison, and one test of
//! the old value finds zero and the bad ones. One arithmetic instruction less than ours, one branch more. `legacy_inc` has what the
//! kernel's x86 assembly had before it was dropped: `lock inc` and a look at the sign, so no check for zero at all.
//! Both have their cold blocks behind the code, as the compiler places them: pass counter (and old value) on, call, go back.

use std::arch::global_asm;
use std::sync::atomic::AtomicU32;

global_asm!(
    ".macro fastpath_hand_hot name, offset",
    "mov eax, 1",
    "lock xadd dword ptr [rdi + \\offset], eax",
    "jo .Lcold_\\name\\()_\\offset",
    "test eax, eax",
    "jle .Lcold_\\name\\()_\\offset",
    ".Lback_\\name\\()_\\offset:",
    ".endm",
    ".macro fastpath_legacy_hot name, offset",
    "lock inc dword ptr [rdi + \\offset]",
    "js .Lcold_\\name\\()_\\offset",
    ".Lback_\\name\\()_\\offset:",
    ".endm",
    ".macro fastpath_cold name, offset",
    ".Lcold_\\name\\()_\\offset:",
    "push rdi",
    "lea rdi, [rdi + \\offset]",
    "mov esi, eax",
    "call {cold}",
    "pop rdi",
    "jmp .Lback_\\name\\()_\\offset",
    ".endm",
    ".macro fastpath_eight hot, name",
    ".globl \\name\\()_1, \\name\\()_8",
    ".type \\name\\()_1, @function",
    "\\name\\()_1:",
    "\\hot one_\\name, 0",
    "ret",
    "fastpath_cold one_\\name, 0",
    ".size \\name\\()_1, . - \\name\\()_1",
    ".type \\name\\()_8, @function",
    "\\name\\()_8:",
    ".irp offset, 0, 4, 8, 12, 16, 20, 24, 28",
    "\\hot \\name, \\offset",
    ".endr",
    "ret",
    ".irp offset, 0, 4, 8, 12, 16, 20, 24, 28",
    "fastpath_cold \\name, \\offset",
    ".endr",
    ".size \\name\\()_8, . - \\name\\()_8",
    ".endm",
    "fastpath_eight fastpath_hand_hot, hand_inc",
    "fastpath_eight fastpath_legacy_hot, legacy_inc",
    cold = sym cold,
);

/// Where the cold blocks go: never reached by `run`.
extern "C" fn cold() {
    std::process::abort();
}

unsafe extern "C" {
    fn hand_inc_1(count: *const AtomicU32);
    fn hand_inc_8(counts: *const AtomicU32);
    fn legacy_inc_1(count: *const AtomicU32);
    fn legacy_inc_8(counts: *const AtomicU32);
}

/// Calls each once, on counters that are far from any limit.
pub(crate) fn run(counts: &[AtomicU32; 8]) {
    // SAFETY: the functions above take a pointer to one counter, or to eight, and change nothing but those and caller-saved registers.
    unsafe {
        hand_inc_1(counts.as_ptr());
        hand_inc_8(counts.as_ptr());
        legacy_inc_1(counts.as_ptr());
        legacy_inc_8(counts.as_ptr());
    }
}
