// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The sections for x86-64.
//!
//! In each block: 30 arms the section (the store of the descriptor's address), 31 is the descriptor, 32 the first
//! instruction of the section, 34 the first one after its commit, 35 the abort handler, which arms it again. The
//! signature before 35 reads as the operand of an `ud1`. Left out on purpose: `nomem` and `readonly` (the blocks
//! write per-CPU memory), `preserves_flags` (they compare). `nostack` holds: nothing is pushed.
//!
//! Pop and push compute the slot's address apart from the accesses to it: processors that forward a store to a later load
//! without delay do so only for addresses without an index. Pop commits with a read-modify-write of one instruction: it
//! is interrupted before or after it, not within.

use core::arch::asm;

use super::{Access, Block, MASK, Slot};

pub(super) const SUPPORTED: bool = true;

/// The descriptor and the abort handler of the section between 32 and 34.
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
            "30: lea {word}, [rip + 31f]",
            "mov fs:[{area} + 8], {word}",
            "32: movsxd {block}, dword ptr fs:[{area} + 4]",
            "mov {block}, [{table} + {block} * 8]",
            "lea {block}, [{block} + {class2} * 8]",
            "mov {word}, [{block}]",
            "mov {object}, [{word}]",
            "test {object}, {object}",
            "je 34f",
            "add qword ptr [{block}], -8",
            "34:",
            section_tables!(),
            area = in(reg) access.rseq_offset,
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
            "30: lea {word}, [rip + 31f]",
            "mov fs:[{area} + 8], {word}",
            "32: movsxd {block}, dword ptr fs:[{area} + 4]",
            "mov {block}, [{table} + {block} * 8]",
            "lea {block}, [{block} + {class2} * 8]",
            "mov {word}, [{block}]",
            "add {word}, 8",
            "test {word:e}, {mask}",
            "je 34f",
            "mov [{word}], {object}",
            "mov [{block}], {word}",
            "34:",
            section_tables!(),
            area = in(reg) access.rseq_offset,
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
    // SAFETY: as in `pop`. A 16-byte aligned `movaps` store is one instruction, so both words commit together as far
    // as this CPU is concerned, and no other CPU reads the slot. The pair is put together in registers: a load of two words
    // that were just stored would wait for both stores.
    unsafe {
        asm!(
            "movq {pair}, {new_main}",
            "movq {second}, {new_spare}",
            "punpcklqdq {pair}, {second}",
            "30: lea {word}, [rip + 31f]",
            "mov fs:[{area} + 8], {word}",
            "32: movsxd {word}, dword ptr fs:[{area} + 4]",
            "mov {word}, [{table} + {word} * 8]",
            "cmp {word}, {block}",
            "jne 36f",
            "cmp [{word} + {class2} * 8], {main}",
            "jne 36f",
            "cmp [{word} + {class2} * 8 + 8], {spare}",
            "jne 36f",
            "movaps [{word} + {class2} * 8], {pair}",
            "34: mov {done:e}, 1",
            "36: mov qword ptr fs:[{area} + 8], 0",
            section_tables!(),
            area = in(reg) access.rseq_offset,
            table = in(reg) access.table,
            class2 = in(reg) class2,
            block = in(reg) block,
            main = in(reg) old.main,
            spare = in(reg) old.spare,
            new_main = in(reg) new.main,
            new_spare = in(reg) new.spare,
            pair = out(xmm_reg) _,
            second = out(xmm_reg) _,
            word = out(reg) _,
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
    unsafe { asm!("mov qword ptr fs:[{} + 8], 0", in(reg) rseq_offset, options(nostack, preserves_flags)) };
}

/// # Safety
///
/// As [`super::cpu_id`].
#[inline(always)]
pub(super) unsafe fn cpu_id(rseq_offset: isize) -> i32 {
    let cpu: i32;
    // SAFETY: the thread's own field.
    unsafe {
        asm!("mov {:e}, fs:[{} + 4]", out(reg) cpu, in(reg) rseq_offset, options(nostack, preserves_flags, readonly));
    }
    cpu
}
