// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory from the system, and the few other system calls. Every failure is a `None` or `false`: the heap turns it
//! into a null pointer. None of these touches `errno`.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use fastpath_sys::clock::{self, ClockId};
use rustix::mm::{self, Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags};

/// The smallest page size this heap assumes; the system's own is a multiple.
pub(crate) const PAGE: usize = 4096;

/// For tests of failure: the mappings still allowed before every further one fails. 0 means no limit.
static FAULT_COUNTDOWN: AtomicUsize = AtomicUsize::new(0);
/// Whether only one mapping fails, instead of all from there on.
static FAULT_ONCE: AtomicBool = AtomicBool::new(false);

/// Lets the `n`th mapping from now fail (and all after it, unless `once`). For tests; 0 turns it off.
pub(crate) fn inject_fault(n: usize, once: bool) {
    FAULT_ONCE.store(once, Relaxed);
    FAULT_COUNTDOWN.store(n, Relaxed);
}

/// Whether an injected fault lets this mapping fail.
fn fault() -> bool {
    // ORDERING: Relaxed throughout: a test's counter publishes nothing.
    let left = FAULT_COUNTDOWN.load(Relaxed);
    match left {
        0 => false,
        1 => {
            if FAULT_ONCE.load(Relaxed) {
                FAULT_COUNTDOWN.store(0, Relaxed);
            }
            true
        }
        _ => {
            FAULT_COUNTDOWN.store(left - 1, Relaxed);
            false
        }
    }
}

fn map(hint: usize, bytes: usize, prot: ProtFlags) -> Option<usize> {
    if fault() {
        return None;
    }
    // SAFETY: a new private mapping without MAP_FIXED replaces nothing.
    unsafe { mm::mmap_anonymous(hint as *mut c_void, bytes, prot, MapFlags::PRIVATE | MapFlags::NORESERVE) }
        .ok()
        .map(<*mut c_void>::addr)
}

/// A number that others cannot guess; of the clock and the layout of the address space where the system has none to give.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    if rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::NONBLOCK) == Ok(8) {
        return u64::from_ne_bytes(bytes);
    }
    let now = clock::now(ClockId::Monotonic);
    let place = core::ptr::from_ref(&now).addr() as u64;
    u64::from(now.subsec_nanos()) << 32 ^ now.as_secs() ^ place.rotate_left(20)
}

/// Maps `bytes` of zeroed memory at any page.
pub(crate) fn map_memory(bytes: usize) -> Option<usize> {
    map(0, bytes, ProtFlags::READ | ProtFlags::WRITE)
}

/// Maps `bytes` at a multiple of `align`, readable and writable if `commit`, else only reserved.
pub(crate) fn map_aligned(bytes: usize, align: usize, commit: bool) -> Option<usize> {
    let prot = if commit { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::empty() };
    let first = map(0, bytes, prot)?;
    if first.is_multiple_of(align) {
        return Some(first);
    }
    // The kernel fills gaps from above: the aligned address just below is often free.
    unmap(first, bytes);
    let lower = first & !(align - 1);
    if lower != 0 {
        let second = map(lower, bytes, prot)?;
        if second.is_multiple_of(align) {
            return Some(second);
        }
        unmap(second, bytes);
    }
    let whole = bytes.checked_add(align)?;
    let base = map(0, whole, prot)?;
    let start = base.next_multiple_of(align);
    if start > base {
        unmap(base, start - base);
    }
    let end = base + whole;
    if end > start + bytes {
        unmap(start + bytes, end - (start + bytes));
    }
    Some(start)
}

/// Makes reserved memory readable and writable.
pub(crate) fn commit(base: usize, bytes: usize) -> bool {
    if fault() {
        return false;
    }
    // SAFETY: the callers pass a range of a reservation of theirs that nobody uses yet.
    unsafe { mm::mprotect(base as *mut c_void, bytes, MprotectFlags::READ | MprotectFlags::WRITE) }.is_ok()
}

/// Gives a mapping, or a part of one, back. False if the system refuses (too many mappings): it stays mapped then.
pub(crate) fn unmap(base: usize, bytes: usize) -> bool {
    // SAFETY: the callers pass a range of a mapping of theirs that nobody uses any more.
    unsafe { mm::munmap(base as *mut c_void, bytes) }.is_ok()
}

/// Takes the memory away and keeps the addresses: what is there reads as zero afterwards, if this returns true.
pub(crate) fn purge(base: usize, bytes: usize) -> bool {
    /// Whether the system was seen to zero what it took. Looking puts a small page where a huge one could come later.
    static TAKES: AtomicBool = AtomicBool::new(false);
    // ORDERING: Relaxed here and below: whoever misses it looks for himself.
    let takes = TAKES.load(Relaxed);
    // SAFETY: the callers pass free memory of theirs.
    unsafe {
        let probe = base as *mut u8;
        if !takes {
            probe.write_volatile(1);
        }
        let taken = mm::madvise(base as *mut c_void, bytes, Advice::LinuxDontNeed).is_ok() || {
            // A sandbox that refuses the advice may allow this: new memory in the place of the old.
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
            mm::mmap_anonymous(base as *mut c_void, bytes, ProtFlags::READ | ProtFlags::WRITE, flags).is_ok()
        };
        // An emulator that ignores the advice would make `calloc` return dirty memory: hence the probe.
        let done = taken && (takes || probe.read_volatile() == 0);
        TAKES.store(done, Relaxed);
        done
    }
}

