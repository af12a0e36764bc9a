// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sections of a bounded stack of pointers.

use core::arch::asm;

use fastpath_sys::rseq::{area_offset, id_offset, thread_pointer};

use super::{ABORTS, Base, Outcome, Stride, outcome};

/// `n = word; value = (&word)[n]; if value == 0 { none }; word = n - 1`. Gives `value`, or 0 for anything else.
///
/// # Safety
///
/// As [`add_64`](super::add_64); the word is followed by capacity + 1 entries, the last of them 0, and is at most capacity + 1.
#[inline(always)]
pub unsafe fn stack_pop<S: Stride>(base: Base) -> u64 {
    let (t, value): (isize, u64);
    // SAFETY: the caller's contract; the shape is argued at the head of the parent module.
    unsafe {
        section!(
            [
                enter!(),
                "ldr {n}, [{t}]",
                "ldr {value}, [{t}, {n}, lsl #3]",
                "cbz {value}, 37f",
                "sub {n}, {n}, #1",
                "str {n}, [{t}]",
                leave!(),
            ]
            t = out(reg) t,
            n = out(reg) _,
            value = out(reg) value,
            base = in(reg) base,
            shift = const S::SHIFT,
        );
    }
    if outcome(t) == Outcome::Done { value } else { 0 }
}

/// `n = word; if n >= CAPACITY { mismatch }; (&word)[n + 1] = value; word = n + 1`.
///
/// # Safety
///
/// As [`stack_pop`]; `value` is not 0.
#[inline(always)]
pub unsafe fn stack_push<S: Stride, const CAPACITY: usize>(base: Base, value: u64) -> Outcome {
    let t: isize;
    // SAFETY: the caller's contract; the shape is argued at the head of the parent module.
    unsafe {
        section!(
            [
                enter!(),
                "ldr {n}, [{t}]",
                "cmp {n}, {capacity}",
                "b.hs 37f",
                "add {n}, {n}, #1",
                "str {value}, [{t}, {n}, lsl #3]",
                "str {n}, [{t}]",
                leave!(),
            ]
            t = out(reg) t,
            n = out(reg) _,
            base = in(reg) base,
            value = in(reg) value,
            capacity = in(reg) CAPACITY,
            shift = const S::SHIFT,
        );
    }
    outcome(t)
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
    // SAFETY: the caller's contract; the shape is argued at the head of the parent module.
    unsafe {
        section!(
            [
                enter!(),
                "ldr {n}, [{t}]",
                "cmp {n}, {capacity}",
                "b.hi 37f",
                "cmp {n}, {wanted}",
                "csel {k}, {n}, {wanted}, lo",
                "sub {n}, {n}, {k}",
                "mov {i}, #0",
                "41:",
                "cmp {i}, {k}",
                "b.hs 42f",
                "add {entry}, {n}, {i}",
                "add {entry}, {entry}, #1",
                "ldr {entry}, [{t}, {entry}, lsl #3]",
                "str {entry}, [{to}, {i}, lsl #3]",
                "add {i}, {i}, #1",
                "b 41b",
                "42:",
                "str {n}, [{t}]",
                leave!(),
            ]
            t = out(reg) t,
            n = out(reg) _,
            k = out(reg) k,
            i = out(reg) _,
            entry = out(reg) _,
            base = in(reg) base,
            to = in(reg) to,
            wanted = in(reg) wanted,
            capacity = in(reg) CAPACITY,
            shift = const S::SHIFT,
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
    // SAFETY: the caller's contract; the shape is argued at the head of the parent module.
    unsafe {
        section!(
            [
                enter!(),
                "ldr {n}, [{t}]",
                "subs {k}, {capacity}, {n}",
                "b.lo 37f",
                "cmp {k}, {offered}",
                "csel {k}, {k}, {offered}, lo",
                "mov {i}, #0",
                "41:",
                "cmp {i}, {k}",
                "b.hs 42f",
                "ldr {entry}, [{from}, {i}, lsl #3]",
                "add {n}, {n}, #1",
                "str {entry}, [{t}, {n}, lsl #3]",
                "add {i}, {i}, #1",
                "b 41b",
                "42:",
                "str {n}, [{t}]",
                leave!(),
            ]
            t = out(reg) t,
            n = out(reg) _,
            k = out(reg) k,
            i = out(reg) _,
            entry = out(reg) _,
            base = in(reg) base,
            from = in(reg) from,
            offered = in(reg) offered,
            capacity = in(reg) CAPACITY,
            shift = const S::SHIFT,
        );
    }
    (outcome(t), k)
}
