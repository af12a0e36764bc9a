// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The sampled heap profile: where memory was allocated, all of it since the start and what is still there.
//!
//! Off, it costs nothing: the fast path is what it is. On, the heap keeps its fast path closed, so that every call comes by
//! the slow path, where the bytes are counted down, per CPU, to the next sampled block. A sampled block's stack goes
//! into a table; the block goes into another, where `free` finds it. Nothing here allocates, waits or takes a lock,
//! so it may run wherever the heap may, in signal handlers too.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `FASTPATH_PROFILE` | the file the profile is written to at exit; `%p` in it is the process id | none |
//! | `FASTPATH_PROFILE_INTERVAL` | average bytes between samples; 1 samples every block | 524288, of leaks 1 |
//! | `FASTPATH_PROFILE_SIGNAL` | the number of a signal that has the profile written too | none |
//! | `FASTPATH_PROFILE_SEED` | where the random numbers start, for tests | random |
//! | `FASTPATH_LEAKS` | `1`: what was never freed is listed on standard error at exit | none |

mod chance;
mod encode;
pub(crate) mod leaks;
mod table;
mod unwind;

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU64, Ordering::Relaxed};

use fastpath_percpu::sheaf;

use crate::report::Line;
use crate::{cpu, limit, os, settings};
use fastpath_sys::libc_symbols;
use fastpath_sys::rseq::thread_pointer;

// ORDERING: Relaxed throughout: what is set here is set during the heap's set-up, which publishes it.
static ON: AtomicBool = AtomicBool::new(false);
static LEAKS: AtomicBool = AtomicBool::new(false);
static INTERVAL: AtomicU64 = AtomicU64::new(0);
/// The process that the file's name belongs to, if it names none itself.
static OWNER: AtomicI32 = AtomicI32::new(0);
static DONE: AtomicBool = AtomicBool::new(false);

const PATH: usize = 512;
static FILE: [AtomicU8; PATH] = [const { AtomicU8::new(0) }; PATH];

/// Bytes to the next sample, and the state of the random numbers.
#[repr(align(64))]
struct Countdown {
    left: AtomicI64,
    random: AtomicU64,
}

const SLOTS: usize = 128;
static COUNTDOWNS: [Countdown; SLOTS] =
    [const { Countdown { left: AtomicI64::new(0), random: AtomicU64::new(0) } }; SLOTS];

const DEFAULT_INTERVAL: u64 = 512 * 1024;

/// Whether blocks are sampled.
#[inline]
pub(crate) fn on() -> bool {
    ON.load(Relaxed)
}

/// Reads the settings. Before the heap decides whether to open its fast path.
pub(crate) fn set_up() {
    let file =
        settings::variable(b"FASTPATH_PROFILE").filter(|file| !file.is_empty() && file.len() < PATH - 32);
    let leaks = settings::variable(b"FASTPATH_LEAKS").is_some_and(|value| value != b"0" && !value.is_empty());
    if file.is_none() && !leaks {
        return;
    }
    for (kept, &byte) in FILE.iter().zip(file.unwrap_or(b"")) {
        kept.store(byte, Relaxed);
    }
    let interval =
        settings::variable(b"FASTPATH_PROFILE_INTERVAL").and_then(limit::bytes).map(|bytes| bytes as u64);
    let interval = interval.unwrap_or(if leaks { 1 } else { DEFAULT_INTERVAL }).max(1);
    let seed = settings::variable(b"FASTPATH_PROFILE_SEED")
        .and_then(limit::bytes)
        .map_or_else(os::random, |seed| seed as u64);
    if !table::set_up(if interval >= 64 * 1024 { 1 << 12 } else { 1 << 18 }) {
        return;
    }
    INTERVAL.store(interval, Relaxed);
    for (slot, countdown) in COUNTDOWNS.iter().enumerate() {
        countdown.random.store(seed ^ (slot as u64 + 1).wrapping_mul(0xd134_2543_de82_ef95), Relaxed);
        countdown.left.store(chance::distance(next(countdown), interval) as i64, Relaxed);
    }
    OWNER.store(os::pid(), Relaxed);
    LEAKS.store(leaks, Relaxed);
    ON.store(true, Relaxed);
    if let Some(number) = settings::variable(b"FASTPATH_PROFILE_SIGNAL").and_then(limit::bytes) {
        let function = libc_symbols::signal();
        if !function.is_null() {
            // SAFETY: the C library's function of that name has this type.
            unsafe {
                let signal: extern "C" fn(c_int, extern "C" fn(c_int)) -> *mut c_void =
                    core::mem::transmute(function);
                signal(number as c_int, on_signal);
            }
        }
    }
    let function = libc_symbols::__cxa_atexit();
    if !function.is_null() {
        // SAFETY: the C library's function of that name has this type; the handler is never unloaded.
        unsafe {
            let at_exit: extern "C" fn(extern "C" fn(*mut c_void), *mut c_void, *mut c_void) -> c_int =
                core::mem::transmute(function);
            at_exit(on_exit, core::ptr::null_mut(), core::ptr::null_mut());
        }
    }
}

