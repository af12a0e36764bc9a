// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Statistics: of this process on request, and in the file it may share with its relatives.
//!
//! The fast path counts nothing. What it did shows in the sheaves that were exchanged and in how full they are now;
//! `FASTPATH_STATS=exact` closes the fast path and counts every call.

use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::classes::CLASSES;
use crate::cpu::Count;
use crate::shared_stats::{MAGIC, WORDS, header, word};
use crate::{big, caches, cpu, heap, meta, pages, settings};

/// The mapped file, if there is one.
static FILE: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());
/// This process's entry in it.
static ENTRY: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());
/// Whether every call is counted.
static EXACT: AtomicBool = AtomicBool::new(false);

pub(crate) fn set_exact(exact: bool) {
    EXACT.store(exact, Relaxed);
}

pub(crate) fn exact() -> bool {
    EXACT.load(Relaxed)
}

/// Adds to a word of this process's entry.
#[inline]
pub(crate) fn count(at: usize, amount: u64) {
    // ORDERING: Acquire pairs with the Release in `claim`.
    let entry = ENTRY.load(Acquire);
    if !entry.is_null() {
        // SAFETY: an entry of the mapped file, which is never unmapped; `at` is one of its words.
        unsafe { (*entry.add(at)).fetch_add(amount, Relaxed) };
    }
}

/// Notes how much memory is in use.
#[inline]
pub(crate) fn used(bytes: u64) {
    let entry = ENTRY.load(Acquire);
    if !entry.is_null() {
        // SAFETY: as in `count`.
        unsafe {
            (*entry.add(word::USED)).store(bytes, Relaxed);
            (*entry.add(word::PEAK)).fetch_max(bytes, Relaxed);
        }
    }
}

/// Maps the file the environment names, and takes an entry in it.
pub(crate) fn attach() {
    let Some(path) = settings::variable(b"FASTPATH_STATS_FILE") else { return };
    let Ok(file) = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) else { return };
    let Ok(status) = rustix::fs::fstat(&file) else { return };
    let length = status.st_size as usize;
    if length < 2 * WORDS * 8 {
        return;
    }
    // SAFETY: a new shared mapping of the file; other processes write it by atomic operations only, as we do.
    let mapped = unsafe {
        rustix::mm::mmap(
            core::ptr::null_mut(),
            length,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            &file,
            0,
        )
    };
    let Ok(memory) = mapped else { return };
    let memory = memory.cast::<AtomicU64>();
    // SAFETY: the mapping has at least a header and an entry.
    let (magic, capacity) =
        unsafe { ((*memory).load(Relaxed), (*memory.add(header::CAPACITY)).load(Relaxed) as usize) };
    if magic != MAGIC || (capacity + 1) * WORDS * 8 > length {
        return;
    }
    FILE.store(memory, Relaxed);
    claim(memory, capacity);
}

fn claim(memory: *mut AtomicU64, capacity: usize) {
    // SAFETY: the mapping has a header and `capacity` entries.
    unsafe {
        let index = (*memory.add(header::CLAIMED)).fetch_add(1, Relaxed) as usize;
        if index >= capacity {
            ENTRY.store(core::ptr::null_mut(), Relaxed);
            return;
        }
        let entry = memory.add((index + 1) * WORDS);
        let mut name = [0u8; 16];
        if let Ok(file) =
            rustix::fs::open(c"/proc/self/comm", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        {
            let _ = rustix::io::read(&file, &mut name);
        }
        let (low, high) = name.split_at(8);
        for (at, half) in [(word::NAME, low), (word::NAME + 1, high)] {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(half);
            (*entry.add(at)).store(u64::from_le_bytes(bytes), Relaxed);
        }
        (*entry.add(word::PARENT))
            .store(rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get() as u64), Relaxed);
        (*entry.add(word::FRONT)).store(heap::front_number(), Relaxed);
        (*entry.add(word::PID)).store(rustix::process::getpid().as_raw_nonzero().get() as u64, Relaxed);
        // ORDERING: Release pairs with the Acquire in `count`: the entry is in the mapping that others see.
        ENTRY.store(entry, Release);
    }
}

/// The child of a `fork` counts in an entry of its own.
pub(crate) fn after_fork() {
    let memory = FILE.load(Relaxed);
    if !memory.is_null() {
        // SAFETY: the mapping is inherited.
        let capacity = unsafe { (*memory.add(header::CAPACITY)).load(Relaxed) as usize };
        claim(memory, capacity);
    }
}

