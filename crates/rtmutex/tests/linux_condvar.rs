// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The condition variable without real-time priorities: what wakes a waiter, and that it then owns the mutex.
#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "signals")]

mod threads;

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use fastpath_rtmutex::linux::word::owner;
use fastpath_rtmutex::linux::{LockError, RtCondvar, RtMutex, RtMutexGuard};
use fastpath_testkit::case;
use threads::{eventually, tid, waits_on_futex, watched};

static HANDLED: AtomicUsize = AtomicUsize::new(0);

/// Makes SIGUSR2 call a handler that only counts, without restarting system calls.
fn count_signals() {
    extern "C" fn count(_: libc::c_int) {
        HANDLED.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the handler only counts.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = count as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR2, &raw const action, core::ptr::null_mut()), 0);
    }
}

/// Interrupts a thread and waits until it has run its handler.
fn interrupt(thread: u32) {
    let before = HANDLED.load(Ordering::Relaxed);
    // SAFETY: the thread exists: the callers hold what it waits for.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGUSR2) };
    eventually("the handler", || HANDLED.load(Ordering::Relaxed) > before);
}

#[test]
fn a_signal_before_the_notification_does_not_wake_and_one_after_the_move_gives_no_mutex() {
    count_signals();
    let (lock, condvar) = (RtMutex::new(0), RtCondvar::new());
    let waiter = AtomicU32::new(0);
    watched("signals", || {
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let guard = lock.lock().unwrap();
                waiter.store(tid(), Ordering::Release);
                let mut guard = condvar.wait(guard).unwrap();
                assert_eq!(owner(lock.raw().word()), tid(), "a guard means ownership");
                *guard += 1;
            });
            let thread = || waiter.load(Ordering::Acquire);
            eventually("the wait", || waits_on_futex(thread()));
            interrupt(thread());
            eventually("the wait again", || waits_on_futex(thread()));
            // Moved to the mutex that we hold; then interrupted there, which ends the kernel's wait without the mutex.
            let guard = lock.lock().unwrap();
            assert_eq!(condvar.try_notify_one(), Ok(1));
            for _ in 0..3 {
                interrupt(thread());
                eventually("the wait for the mutex", || waits_on_futex(thread()));
                assert_eq!(owner(lock.raw().word()), tid());
                assert_eq!(*guard, 0);
                assert!(!waiting.is_finished());
            }
            drop(guard);
            waiting.join().unwrap();
        });
    });
    assert_eq!(lock.raw().word(), 0);
    assert_eq!(*lock.lock().unwrap(), 1);
    case("R24", "linux-signal");
}

#[test]
fn a_notification_with_the_mutex_free_makes_the_waiter_its_owner() {
    let (lock, condvar) = (RtMutex::new(0), RtCondvar::new());
    let waiter = AtomicU32::new(0);
    watched("free mutex", || {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let guard = lock.lock().unwrap();
                waiter.store(tid(), Ordering::Release);
                let guard = condvar.wait(guard).unwrap();
                assert_eq!(owner(lock.raw().word()), tid());
                drop(guard);
            });
            eventually("the wait", || waits_on_futex(waiter.load(Ordering::Acquire)));
            assert_eq!(lock.raw().word(), 0);
            assert_eq!(condvar.try_notify_one(), Ok(1));
        });
    });
    assert_eq!(lock.raw().word(), 0);
    assert_eq!(condvar.try_notify_all(), Ok(0));
    case("R24", "linux-free-mutex");
}

#[test]
fn a_wait_that_times_out_returns_with_the_mutex() {
    let (lock, condvar) = (RtMutex::new(0), RtCondvar::new());
    let span = Duration::from_millis(20);
    watched("timeout", || {
        let start = Instant::now();
        let (guard, result) = condvar.wait_timeout(lock.lock().unwrap(), span).unwrap();
        assert!(result.timed_out() && start.elapsed() >= span);
        assert_eq!(owner(lock.raw().word()), tid());
        let (guard, result) = condvar.wait_until(guard, Instant::now() + span).unwrap();
        assert!(result.timed_out());
        let (guard, result) = condvar.wait_until_system_time(guard, SystemTime::now() + span).unwrap();
        assert!(result.timed_out());
        let (guard, result) = condvar.wait_timeout_while(guard, span, |value| *value == 0).unwrap();
        assert!(result.timed_out());
        let (guard, result) = condvar.wait_timeout_while(guard, span, |value| *value != 0).unwrap();
        assert!(!result.timed_out());
        assert_eq!(owner(lock.raw().word()), tid());
        drop(guard);
        assert_eq!(lock.raw().word(), 0);
        // While another thread holds the mutex, the timed out one waits for it.
        let waiter = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let late = scope.spawn(|| {
                let guard = lock.lock().unwrap();
                waiter.store(tid(), Ordering::Release);
                let (guard, result) = condvar.wait_timeout(guard, span).unwrap();
                assert!(result.timed_out());
                *guard
            });
            eventually("the wait", || waits_on_futex(waiter.load(Ordering::Acquire)));
            let mut guard = lock.lock().unwrap();
            std::thread::sleep(span * 2);
            *guard = 7;
            drop(guard);
            assert_eq!(late.join().unwrap(), 7);
        });
    });
    case("R24", "linux-timeout");
}

