// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The two caches, and the surroundings that they need: memory, per-CPU slots, sheaves, and who is running.

use fastpath_refcount::RefCount;
use fastpath_slub::{
    Cache, CacheFlags, CacheSpec, Host, SheafPool, Sizing, SpinLock, StaticRegion, TryLockSlots,
};

use crate::names::Inode;
use crate::object::Object;
use crate::table::OpenFile;

/// Pages of 4 KiB: room for some 6,000 files.
const PAGES: usize = 1024;
/// Slots exist for so many CPUs; a machine with more shares them.
const CPUS: usize = 128;
/// Two would do; four of 32 bytes keep each CPU's on cache lines of their own.
const SLOTS_PER_CPU: usize = 4;
const SIZING: Sizing = Sizing::kernel(CPUS);

/// Starts on a cache line, and on one of the pairs that some processors fetch together.
#[repr(align(128))]
struct Apart<T>(T);

static MEMORY: StaticRegion<PAGES> = StaticRegion::new();
static SLOTS: Apart<TryLockSlots<fn() -> usize, CPUS, SLOTS_PER_CPU>> = Apart(TryLockSlots::new(cpu));
static SHEAVES: SheafPool<Process> = SheafPool::new(Process, 100, &SIZING);

/// Contents and names.
pub(crate) static INODES: Cache<Process> =
    Cache::new(Process, spec("inode", size_of::<Object<Inode, RefCount>>(), 0), &SIZING);
/// Open files.
pub(crate) static OPEN_FILES: Cache<Process> =
    Cache::new(Process, spec("open file", size_of::<Object<OpenFile<RefCount>, RefCount>>(), 1), &SIZING);

/// Objects on cache lines of their own: two counters on one line would slow each other down.
const fn spec(name: &'static str, size: usize, slot: usize) -> CacheSpec {
    CacheSpec::new(name, size).align(64).flags(CacheFlags::HWCACHE_ALIGN).slot(slot)
}

/// This process, as the caches see it.
#[derive(Clone, Copy, Debug)]
pub struct Process;

impl Host for Process {
    type Source = StaticRegion<PAGES>;
    type Slots = TryLockSlots<fn() -> usize, CPUS, SLOTS_PER_CPU>;
    type Lock = SpinLock;

    fn source(&self) -> &Self::Source {
        &MEMORY
    }

    fn slots(&self) -> &Self::Slots {
        &SLOTS.0
    }

    fn sheaves(&self) -> &SheafPool<Self> {
        &SHEAVES
    }

    fn context(&self) -> usize {
        // The address of something that each thread has its own of.
        thread_local!(static ME: u8 = const { 0 });
        ME.with(|me| core::ptr::from_ref(me).addr())
    }
}

/// Where this thread runs, as a hint: its slot number of `fastpath-percpu`.
fn cpu() -> usize {
    fastpath_percpu::current_slot() as usize
}

/// Objects of the inode cache in use, exact when nobody is using it.
#[must_use]
pub fn live_inodes() -> usize {
    live(&INODES)
}

/// Objects of the open-file cache in use, exact when nobody is using it.
#[must_use]
pub fn live_open_files() -> usize {
    live(&OPEN_FILES)
}

fn live(cache: &Cache<Process>) -> usize {
    // Objects in sheaves are free, but their slabs do not know.
    cache.shrink();
    cache.slabs().info().active_objs
}
