// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sections on a slot that the caller has found before: compare, then store.

use core::arch::asm;

use fastpath_sys::rseq::{area_offset, id_offset};

#[cfg(fastpath_inject)]
use super::DELAYS;
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
                "cmp qword ptr [{word}], {expected}",
                "jne 37f",
                inject!(2),
                "xor {t:e}, {t:e}",
                "mov qword ptr [{word}], {new}",
                leave!(),
                exits!(),
            ]
            t = out(reg) t,
            slot = in(reg) slot,
            word = in(reg) word,
            expected = in(reg) expected,
            new = in(reg) new,
            id = in(reg) id_offset(),
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
                "cmp qword ptr [{word}], {expected}",
                "jne 37f",
                inject!(2),
                "cmp qword ptr [{word2}], {expected2}",
                "jne 37f",
                inject!(3),
                "xor {t:e}, {t:e}",
                "mov qword ptr [{word}], {new}",
                leave!(),
                exits!(),
            ]
            t = out(reg) t,
            slot = in(reg) slot,
            word = in(reg) word,
            expected = in(reg) expected,
            word2 = in(reg) word2,
            expected2 = in(reg) expected2,
            new = in(reg) new,
            id = in(reg) id_offset(),
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
    // SAFETY: the caller's contract; the shape is argued at the head of the parent module. x86-64 stores become visible in
    // program order, so the commit is a release.
    unsafe {
        section!(
            [
                enter_at!(),
                "cmp qword ptr [{word}], {expected}",
                "jne 37f",
                inject!(2),
                "mov qword ptr [{first}], {value}",
                inject!(3),
                "xor {t:e}, {t:e}",
                "mov qword ptr [{word}], {new}",
                leave!(),
                exits!(),
            ]
            t = out(reg) t,
            slot = in(reg) slot,
            word = in(reg) word,
            expected = in(reg) expected,
            first = in(reg) first,
            value = in(reg) value,
            new = in(reg) new,
            id = in(reg) id_offset(),
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
    // SAFETY: the caller's contract; the shape is argued at the head of the parent module. Words first, then bytes: `rep movs`
    // has a start-up cost above that of a short record. The commit is a release, as in `compare_store_store`.
    unsafe {
        section!(
            [
                enter_at!(),
                "cmp qword ptr [{word}], {expected}",
                "jne 37f",
                inject!(2),
                "xor {t:e}, {t:e}",
                "41:",
                "lea {entry}, [{t} + 8]",
                "cmp {entry}, {bytes}",
                "ja 42f",
                "mov {entry}, qword ptr [{from} + {t}]",
                "mov qword ptr [{to} + {t}], {entry}",
                "add {t}, 8",
                "jmp 41b",
                "42:",
                "cmp {t}, {bytes}",
                "jae 43f",
                "movzx {entry:e}, byte ptr [{from} + {t}]",
                "mov byte ptr [{to} + {t}], {entry:l}",
                "inc {t}",
                "jmp 42b",
                "43:",
                inject!(3),
                "xor {t:e}, {t:e}",
                "mov qword ptr [{word}], {new}",
                leave!(),
                exits!(),
            ]
            t = out(reg) t,
            entry = out(reg) _,
            slot = in(reg) slot,
            word = in(reg) word,
            expected = in(reg) expected,
            to = in(reg) to,
            from = in(reg) from,
            bytes = in(reg) bytes,
            new = in(reg) new,
            id = in(reg) id_offset(),
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
    // SAFETY: the caller's contract; the shape is argued at the head of the parent module. Words first, then bytes: `rep movs`
    // has a start-up cost above that of a short record. The commit is a release, as in `compare_store_store`.
    unsafe {
        section!(
            [
                enter_at!(),
                "cmp qword ptr [{word}], {expected}",
                "jne 37f",
                inject!(2),
                "mov qword ptr [{first}], {value}",
                "xor {t:e}, {t:e}",
                "41:",
                "lea {entry}, [{t} + 8]",
                "cmp {entry}, {bytes}",
                "ja 42f",
                "mov {entry}, qword ptr [{from} + {t}]",
                "mov qword ptr [{first} + {t} + 8], {entry}",
                "add {t}, 8",
                "jmp 41b",
                "42:",
                "cmp {t}, {bytes}",
                "jae 43f",
                "movzx {entry:e}, byte ptr [{from} + {t}]",
                "mov byte ptr [{first} + {t} + 8], {entry:l}",
                "inc {t}",
                "jmp 42b",
                "43:",
                inject!(3),
                "xor {t:e}, {t:e}",
                "mov qword ptr [{word}], {new}",
                leave!(),
                exits!(),
            ]
            t = out(reg) t,
            entry = out(reg) _,
            slot = in(reg) slot,
            word = in(reg) word,
            expected = in(reg) expected,
            first = in(reg) first,
            value = in(reg) value,
            from = in(reg) from,
            bytes = in(reg) bytes,
            new = in(reg) new,
            id = in(reg) id_offset(),
        );
    }
    outcome(t)
}
