// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Every interleaving of small uses of `Atomic`, explored by loom.
#![cfg(loom)]

use fastpath_cmpxchg::{Atomic, Ordering};
use loom::sync::Arc;
use loom::thread;
use std::sync::atomic::{AtomicUsize, Ordering as StdOrdering};

/// K11 in small: compare-and-exchange loops and additions of two threads, through the wrap from -1 to 0.
#[test]
fn k11_no_increment_is_lost() {
    static EXECUTIONS: AtomicUsize = AtomicUsize::new(0);
    loom::model(|| {
        EXECUTIONS.fetch_add(1, StdOrdering::Relaxed);
        let word = Arc::new(Atomic::<i32>::new(-2));
        let theirs = Arc::clone(&word);
        let other = thread::spawn(move || {
            theirs.fetch_add(1, Ordering::Relaxed);
            theirs.fetch_add(1, Ordering::Relaxed);
        });
        for _ in 0..2 {
            let mut old = word.load(Ordering::Relaxed);
            loop {
                let new = old + 1;
                if word.try_cmpxchg(&mut old, new, Ordering::Relaxed) {
                    break;
                }
            }
        }
        other.join().unwrap();
        assert_eq!(word.load(Ordering::Relaxed), 2);
    });
    fastpath_testkit::explored("k11_no_increment_is_lost", EXECUTIONS.load(StdOrdering::Relaxed), 20);
    fastpath_testkit::case("K11", "loom");
}

/// K17: a compare that fails receives nothing, whatever order was asked: the data behind it may still be old. One that
/// succeeds with Acquire always sees it.
#[test]
fn k17_a_failed_compare_carries_no_ordering() {
    static EXECUTIONS: AtomicUsize = AtomicUsize::new(0);
    static STALE: AtomicUsize = AtomicUsize::new(0);
    static FRESH: AtomicUsize = AtomicUsize::new(0);
    for fails in [true, false] {
        loom::model(move || {
            EXECUTIONS.fetch_add(1, StdOrdering::Relaxed);
            let words = Arc::new((Atomic::<u32>::new(0), Atomic::<u32>::new(0)));
            let theirs = Arc::clone(&words);
            let producer = thread::spawn(move || {
                let (data, flag) = &*theirs;
                data.store(1, Ordering::Relaxed);
                // ORDERING: Release, paired with the Acquire of a successful compare below.
                flag.store(1, Ordering::Release);
            });
            let (data, flag) = &*words;
            let old = if fails { 5 } else { 1 };
            // ORDERING: Acquire, paired with the Release above if it succeeds; nothing if it fails.
            let seen = flag.cmpxchg(old, 2, Ordering::AcqRel);
            if seen == 1 {
                let data = data.load(Ordering::Relaxed);
                if fails {
                    if data == 0 { &STALE } else { &FRESH }.fetch_add(1, StdOrdering::Relaxed);
                } else {
                    assert_eq!(data, 1, "a successful compare with Acquire sees what the Release published");
                }
            }
            producer.join().unwrap();
        });
    }
    assert!(STALE.load(StdOrdering::Relaxed) > 0, "the model shows the stale read that callers must expect");
    assert!(FRESH.load(StdOrdering::Relaxed) > 0);
    fastpath_testkit::explored("k17_a_failed_compare", EXECUTIONS.load(StdOrdering::Relaxed), 8);
    fastpath_testkit::case("K17", "loom");
}

/// A lock of one word: taken by cmpxchg with Acquire, given back by store with Release, protects what it should.
#[test]
fn acquire_and_release_make_a_lock() {
    static EXECUTIONS: AtomicUsize = AtomicUsize::new(0);
    loom::model(|| {
        EXECUTIONS.fetch_add(1, StdOrdering::Relaxed);
        let shared = Arc::new((Atomic::<bool>::new(false), loom::cell::Cell::new(0_u32)));
        let work = |shared: &(Atomic<bool>, loom::cell::Cell<u32>)| {
            let (lock, value) = shared;
            // ORDERING: Acquire, paired with the Release below: the next owner sees our increment.
            while lock.cmpxchg(false, true, Ordering::Acquire) {
                thread::yield_now();
            }
            value.set(value.get() + 1);
            // ORDERING: Release, paired with the Acquire above.
            lock.store(false, Ordering::Release);
        };
        let theirs = Arc::clone(&shared);
        let other = thread::spawn(move || work(&theirs));
        work(&shared);
        other.join().unwrap();
        assert_eq!(shared.1.get(), 2);
    });
    fastpath_testkit::explored("acquire_and_release_make_a_lock", EXECUTIONS.load(StdOrdering::Relaxed), 4);
}
