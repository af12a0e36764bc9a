// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The Linux mutex without real-time priorities: errors, deaths, deadlines, signals.
#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "signals and bare system calls")]

mod threads;

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use fastpath_rtmutex::linux::word::{OWNER_DIED, WAITERS, owner};
use fastpath_rtmutex::linux::{Builder, LockError, RtMutex, RtMutexGuard, TryLockError};
use fastpath_sys::futex::{self, PiError, Scope};
use fastpath_testkit::case;
use threads::{eventually, tid, waits_on_futex, watched};

#[test]
fn locking_twice_is_an_error_and_trying_twice_would_block() {
    static LOCK: RtMutex<u32> = RtMutex::new(5);
    watched("self lock", || {
        let held = LOCK.lock().unwrap();
        assert!(matches!(LOCK.lock(), Err(LockError::Deadlock)));
        assert!(matches!(LOCK.try_lock_for(Duration::from_secs(30)), Err(LockError::Deadlock)));
        assert!(matches!(LOCK.try_lock(), Err(TryLockError::WouldBlock)));
        assert_eq!(*held, 5);
        drop(held);
        // Deadlock detection by the kernel may have set WAITERS, which the release has taken away.
        assert_eq!(LOCK.raw().word(), 0);
        assert!(LOCK.try_lock().is_ok());
    });
    case("R16", "linux");
}

#[test]
fn a_circle_of_two_gives_one_of_them_an_error() {
    let (a, b) = (RtMutex::new(()), RtMutex::new(()));
    let both = Barrier::new(2);
    let deadlocks = AtomicUsize::new(0);
    let run = |first: &RtMutex<()>, second: &RtMutex<()>| {
        let held = first.lock().unwrap();
        both.wait();
        match second.lock() {
            Ok(_) => {}
            Err(LockError::Deadlock) => drop(deadlocks.fetch_add(1, Ordering::Relaxed)),
            Err(other) => panic!("{other:?}"),
        }
        drop(held);
    };
    watched("circle", || {
        std::thread::scope(|scope| {
            scope.spawn(|| run(&a, &b));
            scope.spawn(|| run(&b, &a));
        });
    });
    assert_eq!(deadlocks.load(Ordering::Relaxed), 1);
    assert_eq!((a.raw().word(), b.raw().word()), (0, 0));
    case("R17", "linux");
}

/// Ends a thread while it owns `lock`, before anybody waits.
fn die_with(lock: &RtMutex<u32>) -> u32 {
    std::thread::scope(|scope| {
        let dead = scope.spawn(|| {
            std::mem::forget(lock.lock().unwrap());
            tid()
        });
        dead.join().unwrap()
    })
}

#[test]
fn a_dead_owner_without_waiters_is_found_when_somebody_locks() {
    let lock = RtMutex::new(1);
    let dead = die_with(&lock);
    assert_eq!(owner(lock.raw().word()), dead);
    eventually("the end of the thread", || {
        !std::path::Path::new(&format!("/proc/self/task/{dead}")).exists()
    });
    let Err(LockError::OwnerDied(mut guard)) = lock.lock() else { panic!("not told") };
    *guard = 2;
    assert_eq!(owner(lock.raw().word()), tid());
    RtMutexGuard::make_consistent(&mut guard);
    drop(guard);
    assert_eq!(lock.raw().word(), 0, "a repaired lock is an ordinary one");
    assert_eq!(*lock.lock().unwrap(), 2);
    assert_eq!(lock.raw().word(), 0);
    case("R18", "linux-no-waiter");
}

#[test]
fn many_threads_that_find_a_dead_owner_get_the_lock_one_at_a_time() {
    watched("many heirs", || {
        for _ in 0..20 {
            let lock = RtMutex::new(0);
            die_with(&lock);
            let start = Barrier::new(4);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        start.wait();
                        // Nobody repairs it, so everybody is told.
                        let Err(LockError::OwnerDied(mut guard)) = lock.lock() else { panic!("not told") };
                        let seen = *guard;
                        std::thread::yield_now();
                        *guard = seen + 1;
                    });
                }
            });
            assert_eq!(*lock.lock().unwrap_err().into_inner(), 4);
            lock.clear_poison();
            assert_eq!(*lock.lock().unwrap(), 4);
            assert_eq!(lock.raw().word(), 0);
        }
    });
}

#[test]
fn a_dead_owner_with_a_waiter_hands_over_with_a_warning() {
    let lock = Builder::new().spin(false).build(1);
    let waiter = AtomicU32::new(0);
    watched("death with waiter", || {
        let locked = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::mem::forget(lock.lock().unwrap());
                locked.wait();
                eventually("the wait", || waits_on_futex(waiter.load(Ordering::Relaxed)));
            });
            locked.wait();
            waiter.store(tid(), Ordering::Relaxed);
            let Err(LockError::OwnerDied(mut guard)) = lock.lock() else { panic!("not told") };
            assert_eq!(lock.raw().word() & OWNER_DIED, 0, "the warning has moved beside the word");
            RtMutexGuard::make_consistent(&mut guard);
        });
    });
    assert_eq!(lock.raw().word(), 0);
    case("R18", "linux-waiter");
}

