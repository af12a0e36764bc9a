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
use core::arch::asm;
use fastpath_sys::rseq::{area_offset, id_offset};

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
            // SAFETY: the caller's contract; the shape is argued at the head of this file.
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
            // SAFETY: the caller's contract; the shape is argued at the head of this file.
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
            // SAFETY: the caller's contract; the shape is argued at the head of this file.
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
            // SAFETY: the caller's contract; the shape is argued at the head of this file.
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
            // SAFETY: the caller's contract; the shape is argued at the head of this file.
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
    // SAFETY: the caller's contract; the shape is argued at the head of this file.
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

/// `head = word; if head == STOPPED { mismatch }; *node = head; word = node`.
///
/// # Safety
///
/// As [`add_64`]; `node` is the writable link of a node that nobody else can reach.
#[inline(always)]
pub unsafe fn list_push<S: Stride>(base: Base, node: *mut u64) -> Outcome {
    // SAFETY: the caller's contract; the shape is argued at the head of this file.
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
/// As [`add_64`]; every node that can be in the list has a readable link.
#[inline(always)]
pub unsafe fn list_pop<S: Stride>(base: Base) -> u64 {
    let head: u64;
    // SAFETY: the caller's contract; the shape is argued at the head of this file.
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
/// As [`add_64`].
#[inline(always)]
pub unsafe fn list_pop_all<S: Stride>(base: Base) -> u64 {
    let head: u64;
    // SAFETY: the caller's contract; the shape is argued at the head of this file.
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

/// `n = word; value = (&word)[n]; if value == 0 { none }; word = n - 1`. Gives `value`, or 0 for anything else.
///
/// The word counts; entries 1 to capacity follow it. Empty reads the count itself, 0; stopped reads entry
/// capacity + 1, which is 0 for ever: one test for empty and stopped.
///
/// # Safety
///
/// As [`add_64`]; the word is followed by capacity + 1 entries, the last of them 0, and is at most capacity + 1.
#[inline(always)]
pub unsafe fn stack_pop<S: Stride>(base: Base) -> u64 {
    let value: u64;
    // SAFETY: the caller's contract; the shape is argued at the head of this file.
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
    // SAFETY: the caller's contract; the shape is argued at the head of this file.
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
    // SAFETY: the caller's contract; the shape is argued at the head of this file. `to` may be written again after an
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
    // SAFETY: the caller's contract; the shape is argued at the head of this file. Entries above the count may be
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

/// `if slot moved { moved }; if *word != expected { mismatch }; *word = new`.
///
/// # Safety
///
/// `word` is an aligned, writable word that belongs to slot `slot`: only sections on that slot write it.
#[inline(always)]
pub unsafe fn compare_store(slot: u32, word: *mut u64, expected: u64, new: u64) -> Outcome {
    let t: isize;
    // SAFETY: the caller's contract; the shape is argued at the head of this file.
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
    // SAFETY: the caller's contract; the shape is argued at the head of this file.
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
    // SAFETY: the caller's contract; the shape is argued at the head of this file. x86-64 stores become visible in
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
    // SAFETY: the caller's contract; the shape is argued at the head of this file. Words first, then bytes: `rep movs`
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
    // SAFETY: the caller's contract; the shape is argued at the head of this file. Words first, then bytes: `rep movs`
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
