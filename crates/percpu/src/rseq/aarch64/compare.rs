// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sections on a slot that the caller has found before: compare, then store.

use core::arch::asm;

use fastpath_sys::rseq::{area_offset, id_offset, thread_pointer};

use super::{ABORTS, Outcome, outcome};

/// `if slot moved { moved }; if *word != expected { mismatch }; *word = new`.
///
/// # Safety
///
/// `word` is an aligned, writable word that belongs to slot `slot`: only sections on that slot write it.
#[inline(always)]
pub unsafe fn compare_store(slot: u32, word: *mut u64, expected: u64, new: u64) -> Outcome {
    let t: isize;
    // SAFETY: the caller's contract; the shape is argued at the head of the parent module.
    unsafe {
        section!(
            [
                enter_at!(),
                "ldar {n}, [{word}]",
                "cmp {n}, {expected}",
                "b.ne 37f",
                "mov {t}, #0",
                "stlr {new}, [{word}]",
                leave!(),
            ]
            t = out(reg) t,
            n = out(reg) _,
            slot = in(reg) slot,
            word = in(reg) word,
            expected = in(reg) expected,
            new = in(reg) new,
        );
    }
    outcome(t)
}

/// `if slot moved { moved }; if *word != expected || *word2 != expected2 { mismatch }; *word = new`.
///
/// # Safety
///
/// As [`compare_store`]; `word2` is an aligned, readable word.
#[inline(always)]
pub unsafe fn compare2_store(
    slot: u32,
    word: *mut u64,
    expected: u64,
    word2: *const u64,
    expected2: u64,
    new: u64,
) -> Outcome {
    let t: isize;
    // SAFETY: the caller's contract; the shape is argued at the head of the parent module.
    unsafe {
        section!(
            [
                enter_at!(),
                "ldar {n}, [{word}]",
                "cmp {n}, {expected}",
                "b.ne 37f",
                "ldar {n}, [{word2}]",
                "cmp {n}, {expected2}",
                "b.ne 37f",
                "mov {t}, #0",
                "stlr {new}, [{word}]",
                leave!(),
            ]
            t = out(reg) t,
            n = out(reg) _,
            slot = in(reg) slot,
            word = in(reg) word,
            expected = in(reg) expected,
            word2 = in(reg) word2,
            expected2 = in(reg) expected2,
            new = in(reg) new,
        );
    }
    outcome(t)
}

/// `if slot moved { moved }; if *word != expected { mismatch }; *first = value; *word = new`.
///
/// # Safety
///
/// As [`compare_store`]; `first` is an aligned, writable word that means nothing to anybody while `*word` is
/// `expected`.
#[inline(always)]
pub unsafe fn compare_store_store(
    slot: u32,
    word: *mut u64,
    expected: u64,
    first: *mut u64,
    value: u64,
    new: u64,
) -> Outcome {
    let t: isize;
    // SAFETY: the caller's contract; the shape is argued at the head of the parent module.
    unsafe {
        section!(
            [
                enter_at!(),
                "ldar {n}, [{word}]",
                "cmp {n}, {expected}",
                "b.ne 37f",
                "str {value}, [{first}]",
                "mov {t}, #0",
                "stlr {new}, [{word}]",
                leave!(),
            ]
            t = out(reg) t,
            n = out(reg) _,
            slot = in(reg) slot,
            word = in(reg) word,
            expected = in(reg) expected,
            first = in(reg) first,
            value = in(reg) value,
            new = in(reg) new,
        );
    }
    outcome(t)
}

/// `if slot moved { moved }; if *word != expected { mismatch }; to[..bytes] = from[..bytes]; *word = new`.
///
/// # Safety
///
/// As [`compare_store`]; `from` is readable and `to` writable for `bytes` bytes, and `to` means nothing to anybody
/// while `*word` is `expected`.
#[inline(always)]
pub unsafe fn compare_copy_store(
    slot: u32,
    word: *mut u64,
    expected: u64,
    to: *mut u8,
    from: *const u8,
    bytes: usize,
    new: u64,
) -> Outcome {
    let t: isize;
    // SAFETY: the caller's contract; the shape is argued at the head of the parent module.
    unsafe {
        section!(
            [
                enter_at!(),
                "ldar {n}, [{word}]",
                "cmp {n}, {expected}",
                "b.ne 37f",
                "mov {t}, #0",
                "41:",
                "cmp {t}, {bytes}",
                "b.hs 42f",
                "ldrb {n:w}, [{from}, {t}]",
                "strb {n:w}, [{to}, {t}]",
                "add {t}, {t}, #1",
                "b 41b",
                "42:",
                "mov {t}, #0",
                "stlr {new}, [{word}]",
                leave!(),
            ]
            t = out(reg) t,
            n = out(reg) _,
            slot = in(reg) slot,
            word = in(reg) word,
            expected = in(reg) expected,
            to = in(reg) to,
            from = in(reg) from,
            bytes = in(reg) bytes,
            new = in(reg) new,
        );
    }
    outcome(t)
}

/// `if slot moved { moved }; if *word != expected { mismatch }; *first = value; to[..bytes] = from[..bytes];
/// *word = new` with `to` = the byte after `*first`.
///
/// # Safety
///
/// As [`compare_store_store`]; `from` is readable for `bytes` bytes, and `bytes` bytes after `*first` are writable and
/// mean nothing to anybody while `*word` is `expected`.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "one register each")]
pub unsafe fn compare_store_copy_store(
    slot: u32,
    word: *mut u64,
    expected: u64,
    first: *mut u64,
    value: u64,
    from: *const u8,
    bytes: usize,
    new: u64,
) -> Outcome {
    let t: isize;
    // SAFETY: the caller's contract; the shape is argued at the head of the parent module.
    unsafe {
        section!(
            [
                enter_at!(),
                "ldar {n}, [{word}]",
                "cmp {n}, {expected}",
                "b.ne 37f",
                "str {value}, [{first}]",
                "mov {t}, #0",
                "41:",
                "cmp {t}, {bytes}",
                "b.hs 42f",
                "ldrb {n:w}, [{from}, {t}]",
                "strb {n:w}, [{to}, {t}]",
                "add {t}, {t}, #1",
                "b 41b",
                "42:",
                "mov {t}, #0",
                "stlr {new}, [{word}]",
                leave!(),
            ]
            t = out(reg) t,
            n = out(reg) _,
            slot = in(reg) slot,
            word = in(reg) word,
            expected = in(reg) expected,
            first = in(reg) first,
            to = in(reg) first.wrapping_add(1),
            value = in(reg) value,
            from = in(reg) from,
            bytes = in(reg) bytes,
            new = in(reg) new,
        );
    }
    outcome(t)
}
