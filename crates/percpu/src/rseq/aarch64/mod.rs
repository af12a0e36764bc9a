// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The sections in AArch64 assembly. [`crate::contract`] has each in pseudo-code; this file follows it line by line.
//!
//! ```text
//! 30: adrp t, 35f; add t, t, :lo12:35f
//!     str  t, [area, #8]               arm
//! 31: ldr  t, [area, #4]               first instruction inside
//!     tbnz t, #31, 33f                 registered?
//!     ldr  t, [id]; lsl; add           the slot's word
//!     ...
//!     str  new, [t]                    the one committing store (stlr where the contract says release)
//! 32: str  xzr, [area, #8]             disarm
//!     b    36f
//! 33: mov  t, #-1; b 39f               exits
//!     .inst 0xd428bc00                 the signature: brk #0x45e0
//! 34: count the abort; b 30b
//! 36:
//! ```
//!
//! * `area` and `id` are addresses here: the architecture has no segment to add an offset to.
//! * Exits and abort handler lie beside the section, outside 31 to 32: `tbnz` reaches only 32 KiB.
//! * x16 and x17 are scratch of the abort handler, and declared clobbered.
//! * Loads that must see what another CPU published are `ldar`: the guard of `guarded_add` and the compared words.
//! * No `preserves_flags`: sections compare. No `readonly` or `nomem`: they write. `nostack` holds: no push, no call.

use super::{ABORTS, Base, Outcome, Stride};

/// Are there sections for this target?
pub const AVAILABLE: bool = true;

macro_rules! arm {
    () => {
        concat!(
            "30:\n",
            "adrp {t}, 35f\n",
            "add {t}, {t}, :lo12:35f\n",
            "str {t}, [{area}, #8]\n",
            "31:\n",
            "ldr {t:w}, [{area}, #4]\n",
            "tbnz {t:w}, #31, 33f\n",
        )
    };
}

macro_rules! enter {
    () => {
        concat!(arm!(), "ldr {t:w}, [{id}]\n", "lsl {t}, {t}, #{shift}\n", "add {t}, {t}, {base}\n")
    };
}

macro_rules! enter_at {
    () => {
        concat!(arm!(), "ldr {t:w}, [{id}]\n", "cmp {t:w}, {slot:w}\n", "b.ne 38f\n")
    };
}

/// Label 32, disarming, the exits (33 not registered, 37 mismatch, 38 on another slot), handler and descriptor.
macro_rules! leave {
    () => {
        concat!(
            "32:\n",
            "str xzr, [{area}, #8]\n",
            "b 36f\n",
            "33:\n",
            "mov {t}, #-1\n",
            "b 39f\n",
            "37:\n",
            "mov {t}, #-2\n",
            "b 39f\n",
            "38:\n",
            "mov {t}, #-3\n",
            "39:\n",
            "str xzr, [{area}, #8]\n",
            "b 36f\n",
            ".inst 0xd428bc00\n",
            "34:\n",
            "adrp x16, {aborts}\n",
            "add x16, x16, :lo12:{aborts}\n",
            "44:\n",
            "ldxr x17, [x16]\n",
            "add x17, x17, #1\n",
            "stxr {t:w}, x17, [x16]\n",
            "cbnz {t:w}, 44b\n",
            "b 30b\n",
            ".pushsection __rseq_cs, \"aw\", @progbits\n",
            ".balign 32\n",
            "35:\n",
            ".word 0, 0\n",
            ".xword 31b, 32b - 31b, 34b\n",
            ".popsection\n",
            "36:\n",
        )
    };
}

macro_rules! section {
    ([$($text:expr),* $(,)?] $($operands:tt)*) => {
        asm!(
            concat!($($text, "\n"),*),
            $($operands)*
            area = in(reg) thread_pointer().wrapping_offset(area_offset()),
            id = in(reg) thread_pointer().wrapping_offset(id_offset()),
            aborts = sym ABORTS,
            out("x16") _,
            out("x17") _,
            options(nostack),
        )
    };
}

/// What `t` says at the end: an address (never negative in user space), or why nothing was done.
#[inline(always)]
fn outcome(t: isize) -> Outcome {
    match t {
        -1 => Outcome::NotRegistered,
        -2 => Outcome::Mismatch,
        -3 => Outcome::Moved,
        _ => Outcome::Done,
    }
}

mod compare;
mod lists;
mod stacks;
mod words;

pub use compare::*;
pub use lists::*;
pub use stacks::*;
pub use words::*;

/// The self-test's helper thread has no port: the kernel is trusted.
pub(crate) fn abort_probe(_: isize) -> Option<bool> {
    None
}
