// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The lock as a raw mutex of both versions of `lock_api`: exclusion, deadlines, and the condition variable.
#![cfg(all(target_os = "linux", feature = "lock_api_0_4", feature = "lock_api_0_5"))]

mod threads;

use std::time::{Duration, Instant};

use fastpath_rtmutex::linux::{lock_api_0_4, lock_api_0_5};
use threads::{Fork, in_child, watched};

macro_rules! contract {
    ($name:ident, $api:ident) => {
        #[test]
        fn $name() {
            let lock = $api::Mutex::new(0_u32);
            watched(stringify!($name), || {
                std::thread::scope(|scope| {
                    for _ in 0..3 {
                        scope.spawn(|| (0..2000).for_each(|_| *lock.lock() += 1));
                    }
                });
                assert_eq!(*lock.lock(), 6000);
                let held = lock.lock();
                assert!(lock.is_locked());
                assert!(lock.try_lock().is_none());
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        let start = Instant::now();
                        assert!(lock.try_lock_for(Duration::from_millis(5)).is_none());
                        assert!(start.elapsed() >= Duration::from_millis(5));
                    });
                });
                // An error that is no time-out (here a deadlock) takes its time all the same.
                let start = Instant::now();
                assert!(lock.try_lock_for(Duration::from_millis(5)).is_none());
                assert!(start.elapsed() >= Duration::from_millis(5));
                drop(held);
                assert!(!lock.is_locked());
                // The copy in a child belongs to the thread that forked.
                let mut held = Some(lock.lock());
                let code = in_child(Fork::Libc, || {
                    drop(held.take());
                    u8::from(lock.is_locked())
                });
                assert_eq!(code, 0);
                drop(held);
                assert!(lock.try_lock().is_some());
            });
        }
    };
}

contract!(version_0_4, lock_api_0_4);
contract!(version_0_5, lock_api_0_5);

#[test]
fn the_condition_variable_of_0_5() {
    let (lock, condvar) = (lock_api_0_5::Mutex::new(0), lock_api_0_5::Condvar::new());
    watched("condvar of 0.5", || {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                *lock.lock() = 1;
                condvar.notify_all();
            });
            let mut guard = lock.lock();
            while *guard == 0 {
                condvar.wait(&mut guard);
            }
            assert!(condvar.wait_for(&mut guard, Duration::from_millis(1)).timed_out());
            assert!(lock.is_locked());
        });
    });
}