#[test]
fn a_panic_under_the_guard_poisons_until_somebody_repairs() {
    let lock = RtMutex::new(0);
    let panicked = std::panic::catch_unwind(|| {
        let _guard = lock.lock().unwrap();
        std::panic::resume_unwind(Box::new("as a test"));
    });
    assert!(panicked.is_err());
    assert!(lock.is_poisoned());
    // Sticky, as in the standard library.
    drop(lock.lock().unwrap_err().into_inner());
    assert!(matches!(lock.try_lock(), Err(TryLockError::Poisoned(LockError::OwnerDied(_)))));
    let mut guard = lock.lock().unwrap_err().into_guard().unwrap();
    RtMutexGuard::make_consistent(&mut guard);
    drop(guard);
    assert!(lock.lock().is_ok());
}

#[test]
fn strict_recovery_closes_a_lock_that_was_released_unrepaired() {
    let lock = Builder::new().strict_recovery(true).build(0);
    die_with(&lock);
    drop(lock.lock().unwrap_err().into_inner());
    for _ in 0..2 {
        assert!(matches!(lock.lock(), Err(LockError::NotRecoverable)));
        assert!(matches!(lock.try_lock(), Err(TryLockError::Poisoned(LockError::NotRecoverable))));
        assert!(matches!(lock.try_lock_for(Duration::ZERO), Err(LockError::NotRecoverable)));
    }
    assert_eq!(lock.raw().word(), 0);
    let other = Builder::new().strict_recovery(true).build(0);
    die_with(&other);
    let mut guard = other.lock().unwrap_err().into_inner();
    RtMutexGuard::make_consistent(&mut guard);
    drop(guard);
    assert!(other.lock().is_ok());
}

#[test]
fn deadlines_on_either_clock_are_kept() {
    let lock = RtMutex::new(0);
    let span = Duration::from_millis(50);
    watched("deadlines", || {
        let held = lock.lock().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let start = Instant::now();
                assert!(matches!(lock.try_lock_until(start + span), Err(LockError::TimedOut)));
                assert!(start.elapsed() >= span, "{:?}", start.elapsed());
                let start = Instant::now();
                assert!(matches!(lock.try_lock_for(span), Err(LockError::TimedOut)));
                assert!(start.elapsed() >= span, "{:?}", start.elapsed());
                // The wall clock may be set meanwhile; a tenth allows for its being slewed.
                let start = Instant::now();
                let result = lock.try_lock_until_system_time(SystemTime::now() + span);
                assert!(matches!(result, Err(LockError::TimedOut)));
                assert!(start.elapsed() >= span * 9 / 10, "{:?}", start.elapsed());
                let start = Instant::now();
                assert!(matches!(lock.try_lock_until(start), Err(LockError::TimedOut)));
                assert!(matches!(
                    lock.try_lock_until_system_time(SystemTime::UNIX_EPOCH),
                    Err(LockError::TimedOut)
                ));
            });
        });
        drop(held);
        // A free lock is taken however late it is.
        let past = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        assert!(lock.try_lock_until(past).is_ok());
        assert!(lock.try_lock_until_system_time(SystemTime::UNIX_EPOCH - span).is_ok());
        assert!(lock.try_lock_for(Duration::MAX).is_ok());
        assert_eq!(lock.raw().word(), 0);
    });
    case("R19", "linux");
}

#[test]
fn waiters_that_timed_out_cost_one_system_call_and_leave_no_trace() {
    let lock = RtMutex::new(0);
    watched("hygiene", || {
        let held = lock.lock().unwrap();
        let word = lock.raw().word();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    assert!(matches!(lock.try_lock_for(Duration::from_millis(20)), Err(LockError::TimedOut)));
                });
            }
        });
        assert_eq!(lock.raw().word(), word | WAITERS, "only the kernel may take it away");
        drop(held);
        assert_eq!(lock.raw().word(), 0);
        let held = lock.lock().unwrap();
        assert_eq!(lock.raw().word(), word, "fast path again");
        drop(held);
        assert_eq!(lock.raw().word(), 0);
    });
    case("R20", "linux");
}

#[test]
fn a_failed_try_leaves_the_word_alone() {
    let lock = RtMutex::new(0);
    let held = lock.lock().unwrap();
    let word = lock.raw().word();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(matches!(lock.try_lock(), Err(TryLockError::WouldBlock)));
            assert!(matches!(lock.try_lock_for(Duration::ZERO), Err(LockError::TimedOut)));
        });
    });
    assert_eq!(lock.raw().word(), word);
    drop(held);
}

