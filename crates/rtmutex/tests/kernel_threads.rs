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

use fastpath_rtmutex::kernel::{
    ForcedSlow, Key, LockError, Mutex, Native, RawMutex, RawSpin, Scheduler, Signal, Task, Wait,
};
use fastpath_testkit::case;

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

macro_rules! scheduler {
    ($(#[$doc:meta])* $name:ident, $owner:ty, detect always: $always:literal) => {
        $(#[$doc])*
        struct $name;

        // SAFETY: a task per thread, leaked; std's park and unpark are a token.
        unsafe impl Scheduler for $name {
            type RawLock = Yielding;
            type Owner = $owner;
            type Irq = ();
            type Data = Thread;
            const DETECT_ALWAYS: bool = $always;

            fn current() -> &'static Task<Self> {
                thread_local! {
                    static CURRENT: Cell<Option<&'static Task<$name>>> = const { Cell::new(None) };
                }
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
    };
}

scheduler! {
    /// Tasks are threads; the operating system schedules them as it likes.
    Threads, Native<Task<Self>>, detect always: false
}
scheduler! {
    /// The same as a kernel built for debugging: no fast path, each walk looks for deadlocks.
    Debugging, ForcedSlow<Native<Task<Self>>>, detect always: true
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

fn count<S: Scheduler<Data = Thread>>(counter: &'static Mutex<S, usize>) {
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    *counter.lock() += 1;
                }
            });
        }
    });
    assert_eq!(*counter.lock(), 8_000);
    assert_eq!(counter.raw().word(), (ptr::null(), false));
}

#[test]
fn threads_count_under_the_lock() {
    static COUNT: Mutex<Threads, usize> = Mutex::new(0);
    count(&COUNT);
    case("K76", "kernel-threads");
}

#[test]
fn threads_count_under_the_lock_without_its_fast_path() {
    static COUNT: Mutex<Debugging, usize> = Mutex::new(0);
    count(&COUNT);
    case("K76", "kernel-threads-debug");
}

#[test]
fn a_debugging_kernel_finds_a_ring_without_being_asked() {
    // Minimal detection would see that nothing changes: all are equally urgent. The other thread sleeps already.
    let locks: &'static [RawMutex<Debugging>; 2] = Box::leak(Box::new([RawMutex::new(), RawMutex::new()]));
    let [a, b] = locks;
    a.lock();
    assert_eq!(a.lock_with(Wait::uninterruptible()), Err(LockError::Deadlock));
    assert!(!a.try_lock());
    let me = Debugging::current();
    let other = thread::spawn(move || {
        b.lock();
        a.lock();
        // SAFETY: both locked above.
        unsafe {
            a.unlock();
            b.unlock();
        }
    });
    while a.top_waiter().is_none() {
        thread::yield_now();
    }
    assert_eq!(b.lock_with(Wait::uninterruptible()), Err(LockError::Deadlock));
    assert!(!me.is_blocked());
    // SAFETY: locked above.
    unsafe { a.unlock() };
    other.join().unwrap();
    assert!(!a.is_locked() && !b.is_locked());
    case("K83", "kernel-threads-debug");
}
