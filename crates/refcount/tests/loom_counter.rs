// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Models of the counter: what loom's scheduler and weak memory can do to two or three threads.
#![cfg(loom)]
#![expect(unsafe_code, reason = "the payload is plain memory protected by the counter")]

use std::sync::atomic::{AtomicUsize, Ordering as StdOrdering};

use fastpath_refcount::{MAX, RefCount, SATURATED, set_warn_hook};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::thread;

/// Runs `model` under loom and reports how many executions it explored.
fn explore(name: &str, minimum: usize, model: impl Fn() + Send + Sync + 'static) {
    let executions = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&executions);
    set_warn_hook(Some(|_| {}));
    loom::model(move || {
        counted.fetch_add(1, StdOrdering::Relaxed);
        model();
    });
    fastpath_testkit::explored(name, executions.load(StdOrdering::Relaxed), minimum);
}

struct Object {
    count: RefCount,
    payload: [UnsafeCell<u32>; 2],
}

// SAFETY: each payload word has one writer before its drop; the last dropper reads both. loom checks just that.
unsafe impl Sync for Object {}

/// K73: two threads write and drop; whichever is last reads both writes.
#[test]
fn last_dropper_sees_every_write() {
    explore("refcount: drop", 4, || {
        let object =
            Arc::new(Object { count: RefCount::new(2), payload: [UnsafeCell::new(0), UnsafeCell::new(0)] });
        let freed = Arc::new(AtomicU32::new(0));
        let drop_one = |object: &Object, freed: &AtomicU32, me: usize| {
            // SAFETY: only thread `me` writes this word, and before its drop.
            object.payload[me].with_mut(|word| unsafe { *word = 7 });
            if object.count.dec_and_test() {
                freed.fetch_add(1, Ordering::Relaxed);
                // SAFETY: the count is zero: both threads are done with the payload.
                object.payload.iter().for_each(|word| word.with_mut(|word| assert_eq!(unsafe { *word }, 7)));
            }
        };
        let other = {
            let (object, freed) = (Arc::clone(&object), Arc::clone(&freed));
            thread::spawn(move || drop_one(&object, &freed, 1))
        };
        drop_one(&object, &freed, 0);
        other.join().unwrap();
        assert_eq!(freed.load(Ordering::Relaxed), 1);
    });
    fastpath_testkit::case("K73", "loom");
}

/// The same through `dec_not_one` first and `dec_if_one` last: the owner of the last reference sees the other's write.
#[test]
fn dec_if_one_acquires() {
    explore("refcount: dec_if_one", 4, || {
        let object =
            Arc::new(Object { count: RefCount::new(2), payload: [UnsafeCell::new(0), UnsafeCell::new(0)] });
        let other = {
            let object = Arc::clone(&object);
            thread::spawn(move || {
                // SAFETY: only this thread writes the word, and before its drop.
                object.payload[1].with_mut(|word| unsafe { *word = 7 });
                assert!(object.count.dec_not_one());
            })
        };
        if object.count.dec_if_one() {
            // SAFETY: the count went from one to zero: the other thread has dropped.
            object.payload[1].with_mut(|word| assert_eq!(unsafe { *word }, 7));
        }
        other.join().unwrap();
    });
}

/// A look-up races with the last drop: it gets a living object or nothing, and zero is never written to.
#[test]
fn lookup_against_last_drop() {
    explore("refcount: look-up against drop", 4, || {
        let count = Arc::new(RefCount::new(1));
        let dead = Arc::new(AtomicBool::new(false));
        let finder = {
            let (count, dead) = (Arc::clone(&count), Arc::clone(&dead));
            thread::spawn(move || {
                if count.inc_not_zero_acquire() {
                    assert!(!dead.load(Ordering::Relaxed), "found after it died");
                    if count.dec_and_test() {
                        assert!(!dead.swap(true, Ordering::Relaxed), "freed twice");
                    }
                }
            })
        };
        if count.dec_and_test() {
            assert!(!dead.swap(true, Ordering::Relaxed), "freed twice");
        }
        finder.join().unwrap();
        assert!(dead.load(Ordering::Relaxed));
        assert_eq!(count.read(), 0);
    });
}

/// K73, second half: what `set_release` published is visible to an acquiring look-up of re-used memory.
#[test]
fn reuse_is_published() {
    explore("refcount: set_release", 2, || {
        let object =
            Arc::new(Object { count: RefCount::new(0), payload: [UnsafeCell::new(0), UnsafeCell::new(0)] });
        let finder = {
            let object = Arc::clone(&object);
            thread::spawn(move || {
                if object.count.inc_not_zero_acquire() {
                    // SAFETY: written before `set_release`, which the look-up acquired.
                    object.payload[0].with(|word| assert_eq!(unsafe { *word }, 7));
                }
            })
        };
        // SAFETY: nobody can hold a reference to it before `set_release`.
        object.payload[0].with_mut(|word| unsafe { *word = 7 });
        object.count.set_release(1);
        finder.join().unwrap();
    });
    fastpath_testkit::case("K73", "loom, set_release");
}

/// K71 in small: three threads around MAX, every interleaving of their read-modify-writes and stores.
#[test]
fn overflow_ends_saturated() {
    explore("refcount: overflow", 100, || {
        let count = Arc::new(RefCount::new(MAX));
        let threads = [0, 1].map(|which| {
            let count = Arc::clone(&count);
            thread::spawn(move || {
                if which == 0 {
                    count.inc();
                } else {
                    assert!(!count.dec_and_test());
                }
            })
        });
        count.inc();
        for thread in threads {
            thread.join().unwrap();
        }
        // MAX - 1 + 1 + 1: some increment overflows, in every order.
        assert_eq!(count.read(), SATURATED);
    });
    fastpath_testkit::case("K71", "loom");
}

/// `dec_and_lock` against a look-up under the lock: the table never hands out a dead object (K68).
#[test]
fn dec_and_lock_against_lookup() {
    explore("refcount: dec_and_lock", 10, || {
        // The table: whether the object is listed in it. The object may be used while it is listed or referenced.
        let table = Arc::new(loom::sync::Mutex::new(true));
        let count = Arc::new(RefCount::new(1));
        let put = |table: &loom::sync::Mutex<bool>, count: &RefCount| {
            if let Some(mut listed) = count.dec_and_lock_with(|| table.lock().unwrap()) {
                assert!(*listed, "removed twice");
                *listed = false;
            }
        };
        let finder = {
            let (table, count) = (Arc::clone(&table), Arc::clone(&count));
            thread::spawn(move || {
                let found = {
                    let listed = table.lock().unwrap();
                    // Under the lock a listed object has a reference: no `inc_not_zero` needed.
                    if *listed {
                        count.inc();
                    }
                    *listed
                };
                if found {
                    put(&table, &count);
                }
            })
        };
        put(&table, &count);
        finder.join().unwrap();
        assert!(!*table.lock().unwrap());
        assert_eq!(count.read(), 0);
    });
    fastpath_testkit::case("K68", "loom");
}
