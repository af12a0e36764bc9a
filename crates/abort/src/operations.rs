// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The operations under test: every section of `fastpath_percpu`, on slots whose whole contents are compared afterwards.
//!
//! Each operation has a model in plain Rust that changes a copy of one slot's words and gives the expected result. What
//! must come out follows from the disturbance alone: the disturbing operation and then the operation itself, both on
//! the home slot; or, after a migration, the operation on the other CPU's slot and nothing at home.

#![expect(unsafe_code, reason = "critical sections on raw slots")]

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

use fastpath_percpu::rseq::{self, Base, Outcome, Stride};
use fastpath_percpu::{Backend, SelfTest};

use crate::shared::Disturbance;
use crate::victim::HOME;

mod sheaves;
mod slots;

pub(crate) use sheaves::prepare_table;

/// One operation, the one that disturbs it, and how to tell what happened.
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    pub(crate) set_up: fn(),
    pub(crate) run: fn(),
    pub(crate) disturb: fn(),
    pub(crate) check: fn(Disturbance) -> Result<(), String>,
}

/// All operations.
pub(crate) static ALL: &[&[Operation]] =
    &[slots::ON_WORDS, slots::LISTS, slots::STACKS, slots::COMPARES, sheaves::ALL];

/// The operation `number`, counted over all groups.
pub(crate) fn nth(number: usize) -> &'static Operation {
    ALL.iter().copied().flatten().nth(number).expect("the number of an operation")
}

/// How many operations there are.
pub(crate) fn count() -> usize {
    ALL.iter().map(|group| group.len()).sum()
}

/// Words of a slot.
const WORDS: usize = 512;

/// One CPU's slot.
#[repr(C, align(4096))]
pub(crate) struct Page([AtomicU64; WORDS]);

/// How far apart the pages lie.
pub(crate) struct Pitch;

impl Stride for Pitch {
    const SHIFT: u32 = size_of::<Page>().trailing_zeros();
}

/// Slots for every CPU number the kernel may give to this process.
static SLOTS: OnceLock<Vec<Page>> = OnceLock::new();

/// What the operation gave back.
static RESULT: AtomicU64 = AtomicU64::new(0);

/// Room outside the slots: nodes, buffers, guards.
static OUTSIDE: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Makes the slots, before the fork. `false`: this process has no rseq.
pub(crate) fn prepare() -> bool {
    let backend = fastpath_percpu::start(SelfTest::Skip);
    let pages = || {
        (0..=fastpath_percpu::slots() as usize).map(|_| Page([const { AtomicU64::new(0) }; WORDS])).collect()
    };
    SLOTS.get_or_init(pages);
    matches!(backend, Backend::Rseq { .. }) && prepare_table()
}

fn pages() -> &'static [Page] {
    SLOTS.get().expect("prepare() ran")
}

/// The first word of slot 0.
fn base() -> Base {
    pages()[0].0[0].as_ptr()
}

/// The other CPU that a migration leads to.
fn elsewhere() -> usize {
    (HOME + 1) % pages().len().min(2)
}

/// Sets the leading words of the home slot and of the other one; all other words become 0.
fn set(home: &[u64], other: &[u64]) {
    for (page, words) in [(elsewhere(), other), (HOME, home)] {
        for (index, word) in pages()[page].0.iter().enumerate() {
            // ORDERING: Relaxed: one thread sets up, runs and checks; the helper is woken through its own word.
            word.store(words.get(index).copied().unwrap_or(0), Ordering::Relaxed);
        }
    }
}

fn give(outcome: Outcome, value: u64) {
    let code = match outcome {
        Outcome::Done => 0,
        Outcome::Mismatch => 1 << 60,
        Outcome::Moved => 2 << 60,
        Outcome::NotRegistered => 3 << 60,
    };
    // ORDERING: Relaxed: read by the same thread.
    RESULT.store(code | (value & ((1 << 60) - 1)), Ordering::Relaxed);
}

/// What an operation gives for a mismatch, as [`give`] encodes it.
const MISMATCH: u64 = 1 << 60;
/// What an operation gives when the thread has moved away.
const MOVED: u64 = 2 << 60;

/// Compares the slots with what the models make of `home` and `other`.
fn expect(
    how: Disturbance,
    home: &[u64],
    other: &[u64],
    run: fn(&mut [u64; WORDS]) -> u64,
    disturb: fn(&mut [u64; WORDS]) -> u64,
) -> Result<(), String> {
    let mut models = [[0; WORDS]; 2];
    models[0][..home.len()].copy_from_slice(home);
    models[1][..other.len()].copy_from_slice(other);
    if how.runs_another() {
        disturb(&mut models[0]);
    }
    let result = run(&mut models[usize::from(how == Disturbance::Migrate)]);
    compare(&models[0], &models[1], result)
}

