// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! K12 on the model controller: an interrupt between any two steps of every `generic` operation.
#![cfg(not(loom))]
#![expect(unsafe_code, reason = "local forms and the model controller")]

mod model;

use fastpath_cmpxchg::backend::Generic;
use fastpath_cmpxchg::interrupt::Step;
use fastpath_cmpxchg::raw::{generic_cmpxchg_double_local, generic_cmpxchg_local, generic_cmpxchg64_local};
use fastpath_cmpxchg::{Atomic, AtomicPair, DoubleWord, Ordering, Pair};
use fastpath_testkit::cmpxchg_suite as suite;
use model::{Kind, Model, STEPS, interrupted, with_interrupts_off};

type Word = Atomic<u32, Generic<Model>>;

/// A word that lives as long as the test process, so that a handler can hold it.
fn shared(value: u32) -> &'static Word {
    Box::leak(Box::new(Word::new_in(value)))
}

/// A read-modify-write that adds one, and its name.
type Increment = (&'static str, fn(&Word));
fn increments() -> Vec<Increment> {
    vec![
        ("fetch_add", |word| {
            word.fetch_add(1, Ordering::SeqCst);
        }),
        ("fetch_sub", |word| {
            word.fetch_sub(u32::MAX, Ordering::SeqCst);
        }),
        ("cmpxchg loop", |word| suite::increments(as_signed(word), 1)),
        // SAFETY: one thread, whose interrupts are the model's; so below.
        ("add_local", |word| unsafe { word.add_local(1) }),
        // SAFETY: as above.
        ("inc_local", |word| unsafe { word.inc_local() }),
        ("add_return_local", |word| {
            // SAFETY: as above.
            unsafe { word.add_return_local(1) };
        }),
        // SAFETY: as above.
        ("cmpxchg_local loop", |word| unsafe { suite::local_increments(word, 1) }),
    ]
}

/// The same word, for the worker that counts through -1.
fn as_signed(word: &Word) -> &Atomic<i32, Generic<Model>> {
    // SAFETY: the same layout, the same backend.
    unsafe { Atomic::from_ptr(word.as_ptr().cast()) }
}

#[test]
fn k12_no_increment_is_lost_to_an_interrupt_at_any_step() {
    for (name, increment) in increments() {
        for step in STEPS {
            let word = shared(u32::MAX - 1);
            let ((), taken) = interrupted(
                step,
                Kind::Maskable,
                move || {
                    word.fetch_add(1, Ordering::SeqCst);
                },
                || increment(word),
            );
            assert_eq!(taken, 1, "{name}, {step:?}: one interrupt was taken");
            assert_eq!(
                word.load(Ordering::SeqCst),
                0,
                "{name}, {step:?}: both increments count, through the wrap"
            );
        }
    }
    fastpath_testkit::case("K12", "generic");
}

/// The caveat is real, and the model can see it: what arrives between read and write although interrupts are off is lost.
#[test]
fn a_non_maskable_interrupt_between_read_and_write_is_lost() {
    let mut lost = Vec::new();
    for step in STEPS {
        let word = shared(10);
        let handler = move || {
            word.fetch_add(1, Ordering::SeqCst);
        };
        interrupted(step, Kind::NonMaskable, handler, || word.fetch_add(1, Ordering::SeqCst));
        if word.load(Ordering::SeqCst) != 12 {
            lost.push(step);
        }
    }
    assert_eq!(lost, [Step::Read]);
}

/// A failed compare stores nothing, not even what it read: a change that comes in between, by an NMI, survives it.
#[test]
fn k6_a_failed_compare_does_not_write_back() {
    for step in STEPS {
        let word = shared(10);
        let handler = move || word.store(11, Ordering::SeqCst);
        let (previous, _) =
            interrupted(step, Kind::NonMaskable, handler, || word.cmpxchg(99, 100, Ordering::SeqCst));
        assert!(previous == 10 || previous == 11);
        assert_eq!(word.load(Ordering::SeqCst), 11, "{step:?}: the other's store survives");
    }
    fastpath_testkit::case("K6", "generic");
}

#[test]
fn interrupts_that_were_off_stay_off() {
    let word = shared(1);
    let previous = with_interrupts_off(|| {
        word.store(3, Ordering::Release);
        // SAFETY: one thread, whose interrupts are the model's.
        unsafe { word.add_return_local(4) };
        word.cmpxchg(7, 8, Ordering::SeqCst)
    });
    assert_eq!((previous, word.load(Ordering::SeqCst)), (7, 8));
}

#[test]
fn k5_eight_bytes_and_pairs_are_one_step_too() {
    for step in STEPS {
        let wide: &'static Atomic<u64, Generic<Model>> =
            Box::leak(Box::new(Atomic::new_in(u64::from(u32::MAX))));
        let ((), _) = interrupted(
            step,
            Kind::Maskable,
            move || {
                wide.fetch_add(1, Ordering::SeqCst);
            },
            || {
                wide.fetch_add(1, Ordering::SeqCst);
            },
        );
        assert_eq!(wide.load(Ordering::SeqCst), 0x1_0000_0001);

        let pair: &'static AtomicPair<Generic<Model>> =
            Box::leak(Box::new(AtomicPair::new_in(Pair::default())));
        let proof = DoubleWord::detect().expect("generic has pairs everywhere");
        let increment = move || {
            let mut old = pair.load(proof);
            while !pair.try_cmpxchg_double(
                proof,
                &mut { old },
                Pair { first: old.first + 1, second: old.second + 2 },
                Ordering::SeqCst,
            ) {
                old = pair.load(proof);
            }
        };
        let ((), taken) = interrupted(step, Kind::Maskable, increment, increment);
        assert_eq!(taken, 1);
        assert_eq!(pair.load(proof), Pair { first: 2, second: 4 });
    }
    fastpath_testkit::case("K5", "generic");
    fastpath_testkit::case("K15", "generic");
}

/// The raw generic functions, with the cases that shipped broken.
#[test]
fn raw_generic_functions() {
    let (mut word, mut wide, mut pair) = (u32::MAX, 0x1_0000_0001_u64, Pair { first: 1, second: 2 });
    // SAFETY: locals that nobody else uses.
    unsafe {
        assert_eq!(
            generic_cmpxchg_local::<Model, u32>(&raw mut word, -1_isize as usize, 0x77_0000_0005),
            0xffff_ffff
        );
        assert_eq!(word, 5);
        assert_eq!(generic_cmpxchg64_local::<Model>(&raw mut wide, 1, 2), 0x1_0000_0001);
        assert_eq!(wide, 0x1_0000_0001);
        assert!(!generic_cmpxchg_double_local::<Model>(&raw mut pair, 1, 3, 8, 9));
        assert!(generic_cmpxchg_double_local::<Model>(&raw mut pair, 1, 2, 8, 9));
    }
    assert_eq!(pair, Pair { first: 8, second: 9 });
}
