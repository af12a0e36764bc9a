// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The sections on words, lists, stacks and records.

#![expect(unsafe_code, reason = "critical sections on raw slots")]

use core::sync::atomic::Ordering;

use fastpath_percpu::contract::STOPPED;

use super::{
    HOME, MISMATCH, MOVED, OUTSIDE, Operation, WORDS, base, compare, expect, give, once, pages, set,
};
use crate::shared::Disturbance;

/// The contents of both slots before an operation on a word.
const HOME_WORD: u64 = 0x1122_3344_5566_7788;
const OTHER_WORD: u64 = 0x0102_0304_8586_8788;

const fn mask(bits: u32) -> u64 {
    if bits == 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// Replaces the low `bits` of a word.
fn put(word: &mut u64, bits: u32, value: u64) {
    *word = (*word & !mask(bits)) | (value & mask(bits));
}

/// An operation on the first word that gives nothing, disturbed by an addition to its lowest byte.
macro_rules! word {
    ($name:ident, $bits:literal, ($($argument:expr),*), |$word:ident| $model:expr) => {
        Operation {
            name: stringify!($name),
            set_up: || set(&[HOME_WORD], &[OTHER_WORD]),
            // SAFETY: the first word of the pages.
            run: || give(unsafe { once::$name(base() $(, $argument)*) }, 0),
            disturb,
            check: |how| expect(how, &[HOME_WORD], &[OTHER_WORD], |slot| {
                let $word = slot[0];
                put(&mut slot[0], $bits, $model);
                0
            }, disturb_model),
        }
    };
}

/// The same for one that gives the old value.
macro_rules! word_result {
    ($name:ident, $bits:literal, ($($argument:expr),*), |$word:ident| $model:expr) => {
        Operation {
            name: stringify!($name),
            set_up: || set(&[HOME_WORD], &[OTHER_WORD]),
            run: || {
                // SAFETY: the first word of the pages.
                let (outcome, old) = unsafe { once::$name(base() $(, $argument)*) };
                give(outcome, old);
            },
            disturb,
            check: |how| expect(how, &[HOME_WORD], &[OTHER_WORD], |slot| {
                let $word = slot[0];
                put(&mut slot[0], $bits, $model);
                $word & mask($bits) & ((1 << 60) - 1)
            }, disturb_model),
        }
    };
}

/// A comparison that holds undisturbed, and fails once the disturbing operation has run or on the other CPU's slot.
macro_rules! word_cmpxchg {
    ($name:ident, $bits:literal) => {
        Operation {
            name: stringify!($name),
            set_up: || set(&[HOME_WORD], &[OTHER_WORD]),
            run: || {
                // SAFETY: the first word of the pages.
                let (outcome, old) = unsafe {
                    once::$name(base(), HOME_WORD & mask($bits), 0x4242_4242_4242_4242 & mask($bits))
                };
                give(outcome, old);
            },
            disturb,
            check: |how| {
                expect(
                    how,
                    &[HOME_WORD],
                    &[OTHER_WORD],
                    |slot| {
                        let old = slot[0] & mask($bits);
                        let result = old & ((1 << 60) - 1);
                        if old != HOME_WORD & mask($bits) {
                            return MISMATCH | result;
                        }
                        put(&mut slot[0], $bits, 0x4242_4242_4242_4242);
                        result
                    },
                    disturb_model,
                )
            },
        }
    };
}

fn disturb() {
    // SAFETY: the first word of the pages.
    let _ = unsafe { once::add_8(base(), 0x9d) };
}

fn disturb_model(slot: &mut [u64; WORDS]) -> u64 {
    let sum = slot[0].wrapping_add(0x9d);
    put(&mut slot[0], 8, sum);
    0
}

const VALUE: u64 = 0xa1b2_c3d4_e5f6_0708;

pub(super) static ON_WORDS: &[Operation] = &[
    word!(write_8, 8, (VALUE), |_word| VALUE),
    word!(write_16, 16, (VALUE), |_word| VALUE),
    word!(write_32, 32, (VALUE), |_word| VALUE),
    word!(write_64, 64, (VALUE), |_word| VALUE),
    word!(add_8, 8, (VALUE), |word| word.wrapping_add(VALUE)),
    word!(add_16, 16, (VALUE), |word| word.wrapping_add(VALUE)),
    word!(add_32, 32, (VALUE), |word| word.wrapping_add(VALUE)),
    word!(add_64, 64, (VALUE), |word| word.wrapping_add(VALUE)),
    word!(and_8, 8, (VALUE), |word| word & VALUE),
    word!(and_16, 16, (VALUE), |word| word & VALUE),
    word!(and_32, 32, (VALUE), |word| word & VALUE),
    word!(and_64, 64, (VALUE), |word| word & VALUE),
    word!(or_8, 8, (VALUE), |word| word | VALUE),
    word!(or_16, 16, (VALUE), |word| word | VALUE),
    word!(or_32, 32, (VALUE), |word| word | VALUE),
    word!(or_64, 64, (VALUE), |word| word | VALUE),
    word!(inc_8, 8, (), |word| word.wrapping_add(1)),
    word!(inc_16, 16, (), |word| word.wrapping_add(1)),
    word!(inc_32, 32, (), |word| word.wrapping_add(1)),
    word!(inc_64, 64, (), |word| word.wrapping_add(1)),
    word!(dec_8, 8, (), |word| word.wrapping_sub(1)),
    word!(dec_16, 16, (), |word| word.wrapping_sub(1)),
    word!(dec_32, 32, (), |word| word.wrapping_sub(1)),
    word!(dec_64, 64, (), |word| word.wrapping_sub(1)),
    word_result!(xadd_8, 8, (VALUE), |word| word.wrapping_add(VALUE)),
    word_result!(xadd_16, 16, (VALUE), |word| word.wrapping_add(VALUE)),
    word_result!(xadd_32, 32, (VALUE), |word| word.wrapping_add(VALUE)),
    word_result!(xadd_64, 64, (VALUE), |word| word.wrapping_add(VALUE)),
    word_result!(xchg_8, 8, (VALUE), |_word| VALUE),
    word_result!(xchg_16, 16, (VALUE), |_word| VALUE),
    word_result!(xchg_32, 32, (VALUE), |_word| VALUE),
    word_result!(xchg_64, 64, (VALUE), |_word| VALUE),
    word_cmpxchg!(cmpxchg_8, 8),
    word_cmpxchg!(cmpxchg_16, 16),
    word_cmpxchg!(cmpxchg_32, 32),
    word_cmpxchg!(cmpxchg_64, 64),
    Operation {
        name: "guarded_add_64",
        set_up: || {
            set(&[HOME_WORD], &[OTHER_WORD]);
            // ORDERING: Relaxed: read by this thread only.
            OUTSIDE[0].store(5, Ordering::Relaxed);
        },
        run: || {
            // SAFETY: the first word of the pages; a static guard.
            give(unsafe { once::guarded_add_64(base(), OUTSIDE[0].as_ptr(), 5, VALUE) }, 0);
        },
        disturb,
        check: |how| {
            expect(
                how,
                &[HOME_WORD],
                &[OTHER_WORD],
                |slot| {
                    slot[0] = slot[0].wrapping_add(VALUE);
                    0
                },
                disturb_model,
            )
        },
    },
    Operation {
        name: "guarded_add_64, guard closed",
        set_up: || {
            set(&[HOME_WORD], &[OTHER_WORD]);
            // ORDERING: Relaxed: read by this thread only.
            OUTSIDE[0].store(6, Ordering::Relaxed);
        },
        run: || {
            // SAFETY: the first word of the pages; a static guard.
            give(unsafe { once::guarded_add_64(base(), OUTSIDE[0].as_ptr(), 5, VALUE) }, 0);
        },
        disturb,
        check: |how| expect(how, &[HOME_WORD], &[OTHER_WORD], |_| MISMATCH, disturb_model),
    },
];

/// The address of node `number`: a word outside the slots. 0 is no node.
fn node(number: u64) -> u64 {
    if number == 0 { 0 } else { OUTSIDE[number as usize].as_ptr().addr() as u64 }
}

/// Links nodes 1 → 2 → 3 at home and 4 → 5 on the other CPU, or leaves the lists as given.
fn set_lists(home: u64, other: u64) {
    set(&[home], &[other]);
    for (number, next) in [(1, 2), (2, 3), (3, 0), (4, 5), (5, 0), (6, 0), (7, 0)] {
        // ORDERING: Relaxed: one thread sets up, runs and checks.
        OUTSIDE[number].store(node(next), Ordering::Relaxed);
    }
}

/// The nodes of a list by number, from the memory as it is.
fn walk(mut head: u64) -> Vec<u64> {
    let mut found = Vec::new();
    while head > STOPPED && found.len() < 10 {
        let number = (1..8).find(|&number| node(number) == head);
        let Some(number) = number else { return vec![99] };
        found.push(number);
        // ORDERING: Relaxed: as above.
        head = OUTSIDE[number as usize].load(Ordering::Relaxed);
    }
    found
}

/// Compares both lists and the result with what a list of numbers would give.
fn expect_lists(
    how: Disturbance,
    home: &[u64],
    other: &[u64],
    run: fn(&mut Vec<u64>) -> u64,
    disturb: fn(&mut Vec<u64>),
) -> Result<(), String> {
    let mut lists = [home.to_vec(), other.to_vec()];
    if how.runs_another() {
        disturb(&mut lists[0]);
    }
    let result = run(&mut lists[usize::from(how == Disturbance::Migrate)]);
    for (page, expected) in lists.iter().enumerate().take(pages().len().min(2)) {
        // ORDERING: Relaxed: both threads' operations happened before this thread went on.
        let found = walk(pages()[page].0[0].load(Ordering::Relaxed));
        if found != *expected {
            return Err(format!("list {page} is {found:?}, expected {expected:?}"));
        }
    }
    // ORDERING: Relaxed: written by this thread.
    let found = super::RESULT.load(Ordering::Relaxed);
    if found == result { Ok(()) } else { Err(format!("the result is {found:#x}, expected {result:#x}")) }
}

const LIST_1: &[u64] = &[1, 2, 3];
const LIST_2: &[u64] = &[4, 5];

fn push_node(number: u64) {
    // SAFETY: a node nobody else reaches, and the pages' first words.
    give(unsafe { once::list_push(base(), OUTSIDE[number as usize].as_ptr()) }, 0);
}

fn pop_node() {
    // SAFETY: the pages' first words, whose nodes are static.
    let head = unsafe { once::list_pop(base()) };
    give(fastpath_percpu::rseq::Outcome::Done, head);
}

fn quiet<R>(operation: impl FnOnce() -> R) {
    // The disturbing operation must not disturb the result.
    // ORDERING: Relaxed: the helper and the handler run while the traced thread stands still.
    let kept = super::RESULT.load(Ordering::Relaxed);
    operation();
    super::RESULT.store(kept, Ordering::Relaxed);
}

pub(super) static LISTS: &[Operation] = &[
    Operation {
        name: "list_push",
        set_up: || set_lists(node(1), node(4)),
        run: || push_node(6),
        disturb: || quiet(pop_node),
        check: |how| {
            expect_lists(
                how,
                LIST_1,
                LIST_2,
                |list| {
                    list.insert(0, 6);
                    0
                },
                |list| {
                    list.remove(0);
                },
            )
        },
    },
    Operation {
        name: "list_push, stopped",
        set_up: || set_lists(STOPPED, STOPPED),
        run: || push_node(6),
        disturb: || quiet(|| push_node(7)),
        check: |how| expect_lists(how, &[], &[], |_| MISMATCH, |_| ()),
    },
    Operation {
        name: "list_pop",
        set_up: || set_lists(node(1), node(4)),
        run: pop_node,
        disturb: || quiet(|| push_node(7)),
        check: |how| expect_lists(how, LIST_1, LIST_2, |list| node(list.remove(0)), |list| list.insert(0, 7)),
    },
    Operation {
        name: "list_pop, against pop",
        set_up: || set_lists(node(1), node(4)),
        run: pop_node,
        disturb: || quiet(pop_node),
        check: |how| {
            expect_lists(
                how,
                LIST_1,
                LIST_2,
                |list| node(list.remove(0)),
                |list| {
                    list.remove(0);
                },
            )
        },
    },
    Operation {
        name: "list_pop, empty",
        set_up: || set_lists(0, 0),
        run: pop_node,
        disturb: || quiet(pop_node),
        check: |how| expect_lists(how, &[], &[], |_| 0, |_| ()),
    },
    Operation {
        name: "list_pop_all",
        set_up: || set_lists(node(1), node(4)),
        run: || {
            // SAFETY: the pages' first words.
            let head = unsafe { once::list_pop_all(base()) };
            give(fastpath_percpu::rseq::Outcome::Done, head);
        },
        disturb: || quiet(|| push_node(7)),
        check: |how| {
            expect_lists(
                how,
                LIST_1,
                LIST_2,
                |list| node(list.drain(..).next().unwrap_or(0)),
                |list| list.insert(0, 7),
            )
        },
    },
    Operation {
        name: "list_pop_all, empty",
        set_up: || set_lists(0, 0),
        run: || {
            // SAFETY: the pages' first words.
            let head = unsafe { once::list_pop_all(base()) };
            give(fastpath_percpu::rseq::Outcome::Done, head);
        },
        disturb: || quiet(pop_node),
        check: |how| expect_lists(how, &[], &[], |_| 0, |_| ()),
    },
];

/// A stack of three entries at home and of two on the other CPU.
const STACK_1: &[u64] = &[3, 11, 12, 13];
const STACK_2: &[u64] = &[2, 21, 22];
const FULL: &[u64] = &[6, 11, 12, 13, 14, 15, 16];

fn model_push(slot: &mut [u64; WORDS], value: u64) -> u64 {
    let n = slot[0] as usize;
    if n >= 6 {
        return MISMATCH;
    }
    slot[n + 1] = value;
    slot[0] += 1;
    0
}

fn model_pop(slot: &mut [u64; WORDS]) -> u64 {
    let n = slot[0] as usize;
    if n > 0 {
        slot[0] -= 1;
        slot[n]
    } else {
        0
    }
}

/// As `expect`, but what lies above the count means nothing: an aborted push may have left its value there.
fn expect_stacks(
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
    for model in &mut models {
        let used = model[0] as usize;
        model[used.min(7) + 1..].fill(0);
    }
    for page in &pages()[..pages().len().min(2)] {
        // ORDERING: Relaxed: both threads' operations happened before this thread went on.
        let used = page.0[0].load(Ordering::Relaxed) as usize;
        for word in &page.0[used.min(7) + 1..] {
            word.store(0, Ordering::Relaxed);
        }
    }
    compare(&models[0], &models[1], result)
}

fn push_entry(value: u64) {
    // SAFETY: the pages hold stacks of six entries.
    give(unsafe { once::stack_push(base(), value) }, 0);
}

fn pop_entry() {
    // SAFETY: the pages hold stacks of six entries.
    let value = unsafe { once::stack_pop(base()) };
    give(fastpath_percpu::rseq::Outcome::Done, value);
}

fn push_entries() {
    for (entry, value) in OUTSIDE[10..].iter().zip(31..35) {
        // ORDERING: Relaxed: read by this thread.
        entry.store(value, Ordering::Relaxed);
    }
    // SAFETY: the pages hold stacks of six entries; four words are offered.
    let (outcome, count) = unsafe { once::stack_push_batch(base(), OUTSIDE[10].as_ptr(), 4) };
    give(outcome, if outcome == fastpath_percpu::rseq::Outcome::Done { count as u64 } else { 0 });
}

fn pop_entries() {
    // SAFETY: the pages hold stacks of six entries; there is room for two words.
    let (outcome, count) = unsafe { once::stack_pop_batch(base(), OUTSIDE[20].as_ptr(), 2) };
    if outcome != fastpath_percpu::rseq::Outcome::Done {
        return give(outcome, 0);
    }
    // ORDERING: Relaxed: written by this thread.
    let sum: u64 = OUTSIDE[20..20 + count].iter().map(|word| word.load(Ordering::Relaxed)).sum();
    give(outcome, (count as u64) << 32 | sum);
}

pub(super) static STACKS: &[Operation] = &[
    Operation {
        name: "stack_push",
        set_up: || set(STACK_1, STACK_2),
        run: || push_entry(99),
        disturb: || quiet(pop_entry),
        check: |how| expect_stacks(how, STACK_1, STACK_2, |slot| model_push(slot, 99), model_pop),
    },
    Operation {
        name: "stack_push, against push",
        set_up: || set(STACK_1, STACK_2),
        run: || push_entry(99),
        disturb: || quiet(|| push_entry(77)),
        check: |how| {
            expect_stacks(how, STACK_1, STACK_2, |slot| model_push(slot, 99), |slot| model_push(slot, 77))
        },
    },
    Operation {
        name: "stack_push, full",
        set_up: || set(FULL, FULL),
        run: || push_entry(99),
        disturb: || quiet(|| push_entry(77)),
        check: |how| expect_stacks(how, FULL, FULL, |slot| model_push(slot, 99), |slot| model_push(slot, 77)),
    },
    Operation {
        name: "stack_pop",
        set_up: || set(STACK_1, STACK_2),
        run: pop_entry,
        disturb: || quiet(|| push_entry(77)),
        check: |how| expect_stacks(how, STACK_1, STACK_2, model_pop, |slot| model_push(slot, 77)),
    },
    Operation {
        name: "stack_pop, against pop",
        set_up: || set(STACK_1, STACK_2),
        run: pop_entry,
        disturb: || quiet(pop_entry),
        check: |how| expect_stacks(how, STACK_1, STACK_2, model_pop, model_pop),
    },
    Operation {
        name: "stack_pop, empty",
        set_up: || set(&[0], &[0]),
        run: pop_entry,
        disturb: || quiet(pop_entry),
        check: |how| expect_stacks(how, &[0], &[0], model_pop, model_pop),
    },
    Operation {
        name: "stack_push_batch",
        set_up: || set(STACK_1, STACK_2),
        run: push_entries,
        disturb: || quiet(|| push_entry(77)),
        check: |how| {
            expect_stacks(
                how,
                STACK_1,
                STACK_2,
                |slot| (31..35).take_while(|&value| model_push(slot, value) == 0).count() as u64,
                |slot| model_push(slot, 77),
            )
        },
    },
    Operation {
        name: "stack_push_batch, stopped",
        set_up: || set(&[7], &[7]),
        run: push_entries,
        disturb: || quiet(|| push_entry(77)),
        check: |how| expect_stacks(how, &[7], &[7], |_| MISMATCH, |_| 0),
    },
    Operation {
        name: "stack_pop_batch",
        set_up: || set(STACK_1, STACK_2),
        run: pop_entries,
        disturb: || quiet(|| push_entry(77)),
        check: |how| {
            expect_stacks(
                how,
                STACK_1,
                STACK_2,
                |slot| 2 << 32 | (model_pop(slot) + model_pop(slot)),
                |slot| model_push(slot, 77),
            )
        },
    },
    Operation {
        name: "stack_pop_batch, stopped",
        set_up: || set(&[7], &[7]),
        run: pop_entries,
        disturb: || quiet(pop_entry),
        check: |how| expect_stacks(how, &[7], &[7], |_| MISMATCH, |_| 0),
    },
];

/// Checks an operation that was bound to the home slot: done at home, refused after a migration, and a mismatch once the
/// disturbing operation has changed the word.
fn expect_bound(how: Disturbance, home: &[u64], done: fn(&mut [u64; WORDS])) -> Result<(), String> {
    let mut models = [[0; WORDS]; 2];
    models[0][..home.len()].copy_from_slice(home);
    let result = match how {
        Disturbance::Migrate => MOVED,
        Disturbance::Thread | Disturbance::Signal => {
            disturb_model(&mut models[0]);
            MISMATCH
        }
        Disturbance::Stop => {
            done(&mut models[0]);
            0
        }
    };
    compare(&models[0], &models[1], result)
}

/// The address of word `index` of the home slot.
fn home(index: usize) -> *mut u64 {
    pages()[HOME].0[index].as_ptr()
}

const RECORD: &[u64] = &[5, 9];

pub(super) static COMPARES: &[Operation] = &[
    Operation {
        name: "compare_store",
        set_up: || set(RECORD, &[]),
        // SAFETY: a word of the home slot.
        run: || give(unsafe { once::compare_store(HOME as u32, home(0), 5, 6) }, 0),
        disturb,
        check: |how| expect_bound(how, RECORD, |slot| slot[0] = 6),
    },
    Operation {
        name: "compare2_store",
        set_up: || set(RECORD, &[]),
        // SAFETY: words of the home slot.
        run: || give(unsafe { once::compare2_store(HOME as u32, home(0), 5, home(1), 9, 6) }, 0),
        disturb,
        check: |how| expect_bound(how, RECORD, |slot| slot[0] = 6),
    },
    Operation {
        name: "compare2_store, second differs",
        set_up: || set(RECORD, &[]),
        // SAFETY: words of the home slot.
        run: || give(unsafe { once::compare2_store(HOME as u32, home(0), 5, home(1), 8, 6) }, 0),
        disturb,
        check: |how| {
            let mut models = [[0; WORDS]; 2];
            models[0][..2].copy_from_slice(RECORD);
            if how.runs_another() {
                disturb_model(&mut models[0]);
            }
            compare(&models[0], &models[1], if how == Disturbance::Migrate { MOVED } else { MISMATCH })
        },
    },
    Operation {
        name: "compare_store_store",
        set_up: || set(RECORD, &[]),
        // SAFETY: words of the home slot; the third means nothing while the first is 5.
        run: || give(unsafe { once::compare_store_store(HOME as u32, home(0), 5, home(2), 42, 6) }, 0),
        disturb: || {
            disturb();
            // A store before the commit may have happened in the aborted attempt: it means nothing yet.
            // ORDERING: Relaxed: the traced thread stands still.
            pages()[HOME].0[2].store(0, Ordering::Relaxed);
        },
        check: |how| {
            if how == Disturbance::Migrate {
                // ORDERING: Relaxed: as above.
                pages()[HOME].0[2].store(0, Ordering::Relaxed);
            }
            expect_bound(how, RECORD, |slot| {
                slot[0] = 6;
                slot[2] = 42;
            })
        },
    },
    Operation {
        name: "compare_copy_store",
        set_up: || {
            set(RECORD, &[]);
            for (entry, value) in OUTSIDE[30..]
                .iter()
                .zip([u64::from_ne_bytes(*b"restarta"), u64::from_ne_bytes(*b"ble\0\0\0\0\0")])
            {
                // ORDERING: Relaxed: read by this thread.
                entry.store(value, Ordering::Relaxed);
            }
        },
        run: || {
            // SAFETY: words of the home slot; eleven bytes are copied from a static; they mean nothing while word 0 is 5.
            let outcome = unsafe {
                once::compare_copy_store(
                    HOME as u32,
                    home(0),
                    5,
                    home(4).cast(),
                    OUTSIDE[30].as_ptr().cast(),
                    11,
                    6,
                )
            };
            give(outcome, 0);
        },
        disturb: || {
            disturb();
            for word in &pages()[HOME].0[4..6] {
                // ORDERING: Relaxed: as above.
                word.store(0, Ordering::Relaxed);
            }
        },
        check: |how| {
            if how == Disturbance::Migrate {
                for word in &pages()[HOME].0[4..6] {
                    // ORDERING: Relaxed: as above.
                    word.store(0, Ordering::Relaxed);
                }
            }
            expect_bound(how, RECORD, |slot| {
                slot[0] = 6;
                slot[4] = u64::from_ne_bytes(*b"restarta");
                slot[5] = u64::from_ne_bytes(*b"ble\0\0\0\0\0");
            })
        },
    },
    Operation {
        name: "compare_store_copy_store",
        set_up: || {
            set(RECORD, &[]);
            for (entry, value) in OUTSIDE[30..]
                .iter()
                .zip([u64::from_ne_bytes(*b"restarta"), u64::from_ne_bytes(*b"ble\0\0\0\0\0")])
            {
                // ORDERING: Relaxed: read by this thread.
                entry.store(value, Ordering::Relaxed);
            }
        },
        run: || {
            // SAFETY: words of the home slot; eleven bytes are copied from a static behind word 4; all of it means nothing
            // while word 0 is 5.
            let outcome = unsafe {
                once::compare_store_copy_store(
                    HOME as u32,
                    home(0),
                    5,
                    home(4),
                    11,
                    OUTSIDE[30].as_ptr().cast(),
                    11,
                    6,
                )
            };
            give(outcome, 0);
        },
        disturb: || {
            disturb();
            for word in &pages()[HOME].0[4..7] {
                // ORDERING: Relaxed: as above.
                word.store(0, Ordering::Relaxed);
            }
        },
        check: |how| {
            if how == Disturbance::Migrate {
                for word in &pages()[HOME].0[4..7] {
                    // ORDERING: Relaxed: as above.
                    word.store(0, Ordering::Relaxed);
                }
            }
            expect_bound(how, RECORD, |slot| {
                slot[0] = 6;
                slot[4] = 11;
                slot[5] = u64::from_ne_bytes(*b"restarta");
                slot[6] = u64::from_ne_bytes(*b"ble\0\0\0\0\0");
            })
        },
    },
];
