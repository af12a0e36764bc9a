// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The tid front end of the slab layer, called directly: one cache per power of two up to 8 KiB over a region of this
//! process, as the `kmalloc` of 2015 had them. Larger sizes are runs of pages from the region, as they were there. (In
//! 2008 pages served everything above half a page: the columns of that year have their cliff at 4096, not at 16384.)
//!
//! A free is told the size, so it goes to its cache without asking the slab for it: `kmem_cache_free`, not `kfree`.
//! Pages that caches give back stay in the region, touched: like the kernel's, and unlike a `malloc`'s, they cost no
//! page fault when they are used again.

use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use fastpath_slub::tid::backend::Locked;
use fastpath_slub::{
    CacheSpec, CurrentCpu, Host, PageSource as _, SheafPool, Sizing, SpinLock, StaticRegion, TidCache,
    TryLockSlots, Wait,
};

use super::worker::Heap;
use crate::bench::pin;

/// CPUs beyond are folded in.
const CPUS: usize = 256;
/// log2 of the smallest and the largest cache's size.
const FIRST: u32 = 3;
const LAST: u32 = 13;
/// log2 of the page size of the region.
const PAGE_SHIFT: u32 = 12;
/// 16 GiB of addresses: test 1 with objects of 4 KiB on 256 CPUs at once. 256 MiB where addresses are few.
const PAGES: usize = if usize::BITS >= 64 { 1 << 22 } else { 1 << 16 };
const SIZING: Sizing = Sizing::kernel(CPUS);

type Region = StaticRegion<PAGES>;
type NoSlots = TryLockSlots<fn() -> usize, 1, 1>;

/// The tid front has no sheaves: these are what a host has to have.
static NO_SLOTS: NoSlots = NoSlots::new(|| 0);
static NO_SHEAVES: OnceLock<SheafPool<Process>> = OnceLock::new();