extern "C" fn on_signal(_: c_int) {
    write_default();
}

extern "C" fn on_exit(_: *mut c_void) {
    at_exit();
}

/// Writes what the settings ask for at the end of the process, once.
fn at_exit() {
    if on() && !DONE.swap(true, Relaxed) {
        write_default();
        if LEAKS.load(Relaxed) {
            leaks::report();
        }
    }
}

/// The next random number (SplitMix64). A race may hand the same one out twice.
fn next(countdown: &Countdown) -> u64 {
    let state = countdown.random.load(Relaxed).wrapping_add(0x9e37_79b9_7f4a_7c15);
    countdown.random.store(state, Relaxed);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Counts a new block, and samples it if it is its turn.
#[inline]
pub(crate) fn allocated(block: *mut u8, size: usize) {
    let size = size.max(1) as i64;
    let access = cpu::access();
    let left = if access.rseq_offset != 0 {
        // SAFETY: the heap's own area.
        let cpu = unsafe { sheaf::cpu_id(access.rseq_offset) };
        let countdown = &COUNTDOWNS[cpu as usize % SLOTS];
        // Not one operation: bytes are lost if another thread of this CPU counts in between, which is rare and small.
        let left = countdown.left.load(Relaxed) - size;
        countdown.left.store(left, Relaxed);
        (left, countdown)
    } else {
        let countdown = &COUNTDOWNS[(thread_pointer().addr() >> 12) % SLOTS];
        (countdown.left.fetch_sub(size, Relaxed) - size, countdown)
    };
    if left.0 < 0 {
        sample(block, size as u64, left.1);
    }
}

#[cold]
#[inline(never)]
fn sample(block: *mut u8, size: u64, countdown: &Countdown) {
    let interval = INTERVAL.load(Relaxed);
    countdown.left.store(chance::distance(next(countdown), interval) as i64, Relaxed);
    let mut addresses = [0; unwind::DEPTH];
    let count = unwind::callers(&mut addresses);
    let number = table::number_of(&addresses[..count]);
    if table::insert(block.addr(), number, size) {
        let weight = chance::weight(size, interval);
        let stack = table::stack(number);
        stack.blocks.fetch_add(weight, Relaxed);
        stack.bytes.fetch_add(bytes(weight, size), Relaxed);
    }
}

fn bytes(weight: u64, size: u64) -> u64 {
    ((u128::from(weight) * u128::from(size)) >> 16) as u64
}

/// Takes note that a block is freed.
#[inline]
pub(crate) fn freed(block: usize) {
    if let Some((number, size)) = table::remove(block) {
        let weight = chance::weight(size, INTERVAL.load(Relaxed));
        let stack = table::stack(number);
        stack.freed_blocks.fetch_add(weight, Relaxed);
        stack.freed_bytes.fetch_add(bytes(weight, size), Relaxed);
    }
}

/// Takes note that a block has another size, and maybe another place.
pub(crate) fn resized(old: usize, new: *mut u8, size: usize) {
    if on() {
        freed(old);
        allocated(new, size);
    }
}

/// Writes the profile to the file of the setting, if there is one.
fn write_default() {
    let mut path = [0u8; PATH];
    let (mut length, mut named) = (0, false);
    let mut from = FILE.iter().map(|byte| byte.load(Relaxed)).take_while(|&byte| byte != 0).peekable();
    while let Some(byte) = from.next() {
        if byte == b'%' && from.peek() == Some(&b'p') {
            from.next();
            named = true;
            let (mut digits, mut at, mut rest) = ([0u8; 10], 10, os::pid());
            while rest > 0 || at == 10 {
                at -= 1;
                digits[at] = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
            path[length..][..10 - at].copy_from_slice(&digits[at..]);
            length += 10 - at;
        } else {
            path[length] = byte;
            length += 1;
        }
        if length + 12 > PATH {
            return;
        }
    }
    // A child of `fork` has no file of its own unless the name says so.
    if length == 0 || (!named && os::pid() != OWNER.load(Relaxed)) {
        return;
    }
    if let Ok(path) = CStr::from_bytes_until_nul(&path)
        && !write(path)
    {
        Line::new().text("cannot write the profile ").raw(path.to_bytes()).print();
    }
}

/// Writes the profile so far in pprof's format (gzip) to the file `path`; false if there is none because
/// `FASTPATH_PROFILE` (or `FASTPATH_LEAKS`) was not set when the program started, or if the file cannot be written. Neither allocates
/// nor waits: may be called in a signal handler.
///
/// ```
/// // This program was started without FASTPATH_PROFILE.
/// assert!(!fastpath_alloc::profile::write(c"heap.pb.gz"));
/// ```
pub fn write(path: &CStr) -> bool {
    on() && encode::write(path, INTERVAL.load(Relaxed))
}
