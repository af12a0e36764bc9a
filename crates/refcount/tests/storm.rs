// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Threads against one counter, around its largest value and around zero (K71, K73, K74).
#![cfg(not(loom))]
#![expect(unsafe_code, reason = "the litmus test writes plain memory under the protection of the counter")]

use std::cell::UnsafeCell;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use fastpath_refcount::{MAX, RefCount, SATURATED, set_warn_hook};
use fastpath_testkit::refcount_suite as suite;

fastpath_testkit::refcount_backend!(Ours, fastpath_refcount);

/// K71: 64 threads take and drop at MAX. Whoever overflows it, it ends saturated, and nobody is told to free.
#[test]
fn k71_storm_at_max_ends_saturated() {
    set_warn_hook(Some(|_| {}));
    for round in 0..20 {
        let count = RefCount::new(MAX);
        let start = Barrier::new(64);
        thread::scope(|scope| {
            for thread in 0..64 {
                let (count, start) = (&count, &start);
                scope.spawn(move || {
                    start.wait();
                    count.inc();
                    for step in 0..500 {
                        match (thread + step + round) % 5 {
                            0 => count.inc(),
                            1 => count.add(3),
                            2 => assert!(!count.dec_and_test(), "freed at {:#x}", count.read()),
                            3 => assert!(count.inc_not_zero()),
                            _ => assert!(!count.sub_and_test(7)),
                        }
                    }
                });
            }
        });
        assert_eq!(count.read(), SATURATED);
    }
    fastpath_testkit::case("K71", "core");
}

/// Two threads go back and forth over MAX: a thread that finds the count good again after an overflow would be the bug.
#[test]
fn two_threads_around_max() {
    set_warn_hook(Some(|_| {}));
    for _ in 0..2000 {
        let count = RefCount::new(MAX - 1);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        count.inc();
                        assert!(!count.dec_and_test());
                    }
                });
            }
        });
        let end = count.read();
        assert!(end == SATURATED || end == MAX - 1, "{end:#x}");
    }
}

/// Two threads drop, take and look up around zero: one true at most, and none after which a look-up succeeds.
#[test]
fn two_threads_around_zero() {
    set_warn_hook(Some(|_| {}));
    let count = RefCount::new(0);
    let dead = AtomicBool::new(true);
    let frees = AtomicU32::new(0);
    for _ in 0..1000 {
        // Each thread owns one of the two references, and may look the object up as often as it likes.
        dead.store(false, Ordering::Relaxed);
        count.set_release(2);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let free = || {
                        assert!(!dead.swap(true, Ordering::Relaxed), "freed twice");
                        frees.fetch_add(1, Ordering::Relaxed);
                    };
                    if count.dec_and_test() {
                        free();
                    }
                    for _ in 0..20 {
                        if count.inc_not_zero_acquire() {
                            assert!(!dead.load(Ordering::Relaxed), "found after it was freed");
                            if count.dec_and_test() {
                                free();
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(count.read(), 0);
        assert!(dead.load(Ordering::Relaxed));
    }
    assert_eq!(frees.load(Ordering::Relaxed), 1000);
}

/// K73: what a thread wrote before its drop is visible to the one that is told to free; an acquiring look-up sees
/// the fields that `set_release` published. (On a strongly ordered CPU this checks the compiler; the loom models check the rest.)
#[test]
fn k73_ordering_litmus() {
    const THREADS: usize = 4;
    struct Object {
        count: RefCount,
        payload: [UnsafeCell<u64>; THREADS],
    }
    // SAFETY: each payload word is written by one thread before its drop, and read by the thread that dropped last.
    unsafe impl Sync for Object {}

    for round in 1..=500 {
        let object = Object { count: RefCount::new(0), payload: [const { UnsafeCell::new(0) }; THREADS] };
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let object = &object;
                scope.spawn(move || {
                    // An object that is not published yet cannot be found.
                    while !object.count.inc_not_zero_acquire() {
                        thread::yield_now();
                    }
                    // SAFETY: only this thread writes this word, before its drop below.
                    unsafe { *object.payload[thread].get() += round };
                    object.count.dec();
                });
            }
            // SAFETY: nobody holds a reference before `set_release`.
            object.payload.iter().for_each(|word| unsafe { *word.get() = 1 });
            // One reference of ours, dropped below: the threads' are never the last ones.
            object.count.set_release(1);
        });
        assert!(object.count.dec_and_test());
        // SAFETY: the count reached zero, so all writers have dropped their references.
        object.payload.iter().for_each(|word| assert_eq!(unsafe { *word.get() }, 1 + round));
    }
    fastpath_testkit::case("K73", "core");
}

/// K74: ten million balanced references over four threads, exactly one of which is the last.
#[test]
fn k74_balanced_references_free_once() {
    let count = <Ours as suite::Counter>::new(1);
    let told: u32 = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| suite::balanced(&count, 2_500_000))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert_eq!(told, 0);
    assert!(suite::Counter::dec_and_test(&count));
    assert_eq!(suite::Counter::read(&count), 0);
    fastpath_testkit::case("K74", "core, 4 threads");
}