/// The process as the slab layer sees it.
#[derive(Clone, Copy)]
struct Process(&'static Region);

impl Host for Process {
    type Source = Region;
    type Slots = NoSlots;
    type Lock = SpinLock;

    #[inline(always)]
    fn source(&self) -> &Region {
        self.0
    }

    fn slots(&self) -> &NoSlots {
        &NO_SLOTS
    }

    fn sheaves(&self) -> &SheafPool<Self> {
        NO_SHEAVES.get_or_init(|| SheafPool::new(*self, 1000, &SIZING))
    }

    fn context(&self) -> usize {
        thread_local!(static ME: u8 = const { 0 });
        ME.with(|me| ptr::from_ref(me).addr())
    }
}

/// The CPU as the kernel keeps it up to date in the thread's rseq area.
pub(super) struct FromRseq;

impl CurrentCpu for FromRseq {
    #[inline(always)]
    fn cpu(&self) -> usize {
        let cpu = fastpath_sys::rseq::cpu_id();
        if cpu >= 0 { cpu as usize } else { pin::current() }
    }
}

/// The CPU as a call of getcpu tells it.
pub(super) struct FromCall;

impl CurrentCpu for FromCall {
    #[inline(always)]
    fn cpu(&self) -> usize {
        pin::current()
    }
}

type Cache<C> = TidCache<Process, Locked<C>, CPUS>;

/// The caches, by rising size.
pub(super) struct Tid<C: CurrentCpu> {
    region: &'static Region,
    caches: Box<[Cache<C>]>,
}

impl Tid<FromRseq> {
    /// With the CPU from rseq.
    ///
    /// # Errors
    /// Why that cannot be here.
    pub(super) fn with_rseq() -> Result<Self, String> {
        // Registers the thread if the C library did not.
        fastpath_percpu::backend();
        if fastpath_sys::rseq::cpu_id() < 0 {
            return Err("this system has no rseq".to_owned());
        }
        Self::new(|| FromRseq)
    }
}

impl Tid<FromCall> {
    /// With the CPU from a call each time.
    ///
    /// # Errors
    /// Why that cannot be here.
    pub(super) fn without_rseq() -> Result<Self, String> {
        Self::new(|| FromCall)
    }
}

impl<C: CurrentCpu> Tid<C> {
    fn new(here: impl Fn() -> C) -> Result<Self, String> {
        let region = region()?;
        let cache = |shift: u32| {
            let backend = Locked::detect(here())
                .ok_or_else(|| "this machine has no double-word compare-and-exchange".to_owned())?;
            // A power of two lies on a multiple of itself, as with kmalloc.
            let spec = CacheSpec::new("kmalloc", 1 << shift).align(1 << shift);
            Ok(TidCache::new(Process(region), backend, spec, &SIZING))
        };
        let caches = (FIRST..=LAST).map(cache).collect::<Result<_, String>>()?;
        Ok(Self { region, caches })
    }
}

/// A region of zero pages that no memory is set aside for until they are touched. It stays for ever.
fn region() -> Result<&'static Region, String> {
    // SAFETY: a new mapping, nobody else's.
    let start = unsafe {
        libc::mmap(
            ptr::null_mut(),
            size_of::<Region>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(format!("no addresses for its pages: {}", std::io::Error::last_os_error()));
    }
    // SAFETY: as long as the region and page-aligned like it; zero bytes are a region whose pages are free.
    Ok(unsafe { &*start.cast::<Region>() })
}

/// log2 of the size, rounded up to a cache's.
#[inline(always)]
fn shift(size: usize) -> u32 {
    (size.max(1 << FIRST) - 1).ilog2() + 1
}

impl<C: CurrentCpu> Heap for Tid<C> {
    #[inline(always)]
    fn alloc(&self, size: usize) -> *mut u8 {
        let object = match self.caches.get((shift(size) - FIRST) as usize) {
            Some(cache) => cache.alloc(),
            None => self.pages(size),
        };
        object.map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    #[inline(always)]
    unsafe fn free(&self, object: *mut u8, size: usize) {
        let Some(object) = NonNull::new(object) else { return };
        // SAFETY: from `alloc` with this size, hence from the same cache or the region; the caller's to give.
        unsafe {
            match self.caches.get((shift(size) - FIRST) as usize) {
                Some(cache) => cache.free(object),
                None => self.free_pages(object),
            }
        }
    }

    fn trim(&self) {
        for cache in &self.caches {
            // Whether slabs remain does not matter here.
            let _ = cache.shrink();
        }
    }
}

impl<C: CurrentCpu> Tid<C> {
    #[inline(never)]
    fn pages(&self, size: usize) -> Option<NonNull<u8>> {
        let run = self.region.alloc_slab(shift(size) - PAGE_SHIFT, 1 << PAGE_SHIFT, 0, Wait::Yes)?;
        // SAFETY: descriptors are valid for ever.
        NonNull::new(unsafe { run.as_ref() }.base())
    }

    /// # Safety
    /// `object` is a run of `pages` that nobody uses any more.
    #[inline(never)]
    unsafe fn free_pages(&self, object: NonNull<u8>) {
        if let Some(run) = NonNull::new(self.region.slab_of(object.as_ptr())) {
            // SAFETY: the caller's promise.
            unsafe { self.region.free_slab(run, Wait::Yes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Tid, shift};
    use crate::bench::slab::worker::Heap as _;

    #[test]
    fn caches_are_powers_of_two() {
        assert_eq!([1, 8, 9, 16, 17, 4096, 8192, 8193, 16384].map(shift), [3, 3, 4, 4, 5, 12, 13, 14, 14]);
    }

    #[test]
    fn objects_of_every_size_are_distinct_and_come_back() {
        let heap = match Tid::without_rseq() {
            Ok(heap) => heap,
            Err(reason) => return fastpath_testkit::skip("bench-tid", &reason),
        };
        for size in (3..=14).map(|shift| 1 << shift) {
            for _ in 0..2 {
                let mut blocks: Vec<*mut u8> = (0..300).map(|_| heap.alloc(size)).collect();
                for block in &blocks {
                    assert!(block.addr().is_multiple_of(size.min(4096)), "{size}");
                    // SAFETY: `size` bytes of ours.
                    unsafe { block.write_bytes(0xab, size) };
                }
                for block in &blocks {
                    // SAFETY: allocated above with this size.
                    unsafe { heap.free(*block, size) };
                }
                blocks.sort_unstable();
                assert!(blocks.windows(2).all(|two| two[1].addr() - two[0].addr() >= size), "{size}");
            }
            heap.trim();
            assert_eq!(heap.region.used(), 0, "{size}");
        }
    }
}