/// Lets the kernel back a range by huge pages, at faults and later; false if it knows none.
pub(crate) fn open_to_huge_pages(base: usize, bytes: usize) -> bool {
    // SAFETY: advice on a range of the caller's changes no contents.
    unsafe { mm::madvise(base as *mut c_void, bytes, Advice::LinuxHugepage) }.is_ok()
}

/// The opposite. Huge pages that are there stay.
pub(crate) fn close_to_huge_pages(base: usize, bytes: usize) {
    // SAFETY: as above. Refused where the kernel knows no huge pages, and then there is nothing to close.
    let _ = unsafe { mm::madvise(base as *mut c_void, bytes, Advice::LinuxNoHugepage) };
}

/// Faults a fresh page in, by writing the zero that is there.
pub(crate) fn touch(base: usize) {
    // SAFETY: fresh memory of the caller's that nobody uses yet.
    unsafe { (base as *mut u8).write_volatile(0) };
}

/// Grows or shrinks a mapping where it is.
pub(crate) fn resize_in_place(base: usize, old: usize, new: usize) -> bool {
    if new > old && fault() {
        return false;
    }
    // SAFETY: a mapping of the caller's; without MAYMOVE it keeps its address.
    unsafe { mm::mremap(base as *mut c_void, old, new, MremapFlags::empty()) }.is_ok()
}

/// Moves a mapping over a reservation of the caller's, growing it to `new` bytes.
pub(crate) fn move_to(base: usize, old: usize, new: usize, target: usize) -> bool {
    if fault() {
        return false;
    }
    // SAFETY: `target..target + new` is a reservation of the caller's that nobody uses; the kernel replaces it in the
    // same call, so no other thread can map something there in between.
    unsafe {
        mm::mremap_fixed(base as *mut c_void, old, new, MremapFlags::MAYMOVE, target as *mut c_void).is_ok()
    }
}

/// Sleeps while the low half of the 64-bit word at `word` is `expected`.
pub(crate) fn wait_on(word: &core::sync::atomic::AtomicU64, expected: u32) {
    // SAFETY: the low half of a little-endian 64-bit word is an aligned 32-bit word.
    let low = unsafe { &*(&raw const *word).cast::<core::sync::atomic::AtomicU32>() };
    let _ = rustix::thread::futex::wait(low, rustix::thread::futex::Flags::PRIVATE, expected, None);
}

/// Wakes one sleeper of [`wait_on`].
pub(crate) fn wake_one(word: &core::sync::atomic::AtomicU64) {
    // SAFETY: as in `wait_on`.
    let low = unsafe { &*(&raw const *word).cast::<core::sync::atomic::AtomicU32>() };
    let _ = rustix::thread::futex::wake(low, rustix::thread::futex::Flags::PRIVATE, 1);
}

/// The limit on address space, if one is set.
pub(crate) fn address_space_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::As).current
}

/// Lets another thread run.
pub(crate) fn yield_now() {
    rustix::thread::sched_yield();
}

/// A clock, in seconds.
pub(crate) fn seconds() -> u64 {
    clock::now(ClockId::MonotonicCoarse).as_secs()
}

/// The same, in milliseconds: it advances by a few at a time.
pub(crate) fn milliseconds() -> u64 {
    clock::now(ClockId::MonotonicCoarse).as_millis() as u64
}

/// The monotonic clock, in microseconds.
pub(crate) fn microseconds() -> u64 {
    clock::now(ClockId::Monotonic).as_micros() as u64
}

/// Nanoseconds since 1970.
pub(crate) fn time_of_day() -> u64 {
    clock::now(ClockId::Realtime).as_nanos() as u64
}

/// This process.
pub(crate) fn pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// An open file; closed when dropped.
pub(crate) struct File(rustix::fd::OwnedFd);

impl File {
    /// Opens a file to read it.
    pub(crate) fn open(path: &core::ffi::CStr) -> Option<Self> {
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
        rustix::fs::open(path, flags, rustix::fs::Mode::empty()).ok().map(Self)
    }

    /// Makes a file, or empties it, to write it.
    pub(crate) fn create(path: &core::ffi::CStr) -> Option<Self> {
        use rustix::fs::OFlags;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, rustix::fs::Mode::from_raw_mode(0o644)).ok().map(Self)
    }

    /// Reads what comes next; how much that was, 0 at the end or if it cannot be read.
    pub(crate) fn read(&self, out: &mut [u8]) -> usize {
        rustix::io::read(&self.0, out).unwrap_or(0)
    }

    /// Writes all of it; whether that worked.
    pub(crate) fn write(&self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            match rustix::io::write(&self.0, bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        true
    }
}
