// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Real-time threads for tests: one test at a time, nothing inherited, work measured in CPU time.
#![allow(
    dead_code,
    unsafe_code,
    reason = "each test binary uses its part; the thread's CPU clock has no safe form"
)]

use std::sync::{Mutex, MutexGuard, PoisonError};

use fastpath_rtmutex::linux::priority::{self, Priority, Thread};
use fastpath_sys::sched;

/// Takes the right to run real-time threads in this process, or records the skip and returns `None`.
///
/// Must be called before any thread of the test exists. Tests that burn CPU time at FIFO would disturb each other, so
/// they share one lock.
pub(crate) fn alone() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // In a thread of its own, so that the caller's scheduling stays as it is.
    let permitted =
        std::thread::spawn(|| priority::set(Thread::current(), Priority::Fifo(60))).join().unwrap();
    match permitted {
        Ok(()) => Some(alone),
        Err(error) => {
            fastpath_testkit::skip("rtmutex-fifo", &error.to_string());
            None
        }
    }
}

/// The CPUs this process may use.
pub(crate) fn cpus() -> Vec<u32> {
    let allowed = sched::affinity().unwrap();
    (0..1024).filter(|cpu| allowed.is_set(*cpu)).map(|cpu| cpu as u32).collect()
}

/// Makes the calling thread a FIFO thread on one CPU.
pub(crate) fn become_fifo(level: u8, cpu: u32) -> Thread {
    sched::pin_to(cpu).unwrap();
    priority::set(Thread::current(), Priority::Fifo(level)).unwrap();
    Thread::current()
}

/// The kernel's number for the priority `thread` runs with.
pub(crate) fn kernel_number(thread: Thread) -> i32 {
    priority::effective(thread).unwrap().kernel_number()
}

/// The CPU time the calling thread has used, in nanoseconds.
pub(crate) fn cpu_time() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable, and the clock exists for every thread.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Uses so many nanoseconds of CPU time.
pub(crate) fn burn(span: u64) {
    let start = cpu_time();
    while cpu_time() - start < span {
        std::hint::spin_loop();
    }
}