/// Compares both slots and the result.
fn compare(home: &[u64; WORDS], other: &[u64; WORDS], result: u64) -> Result<(), String> {
    let pairs = [("home", HOME, home), ("other", elsewhere(), other)];
    for (name, page, model) in &pairs[..pages().len().min(2)] {
        for (index, (word, expected)) in pages()[*page].0.iter().zip(model.iter()).enumerate() {
            // ORDERING: Relaxed: both threads' operations happened before this thread went on.
            let found = word.load(Ordering::Relaxed);
            if found != *expected {
                return Err(format!("{name} word {index} is {found:#x}, expected {expected:#x}"));
            }
        }
    }
    // ORDERING: Relaxed: written by this thread.
    let found = RESULT.load(Ordering::Relaxed);
    if found == result { Ok(()) } else { Err(format!("the result is {found:#x}, expected {result:#x}")) }
}

/// Each section in a function of its own, so that the binary has it once.
mod once {
    use super::{Base, Outcome, Pitch, rseq};

    macro_rules! once {
        ($($name:ident $(<$capacity:literal>)? ($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
            $(
                /// # Safety
                ///
                /// As the section of the same name, on the pages of the module above.
                #[inline(never)]
                pub(super) unsafe fn $name($($argument: $kind),*) -> $result {
                    // SAFETY: the caller's obligation, word for word.
                    unsafe { rseq::$name::<Pitch $(, $capacity)?>($($argument),*) }
                }
            )*
        };
    }

    once! {
        write_8(base: Base, value: u64) -> Outcome;
        write_16(base: Base, value: u64) -> Outcome;
        write_32(base: Base, value: u64) -> Outcome;
        write_64(base: Base, value: u64) -> Outcome;
        add_8(base: Base, value: u64) -> Outcome;
        add_16(base: Base, value: u64) -> Outcome;
        add_32(base: Base, value: u64) -> Outcome;
        add_64(base: Base, value: u64) -> Outcome;
        and_8(base: Base, value: u64) -> Outcome;
        and_16(base: Base, value: u64) -> Outcome;
        and_32(base: Base, value: u64) -> Outcome;
        and_64(base: Base, value: u64) -> Outcome;
        or_8(base: Base, value: u64) -> Outcome;
        or_16(base: Base, value: u64) -> Outcome;
        or_32(base: Base, value: u64) -> Outcome;
        or_64(base: Base, value: u64) -> Outcome;
        inc_8(base: Base) -> Outcome;
        inc_16(base: Base) -> Outcome;
        inc_32(base: Base) -> Outcome;
        inc_64(base: Base) -> Outcome;
        dec_8(base: Base) -> Outcome;
        dec_16(base: Base) -> Outcome;
        dec_32(base: Base) -> Outcome;
        dec_64(base: Base) -> Outcome;
        xadd_8(base: Base, value: u64) -> (Outcome, u64);
        xadd_16(base: Base, value: u64) -> (Outcome, u64);
        xadd_32(base: Base, value: u64) -> (Outcome, u64);
        xadd_64(base: Base, value: u64) -> (Outcome, u64);
        xchg_8(base: Base, value: u64) -> (Outcome, u64);
        xchg_16(base: Base, value: u64) -> (Outcome, u64);
        xchg_32(base: Base, value: u64) -> (Outcome, u64);
        xchg_64(base: Base, value: u64) -> (Outcome, u64);
        cmpxchg_8(base: Base, expected: u64, new: u64) -> (Outcome, u64);
        cmpxchg_16(base: Base, expected: u64, new: u64) -> (Outcome, u64);
        cmpxchg_32(base: Base, expected: u64, new: u64) -> (Outcome, u64);
        cmpxchg_64(base: Base, expected: u64, new: u64) -> (Outcome, u64);
        guarded_add_64(base: Base, guard: *const u64, expected: u64, value: u64) -> Outcome;
        list_push(base: Base, node: *mut u64) -> Outcome;
        list_pop(base: Base) -> u64;
        list_pop_all(base: Base) -> u64;
        stack_pop(base: Base) -> u64;
        stack_push<6>(base: Base, value: u64) -> Outcome;
        stack_pop_batch<6>(base: Base, to: *mut u64, wanted: usize) -> (Outcome, usize);
        stack_push_batch<6>(base: Base, from: *const u64, offered: usize) -> (Outcome, usize);
    }

    macro_rules! once_at {
        ($($name:ident ($($argument:ident: $kind:ty),*);)*) => {
            $(
                /// # Safety
                ///
                /// As the section of the same name.
                #[inline(never)]
                #[allow(clippy::too_many_arguments, reason = "as the section has them")]
                pub(super) unsafe fn $name($($argument: $kind),*) -> Outcome {
                    // SAFETY: the caller's obligation, word for word.
                    unsafe { rseq::$name($($argument),*) }
                }
            )*
        };
    }

    once_at! {
        compare_store(slot: u32, word: *mut u64, expected: u64, new: u64);
        compare2_store(slot: u32, word: *mut u64, expected: u64, word2: *const u64, expected2: u64, new: u64);
        compare_store_store(slot: u32, word: *mut u64, expected: u64, first: *mut u64, value: u64, new: u64);
        compare_copy_store(slot: u32, word: *mut u64, expected: u64, to: *mut u8, from: *const u8, bytes: usize, new: u64);
        compare_store_copy_store(slot: u32, word: *mut u64, expected: u64, first: *mut u64, value: u64, from: *const u8, bytes: usize, new: u64);
    }
}
