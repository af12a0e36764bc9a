// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sections of a linked list.

use core::arch::asm;

use fastpath_sys::rseq::{area_offset, id_offset, thread_pointer};

use super::{ABORTS, Base, Outcome, Stride, outcome};

/// `head = word; if head == STOPPED { mismatch }; *node = head; word = node`.
///
/// # Safety
///
/// As [`add_64`](super::add_64); `node` is the writable link of a node that nobody else can reach.
#[inline(always)]
pub unsafe fn list_push<S: Stride>(base: Base, node: *mut u64) -> Outcome {
    let t: isize;
    // SAFETY: the caller's contract; the shape is argued at the head of the parent module.
    unsafe {
        section!(
            [
                enter!(),
                "ldr {head}, [{t}]",
                "cmp {head}, #1",
                "b.eq 37f",
                "str {head}, [{node}]",
                "str {node}, [{t}]",
                leave!(),
            ]
            t = out(reg) t,
            head = out(reg) _,
            base = in(reg) base,
            node = in(reg) node,
            shift = const S::SHIFT,
        );
    }
    outcome(t)
}

/// `head = word; if head <= STOPPED { none }; next = *head; word = next`. Gives `head`, or 0 for anything else.
///
/// # Safety
///
/// As [`add_64`](super::add_64); every node that can be in the list has a readable link.
#[inline(always)]
pub unsafe fn list_pop<S: Stride>(base: Base) -> u64 {
    let (t, head): (isize, u64);
    // SAFETY: the caller's contract; the shape is argued at the head of the parent module.
    unsafe {
        section!(
            [
                enter!(),
                "ldr {head}, [{t}]",
                "cmp {head}, #1",
                "b.ls 37f",
                "ldr {next}, [{head}]",
                "str {next}, [{t}]",
                leave!(),
            ]
            t = out(reg) t,
            head = out(reg) head,
            next = out(reg) _,
            base = in(reg) base,
            shift = const S::SHIFT,
        );
    }
    if outcome(t) == Outcome::Done { head } else { 0 }
}

/// `head = word; if head <= STOPPED { none }; word = 0`. Gives `head`, or 0 for anything else.
///
/// # Safety
///
/// As [`add_64`](super::add_64).
#[inline(always)]
pub unsafe fn list_pop_all<S: Stride>(base: Base) -> u64 {
    let (t, head): (isize, u64);
    // SAFETY: the caller's contract; the shape is argued at the head of the parent module.
    unsafe {
        section!(
            [enter!(), "ldr {head}, [{t}]", "cmp {head}, #1", "b.ls 37f", "str xzr, [{t}]", leave!()]
            t = out(reg) t,
            head = out(reg) head,
            base = in(reg) base,
            shift = const S::SHIFT,
        );
    }
    if outcome(t) == Outcome::Done { head } else { 0 }
}
