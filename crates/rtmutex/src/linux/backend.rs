// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The real kernel: what this half of the crate asks of Linux, and nothing else.

#![expect(unsafe_code, reason = "system calls on lock words")]

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::AtomicU32;
use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::protocol::Refusal;

/// An absolute point in time, on one of the two clocks a PI futex knows.
#[derive(Clone, Copy, Debug)]
pub(super) enum Deadline {
    Monotonic(Instant),
    Realtime(SystemTime),
}

impl Deadline {
    pub(super) fn has_passed(self) -> bool {
        match self {
            Self::Monotonic(at) => Instant::now() >= at,
            Self::Realtime(at) => SystemTime::now() >= at,
        }
    }

    /// As the kernel's absolute time, and whether on the realtime clock.
    fn timespec(self) -> (libc::timespec, bool) {
        match self {
            // `Instant` is CLOCK_MONOTONIC on Linux but hides its number: now, plus what remains.
            Self::Monotonic(at) => {
                let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
                let remaining = at.saturating_duration_since(Instant::now());
                // SAFETY: `now` is valid for writing; the clock always exists.
                unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
                let now = Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
                (to_timespec(now.saturating_add(remaining)), false)
            }
            // Before 1970 means past, as 1970 does.
            Self::Realtime(at) => (to_timespec(at.duration_since(UNIX_EPOCH).unwrap_or_default()), true),
        }
    }
}

fn to_timespec(d: Duration) -> libc::timespec {
    libc::timespec { tv_sec: d.as_secs().min(i64::MAX as u64) as libc::time_t, tv_nsec: libc::c_long::from(d.subsec_nanos() as i32) }
}

fn answer(result: libc::c_long) -> Result<usize, Refusal> {
    if result >= 0 {
        return Ok(result as usize);
    }
    Err(match io::Error::last_os_error().raw_os_error().unwrap_or(0) {
        libc::EDEADLK => Refusal::Deadlock,
        libc::ETIMEDOUT => Refusal::TimedOut,
        libc::ESRCH => Refusal::NoSuchOwner,
        libc::EPERM => Refusal::NotOurs,
        libc::EAGAIN => Refusal::Again,
        libc::EINTR => Refusal::Interrupted,
        other => Refusal::Other(other),
    })
}

const PRIVATE: i32 = 128;
const REALTIME: i32 = 256;

fn futex(w: *const AtomicU32, op: i32, val: u32, arg: usize, w2: *const AtomicU32, val3: u32) -> Result<usize, Refusal> {
    // SAFETY: the kernel checks addresses itself and only touches the words as futexes.
    answer(unsafe { libc::syscall(libc::SYS_futex, w, op | PRIVATE, val, arg, w2, val3) })
}

pub(super) fn lock_pi(w: &AtomicU32, deadline: Option<Deadline>) -> Result<(), Refusal> {
    let Some(deadline) = deadline else { return futex(w, 6, 0, 0, ptr::null(), 0).map(drop) };
    let (ts, realtime) = deadline.timespec();
    futex(w, 13 | if realtime { REALTIME } else { 0 }, 0, (&raw const ts).addr(), ptr::null(), 0).map(drop)
}

pub(super) fn trylock_pi(w: &AtomicU32) -> Result<(), Refusal> {
    futex(w, 8, 0, 0, ptr::null(), 0).map(drop)
}

pub(super) fn unlock_pi(w: &AtomicU32) -> Result<(), Refusal> {
    futex(w, 7, 0, 0, ptr::null(), 0).map(drop)
}

pub(super) fn wait_requeue_pi(w: &AtomicU32, value: u32, deadline: Option<Deadline>, target: &AtomicU32) -> Result<(), Refusal> {
    let (ts, realtime) = deadline.map_or((to_timespec(Duration::ZERO), false), Deadline::timespec);
    let ts = if deadline.is_some() { &raw const ts } else { ptr::null() };
    futex(w, 11 | if realtime { REALTIME } else { 0 }, value, ts.addr(), target, 0).map(drop)
}

pub(super) fn cmp_requeue_pi(w: &AtomicU32, value: u32, requeue: i32, target: *const AtomicU32) -> Result<usize, Refusal> {
    futex(w, 12, 1, requeue as usize, target, value)
}

pub(super) fn wait(w: &AtomicU32, value: u32, deadline: Option<Deadline>) -> Result<(), Refusal> {
    // FUTEX_WAIT_BITSET takes an absolute time.
    let (ts, realtime) = deadline.map_or((to_timespec(Duration::ZERO), false), Deadline::timespec);
    let ts = if deadline.is_some() { &raw const ts } else { ptr::null() };
    futex(w, 9 | if realtime { REALTIME } else { 0 }, value, ts.addr(), ptr::null(), u32::MAX).map(drop)
}

pub(super) fn wake(w: &AtomicU32, count: i32) {
    let _ = futex(w, 1, count as u32, 0, ptr::null(), 0);
}

pub(super) fn gettid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// # Safety
///
/// The range is whole pages, and a child process finds them zeroed.
pub(super) unsafe fn wipe_on_fork(start: *mut c_void, length: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { libc::madvise(start, length, libc::MADV_WIPEONFORK) == 0 }
}

pub(super) fn at_fork_in_child(handler: extern "C" fn()) {
    // SAFETY: the handler only stores to a static.
    unsafe { libc::pthread_atfork(None, None, Some(core::mem::transmute::<extern "C" fn(), unsafe extern "C" fn()>(handler))) };
}

unsafe extern "C" {
    static __rseq_offset: isize;
    static __rseq_size: u32;
}

/// The CPU the caller last ran on, if restartable sequences tell it for free.
#[inline(always)]
pub(super) fn cpu() -> Option<u32> {
    // SAFETY: glibc's symbols; the area exists as long as the thread.
    unsafe {
        if __rseq_size == 0 {
            return None;
        }
        let area: *const u32;
        core::arch::asm!("mov {0}, fs:[0]", "add {0}, {1}", out(reg) area, in(reg) __rseq_offset, options(nostack, readonly, pure));
        let cpu = area.add(1).read_volatile();
        (cpu as i32 >= 0).then_some(cpu)
    }
}


pub(super) fn give_way(attempt: u32) {
    // A yield does not let weaker threads run: sleep, should they be what is waited for.
    if attempt < 8 {
        std::thread::yield_now();
    } else {
        std::thread::sleep(Duration::from_micros(50));
    }
}
