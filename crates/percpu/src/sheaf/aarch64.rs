// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The sections for AArch64.
//!
//! Labels as for x86-64: 30 arms the section, 31 is the descriptor, 32 the first instruction of the section, 34 the first
//! one after its commit, 35 the abort handler behind its signature (`brk #0x45e0`). There is no segment to add an offset
//! to: the thread's area is an address, computed before the section and valid through it, because a section is restarted
//! on the same thread. `nostack` holds; `nomem`, `readonly` and `preserves_flags` are left out on purpose.
//!
//! `exchange` commits two words. A store of a pair (`stp`) may be interrupted between its halves on processors without
//! LSE2, so the commit is a store-exclusive of the pair: it stores both words or, when its reservation is gone, neither,
//! and then the section starts anew. No other CPU writes the slot, so nothing else takes the reservation for long.

use core::arch::asm;

use fastpath_sys::rseq::thread_pointer;

use super::{Access, Block, MASK, Slot};

pub(super) const SUPPORTED: bool = true;

/// The descriptor and the abort handler of the section between 32 and 34.
macro_rules! section_tables {
    () => {
        concat!(
            ".pushsection __rseq_cs, \"aw\", @progbits\n",
            ".balign 32\n",
            "31: .word 0, 0\n",
            ".xword 32b, 34b - 32b, 35f\n",
            ".popsection\n",
            ".pushsection .text.fastpath_abort, \"ax\", @progbits\n",
            ".inst 0xd428bc00\n",
            "35: b 30b\n",
            ".popsection",
        )
    };
}

/// Arms the section and loads this CPU's block into `{block}`.
macro_rules! enter {
    () => {
        concat!(
            "30: adrp {word}, 31f\n",
            "add {word}, {word}, :lo12:31f\n",
            "str {word}, [{area}, #8]\n",
            "32: ldrsw {block}, [{area}, #4]\n",
            "ldr {block}, [{table}, {block}, lsl #3]",
        )
    };
}

#[inline(always)]
fn area(rseq_offset: isize) -> *mut u8 {
    thread_pointer().wrapping_offset(rseq_offset)
}

/// # Safety
///
/// As [`super::pop`].
#[inline(always)]
pub(super) unsafe fn pop<const CLEAR: bool>(access: Access, class2: usize) -> *mut u8 {
    let object: *mut u8;
    // SAFETY: the area is valid for this thread and the table has an entry for whatever `cpu_id` says, -1 and -2
    // included; the block, its tops and the words they point at are valid, all by the caller's promise.
    unsafe {
        asm!(
            enter!(),
            "add {block}, {block}, {class2}, lsl #3",
            "ldr {word}, [{block}]",
            "ldr {object}, [{word}]",
            "cbz {object}, 34f",
            "sub {word}, {word}, #8",
            "str {word}, [{block}]",
            "34:",
            section_tables!(),
            area = in(reg) area(access.rseq_offset),
            table = in(reg) access.table,
            class2 = in(reg) class2,
            word = out(reg) _,
            block = out(reg) _,
            object = out(reg) object,
            options(nostack),
        );
    }
    if CLEAR {
        // SAFETY: as above.
        unsafe { clear(access.rseq_offset) };
    }
    object
}

/// # Safety
///
/// As [`super::push`].
#[inline(always)]
pub(super) unsafe fn push<const CLEAR: bool>(access: Access, class2: usize, object: *mut u8) -> bool {
    let word: usize;
    // SAFETY: as in `pop`; the word that is written is one of the sheaf's, because a full sheaf was refused.
    unsafe {
        asm!(
            enter!(),
            "add {block}, {block}, {class2}, lsl #3",
            "ldr {word}, [{block}]",
            "add {word}, {word}, #8",
            "tst {word}, #{mask}",
            "b.eq 34f",
            "str {object}, [{word}]",
            "str {word}, [{block}]",
            "34:",
            section_tables!(),
            area = in(reg) area(access.rseq_offset),
            table = in(reg) access.table,
            class2 = in(reg) class2,
            object = in(reg) object,
            mask = const MASK,
            word = out(reg) word,
            block = out(reg) _,
            options(nostack),
        );
    }
    if CLEAR {
        // SAFETY: as above.
        unsafe { clear(access.rseq_offset) };
    }
    word & MASK != 0
}

/// # Safety
///
/// As [`super::exchange`].
#[inline(always)]
pub(super) unsafe fn exchange(
    access: Access,
    class2: usize,
    block: *mut Block,
    old: Slot,
    new: &Slot,
) -> bool {
    let mut done = 0usize;
    // SAFETY: as in `pop`. The store-exclusive writes both words or none, and slots are aligned to 16 bytes.
    unsafe {
        asm!(
            enter!(),
            "cmp {block}, {wanted}",
            "b.ne 36f",
            "add {block}, {block}, {class2}, lsl #3",
            "ldxp {word}, {spare}, [{block}]",
            "cmp {word}, {old_main}",
            "ccmp {spare}, {old_spare}, #0, eq",
            "b.ne 36f",
            "stxp {word:w}, {new_main}, {new_spare}, [{block}]",
            "34: cbnz {word:w}, 30b",
            "mov {done}, #1",
            "36: str xzr, [{area}, #8]",
            section_tables!(),
            area = in(reg) area(access.rseq_offset),
            table = in(reg) access.table,
            class2 = in(reg) class2,
            wanted = in(reg) block,
            old_main = in(reg) old.main,
            old_spare = in(reg) old.spare,
            new_main = in(reg) new.main,
            new_spare = in(reg) new.spare,
            word = out(reg) _,
            spare = out(reg) _,
            block = out(reg) _,
            done = inout(reg) done,
            options(nostack),
        );
    }
    done != 0
}

/// # Safety
///
/// The offset leads to this thread's area.
#[inline(always)]
unsafe fn clear(rseq_offset: isize) {
    // SAFETY: the thread's own field, which it may write at any time outside a section.
    unsafe { asm!("str xzr, [{}, #8]", in(reg) area(rseq_offset), options(nostack, preserves_flags)) };
}

/// # Safety
///
/// As [`super::cpu_id`].
#[inline(always)]
pub(super) unsafe fn cpu_id(rseq_offset: isize) -> i32 {
    let cpu: i32;
    // SAFETY: the thread's own field.
    unsafe {
        asm!("ldr {:w}, [{}, #4]", out(reg) cpu, in(reg) area(rseq_offset), options(nostack, preserves_flags, readonly));
    }
    cpu
}