/// What the heap of this process holds. Sizes are in bytes; a look at a moving thing, not a snapshot. Counts of events
/// ("so far") are kept per CPU without locked instructions: a thread that is preempted or interrupted while it counts may
/// lose a few.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Small objects that the program has.
    pub small_bytes: usize,
    /// The same, as a number of objects.
    pub small_objects: usize,
    /// Small objects that wait in CPUs' sheaves and in barns.
    pub cached_bytes: usize,
    /// Memory of slabs, whether their objects are in use or not.
    pub slab_bytes: usize,
    /// Blocks above the largest size class that the program has.
    pub big_bytes: usize,
    /// Of them, those with a mapping of their own.
    pub mapped_bytes: usize,
    /// Free memory that was not given back to the system yet.
    pub dirty_bytes: usize,
    /// Address space reserved for slabs and page runs.
    pub reserved_bytes: usize,
    /// Memory given back to the system so far.
    pub purged_bytes: u64,
    /// The heap's own records.
    pub record_bytes: usize,
    /// Sheaves that went to CPUs so far.
    pub refills: u64,
    /// Objects in them.
    pub refilled: u64,
    /// Sheaves that came back so far.
    pub flushes: u64,
    /// Objects in them.
    pub flushed: u64,
    /// Small objects allocated without a sheaf so far.
    pub direct_allocs: u64,
    /// Small objects freed without a sheaf so far.
    pub direct_frees: u64,
    /// Big blocks allocated so far.
    pub big_allocs: u64,
    /// Big blocks freed so far.
    pub big_frees: u64,
    /// Of the cached bytes, those in barns; the rest waits in CPUs' sheaves.
    pub barn_bytes: usize,
}

/// How many figures there are.
pub(crate) const FIGURES: usize = 19;

impl Stats {
    /// All figures, in the order of the fields.
    pub(crate) fn figures(&self) -> [u64; FIGURES] {
        [
            self.small_bytes as u64,
            self.small_objects as u64,
            self.cached_bytes as u64,
            self.slab_bytes as u64,
            self.big_bytes as u64,
            self.mapped_bytes as u64,
            self.dirty_bytes as u64,
            self.reserved_bytes as u64,
            self.purged_bytes,
            self.record_bytes as u64,
            self.refills,
            self.refilled,
            self.flushes,
            self.flushed,
            self.direct_allocs,
            self.direct_frees,
            self.big_allocs,
            self.big_frees,
            self.barn_bytes as u64,
        ]
    }

    pub(crate) fn from_figures(figures: [u64; FIGURES]) -> Self {
        Self {
            small_bytes: figures[0] as usize,
            small_objects: figures[1] as usize,
            cached_bytes: figures[2] as usize,
            slab_bytes: figures[3] as usize,
            big_bytes: figures[4] as usize,
            mapped_bytes: figures[5] as usize,
            dirty_bytes: figures[6] as usize,
            reserved_bytes: figures[7] as usize,
            purged_bytes: figures[8],
            record_bytes: figures[9] as usize,
            refills: figures[10],
            refilled: figures[11],
            flushes: figures[12],
            flushed: figures[13],
            direct_allocs: figures[14],
            direct_frees: figures[15],
            big_allocs: figures[16],
            big_frees: figures[17],
            barn_bytes: figures[18] as usize,
        }
    }
}

/// Reads the statistics. Takes every lock of the heap once, one after the other.
///
/// ```
/// let block = vec![0u8; 100];
/// let stats = fastpath_alloc::stats();
/// assert!(stats.reserved_bytes >= stats.slab_bytes);
/// # drop(block);
/// ```
pub fn stats() -> Stats {
    collect(|_, _| {})
}

/// [`stats`], with a look at every class.
pub(crate) fn collect(mut each: impl FnMut(usize, caches::Holding)) -> Stats {
    let pages = pages::figures();
    let mapped = big::MAPPED_BYTES.load(Relaxed);
    let mut stats = Stats {
        big_bytes: mapped + big::RUN_BYTES.load(Relaxed),
        mapped_bytes: mapped,
        dirty_bytes: pages.dirty,
        reserved_bytes: pages.reserved,
        purged_bytes: pages.purged,
        record_bytes: meta::mapped() + caches::sheaf_bytes(),
        big_allocs: big::BIG_ALLOCS.load(Relaxed) as u64,
        big_frees: big::BIG_FREES.load(Relaxed) as u64,
        refills: cpu::counted(Count::Refills),
        refilled: cpu::counted(Count::Refilled),
        flushes: cpu::counted(Count::Flushes),
        flushed: cpu::counted(Count::Flushed),
        direct_allocs: cpu::counted(Count::DirectAllocs),
        direct_frees: cpu::counted(Count::DirectFrees),
        ..Stats::default()
    };
    for (class, info) in CLASSES.iter().enumerate().skip(1) {
        let (holding, size) = (caches::holding(class), info.size as usize);
        stats.cached_bytes += holding.cached * size;
        stats.barn_bytes += holding.barn * size;
        stats.small_objects += holding.used;
        stats.small_bytes += holding.used * size;
        stats.slab_bytes += holding.slab_bytes;
        each(class, holding);
    }
    stats
}
