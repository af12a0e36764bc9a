// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sections of one word: the `this_cpu_*` operations.

use core::arch::asm;

use fastpath_sys::rseq::{area_offset, id_offset, thread_pointer};

use super::{ABORTS, Base, Outcome, Stride, outcome};

/// Sections of one word without a result: load, `$step` on `{n}`, store.
macro_rules! in_place {
    ($($name:ident, $step:literal, $load:literal, $store:literal, $part:literal;)*) => {$(
        /// The word's change by `value`.
        ///
        /// # Safety
        ///
        /// `base` is the word of slot 0 of a live region whose slots lie `1 << S::SHIFT` bytes apart, for every slot the
        /// kernel can number; the word is naturally aligned.
        #[inline(always)]
        pub unsafe fn $name<S: Stride>(base: Base, value: u64) -> Outcome {
            let t: isize;
            // SAFETY: the caller's contract; the shape is argued at the head of the parent module.
            unsafe {
                section!(
                    [
                        enter!(),
                        concat!($load, " {n", $part, "}, [{t}]"),
                        concat!($step, " {n", $part, "}, {n", $part, "}, {value", $part, "}"),
                        concat!($store, " {n", $part, "}, [{t}]"),
                        leave!(),
                    ]
                    t = out(reg) t,
                    n = out(reg) _,
                    base = in(reg) base,
                    value = in(reg) value,
                    shift = const S::SHIFT,
                );
            }
            outcome(t)
        }
    )*};
}

in_place! {
    add_8, "add", "ldrb", "strb", ":w";
    add_16, "add", "ldrh", "strh", ":w";
    add_32, "add", "ldr", "str", ":w";
    add_64, "add", "ldr", "str", "";
    and_8, "and", "ldrb", "strb", ":w";
    and_16, "and", "ldrh", "strh", ":w";
    and_32, "and", "ldr", "str", ":w";
    and_64, "and", "ldr", "str", "";
    or_8, "orr", "ldrb", "strb", ":w";
    or_16, "orr", "ldrh", "strh", ":w";
    or_32, "orr", "ldr", "str", ":w";
    or_64, "orr", "ldr", "str", "";
}

macro_rules! by_width {
    ($($write:ident, $inc:ident, $dec:ident, $add:ident, $xadd:ident, $xchg:ident, $cmpxchg:ident,
       $load:literal, $store:literal, $part:literal, $narrow:literal;)*) => {$(
        /// `word = value`
        ///
        /// # Safety
        ///
        /// As [`add_64`].
        #[inline(always)]
        pub unsafe fn $write<S: Stride>(base: Base, value: u64) -> Outcome {
            let t: isize;
            // SAFETY: the caller's contract; the shape is argued at the head of the parent module.
            unsafe {
                section!(
                    [enter!(), concat!($store, " {value", $part, "}, [{t}]"), leave!()]
                    t = out(reg) t,
                    base = in(reg) base,
                    value = in(reg) value,
                    shift = const S::SHIFT,
                );
            }
            outcome(t)
        }

        /// `word += 1`
        ///
        /// # Safety
        ///
        /// As [`add_64`].
        #[inline(always)]
        pub unsafe fn $inc<S: Stride>(base: Base) -> Outcome {
            // SAFETY: the caller's contract.
            unsafe { $add::<S>(base, 1) }
        }

        /// `word -= 1`
        ///
        /// # Safety
        ///
        /// As [`add_64`].
        #[inline(always)]
        pub unsafe fn $dec<S: Stride>(base: Base) -> Outcome {
            // SAFETY: the caller's contract.
            unsafe { $add::<S>(base, u64::MAX) }
        }

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
                        enter!(),
                        concat!($load, " {old", $part, "}, [{t}]"),
                        "add {new}, {old}, {value}",
                        concat!($store, " {new", $part, "}, [{t}]"),
                        leave!(),
                    ]
                    t = out(reg) t,
                    old = out(reg) old,
                    new = out(reg) _,
                    base = in(reg) base,
                    value = in(reg) value,
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
                        enter!(),
                        concat!($load, " {old", $part, "}, [{t}]"),
                        concat!($store, " {value", $part, "}, [{t}]"),
                        leave!(),
                    ]
                    t = out(reg) t,
                    old = out(reg) old,
                    base = in(reg) base,
                    value = in(reg) value,
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
                        enter!(),
                        concat!($load, " {old", $part, "}, [{t}]"),
                        concat!($narrow, " {n", $part, "}, {expected", $part, "}"),
                        concat!("cmp {old", $part, "}, {n", $part, "}"),
                        "b.ne 37f",
                        concat!($store, " {new", $part, "}, [{t}]"),
                        leave!(),
                    ]
                    t = out(reg) t,
                    old = out(reg) old,
                    n = out(reg) _,
                    base = in(reg) base,
                    expected = in(reg) expected,
                    new = in(reg) new,
                    shift = const S::SHIFT,
                );
            }
            (outcome(t), old)
        }
    )*};
}

by_width! {
    write_8, inc_8, dec_8, add_8, xadd_8, xchg_8, cmpxchg_8, "ldrb", "strb", ":w", "uxtb";
    write_16, inc_16, dec_16, add_16, xadd_16, xchg_16, cmpxchg_16, "ldrh", "strh", ":w", "uxth";
    write_32, inc_32, dec_32, add_32, xadd_32, xchg_32, cmpxchg_32, "ldr", "str", ":w", "mov";
    write_64, inc_64, dec_64, add_64, xadd_64, xchg_64, cmpxchg_64, "ldr", "str", "", "mov";
}

/// `if *guard != expected { mismatch }; word += value`.
///
/// # Safety
///
/// As [`add_64`]; `guard` is a readable, aligned word.
#[inline(always)]
pub unsafe fn guarded_add_64<S: Stride>(base: Base, guard: *const u64, expected: u64, value: u64) -> Outcome {
    let t: isize;
    // SAFETY: the caller's contract; the shape is argued at the head of the parent module.
    unsafe {
        section!(
            [
                enter!(),
                "ldar {n}, [{guard}]",
                "cmp {n}, {expected}",
                "b.ne 37f",
                "ldr {n}, [{t}]",
                "add {n}, {n}, {value}",
                "str {n}, [{t}]",
                leave!(),
            ]
            t = out(reg) t,
            n = out(reg) _,
            base = in(reg) base,
            guard = in(reg) guard,
            expected = in(reg) expected,
            value = in(reg) value,
            shift = const S::SHIFT,
        );
    }
    outcome(t)
}
