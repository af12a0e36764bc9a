// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sections of one word: the `this_cpu_*` operations.

use core::arch::asm;

use fastpath_sys::rseq::{area_offset, id_offset};

#[cfg(fastpath_inject)]
use super::DELAYS;
use super::{ABORTS, Base, Outcome, Stride, outcome};

/// Sections of one word without a result: `$instruction word, value` is the commit.
macro_rules! in_place {
    ($(#[$doc:meta])* $name:ident, $instruction:literal, $size:literal, $part:literal) => {
        $(#[$doc])*
        /// # Safety
        ///
        /// `base` is the word of slot 0 of a live region whose slots lie `1 << S::SHIFT` bytes apart, for every slot the
        /// kernel can number; the word is naturally aligned.
        #[inline(always)]
        pub unsafe fn $name<S: Stride>(base: Base, value: u64) -> Outcome {
            // SAFETY: the caller's contract; the shape is argued at the head of the parent module.
            unsafe {
                section!(
                    [
                        enter!("{absent}"),
                        "add {t}, {base}",
                        concat!($instruction, " ", $size, " ptr [{t}], {value", $part, "}"),
                        leave!(),
                    ]
                    t = out(reg) _,
                    base = in(reg) base,
                    value = in(reg) value,
                    id = in(reg) id_offset(),
                    shift = const S::SHIFT,
                    absent = label { return Outcome::NotRegistered },
                );
            }
            Outcome::Done
        }
    };
}

in_place!(/** `word = value` */ write_8, "mov", "byte", ":l");
in_place!(/** `word = value` */ write_16, "mov", "word", ":x");
in_place!(/** `word = value` */ write_32, "mov", "dword", ":e");
in_place!(/** `word = value` */ write_64, "mov", "qword", "");
in_place!(/** `word += value` */ add_8, "add", "byte", ":l");
in_place!(/** `word += value` */ add_16, "add", "word", ":x");
in_place!(/** `word += value` */ add_32, "add", "dword", ":e");
in_place!(/** `word += value` */ add_64, "add", "qword", "");
in_place!(/** `word &= value` */ and_8, "and", "byte", ":l");
in_place!(/** `word &= value` */ and_16, "and", "word", ":x");
in_place!(/** `word &= value` */ and_32, "and", "dword", ":e");
in_place!(/** `word &= value` */ and_64, "and", "qword", "");
in_place!(/** `word |= value` */ or_8, "or", "byte", ":l");
in_place!(/** `word |= value` */ or_16, "or", "word", ":x");
in_place!(/** `word |= value` */ or_32, "or", "dword", ":e");
in_place!(/** `word |= value` */ or_64, "or", "qword", "");

/// Sections of one word without operand or result. Apart from `add`, because some processors forward a store to the
/// next `inc` of the same word at once, but to an `add` of a register only after their store-forwarding latency.
macro_rules! by_one {
    ($(#[$doc:meta])* $name:ident, $instruction:literal, $size:literal) => {
        $(#[$doc])*
        /// # Safety
        ///
        /// As [`add_64`].
        #[inline(always)]
        pub unsafe fn $name<S: Stride>(base: Base) -> Outcome {
            // SAFETY: the caller's contract; the shape is argued at the head of the parent module.
            unsafe {
                section!(
                    [
                        enter!("{absent}"),
                        "add {t}, {base}",
                        concat!($instruction, " ", $size, " ptr [{t}]"),
                        leave!(),
                    ]
                    t = out(reg) _,
                    base = in(reg) base,
                    id = in(reg) id_offset(),
                    shift = const S::SHIFT,
                    absent = label { return Outcome::NotRegistered },
                );
            }
            Outcome::Done
        }
    };
}

by_one!(/** `word += 1` */ inc_8, "inc", "byte");
by_one!(/** `word += 1` */ inc_16, "inc", "word");
by_one!(/** `word += 1` */ inc_32, "inc", "dword");
by_one!(/** `word += 1` */ inc_64, "inc", "qword");
by_one!(/** `word -= 1` */ dec_8, "dec", "byte");
by_one!(/** `word -= 1` */ dec_16, "dec", "word");
by_one!(/** `word -= 1` */ dec_32, "dec", "dword");
by_one!(/** `word -= 1` */ dec_64, "dec", "qword");

/// Sections of one word that give its previous value.
macro_rules! with_result {
    ($width:literal, $xadd:ident, $xchg:ident, $cmpxchg:ident, $load:literal, $size:literal, $part:literal, $old:literal) => {
        /// `old = word; word = old + value`. Gives the outcome and `old`.
        ///
        /// # Safety
        ///
        /// As [`add_64`].
        #[inline(always)]
        pub unsafe fn $xadd<S: Stride>(base: Base, value: u64) -> (Outcome, u64) {
            let (t, old): (isize, u64);
            // SAFETY: the caller's contract; the shape is argued at the head of the parent module.
            unsafe {
                section!(
                    [
                        enter!("33f"),
                        "add {t}, {base}",
                        concat!($load, " {old", $old, "}, ", $size, " ptr [{t}]"),
                        inject!(2),
                        "lea {new}, [{old} + {value}]",
                        inject!(3),
                        concat!("mov ", $size, " ptr [{t}], {new", $part, "}"),
                        leave!(),
                        exits!(),
                    ]
                    t = out(reg) t,
                    old = out(reg) old,
                    new = out(reg) _,
                    base = in(reg) base,
                    value = in(reg) value,
                    id = in(reg) id_offset(),
                    shift = const S::SHIFT,
                );
            }
            (outcome(t), old)
        }

        /// `old = word; word = value`. Gives the outcome and `old`.
        ///
        /// # Safety
        ///
        /// As [`add_64`].
        #[inline(always)]
        pub unsafe fn $xchg<S: Stride>(base: Base, value: u64) -> (Outcome, u64) {
            let (t, old): (isize, u64);
            // SAFETY: the caller's contract; the shape is argued at the head of the parent module.
            unsafe {
                section!(
                    [
                        enter!("33f"),
                        "add {t}, {base}",
                        concat!($load, " {old", $old, "}, ", $size, " ptr [{t}]"),
                        inject!(2),
                        concat!("mov ", $size, " ptr [{t}], {value", $part, "}"),
                        leave!(),
                        exits!(),
                    ]
                    t = out(reg) t,
                    old = out(reg) old,
                    base = in(reg) base,
                    value = in(reg) value,
                    id = in(reg) id_offset(),
                    shift = const S::SHIFT,
                );
            }
            (outcome(t), old)
        }

        /// `old = word; if old == expected { word = new }`. Gives the outcome and `old`.
        ///
        /// # Safety
        ///
        /// As [`add_64`].
        #[inline(always)]
        pub unsafe fn $cmpxchg<S: Stride>(base: Base, expected: u64, new: u64) -> (Outcome, u64) {
            let (t, old): (isize, u64);
            // SAFETY: the caller's contract; the shape is argued at the head of the parent module.
            unsafe {
                section!(
                    [
                        enter!("33f"),
                        "add {t}, {base}",
                        concat!($load, " {old", $old, "}, ", $size, " ptr [{t}]"),
                        inject!(2),
                        concat!("cmp {old", $part, "}, {expected", $part, "}"),
                        "jne 37f",
                        inject!(3),
                        concat!("mov ", $size, " ptr [{t}], {new", $part, "}"),
                        leave!(),
                        exits!(),
                    ]
                    t = out(reg) t,
                    old = out(reg) old,
                    base = in(reg) base,
                    expected = in(reg) expected,
                    new = in(reg) new,
                    id = in(reg) id_offset(),
                    shift = const S::SHIFT,
                );
            }
            (outcome(t), old)
        }
    };
}

with_result!("8", xadd_8, xchg_8, cmpxchg_8, "movzx", "byte", ":l", ":e");
with_result!("16", xadd_16, xchg_16, cmpxchg_16, "movzx", "word", ":x", ":e");
with_result!("32", xadd_32, xchg_32, cmpxchg_32, "mov", "dword", ":e", ":e");
with_result!("64", xadd_64, xchg_64, cmpxchg_64, "mov", "qword", "", "");

/// `if *guard != expected { mismatch }; word += value`.
///
/// # Safety
///
/// As [`add_64`]; `guard` is a readable, aligned word.
#[inline(always)]
pub unsafe fn guarded_add_64<S: Stride>(
    base: Base,
    guard: *const u64,
    expected: u64,
    value: u64,
) -> Outcome {
    // SAFETY: the caller's contract; the shape is argued at the head of the parent module.
    unsafe {
        section!(
            [
                enter!("{absent}"),
                "cmp qword ptr [{guard}], {expected}",
                "jne {mismatch}",
                inject!(2),
                "add qword ptr [{base} + {t}], {value}",
                leave!(),
            ]
            t = out(reg) _,
            base = in(reg) base,
            guard = in(reg) guard,
            expected = in(reg) expected,
            value = in(reg) value,
            id = in(reg) id_offset(),
            shift = const S::SHIFT,
            absent = label { return Outcome::NotRegistered },
            mismatch = label { return Outcome::Mismatch },
        );
    }
    Outcome::Done
}
