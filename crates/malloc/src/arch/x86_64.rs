// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `malloc` and `free` for x86-64: what the compiler makes of `raw::malloc` and `raw::free`, minus the second test of
//! a result that the section has tested already, with the slow paths as tail jumps, and with a look at the object below.
//! 19 and 24 instructions, no lock, no call, no stack. In a heap that samples `malloc` takes 9 more; `free` is what it is.
//!
//! The slot's address is computed apart from the accesses to it: processors that forward a store to a later load without
//! delay do so only for addresses without an index (Intel's since 2021; a pair takes 6.9 cycles of the counter so, 9.1
//! with an index).
//!
//! The labels are those of the sections in `fastpath-percpu`: 30 arms, 31 is the descriptor, 32 to 34 the section,
//! 35 the abort handler. A jump to a slow path leaves the section, and the kernel drops the descriptor when it next
//! looks. The descriptor of a finished section may stay in the thread's area, because this object is never unloaded.

use core::arch::naked_asm;
use core::ffi::c_void;

use crate::cxx::{new_bad_alloc, new_handler, throw_bad_alloc, try_again};

use fastpath_alloc::fast::{
    CLASS2_OF_SIZE, COUNTDOWNS, COUNTED, Countdown, FAST_ROOT, LIMIT, ROOT, RSEQ_OFFSET, SHEAF_BYTES, TABLE, free_full,
    free_slow, freed_twice, malloc_closed, malloc_empty, malloc_slow,
};

// Indexed by a byte, shifted by 6; the bytes that are left come first.
const _: () = assert!(size_of::<[Countdown; 256]>() == size_of_val(&COUNTDOWNS) && size_of::<Countdown>() == 64);

// What the two shifts in `free` leave is an index of the map.
const _: () = assert!(ROOT == 1 << (64 - 47));

macro_rules! section_tables {
    () => {
        concat!(
            ".pushsection __rseq_cs, \"aw\", @progbits\n",
            ".balign 32\n",
            "31: .long 0, 0\n",
            ".quad 32b, 34b - 32b, 35f\n",
            ".popsection\n",
            ".pushsection .text.fastpath_abort, \"ax\", @progbits\n",
            ".byte 0x0f, 0xb9, 0x3d\n",
            ".long 0x53053053\n",
            "35: jmp 30b\n",
            ".popsection",
        )
    };
}

/// As the C library's.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub extern "C" fn malloc(size: usize) -> *mut c_void {
    naked_asm!(
        // Closed, or not small: everything else.
        "cmp rdi, [rip + {limit}]",
        "jae 42f",
        "40: lea rcx, [rip + {classes}]",
        "movzx edi, byte ptr [rcx + rdi]",
        "30: mov rdx, [rip + {area}]",
        "lea rcx, [rip + 31f]",
        "mov fs:[rdx + 8], rcx",
        "32: movsxd rcx, dword ptr fs:[rdx + 4]",
        "mov rax, [rip + {table}]",
        "mov rcx, [rax + rcx * 8]",
        "lea rcx, [rcx + rdi * 8]",
        "mov rdx, [rcx]",
        "mov rax, [rdx]",
        "test rax, rax",
        "je {empty}",
        // The same object twice in a row was freed twice in a row: it must not get two owners.
        "cmp rax, [rdx - 8]",
        "je 41f",
        "add qword ptr [rcx], -8",
        "34: ret",
        ".pushsection .text.unlikely.fastpath, \"ax\", @progbits",
        "41: mov rdi, rax",
        "jmp {twice}",
        // A heap that samples counts the bytes down, one more than asked for, and goes on unless it is this block's turn. The
        // countdown is that of the CPU, by the last byte of its number. The thread may lose the CPU meanwhile, and another
        // one's count may be lost: rare and small.
        "42: cmp rdi, [rip + {counted}]",
        "jae {slow}",
        "mov rdx, [rip + {area}]",
        "movzx eax, byte ptr fs:[rdx + 4]",
        "shl eax, 6",
        "lea rcx, [rip + {countdowns}]",
        "stc",
        "sbb [rcx + rax], rdi",
        "jns 40b",
        "jmp {closed}",
        ".popsection",
        section_tables!(),
        twice = sym freed_twice,
        limit = sym LIMIT,
        classes = sym CLASS2_OF_SIZE,
        area = sym RSEQ_OFFSET,
        table = sym TABLE,
        counted = sym COUNTED,
        countdowns = sym COUNTDOWNS,
        slow = sym malloc_slow,
        closed = sym malloc_closed,
        empty = sym malloc_empty,
    )
}

