// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The reader/writer lock without real-time priorities.
#![cfg(target_os = "linux")]

mod threads;

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fastpath_rtmutex::linux::{LockError, RtRwLock, RtRwLockWriteGuard, TryLockError};
use threads::{eventually, tid, waits_on_futex, watched};

#[test]
fn readers_share_and_a_writer_excludes() {
    let lock = RtRwLock::new(1);
    let first = lock.read().unwrap();
    let second = lock.try_read().unwrap();
    assert!(matches!(lock.try_write(), Err(TryLockError::WouldBlock)));
    assert!(matches!(lock.try_write_for(Duration::from_millis(5)), Err(LockError::TimedOut)));
    // The failed writers have left nothing behind.
    drop(lock.try_read().unwrap());
    drop((first, second));
    let writer = lock.write().unwrap();
    assert!(matches!(lock.try_read(), Err(TryLockError::WouldBlock)));
    assert!(matches!(lock.try_write(), Err(TryLockError::WouldBlock)));
    assert!(matches!(lock.read(), Err(LockError::Deadlock)));
    assert!(matches!(lock.write(), Err(LockError::Deadlock)));
    assert!(matches!(lock.try_read_for(Duration::from_secs(30)), Err(LockError::Deadlock)));
    drop(writer);
    drop(lock.try_write().unwrap());
    drop(lock.read().unwrap());
}

#[test]
fn a_waiting_writer_stops_new_readers_and_gets_its_turn() {
    let lock = RtRwLock::new(0);
    let (writer, reader) = (AtomicU32::new(0), AtomicU32::new(0));
    watched("waiting writer", || {
        let old = lock.read().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                writer.store(tid(), Ordering::Release);
                *lock.write().unwrap() = 1;
            });
            eventually("the writer's wait", || waits_on_futex(writer.load(Ordering::Acquire)));
            assert!(matches!(lock.try_read(), Err(TryLockError::WouldBlock)));
            scope.spawn(|| {
                reader.store(tid(), Ordering::Release);
                assert_eq!(*lock.read().unwrap(), 1, "a new reader comes after the writer");
            });
            eventually("the reader's wait", || waits_on_futex(reader.load(Ordering::Acquire)));
            assert_eq!(*old, 0);
            drop(old);
        });
    });
}

#[test]
fn a_dead_writer_is_reported_to_readers_and_writers() {
    for read_first in [true, false] {
        let lock = RtRwLock::new(1);
        watched("dead writer", || {
            let dead = std::thread::scope(|scope| {
                let dead = scope.spawn(|| {
                    std::mem::forget(lock.write().unwrap());
                    tid()
                });
                dead.join().unwrap()
            });
            eventually("its end", || !std::path::Path::new(&format!("/proc/self/task/{dead}")).exists());
            if read_first {
                assert!(matches!(lock.read(), Err(LockError::OwnerDied(guard)) if *guard == 1));
            }
            let Err(LockError::OwnerDied(mut guard)) = lock.write() else { panic!("not told") };
            RtRwLockWriteGuard::make_consistent(&mut guard);
            drop(guard);
            assert_eq!(*lock.read().unwrap(), 1);
            drop(lock.try_write().unwrap());
        });
    }
}

#[test]
fn a_panicking_writer_poisons_and_a_panicking_reader_does_not() {
    let lock = RtRwLock::new(1);
    let reader = std::panic::catch_unwind(|| {
        let _guard = lock.read().unwrap();
        std::panic::resume_unwind(Box::new("as a test"));
    });
    assert!(reader.is_err() && !lock.is_poisoned());
    let writer = std::panic::catch_unwind(|| {
        let _guard = lock.write().unwrap();
        std::panic::resume_unwind(Box::new("as a test"));
    });
    assert!(writer.is_err() && lock.is_poisoned());
    assert!(matches!(lock.read(), Err(LockError::OwnerDied(_))));
    lock.clear_poison();
    assert_eq!(lock.into_inner().unwrap(), 1);
}

#[test]
fn readers_never_see_half_a_write() {
    let lock = RtRwLock::new((0_u64, 0_u64));
    let start = Barrier::new(4);
    watched("half a write", || {
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    start.wait();
                    for n in 0..3000 {
                        let mut guard = if n % 3 == 0 {
                            lock.try_write_for(Duration::from_secs(50)).unwrap()
                        } else {
                            lock.write().unwrap()
                        };
                        guard.0 += 1;
                        std::hint::spin_loop();
                        guard.1 += 1;
                        if n % 7 == 0 {
                            let reading = RtRwLockWriteGuard::downgrade(guard);
                            assert_eq!(reading.0, reading.1);
                        }
                    }
                });
                scope.spawn(|| {
                    start.wait();
                    for _ in 0..3000 {
                        let guard = lock.read().unwrap();
                        assert_eq!(guard.0, guard.1);
                    }
                });
            }
        });
    });
    assert_eq!(*lock.read().unwrap(), (6000, 6000));
}
