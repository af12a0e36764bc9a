// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The robust mutex in shared memory: owners that end in every way, in this process and in others.
#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "shared memory and processes")]

mod threads;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use fastpath_rtmutex::linux::word::OWNER_DIED;
use fastpath_rtmutex::linux::{LockError, SharedError, SharedRtMutex, SharedRtMutexGuard, TryLockError};
use fastpath_testkit::case;
use threads::{eventually, exit_status, tid, waits_on_futex, watched};

/// What the tests put into the shared memory beside the mutex's own data.
#[derive(Default)]
struct Shared {
    count: u64,
    /// Set by a child when it owns the lock. Read without the lock.
    owned_by: AtomicU32,
}

/// A mutex in memory that children made by fork share with us.
fn in_shared_memory() -> &'static SharedRtMutex<Shared> {
    let size = size_of::<SharedRtMutex<Shared>>();
    let memory = fastpath_sys::mm::map_shared(size).unwrap();
    // SAFETY: fresh shared memory of the right size that is never unmapped.
    unsafe { SharedRtMutex::init_at(memory.as_ptr().cast(), Shared::default()).unwrap() }
}

/// Where the owner's mark is, for reading it without the lock.
fn mark(mutex: &SharedRtMutex<Shared>) -> &AtomicU32 {
    let guard = mutex.lock().unwrap();
    let mark = &raw const guard.owned_by;
    // SAFETY: it lies in memory that is never unmapped, and is an atomic.
    unsafe { &*mark }
}

/// Forks a child that takes the lock, says so, and then does `end`, which must not return.
fn child_that_owns(mutex: &SharedRtMutex<Shared>, end: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child only locks and ends.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let guard = mutex.lock();
        if let Ok(guard) = &guard {
            guard.owned_by.store(tid(), Ordering::Release);
        }
        end();
        // SAFETY: ends the process.
        unsafe { libc::_exit(77) };
    }
    assert!(pid > 0);
    pid
}

fn expect_death(mutex: &SharedRtMutex<Shared>) {
    let Err(LockError::OwnerDied(mut guard)) = mutex.lock() else { panic!("not told") };
    guard.count += 1;
    SharedRtMutexGuard::make_consistent(&mut guard);
    drop(guard);
    assert!(matches!(mutex.word(), Some(0) | None));
    drop(mutex.lock().unwrap());
}

#[test]
fn a_robust_owner_without_waiters_leaves_a_mark_in_the_word() {
    let mutex = in_shared_memory();
    std::thread::scope(|scope| {
        drop(scope.spawn(|| std::mem::forget(mutex.lock().unwrap())).join());
    });
    eventually("the mark", || matches!(mutex.word(), Some(OWNER_DIED) | None));
    expect_death(mutex);
    case("R18", "linux-robust");
}

#[test]
fn a_process_that_is_killed_or_execs_or_exits_leaves_its_lock_to_the_next() {
    let mutex = in_shared_memory();
    let owned = mark(mutex);
    watched("killed owner", || {
        let forever = || loop {
            std::thread::sleep(Duration::from_secs(1));
        };
        let kill = |pid| {
            eventually("the child's lock", || owned.swap(0, Ordering::AcqRel) != 0);
            // SAFETY: our own child.
            assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
            assert_eq!(exit_status(pid), 255);
        };
        // Killed while nobody waits.
        kill(child_that_owns(mutex, forever));
        expect_death(mutex);
        // Killed while we wait.
        let waiter = AtomicU32::new(0);
        let pid = child_that_owns(mutex, forever);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                eventually("the wait", || waits_on_futex(waiter.load(Ordering::Acquire)));
                kill(pid);
            });
            waiter.store(tid(), Ordering::Release);
            eventually("the child's lock", || owned.load(Ordering::Acquire) != 0);
            expect_death(mutex);
        });
        // Replaced by another program, which has no idea.
        let pid = child_that_owns(mutex, || {
            let (path, no_environment) = (c"/bin/true".as_ptr(), [core::ptr::null()]);
            let arguments = [path, core::ptr::null()];
            // SAFETY: both lists end in null.
            unsafe { libc::execve(path, arguments.as_ptr(), no_environment.as_ptr()) };
        });
        assert_eq!(exit_status(pid), 0);
        expect_death(mutex);
        // An ordinary end.
        assert_eq!(exit_status(child_that_owns(mutex, || {})), 77);
        expect_death(mutex);
        assert_eq!(mutex.lock().unwrap().count, 4);
    });
    case("R18", "linux-process");
}

