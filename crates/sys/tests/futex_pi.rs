// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The PI operations' errors, as the types name them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fastpath_sys::futex::{self, Clock, OWNER_DIED, PiError, Scope, TID_MASK, Timespec, WAITERS, WaitError};
use fastpath_sys::sched;

const NOW: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// A thread id that no thread has: that of one that has ended.
fn dead_thread() -> u32 {
    std::thread::spawn(sched::thread_id).join().expect("the thread finished")
}

#[test]
fn locking_and_unlocking() {
    let word = AtomicU32::new(0);
    futex::lock_pi(&word, Scope::Private, None).expect("free");
    assert_eq!(word.load(Ordering::Relaxed) & TID_MASK, sched::thread_id());
    assert_eq!(futex::lock_pi(&word, Scope::Private, None), Err(PiError::Deadlock));
    assert_eq!(futex::lock_pi2(&word, Scope::Private, Clock::Monotonic, None), Err(PiError::Deadlock));
    assert_eq!(futex::trylock_pi(&word, Scope::Private), Err(PiError::Deadlock));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(futex::trylock_pi(&word, Scope::Private), Err(PiError::Again));
            assert_eq!(futex::unlock_pi(&word, Scope::Private), Err(PiError::NotPermitted));
            assert_eq!(futex::lock_pi(&word, Scope::Private, Some(&NOW)), Err(PiError::TimedOut));
            let past = futex::lock_pi2(&word, Scope::Private, Clock::Monotonic, Some(&NOW));
            assert_eq!(past, Err(PiError::TimedOut));
        });
    });
    assert_eq!(word.load(Ordering::Relaxed), sched::thread_id() | WAITERS, "kept by the kernel");
    futex::unlock_pi(&word, Scope::Private).expect("ours");
    assert_eq!(word.load(Ordering::Relaxed), 0);
    assert_eq!(futex::unlock_pi(&word, Scope::Private), Err(PiError::NotPermitted));
    futex::lock_pi(&word, Scope::Private, Some(&NOW)).expect("a past deadline takes a free lock");
    futex::unlock_pi(&word, Scope::Private).expect("ours");
}

#[test]
fn odd_words() {
    let me = sched::thread_id();
    let word = AtomicU32::new(WAITERS);
    futex::trylock_pi(&word, Scope::Private).expect("only the bit");
    assert_eq!(word.load(Ordering::Relaxed) & TID_MASK, me);
    word.store(OWNER_DIED, Ordering::Relaxed);
    futex::lock_pi(&word, Scope::Private, None).expect("its owner died");
    assert_eq!(word.load(Ordering::Relaxed), me | OWNER_DIED, "the new owner must know");
    futex::unlock_pi(&word, Scope::Private).expect("ours");
    assert_eq!(word.load(Ordering::Relaxed), 0);
    word.store(dead_thread(), Ordering::Relaxed);
    assert_eq!(futex::lock_pi(&word, Scope::Private, None), Err(PiError::OwnerGone));
    let bad = Timespec { tv_sec: 0, tv_nsec: 2_000_000_000 };
    word.store(1, Ordering::Relaxed);
    assert_eq!(futex::lock_pi(&word, Scope::Private, Some(&bad)), Err(PiError::Invalid));
}

#[test]
fn a_waiter_is_handed_the_lock() {
    let word = AtomicU32::new(0);
    futex::lock_pi(&word, Scope::Shared, None).expect("free");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            futex::lock_pi(&word, Scope::Shared, None).expect("handed over");
            assert_eq!(word.load(Ordering::Relaxed) & TID_MASK, sched::thread_id());
            futex::unlock_pi(&word, Scope::Shared).expect("ours");
        });
        while word.load(Ordering::Relaxed) & WAITERS == 0 {
            std::thread::yield_now();
        }
        assert_eq!(futex::wake(&word, 1, Scope::Shared), Err(fastpath_sys::Errno::INVAL), "a PI waiter");
        futex::unlock_pi(&word, Scope::Shared).expect("ours");
        waiter.join().expect("the waiter finished");
    });
}

#[test]
fn requeue() {
    let (condition, mutex) = (AtomicU32::new(7), AtomicU32::new(0));
    let wait = |expected, deadline| {
        futex::wait_requeue_pi(&condition, expected, &mutex, Scope::Private, Clock::Monotonic, deadline)
    };
    assert_eq!(wait(8, None), Err(PiError::Again), "another value");
    assert_eq!(wait(7, Some(&NOW)), Err(PiError::TimedOut));
    let same =
        futex::wait_requeue_pi(&condition, 7, &condition, Scope::Private, Clock::Monotonic, Some(&NOW));
    assert_eq!(same, Err(PiError::Invalid));
    assert_eq!(futex::cmp_requeue_pi(&condition, 8, &mutex, 1, Scope::Private), Err(PiError::Again));
    assert_eq!(futex::cmp_requeue_pi(&condition, 7, &mutex, 1, Scope::Private), Ok(0));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            wait(7, None).expect("requeued");
            assert_eq!(mutex.load(Ordering::Relaxed) & TID_MASK, sched::thread_id(), "owns the mutex");
            futex::unlock_pi(&mutex, Scope::Private).expect("ours");
        });
        while futex::cmp_requeue_pi(&condition, 7, &mutex, 1, Scope::Private) != Ok(1) {
            std::thread::sleep(Duration::from_millis(1));
        }
        waiter.join().expect("the waiter finished");
    });
}

#[test]
fn plain_wait() {
    let word = AtomicU32::new(1);
    assert_eq!(futex::wait(&word, 0, Scope::Private, Clock::Monotonic, None), Err(WaitError::Changed));
    assert_eq!(futex::wait(&word, 1, Scope::Private, Clock::Monotonic, Some(&NOW)), Err(WaitError::TimedOut));
    assert_eq!(futex::wait(&word, 1, Scope::Private, Clock::Realtime, Some(&NOW)), Err(WaitError::TimedOut));
    assert_eq!(PiError::Deadlock.to_string(), "the caller owns the lock, or waits for it in a cycle");
}
