// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sections of a linked list.

use core::arch::asm;

use fastpath_sys::rseq::{area_offset, id_offset};

#[cfg(fastpath_inject)]
use super::DELAYS;
use super::{ABORTS, Base, Outcome, Stride};

/// `head = word; if head == STOPPED { mismatch }; *node = head; word = node`.
///
/// # Safety
///
/// As [`add_64`](super::add_64); `node` is the writable link of a node that nobody else can reach.
#[inline(always)]
pub unsafe fn list_push<S: Stride>(base: Base, node: *mut u64) -> Outcome {
    // SAFETY: the caller's contract; the shape is argued at the head of the parent module.
    unsafe {
        section!(
            [
                enter!("{absent}"),
                "mov {head}, qword ptr [{base} + {t}]",
                "cmp {head}, 1",
                "je {stopped}",
                inject!(2),
                "mov qword ptr [{node}], {head}",
                inject!(3),
                "mov qword ptr [{base} + {t}], {node}",
                leave!(),
            ]
            t = out(reg) _,
            head = out(reg) _,
            base = in(reg) base,
            node = in(reg) node,
            id = in(reg) id_offset(),
            shift = const S::SHIFT,
            absent = label { return Outcome::NotRegistered },
            stopped = label { return Outcome::Mismatch },
        );
    }
    Outcome::Done
}

/// `head = word; if head <= STOPPED { none }; next = *head; word = next`. Gives `head`, or 0 for anything else.
///
/// # Safety
///
/// As [`add_64`](super::add_64); every node that can be in the list has a readable link.
#[inline(always)]
pub unsafe fn list_pop<S: Stride>(base: Base) -> u64 {
    let head: u64;
    // SAFETY: the caller's contract; the shape is argued at the head of the parent module.
    unsafe {
        section!(
            [
                enter!("33f"),
                "mov {head}, qword ptr [{base} + {t}]",
                inject!(2),
                "cmp {head}, 1",
                "jbe 33f",
                "mov {next}, qword ptr [{head}]",
                inject!(3),
                "mov qword ptr [{base} + {t}], {next}",
                leave!(),
                no_value!("head"),
            ]
            t = out(reg) _,
            head = out(reg) head,
            next = out(reg) _,
            base = in(reg) base,
            id = in(reg) id_offset(),
            shift = const S::SHIFT,
        );
    }
    head
}

/// `head = word; if head <= STOPPED { none }; word = 0`. Gives `head`, or 0 for anything else.
///
/// # Safety
///
/// As [`add_64`](super::add_64).
#[inline(always)]
pub unsafe fn list_pop_all<S: Stride>(base: Base) -> u64 {
    let head: u64;
    // SAFETY: the caller's contract; the shape is argued at the head of the parent module.
    unsafe {
        section!(
            [
                enter!("33f"),
                "mov {head}, qword ptr [{base} + {t}]",
                inject!(2),
                "cmp {head}, 1",
                "jbe 33f",
                "mov qword ptr [{base} + {t}], 0",
                leave!(),
                no_value!("head"),
            ]
            t = out(reg) _,
            head = out(reg) head,
            base = in(reg) base,
            id = in(reg) id_offset(),
            shift = const S::SHIFT,
        );
    }
    head
}