/// As the C library's.
///
/// # Safety
///
/// Null, or a block of this library that nobody uses any more.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn free(pointer: *mut c_void) {
    naked_asm!(
        // The entry is that of the lower 47 bits. Above them there is nothing of ours: such a pointer finds no entry, or
        // the byte below lies nowhere and reading it ends the program here.
        "mov rax, rdi",
        "shl rax, 17",
        "shr rax, 47",
        "lea rcx, [rip + {root}]",
        "mov rax, [rcx + rax * 8]",
        "test rax, rax",
        "je {slow}",
        "mov rcx, rdi",
        "shr rcx, 16",
        // Class 0 leads to slot 0, whose sheaf is always full: `free_full` sorts it out.
        "movzx esi, byte ptr [rax + rcx]",
        "30: mov rdx, [rip + {area}]",
        "lea rcx, [rip + 31f]",
        "mov fs:[rdx + 8], rcx",
        "32: movsxd rcx, dword ptr fs:[rdx + 4]",
        "mov rax, [rip + {table}]",
        "mov rcx, [rax + rcx * 8]",
        "lea rcx, [rcx + rsi * 8]",
        "mov rdx, [rcx]",
        "add rdx, 8",
        "test edx, {mask}",
        "je {full}",
        "mov [rdx], rdi",
        "mov [rcx], rdx",
        "34: ret",
        section_tables!(),
        root = sym FAST_ROOT,
        area = sym RSEQ_OFFSET,
        table = sym TABLE,
        slow = sym free_slow,
        mask = const SHEAF_BYTES - 1,
        full = sym free_full,
    )
}

/// `operator new(size_t)` and its array form: `malloc`, then the handler, then `std::bad_alloc`. The exception passes
/// through these frames, so they are described to the unwinder.
macro_rules! operator_new {
    ($($name:ident),*) => {$(
        /// `operator new`, plain or array form.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub extern "C" fn $name(size: usize) -> *mut c_void {
            naked_asm!(
                ".cfi_startproc",
                "push rdi",
                ".cfi_adjust_cfa_offset 8",
                "call {malloc}",
                "pop rdi",
                ".cfi_adjust_cfa_offset -8",
                "test rax, rax",
                "je 40f",
                "ret",
                "40: mov esi, 16",
                "jmp {failed}",
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
                "push rdi",
                ".cfi_adjust_cfa_offset 8",
                "push rsi",
                ".cfi_adjust_cfa_offset 8",
                "sub rsp, 8",
                ".cfi_adjust_cfa_offset 8",
                "call {aligned}",
                "add rsp, 8",
                ".cfi_adjust_cfa_offset -8",
                "pop rsi",
                ".cfi_adjust_cfa_offset -8",
                "pop rdi",
                ".cfi_adjust_cfa_offset -8",
                "test rax, rax",
                "je 40f",
                "ret",
                "40: jmp {failed}",
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
        "push rbx",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset rbx, 0",
        "push r12",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset r12, 0",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "mov rbx, rdi",
        "mov r12, rsi",
        "40: call {handler}",
        "test rax, rax",
        "je 50f",
        "call rax",
        "mov rdi, rbx",
        "mov rsi, r12",
        "call {try_again}",
        "test rax, rax",
        "je 40b",
        ".cfi_remember_state",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop r12",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore r12",
        "pop rbx",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore rbx",
        "ret",
        ".cfi_restore_state",
        "50: call {thrower}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop r12",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore r12",
        "pop rbx",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore rbx",
        "jmp rax",
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
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {make}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "mov rdi, rax",
        "mov rsi, [rip + _ZTISt9bad_alloc@GOTPCREL]",
        "mov rdx, [rip + _ZNSt9bad_allocD1Ev@GOTPCREL]",
        "jmp [rip + __cxa_throw@GOTPCREL]",
        ".cfi_endproc",
        ".weak _ZTISt9bad_alloc",
        ".weak _ZNSt9bad_allocD1Ev",
        ".weak __cxa_throw",
        make = sym new_bad_alloc,
    )
}

/// Every form of `operator delete`: size, alignment and tag are not needed.
macro_rules! operator_delete {
    ($($name:ident),*) => {$(
        /// `operator delete`, one of its forms.
        ///
        /// # Safety
        ///
        /// As [`free`].
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(pointer: *mut c_void) {
            naked_asm!("jmp {free}", free = sym free)
        }
    )*};
}
operator_delete!(
    _ZdlPv,
    _ZdaPv,
    _ZdlPvm,
    _ZdaPvm,
    _ZdlPvRKSt9nothrow_t,
    _ZdaPvRKSt9nothrow_t,
    _ZdlPvSt11align_val_t,
    _ZdaPvSt11align_val_t,
    _ZdlPvmSt11align_val_t,
    _ZdaPvmSt11align_val_t,
    _ZdlPvSt11align_val_tRKSt9nothrow_t,
    _ZdaPvSt11align_val_tRKSt9nothrow_t
);