#[test]
fn signals_do_not_end_a_wait() {
    static HANDLED: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn count(_: libc::c_int) {
        HANDLED.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: a handler that only counts, without SA_RESTART.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = count as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, core::ptr::null_mut()), 0);
    }
    let lock = RtMutex::new(0);
    let waiter = AtomicU32::new(0);
    watched("signals", || {
        let held = lock.lock().unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                waiter.store(tid(), Ordering::Relaxed);
                drop(lock.lock().unwrap());
            });
            eventually("the wait", || waits_on_futex(waiter.load(Ordering::Relaxed)));
            for n in 1..=5 {
                // SAFETY: the thread exists: it waits for the lock we hold.
                unsafe {
                    libc::syscall(
                        libc::SYS_tgkill,
                        libc::getpid(),
                        waiter.load(Ordering::Relaxed),
                        libc::SIGUSR1,
                    )
                };
                eventually("the handler", || HANDLED.load(Ordering::Relaxed) == n);
                assert!(!waiting.is_finished());
            }
            drop(held);
        });
    });
}

/// The kernel's side of the contract, which everything above is built on.
#[test]
fn the_kernel_answers_as_expected() {
    let word = AtomicU32::new(0);
    let lock = || futex::lock_pi(&word, Scope::Private, None);
    let read = || word.load(Ordering::Relaxed);
    watched("the kernel", || {
        assert_eq!(lock(), Ok(()));
        assert_eq!(lock(), Err(PiError::Deadlock));
        std::thread::scope(|scope| {
            let other = scope.spawn(|| futex::unlock_pi(&word, Scope::Private));
            assert_eq!(other.join().unwrap(), Err(PiError::NotPermitted));
        });
        assert_eq!(futex::unlock_pi(&word, Scope::Private), Ok(()));
        assert_eq!(read(), 0);
        // A thread that does not exist.
        let dead = std::thread::scope(|scope| scope.spawn(tid).join().unwrap());
        eventually("the end of the thread", || {
            !std::path::Path::new(&format!("/proc/self/task/{dead}")).exists()
        });
        word.store(dead, Ordering::Relaxed);
        assert_eq!(lock(), Err(PiError::OwnerGone));
        // Flags without an owner: the kernel grants, and keeps OWNER_DIED for us to see.
        for flags in [OWNER_DIED, OWNER_DIED | WAITERS] {
            word.store(flags, Ordering::Relaxed);
            assert_eq!(lock(), Ok(()), "{flags:#x}");
            assert_eq!(read() & !WAITERS, tid() | OWNER_DIED, "{flags:#x}");
            assert_eq!(futex::unlock_pi(&word, Scope::Private), Ok(()));
            assert_eq!(read(), 0);
        }
        word.store(WAITERS, Ordering::Relaxed);
        assert_eq!(futex::trylock_pi(&word, Scope::Private), Ok(()));
        assert_eq!(owner(read()), tid());
        assert_eq!(futex::unlock_pi(&word, Scope::Private), Ok(()));
        // WAITERS stays as long as somebody waits: two waiters, one hand-over.
        assert_eq!(lock(), Ok(()));
        let waiters = [AtomicU32::new(0), AtomicU32::new(0)];
        let (got, go) = (AtomicUsize::new(0), Barrier::new(3));
        std::thread::scope(|scope| {
            for waiter in &waiters {
                scope.spawn(|| {
                    waiter.store(tid(), Ordering::Relaxed);
                    assert_eq!(lock(), Ok(()));
                    got.fetch_add(1, Ordering::Relaxed);
                    if got.load(Ordering::Relaxed) == 1 {
                        assert_eq!(read(), tid() | WAITERS);
                    }
                    assert_eq!(futex::unlock_pi(&word, Scope::Private), Ok(()));
                    go.wait();
                });
            }
            for waiter in &waiters {
                eventually("the wait", || waits_on_futex(waiter.load(Ordering::Relaxed)));
            }
            assert_eq!(futex::unlock_pi(&word, Scope::Private), Ok(()));
            go.wait();
        });
        assert_eq!(read(), 0);
    });
    case("K93", "linux");
}

#[test]
fn increments_under_contention_are_all_counted() {
    for spin in [true, false] {
        let lock = Builder::new().spin(spin).build(0_u64);
        let per_thread = if spin { 20_000 } else { 2_000 };
        watched("increments", || {
            std::thread::scope(|scope| {
                for kind in 0..4 {
                    let lock = &lock;
                    scope.spawn(move || {
                        for _ in 0..per_thread {
                            let mut guard = match kind {
                                0 | 1 => lock.lock().unwrap(),
                                2 => lock.try_lock_for(Duration::from_secs(50)).unwrap(),
                                _ => loop {
                                    match lock.try_lock() {
                                        Ok(guard) => break guard,
                                        Err(TryLockError::WouldBlock) => std::thread::yield_now(),
                                        Err(other) => panic!("{other:?}"),
                                    }
                                },
                            };
                            *guard += 1;
                        }
                    });
                }
            });
        });
        assert_eq!(*lock.lock().unwrap(), 4 * per_thread);
        assert_eq!(lock.raw().word(), 0);
    }
}
