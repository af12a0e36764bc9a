// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sections of a bounded stack of pointers.

use core::arch::asm;

use fastpath_sys::rseq::{area_offset, id_offset};

#[cfg(fastpath_inject)]
use super::DELAYS;
use super::{ABORTS, Base, Outcome, Stride, outcome};

/// `n = word; value = (&word)[n]; if value == 0 { none }; word = n - 1`. Gives `value`, or 0 for anything else.
///
/// The word counts; entries 1 to capacity follow it. Empty reads the count itself, 0; stopped reads entry
/// capacity + 1, which is 0 for ever: one test for empty and stopped.
///
/// # Safety
///
/// As [`add_64`](super::add_64); the word is followed by capacity + 1 entries, the last of them 0, and is at most capacity + 1.
#[inline(always)]
pub unsafe fn stack_pop<S: Stride>(base: Base) -> u64 {
    let value: u64;
    // SAFETY: the caller's contract; the shape is argued at the head of the parent module.
    unsafe {
        section!(
            [
                enter!("33f"),
                "add {t}, {base}",
                "mov {n}, qword ptr [{t}]",
                inject!(2),
                "mov {value}, qword ptr [{t} + 8 * {n}]",
                "test {value}, {value}",
                "jz 33f",
                inject!(3),
                "dec {n}",
                "mov qword ptr [{t}], {n}",
                leave!(),
                no_value!("value"),
            ]
            t = out(reg) _,
            n = out(reg) _,
            value = out(reg) value,
            base = in(reg) base,
            id = in(reg) id_offset(),
            shift = const S::SHIFT,
        );
    }
    value
}

/// `n = word; if n >= CAPACITY { mismatch }; (&word)[n + 1] = value; word = n + 1`.
///
/// # Safety
///
/// As [`stack_pop`]; `value` is not 0.
#[inline(always)]
pub unsafe fn stack_push<S: Stride, const CAPACITY: usize>(base: Base, value: u64) -> Outcome {
    // SAFETY: the caller's contract; the shape is argued at the head of the parent module.
    unsafe {
        section!(
            [
                enter!("{absent}"),
                "add {t}, {base}",
                "mov {n}, qword ptr [{t}]",
                inject!(2),
                "cmp {n}, {capacity}",
                "jae {full}",
                "mov qword ptr [{t} + 8 * {n} + 8], {value}",
                inject!(3),
                "inc {n}",
                "mov qword ptr [{t}], {n}",
                leave!(),
            ]
            t = out(reg) _,
            n = out(reg) _,
            base = in(reg) base,
            value = in(reg) value,
            id = in(reg) id_offset(),
            shift = const S::SHIFT,
            capacity = const CAPACITY,
            absent = label { return Outcome::NotRegistered },
            full = label { return Outcome::Mismatch },
        );
    }
    Outcome::Done
}

/// `n = word; if n > CAPACITY { none }; k = min(n, wanted); to[..k] = entries n - k + 1 ..= n; word = n - k`.
/// Gives the outcome and `k`.
///
/// # Safety
///
/// As [`stack_pop`]; `to` is writable for `wanted` words that nobody else looks at.
#[inline(always)]
pub unsafe fn stack_pop_batch<S: Stride, const CAPACITY: usize>(
    base: Base,
    to: *mut u64,
    wanted: usize,
) -> (Outcome, usize) {
    let (t, k): (isize, usize);
    // SAFETY: the caller's contract; the shape is argued at the head of the parent module. `to` may be written again after an
    // abort: nobody has looked at it.
    unsafe {
        section!(
            [
                enter!("33f"),
                "add {t}, {base}",
                "mov {n}, qword ptr [{t}]",
                inject!(2),
                "cmp {n}, {capacity}",
                "ja 37f",
                "mov {k}, {wanted}",
                "cmp {n}, {k}",
                "cmovb {k}, {n}",
                "sub {n}, {k}",
                "xor {i:e}, {i:e}",
                "41:",
                "cmp {i}, {k}",
                "jae 42f",
                "lea {entry}, [{n} + {i}]",
                "mov {entry}, qword ptr [{t} + 8 * {entry} + 8]",
                "mov qword ptr [{to} + 8 * {i}], {entry}",
                "inc {i}",
                "jmp 41b",
                "42:",
                inject!(3),
                "mov qword ptr [{t}], {n}",
                leave!(),
                exits!(),
            ]
            t = out(reg) t,
            n = out(reg) _,
            k = out(reg) k,
            i = out(reg) _,
            entry = out(reg) _,
            base = in(reg) base,
            to = in(reg) to,
            wanted = in(reg) wanted,
            id = in(reg) id_offset(),
            shift = const S::SHIFT,
            capacity = const CAPACITY,
        );
    }
    (outcome(t), k)
}

/// `n = word; if n > CAPACITY { none }; k = min(CAPACITY - n, offered); entries n + 1 ..= n + k = from[..k];
/// word = n + k`. Gives the outcome and `k`.
///
/// # Safety
///
/// As [`stack_pop`]; `from` is readable for `offered` words, none of them 0.
#[inline(always)]
pub unsafe fn stack_push_batch<S: Stride, const CAPACITY: usize>(
    base: Base,
    from: *const u64,
    offered: usize,
) -> (Outcome, usize) {
    let (t, k): (isize, usize);
    // SAFETY: the caller's contract; the shape is argued at the head of the parent module. Entries above the count may be
    // written again after an abort: they mean nothing until the count includes them.
    unsafe {
        section!(
            [
                enter!("33f"),
                "add {t}, {base}",
                "mov {n}, qword ptr [{t}]",
                inject!(2),
                "mov {k:e}, {capacity}",
                "sub {k}, {n}",
                "jb 37f",
                "cmp {k}, {offered}",
                "cmova {k}, {offered}",
                "xor {i:e}, {i:e}",
                "41:",
                "cmp {i}, {k}",
                "jae 42f",
                "mov {entry}, qword ptr [{from} + 8 * {i}]",
                "mov qword ptr [{t} + 8 * {n} + 8], {entry}",
                "inc {n}",
                "inc {i}",
                "jmp 41b",
                "42:",
                inject!(3),
                "mov qword ptr [{t}], {n}",
                leave!(),
                exits!(),
            ]
            t = out(reg) t,
            n = out(reg) _,
            k = out(reg) k,
            i = out(reg) _,
            entry = out(reg) _,
            base = in(reg) base,
            from = in(reg) from,
            offered = in(reg) offered,
            id = in(reg) id_offset(),
            shift = const S::SHIFT,
            capacity = const CAPACITY,
        );
    }
    (outcome(t), k)
}
