// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The sampled heap profile: where memory was allocated, all of it since the start and what is still there.
//!
//! Off, it costs nothing: the fast path is what it is. On, the heap keeps the limit of its allocations closed, so that each
//! comes by `malloc_slow`, where the bytes are counted down, per CPU, to the next sampled block; the others go on to the
//! sheaf as ever. Frees are not slowed down at all under rseq: a small sampled block lies in slabs of its own (`apart`),
//! which the map that `free` reads does not know. In the other front ends, whose frees take the slow path anyway, every
//! freed block is looked up. A sampled block's stack goes into a table; the block goes into another, where `free` finds
//! it. Nothing here allocates, waits or takes a lock, so it may run wherever the heap may, in signal handlers too.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `FASTPATH_PROFILE` | the file the profile is written to at exit; `%p` in it is the process id | none |
//! | `FASTPATH_PROFILE_INTERVAL` | average bytes between samples; 1 samples every block | 524288, of leaks 1 |
//! | `FASTPATH_PROFILE_SIGNAL` | the number of a signal that has the profile written too | none |
//! | `FASTPATH_PROFILE_SEED` | where the random numbers start, for tests | random |
//! | `FASTPATH_LEAKS` | `1`: what was never freed is listed on standard error at exit | none |
//! | `FASTPATH_DEBUG` | `U` among its letters: every block is followed, whatever the interval, and reports name its owners | none |

pub(crate) mod apart;
mod chance;
mod encode;
pub(crate) mod leaks;
pub(crate) mod owners;
mod rules;
mod table;
mod unwind;

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU64, Ordering::Relaxed};

use fastpath_percpu::sheaf;

use crate::report::Line;
use crate::{cpu, debug, limit, os, settings};
use fastpath_sys::libc_symbols;

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
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Countdown {
    left: AtomicI64,
    random: AtomicU64,
}

/// Countdowns: one for each last byte of a CPU's number.
const SLOTS: usize = 256;
/// By CPU. Also read and written by the exported `malloc`.
pub static COUNTDOWNS: [Countdown; SLOTS] =
    [const { Countdown { left: AtomicI64::new(0), random: AtomicU64::new(0) } }; SLOTS];

const DEFAULT_INTERVAL: u64 = 512 * 1024;

/// Leaves the callers that lie in the heap's own module out of stacks, if that module is a library.
pub(crate) fn leave_module_out() {
    unwind::MODULE_LEFT_OUT.store(true, Relaxed);
}

/// Whether blocks are sampled.
#[inline]
pub(crate) fn on() -> bool {
    ON.load(Relaxed)
}

/// Reads the settings. Before the heap decides whether to open its fast path.
///
/// `open` tells that the front end has a fast path, which sampling leaves open to `free`.
pub(crate) fn set_up(open: bool) {
    let file =
        settings::variable(b"FASTPATH_PROFILE").filter(|file| !file.is_empty() && file.len() < PATH - 32);
    let leaks = settings::variable(b"FASTPATH_LEAKS").is_some_and(|value| value != b"0" && !value.is_empty());
    let owners = debug::tracks_owners();
    if file.is_none() && !leaks && !owners {
        return;
    }
    for (kept, &byte) in FILE.iter().zip(file.unwrap_or(b"")) {
        kept.store(byte, Relaxed);
    }
    let interval =
        settings::variable(b"FASTPATH_PROFILE_INTERVAL").and_then(limit::bytes).map(|bytes| bytes as u64);
    let interval = interval.unwrap_or(if leaks { 1 } else { DEFAULT_INTERVAL }).max(1);
    let interval = if owners { 1 } else { interval };
    let seed = settings::variable(b"FASTPATH_PROFILE_SEED")
        .and_then(limit::bytes)
        .map_or_else(os::random, |seed| seed as u64);
    if !table::set_up(if interval >= 64 * 1024 { 1 << 12 } else { 1 << 18 }) || (open && !apart::set_up()) {
        return;
    }
    if owners && !owners::set_up() {
        return;
    }
    rules::set_up();
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

/// The countdown of the CPU in the area at `offset`. Threads that are not registered share the last ones.
#[inline(always)]
fn countdown_in(offset: isize) -> &'static Countdown {
    // SAFETY: the callers pass the heap's own offset.
    &COUNTDOWNS[usize::from(unsafe { sheaf::cpu_id(offset) as u8 })]
}

/// The countdown of this CPU, or of this thread where CPUs cannot be told.
#[inline(always)]
fn countdown() -> &'static Countdown {
    &COUNTDOWNS[cpu::lane()]
}

/// Takes `size` bytes off a countdown; whether it is at its end. Not one operation: bytes are lost if another thread counts
/// in between, which is rare and small. One byte more, so that blocks of no size have their chance too.
#[inline(always)]
fn count(countdown: &Countdown, size: usize) -> bool {
    let left = countdown.left.load(Relaxed).wrapping_sub(size as i64).wrapping_sub(1);
    countdown.left.store(left, Relaxed);
    left < 0
}

/// [`counts`], where there is an area.
#[inline(always)]
pub(crate) fn counts_here(size: usize) -> bool {
    count(countdown_in(cpu::access().rseq_offset), size)
}

/// Counts a new block of `size` bytes; whether it is one to be sampled.
#[inline]
pub(crate) fn counts(size: usize) -> bool {
    count(countdown(), size)
}

/// Takes note of a block whose turn it was, and draws when the next turn comes.
#[cold]
#[inline(never)]
pub(crate) fn sample(block: *mut u8, size: usize) {
    let (interval, size) = (INTERVAL.load(Relaxed), size as u64);
    draw();
    let mut addresses = [0; unwind::DEPTH];
    let count = unwind::callers(&mut addresses);
    let number = table::number_of(&addresses[..count]);
    if table::insert(block.addr(), number, size) {
        let weight = chance::weight(size + 1, interval);
        let stack = table::stack(number);
        stack.blocks.fetch_add(weight, Relaxed);
        stack.bytes.fetch_add(bytes(weight, size), Relaxed);
    }
}

/// Draws the distance to the next sample.
#[cold]
fn draw() {
    let countdown = countdown();
    countdown.left.store(chance::distance(next(countdown), INTERVAL.load(Relaxed)) as i64, Relaxed);
}

fn bytes(weight: u64, size: u64) -> u64 {
    ((u128::from(weight) * u128::from(size)) >> 16) as u64
}

/// Takes note that a block is freed.
#[inline]
pub(crate) fn freed(block: usize) {
    if let Some((number, size)) = table::remove(block) {
        owners::freed(block, number);
        let weight = chance::weight(size + 1, INTERVAL.load(Relaxed));
        let stack = table::stack(number);
        stack.freed_blocks.fetch_add(weight, Relaxed);
        stack.freed_bytes.fetch_add(bytes(weight, size), Relaxed);
    }
}

/// Takes note that a block has another size, and maybe another place.
pub(crate) fn resized(old: usize, new: *mut u8, size: usize) {
    if on() {
        freed(old);
        if counts(size) {
            sample(new, size);
        }
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
