// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The sections in x86-64 assembly. [`crate::contract`] has each in pseudo-code; this file follows it line by line.
//!
//! How every section is built:
//!
//! ```text
//! 30: lea  t, [rip + 35f]            arm: the descriptor's address ...
//!     mov  fs:[area + 8], t          ... to rseq_cs
//! 31: cmp  dword fs:[area + 4], 0    first instruction inside: is this thread registered?
//!     jl   <not registered>
//!     mov  t, dword fs:[id]          slot number (cpu_id or mm_cid), read inside, so true until the commit
//!     ...                            loads, compares, stores that nobody looks at yet
//!     mov  [word], new               the one committing store
//! 32: mov  qword fs:[area + 8], 0    first instruction after; disarm, so that no descriptor of code that may be
//!                                    unloaded stays behind
//! 35: {0, 0, 31b, 32b - 31b, 34f}    the descriptor, in __rseq_cs. "aw": it holds addresses to be relocated
//!     .byte 0x0f, 0xb9, 0x3d         in a cold section: makes the signature the operand of a ud1
//!     .long 0x53053053
//! 34: lock inc [aborts]; jmp 30b     where the kernel continues after an abort
//! ```
//!
//! * `area` and `id` are offsets from the thread pointer (fs).
//! * Values leave in `out(reg)` registers, all of which the code writes after label 30, so the jump back finds nothing
//!   changed: every register written inside is an output or clobber, and inputs are never written.
//! * What failed leaves through `t`: a slot's offset is never negative, `-1` is "not registered", `-2` "mismatch".
//! * Where nothing has to come out, the exits are `label` operands (they cannot be combined with outputs).
//! * No `preserves_flags`: every section compares. No `readonly`/`nomem`: sections write slots and the area. `nostack`
//!   holds: no push, no call.
//! * Numeric labels start at 30: labels of only 0 and 1 digits would be read as binary numbers.

#[cfg(fastpath_inject)]
use super::inject::DELAYS;
use super::{ABORTS, Base, Outcome, Stride};

/// Arms the section and finds the slot: label 30 to the slot's offset in `{t}`. Jumps to `$absent` if not registered.
macro_rules! enter {
    ($absent:literal) => {
        concat!(
            "30:\n",
            "lea {t}, [rip + 35f]\n",
            "mov qword ptr fs:[{area} + 8], {t}\n",
            "31:\n",
            "cmp dword ptr fs:[{area} + 4], 0\n",
            "jl ", $absent, "\n",
            inject!(0),
            "mov {t:e}, dword ptr fs:[{id}]\n",
            "shl {t}, {shift}\n",
            inject!(1),
        )
    };
}

/// The same for sections whose slot was found before: checks that the thread is still on slot `{slot}`.
macro_rules! enter_at {
    () => {
        concat!(
            "30:\n",
            "lea {t}, [rip + 35f]\n",
            "mov qword ptr fs:[{area} + 8], {t}\n",
            "31:\n",
            "cmp dword ptr fs:[{area} + 4], 0\n",
            "jl 33f\n",
            inject!(0),
            "cmp dword ptr fs:[{id}], {slot:e}\n",
            "jne 38f\n",
            inject!(1),
        )
    };
}

/// The end of every section: label 32, disarming, the descriptor and the abort handler.
macro_rules! leave {
    () => {
        concat!(
            "32:\n",
            "mov qword ptr fs:[{area} + 8], 0\n",
            "36:\n",
            ".pushsection __rseq_cs, \"aw\", @progbits\n",
            ".balign 32\n",
            "35:\n",
            ".long 0, 0\n",
            ".quad 31b, 32b - 31b, 34f\n",
            ".popsection\n",
            ".pushsection .text.fastpath_rseq_abort, \"ax\", @progbits\n",
            ".byte 0x0f, 0xb9, 0x3d\n",
            ".long 0x53053053\n",
            "34:\n",
            "lock inc qword ptr [rip + {aborts}]\n",
            "jmp 30b\n",
            ".popsection\n",
        )
    };
}

/// The exits of sections that give values: 33 not registered, 37 mismatch, 38 on another slot.
macro_rules! exits {
    () => {
        concat!(
            ".pushsection .text.fastpath_rseq_abort, \"ax\", @progbits\n",
            "33:\n",
            "mov {t}, -1\n",
            "jmp 39f\n",
            "37:\n",
            "mov {t}, -2\n",
            "jmp 39f\n",
            "38:\n",
            "mov {t}, -3\n",
            "39:\n",
            "mov qword ptr fs:[{area} + 8], 0\n",
            "jmp 36b\n",
            ".popsection\n",
        )
    };
}

/// The exit of sections that give a value or 0: label 33.
macro_rules! no_value {
    ($value:literal) => {
        concat!(
            ".pushsection .text.fastpath_rseq_abort, \"ax\", @progbits\n",
            "33:\n",
            "xor {", $value, ":e}, {", $value, ":e}\n",
            "mov qword ptr fs:[{area} + 8], 0\n",
            "jmp 36b\n",
            ".popsection\n",
        )
    };
}

#[cfg(not(fastpath_inject))]
macro_rules! inject {
    ($number:literal) => {
        ""
    };
}
/// Waits `DELAYS[number]` rounds, so that a signal or preemption can come exactly there.
#[cfg(fastpath_inject)]
macro_rules! inject {
    ($number:literal) => {
        concat!(
            "mov {delay:e}, dword ptr [rip + {delays} + 4 * ", $number, "]\n",
            "40:\n",
            "sub {delay:e}, 1\n",
            "jnc 40b\n",
        )
    };
}

#[cfg(not(fastpath_inject))]
macro_rules! section {
    ([$($text:expr),* $(,)?] $($operands:tt)*) => {
        asm!(
            concat!($($text, "\n"),*),
            $($operands)*
            area = in(reg) area_offset(),
            aborts = sym ABORTS,
            options(nostack),
        )
    };
}
#[cfg(fastpath_inject)]
macro_rules! section {
    ([$($text:expr),* $(,)?] $($operands:tt)*) => {
        asm!(
            concat!($($text, "\n"),*),
            $($operands)*
            area = in(reg) area_offset(),
            aborts = sym ABORTS,
            delay = out(reg) _,
            delays = sym DELAYS,
            options(nostack),
        )
    };
}

/// What `t` says at the end of a section with values.
#[inline(always)]
fn outcome(t: isize) -> Outcome {
    if t >= 0 {
        Outcome::Done
    } else if t == -1 {
        Outcome::NotRegistered
    } else if t == -2 {
        Outcome::Mismatch
    } else {
        Outcome::Moved
    }
}

mod compare;
mod lists;
mod probe;
mod stacks;
mod words;

pub use compare::*;
pub use lists::*;
pub(crate) use probe::abort_probe;
pub use stacks::*;
pub use words::*;
