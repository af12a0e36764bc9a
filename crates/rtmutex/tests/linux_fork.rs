// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The Linux mutex in forked children.
//!
//! One test function only: a child made by the bare system call inherits whatever other threads were doing in the
//! allocator, so while a test forks, no other test may run in this process.
#![cfg(target_os = "linux")]

mod threads;

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fastpath_rtmutex::linux::{LockError, RtMutex};
use fastpath_testkit::case;
use threads::{Fork, eventually, in_child, tid, waits_on_futex, watched};

#[test]
fn forked_children() {
    a_forked_child_locks_under_its_own_id();
    a_lock_held_across_a_fork_belongs_to_the_thread_that_forked();
}

/// The child's first lock carries the child's id, and other threads of the child can wait for it.
fn lock_in_child(lock: &RtMutex<u32>) -> u8 {
    let guard = lock.lock().unwrap();
    if lock.raw().word() != tid() {
        return 1;
    }
    let waiter = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| {
            waiter.store(tid(), Ordering::Relaxed);
            *lock.lock().unwrap()
        });
        eventually("the wait", || waits_on_futex(waiter.load(Ordering::Relaxed)));
        drop(guard);
        if second.join().unwrap() == 3 { 0 } else { 2 }
    })
}

fn a_forked_child_locks_under_its_own_id() {
    let lock = RtMutex::new(3);
    drop(lock.lock().unwrap());
    watched("fork", || {
        for how in [Fork::Libc, Fork::Bare] {
            // The scope's thread caches its id first, so that a stale one could be seen.
            drop(lock.lock().unwrap());
            assert_eq!(in_child(how, || lock_in_child(&lock)), 0, "{how:?}");
            // A child of a child.
            let nested = in_child(how, || in_child(how, || lock_in_child(&lock)));
            assert_eq!(nested, 0, "{how:?}");
            // Another thread of the child asks first: the survivor must not take its old id for a fresh one.
            let other_first = in_child(how, || {
                std::thread::scope(|scope| drop(scope.spawn(|| drop(lock.lock().unwrap())).join()));
                lock_in_child(&lock)
            });
            assert_eq!(other_first, 0, "{how:?}");
        }
    });
    case("R21", "linux");
}

fn a_lock_held_across_a_fork_belongs_to_the_thread_that_forked() {
    let lock = RtMutex::new(3);
    let others = RtMutex::new(4);
    watched("held across fork", || {
        let (held, done) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let guard = others.lock().unwrap();
                held.wait();
                done.wait();
                drop(guard);
            });
            held.wait();
            for how in [Fork::Libc, Fork::Bare] {
                let guard = lock.lock().unwrap();
                let mut guard = Some(guard);
                let code = in_child(how, || {
                    if !matches!(lock.lock(), Err(LockError::Deadlock)) {
                        return 1;
                    }
                    // The attempt has set WAITERS in the child's copy; the release gets rid of it all the same.
                    drop(guard.take());
                    if lock.raw().word() != 0 {
                        return 2;
                    }
                    // What another thread of the parent held belongs to nobody here.
                    match others.try_lock_for(Duration::from_millis(1)) {
                        Err(LockError::ForeignOwner | LockError::TimedOut) => lock_in_child(&lock),
                        _ => 4,
                    }
                });
                assert_eq!(code, 0, "{how:?}");
                drop(guard);
                assert_eq!(lock.raw().word(), 0, "the parent's own lock was not touched");
            }
            done.wait();
        });
    });
}
