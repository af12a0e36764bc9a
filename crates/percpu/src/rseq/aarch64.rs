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

use core::arch::asm;

use fastpath_sys::rseq::{area_offset, id_offset, thread_pointer};

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
            // SAFETY: the caller's contract; the shape is argued at the head of this file.
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
            // SAFETY: the caller's contract; the shape is argued at the head of this file.
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
            // SAFETY: the caller's contract; the shape is argued at the head of this file.
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
            // SAFETY: the caller's contract; the shape is argued at the head of this file.
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
            // SAFETY: the caller's contract; the shape is argued at the head of this file.
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
    // SAFETY: the caller's contract; the shape is argued at the head of this file.
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

/// `head = word; if head == STOPPED { mismatch }; *node = head; word = node`.
///
/// # Safety
///
/// As [`add_64`]; `node` is the writable link of a node that nobody else can reach.
#[inline(always)]
pub unsafe fn list_push<S: Stride>(base: Base, node: *mut u64) -> Outcome {
    let t: isize;
    // SAFETY: the caller's contract; the shape is argued at the head of this file.
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
/// As [`add_64`]; every node that can be in the list has a readable link.
#[inline(always)]
pub unsafe fn list_pop<S: Stride>(base: Base) -> u64 {
    let (t, head): (isize, u64);
    // SAFETY: the caller's contract; the shape is argued at the head of this file.
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
/// As [`add_64`].
#[inline(always)]
pub unsafe fn list_pop_all<S: Stride>(base: Base) -> u64 {
    let (t, head): (isize, u64);
    // SAFETY: the caller's contract; the shape is argued at the head of this file.
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

/// `n = word; value = (&word)[n]; if value == 0 { none }; word = n - 1`. Gives `value`, or 0 for anything else.
///
/// # Safety
///
/// As [`add_64`]; the word is followed by capacity + 1 entries, the last of them 0, and is at most capacity + 1.
#[inline(always)]
pub unsafe fn stack_pop<S: Stride>(base: Base) -> u64 {
    let (t, value): (isize, u64);
    // SAFETY: the caller's contract; the shape is argued at the head of this file.
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
    // SAFETY: the caller's contract; the shape is argued at the head of this file.
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
    // SAFETY: the caller's contract; the shape is argued at the head of this file.
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
    // SAFETY: the caller's contract; the shape is argued at the head of this file.
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
                "ldar {n}, [{word}]",
                "cmp {n}, {expected}",
                "b.ne 37f",
                "mov {t}, #0",
                "stlr {new}, [{word}]",
                leave!(),
            ]
            t = out(reg) t,
            n = out(reg) _,
            slot = in(reg) slot,
            word = in(reg) word,
            expected = in(reg) expected,
            new = in(reg) new,
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
                "ldar {n}, [{word}]",
                "cmp {n}, {expected}",
                "b.ne 37f",
                "ldar {n}, [{word2}]",
                "cmp {n}, {expected2}",
                "b.ne 37f",
                "mov {t}, #0",
                "stlr {new}, [{word}]",
                leave!(),
            ]
            t = out(reg) t,
            n = out(reg) _,
            slot = in(reg) slot,
            word = in(reg) word,
            expected = in(reg) expected,
            word2 = in(reg) word2,
            expected2 = in(reg) expected2,
            new = in(reg) new,
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
    // SAFETY: the caller's contract; the shape is argued at the head of this file.
    unsafe {
        section!(
            [
                enter_at!(),
                "ldar {n}, [{word}]",
                "cmp {n}, {expected}",
                "b.ne 37f",
                "str {value}, [{first}]",
                "mov {t}, #0",
                "stlr {new}, [{word}]",
                leave!(),
            ]
            t = out(reg) t,
            n = out(reg) _,
            slot = in(reg) slot,
            word = in(reg) word,
            expected = in(reg) expected,
            first = in(reg) first,
            value = in(reg) value,
            new = in(reg) new,
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
    // SAFETY: the caller's contract; the shape is argued at the head of this file.
    unsafe {
        section!(
            [
                enter_at!(),
                "ldar {n}, [{word}]",
                "cmp {n}, {expected}",
                "b.ne 37f",
                "mov {t}, #0",
                "41:",
                "cmp {t}, {bytes}",
                "b.hs 42f",
                "ldrb {n:w}, [{from}, {t}]",
                "strb {n:w}, [{to}, {t}]",
                "add {t}, {t}, #1",
                "b 41b",
                "42:",
                "mov {t}, #0",
                "stlr {new}, [{word}]",
                leave!(),
            ]
            t = out(reg) t,
            n = out(reg) _,
            slot = in(reg) slot,
            word = in(reg) word,
            expected = in(reg) expected,
            to = in(reg) to,
            from = in(reg) from,
            bytes = in(reg) bytes,
            new = in(reg) new,
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
    // SAFETY: the caller's contract; the shape is argued at the head of this file.
    unsafe {
        section!(
            [
                enter_at!(),
                "ldar {n}, [{word}]",
                "cmp {n}, {expected}",
                "b.ne 37f",
                "str {value}, [{first}]",
                "mov {t}, #0",
                "41:",
                "cmp {t}, {bytes}",
                "b.hs 42f",
                "ldrb {n:w}, [{from}, {t}]",
                "strb {n:w}, [{to}, {t}]",
                "add {t}, {t}, #1",
                "b 41b",
                "42:",
                "mov {t}, #0",
                "stlr {new}, [{word}]",
                leave!(),
            ]
            t = out(reg) t,
            n = out(reg) _,
            slot = in(reg) slot,
            word = in(reg) word,
            expected = in(reg) expected,
            first = in(reg) first,
            to = in(reg) first.wrapping_add(1),
            value = in(reg) value,
            from = in(reg) from,
            bytes = in(reg) bytes,
            new = in(reg) new,
        );
    }
    outcome(t)
}

/// The self-test's helper thread has no port: the kernel is trusted.
pub(crate) fn abort_probe(_: isize) -> Option<bool> {
    None
}