#[test]
fn two_mutexes_at_a_time_are_an_error_and_one_after_the_other_are_not() {
    let (one, other, condvar) = (RtMutex::new(1), RtMutex::new(2), RtCondvar::new());
    let waiter = AtomicU32::new(0);
    watched("two mutexes", || {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let guard = one.lock().unwrap();
                waiter.store(tid(), Ordering::Release);
                drop(condvar.wait(guard).unwrap());
            });
            eventually("the wait", || waits_on_futex(waiter.load(Ordering::Acquire)));
            let Err(LockError::OtherMutex(guard)) = condvar.wait(other.lock().unwrap()) else {
                panic!("accepted")
            };
            assert_eq!((*guard, owner(other.raw().word())), (2, tid()), "the caller keeps its mutex");
            drop(guard);
            condvar.notify_all();
        });
        let waited = condvar.wait_timeout(other.lock().unwrap(), Duration::from_millis(1)).unwrap();
        assert!(waited.1.timed_out());
    });
}

#[test]
fn an_owner_that_dies_while_waiters_are_moved_to_its_mutex_is_reported() {
    let (lock, condvar) = (RtMutex::new(0), RtCondvar::new());
    let waiter = AtomicU32::new(0);
    watched("death", || {
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let guard = lock.lock().unwrap();
                waiter.store(tid(), Ordering::Release);
                let Err(LockError::OwnerDied(mut guard)) = condvar.wait(guard) else { panic!("not told") };
                RtMutexGuard::make_consistent(&mut guard);
            });
            eventually("the wait", || waits_on_futex(waiter.load(Ordering::Acquire)));
            scope.spawn(|| {
                std::mem::forget(lock.lock().unwrap());
                assert_eq!(condvar.try_notify_one(), Ok(1));
            });
            waiting.join().unwrap();
        });
    });
    assert_eq!(lock.raw().word(), 0);
    // Dead before the notification: that reaches nobody until somebody has locked the mutex.
    watched("death before", || {
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let guard = lock.lock().unwrap();
                waiter.store(tid(), Ordering::Release);
                drop(condvar.wait(guard).unwrap());
            });
            eventually("the wait", || waits_on_futex(waiter.load(Ordering::Acquire)));
            let dead = std::thread::scope(|scope| {
                let dead = scope.spawn(|| {
                    std::mem::forget(lock.lock().unwrap());
                    tid()
                });
                dead.join().unwrap()
            });
            eventually("its end", || !std::path::Path::new(&format!("/proc/self/task/{dead}")).exists());
            assert_eq!(condvar.try_notify_one().unwrap_err().raw_os_error(), libc::ESRCH);
            assert!(!waiting.is_finished());
            let mut guard = lock.lock().unwrap_err().into_inner();
            RtMutexGuard::make_consistent(&mut guard);
            assert_eq!(condvar.try_notify_one(), Ok(1));
            drop(guard);
        });
    });
    assert_eq!(lock.raw().word(), 0);
}

/// A bounded queue: each item arrives once, whoever waits or notifies, with the mutex held or not.
#[test]
fn no_wake_up_is_lost_between_producers_and_consumers() {
    struct Queue {
        items: Vec<u32>,
        taken: u64,
        left: u32,
    }
    let queue = RtMutex::new(Queue { items: Vec::new(), taken: 0, left: 4000 });
    let (not_empty, not_full) = (RtCondvar::new(), RtCondvar::new());
    watched("queue", || {
        std::thread::scope(|scope| {
            for producer in 0..2 {
                let (queue, not_empty, not_full) = (&queue, &not_empty, &not_full);
                scope.spawn(move || {
                    for item in 0..2000 {
                        let full = |queue: &mut Queue| queue.items.len() >= 4;
                        let mut guard = not_full.wait_while(queue.lock().unwrap(), full).unwrap();
                        guard.items.push(item);
                        if producer == 0 {
                            not_empty.notify_one();
                            drop(guard);
                        } else {
                            drop(guard);
                            not_empty.notify_one();
                        }
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    loop {
                        let idle = |queue: &mut Queue| queue.items.is_empty() && queue.left > 0;
                        let mut guard = not_empty.wait_while(queue.lock().unwrap(), idle).unwrap();
                        let Some(item) = guard.items.pop() else { break };
                        guard.taken += u64::from(item);
                        guard.left -= 1;
                        if guard.left == 0 {
                            not_empty.notify_all();
                        }
                        drop(guard);
                        not_full.notify_one();
                    }
                });
            }
        });
    });
    let queue = queue.into_inner().unwrap();
    assert_eq!(queue.taken, 2 * (0..2000).sum::<u64>());
    assert_eq!((queue.left, queue.items.len()), (0, 0));
}
