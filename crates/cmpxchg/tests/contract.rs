// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The suite on every backend that exists on this host, and K11 with real threads.
#![cfg(not(loom))]
#![expect(unsafe_code, reason = "the model controller implements an unsafe trait")]

mod model;

use fastpath_cmpxchg::backend::{CoreAtomic, Generic};
use fastpath_cmpxchg::{
    Atomic, AtomicPair, Backend, DoubleOps, DoubleWord, LocalDoubleOps, Native, Ops, Ordering, Pair,
};
use fastpath_testkit::cmpxchg_suite::{self as suite, Case};
use model::Model;

fn run(backend: &str, cases: &[Case]) {
    for (name, case) in cases {
        println!("{backend}: {name}");
        case();
        if let Some(id) = name.split(' ').next().filter(|id| id.starts_with('K')) {
            fastpath_testkit::case(id, backend);
        }
    }
}

#[test]
fn native() {
    assert_ne!(Native::NAME, "generic", "this host has a compare-and-exchange");
    run(Native::NAME, &suite::cases::<Native>());
    // K9: the widths that do not compile are the compile_fail examples of `Word`, `Primitive` and `raw`.
    fastpath_testkit::case("K9", Native::NAME);
}

#[test]
fn generic() {
    run("generic", &suite::cases::<Generic<Model>>());
    run("generic", &suite::double_cases::<Generic<Model>>());
    fastpath_testkit::case("K9", "generic");
}

#[test]
fn core_atomic() {
    run("core_atomic", &suite::cases::<CoreAtomic>());
    fastpath_testkit::case("K9", "core_atomic");
}

#[test]
fn native_pairs() {
    assert!(Native::available() && Native::available_local(), "the reference machine has cmpxchg16b");
    run(Native::NAME, &suite::double_cases::<Native>());
}

/// K11: every increment counts, also while the value crosses from -1 to 0.
fn k11<B: Ops<u32> + Sync>() {
    const THREADS: i32 = 4;
    const COUNT: u32 = 50_000;
    let word = Atomic::<i32, B>::new_in(-(COUNT as i32));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| suite::increments(&word, COUNT));
        }
    });
    assert_eq!(word.load(Ordering::SeqCst), (THREADS - 1) * COUNT as i32);
    fastpath_testkit::case("K11", B::NAME);
}

#[test]
fn k11_native() {
    k11::<Native>();
}

#[test]
fn k11_core_atomic() {
    k11::<CoreAtomic>();
}

/// Two threads move a pair through states in which both halves are equal: nobody ever sees or leaves a mixed one.
#[test]
fn k15_pairs_are_never_torn() {
    const COUNT: usize = 50_000;
    let Some(proof) = DoubleWord::<Native>::detect() else {
        panic!("the reference machine has cmpxchg16b");
    };
    let pair = AtomicPair::new(Pair::default());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut old = pair.load(proof);
                for _ in 0..COUNT {
                    loop {
                        assert_eq!(old.first, old.second, "a torn pair");
                        let new = Pair { first: old.first + 1, second: old.second + 1 };
                        if pair.try_cmpxchg_double(proof, &mut old, new, Ordering::AcqRel) {
                            old = new;
                            break;
                        }
                    }
                }
            });
        }
    });
    assert_eq!(pair.into_inner(), Pair { first: 3 * COUNT, second: 3 * COUNT });
    fastpath_testkit::case("K15", Native::NAME);
}

/// Results are for whoever wants them: none of these lines may warn.
#[test]
#[deny(unused_must_use)]
fn unused_results_do_not_warn() {
    let word = Atomic::<u32>::new(0);
    word.cmpxchg(0, 1, Ordering::SeqCst);
    word.xchg(2, Ordering::SeqCst);
    word.fetch_add(3, Ordering::SeqCst);
    // SAFETY: nobody else has this word.
    unsafe {
        fastpath_cmpxchg::raw::arch_cmpxchg(word.as_ptr(), 0, 1);
        fastpath_cmpxchg::raw::arch_xchg(word.as_ptr(), 5);
        word.cmpxchg_local(5, 6);
        word.add_return_local(1);
    }
    assert_eq!(word.into_inner(), 7);
}
