// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The kernel half on real threads: locks that are freed right after their unlock (K87), and plain contention.
//!
//! The lane `rtmutex-asan` runs this with AddressSanitizer and `FASTPATH_FREED_LOCKS=1000000`.
#![cfg(not(loom))]
#![expect(unsafe_code, reason = "a scheduler on threads, raw unlocks, and locks freed by hand")]

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use fastpath_rtmutex::kernel::{Key, Mutex, Native, RawMutex, RawSpin, Scheduler, Signal, Task};
use fastpath_testkit::case;

/// Tasks are threads; the operating system schedules them as it likes.
struct Threads;

/// A spinlock that gives the processor away: there are more threads than processors.
struct Yielding(AtomicBool);

// SAFETY: a test-and-set lock; the release is the last access.
unsafe impl RawSpin for Yielding {
    const UNLOCKED: Self = Self(AtomicBool::new(false));
    fn lock(&self) {
        while !self.try_lock() {
            thread::yield_now();
        }
    }
    fn try_lock(&self) -> bool {
        // ORDERING: Acquire pairs with the Release in `unlock`.
        !self.0.swap(true, Ordering::Acquire)
    }
    unsafe fn unlock(&self) {
        // ORDERING: Release pairs with the Acquire in `try_lock`.
        self.0.store(false, Ordering::Release);
    }
}

thread_local! {
    static CURRENT: Cell<Option<&'static Task<Threads>>> = const { Cell::new(None) };
}

// SAFETY: a task per thread, leaked; std's park and unpark are a token.
unsafe impl Scheduler for Threads {
    type RawLock = Yielding;
    type Owner = Native<Task<Self>>;
    type Irq = ();
    type Data = Thread;

    fn current() -> &'static Task<Self> {
        CURRENT.get().unwrap_or_else(|| {
            let task: &'static Task<Self> = Box::leak(Box::new(Task::new(Key::NORMAL, thread::current())));
            CURRENT.set(Some(task));
            task
        })
    }
    fn irq_save() {}
    fn irq_restore((): ()) {}
    fn preempt_disable() {}
    fn preempt_enable() {}
    fn park(deadline: Option<u64>) {
        match deadline {
            None => thread::park(),
            Some(_) => thread::park_timeout(Duration::from_millis(1)),
        }
    }
    fn unpark(task: &'static Task<Self>) {
        task.data().unpark();
    }
    fn now() -> u64 {
        0
    }
    fn signal(_: &Task<Self>) -> Signal {
        Signal::None
    }
    fn priority_changed(_: &'static Task<Self>, _: Key) {}
    fn on_cpu(_: &Task<Self>) -> bool {
        false
    }
    fn need_resched() -> bool {
        true
    }
    fn relax() {
        thread::yield_now();
    }
}

/// One thread makes a lock, takes it, shows it to another and unlocks; the other one takes it, unlocks it and frees it at
/// once. The first must be through with it by then.
#[test]
fn a_lock_may_be_freed_right_after_its_unlock() {
    let count =
        std::env::var("FASTPATH_FREED_LOCKS").ok().and_then(|n| n.parse().ok()).unwrap_or(100_000_usize);
    let shown: AtomicPtr<RawMutex<Threads>> = AtomicPtr::new(ptr::null_mut());
    let freed = AtomicUsize::new(0);
    let contended = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..count {
                let lock = loop {
                    // ORDERING: Acquire pairs with the Release of the one who shows it.
                    let lock = shown.swap(ptr::null_mut(), Ordering::Acquire);
                    if !lock.is_null() {
                        break lock;
                    }
                    thread::yield_now();
                };
                // SAFETY: shown once, alive until freed here.
                unsafe {
                    // ORDERING: Relaxed: a count.
                    contended.fetch_add(usize::from((*lock).is_locked()), Ordering::Relaxed);
                    (*lock).lock();
                    (*lock).unlock();
                    lock.cast::<u8>().write_bytes(0xa5, size_of::<RawMutex<Threads>>());
                    drop(Box::from_raw(lock.cast::<Bytes>()));
                }
                // ORDERING: Relaxed: a count.
                freed.fetch_add(1, Ordering::Relaxed);
            }
        });
        for i in 0..count {
            let lock = Box::into_raw(Box::new(RawMutex::<Threads>::new()));
            // SAFETY: made here; not touched after the unlock.
            unsafe {
                (*lock).lock();
                // ORDERING: Release pairs with the Acquire of the one who takes it.
                shown.store(lock, Ordering::Release);
                if i % 3 == 0 {
                    // Mostly the other one is waiting by now.
                    thread::yield_now();
                }
                (*lock).unlock();
            }
            // ORDERING: Relaxed: only whether there is room.
            while !shown.load(Ordering::Relaxed).is_null() {
                thread::yield_now();
            }
        }
    });
    assert_eq!(freed.into_inner(), count);
    println!("{} of {count} were held when the other thread came", contended.into_inner());
    case("K87", "kernel-threads");
}

/// The bytes of a lock that is no lock any more.
#[repr(C, align(8))]
struct Bytes([u8; size_of::<RawMutex<Threads>>()]);

const _: () = assert!(align_of::<Bytes>() == align_of::<RawMutex<Threads>>());
const _: () = assert!(size_of::<Bytes>() == size_of::<RawMutex<Threads>>());

#[test]
fn threads_count_under_the_lock() {
    static COUNT: Mutex<Threads, usize> = Mutex::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    *COUNT.lock() += 1;
                }
            });
        }
    });
    assert_eq!(*COUNT.lock(), 8_000);
    case("K87", "kernel-threads");
}