#[test]
fn released_unrepaired_it_is_closed_for_everybody() {
    let mutex = in_shared_memory();
    assert_eq!(exit_status(child_that_owns(mutex, || {})), 77);
    assert!(matches!(mutex.lock(), Err(LockError::OwnerDied(_))));
    assert!(matches!(mutex.lock(), Err(LockError::NotRecoverable)));
    assert!(matches!(mutex.try_lock(), Err(TryLockError::Poisoned(LockError::NotRecoverable))));
    let in_child = threads::in_child(threads::Fork::Libc, || {
        u8::from(matches!(mutex.lock(), Err(LockError::NotRecoverable)))
    });
    assert_eq!(in_child, 1);
}

#[test]
fn it_counts_right_between_processes() {
    let mutex = in_shared_memory();
    watched("processes", || {
        let children: Vec<_> = (0..3)
            .map(|_| {
                // SAFETY: the child only locks, unlocks and ends.
                let pid = unsafe { libc::fork() };
                if pid == 0 {
                    for _ in 0..2000 {
                        match mutex.lock() {
                            Ok(mut guard) => guard.count += 1,
                            // SAFETY: ends the process.
                            Err(_) => unsafe { libc::_exit(1) },
                        }
                    }
                    // SAFETY: as above.
                    unsafe { libc::_exit(0) };
                }
                pid
            })
            .collect();
        for pid in children {
            assert_eq!(exit_status(pid), 0);
        }
    });
    assert_eq!(mutex.lock().unwrap().count, 6000);
}

#[test]
fn errors_and_deadlines() {
    let mutex = in_shared_memory();
    let span = Duration::from_millis(30);
    watched("shared deadlines", || {
        let guard = mutex.lock().unwrap();
        assert!(matches!(mutex.lock(), Err(LockError::Deadlock)));
        assert!(matches!(mutex.try_lock(), Err(TryLockError::WouldBlock)));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(matches!(mutex.try_lock(), Err(TryLockError::WouldBlock)));
                let start = Instant::now();
                assert!(matches!(mutex.try_lock_for(span), Err(LockError::TimedOut)));
                assert!(start.elapsed() >= span);
                let wall = mutex.try_lock_until_system_time(SystemTime::now() + span);
                assert!(matches!(wall, Err(LockError::TimedOut)));
            });
        });
        SharedRtMutexGuard::unlock(guard).unwrap();
        drop(mutex.try_lock_for(Duration::ZERO).unwrap());
        // In a forked child the parent's lock is the parent's.
        let guard = mutex.lock().unwrap();
        let mut held = Some(guard);
        let refused = threads::in_child(threads::Fork::Libc, || {
            u8::from(SharedRtMutexGuard::unlock(held.take().unwrap()).is_err())
        });
        assert_eq!(refused, 1);
        drop(held);
    });
}

#[test]
fn memory_that_holds_no_such_mutex_is_refused() {
    let memory = fastpath_sys::mm::map_shared(4096).unwrap();
    let place = memory.as_ptr();
    // SAFETY: fresh zeroed shared memory, never unmapped.
    unsafe {
        let attached = SharedRtMutex::<u32>::attach_at(place.cast());
        assert_eq!(attached.err(), Some(SharedError::NotInitialised));
        assert_eq!(SharedRtMutex::<u32>::attach_at(place.add(4).cast()).err(), Some(SharedError::Misaligned));
        assert_eq!(
            SharedRtMutex::<u32>::init_at(place.add(4).cast(), 0).err(),
            Some(SharedError::Misaligned)
        );
        let made = SharedRtMutex::<u32>::init_at(place.cast(), 7).unwrap();
        assert_eq!(
            SharedRtMutex::<u64>::attach_at(place.cast()).err(),
            Some(SharedError::OtherSize { found: 4 })
        );
        let same = SharedRtMutex::<u32>::attach_at(place.cast()).unwrap();
        *same.lock().unwrap() += 1;
        assert_eq!(*made.lock().unwrap(), 8);
    }
}

/// A C program that maps the memory can take part.
#[test]
fn the_c_library_locks_the_same_mutex() {
    let mutex = in_shared_memory();
    let c = mutex.as_pthread();
    // SAFETY: an initialised mutex, as the reference proves.
    unsafe {
        assert_eq!(libc::pthread_mutex_lock(c), 0);
        assert!(matches!(mutex.try_lock(), Err(TryLockError::WouldBlock)));
        assert_eq!(libc::pthread_mutex_unlock(c), 0);
        let _guard = mutex.lock().unwrap();
        assert_ne!(libc::pthread_mutex_trylock(c), 0);
    }
}
