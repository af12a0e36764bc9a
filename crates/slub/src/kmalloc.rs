// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `kmalloc`: thirteen caches by size, and page runs above.
#![expect(unsafe_code, reason = "hands out raw memory")]

use crate::cache::Cache;
use crate::classes::{KMALLOC_SIZES, KmallocClass, ZERO_SIZE_PTR, kmalloc_align, kmalloc_class};
use crate::host::{Corruption, Host};
use crate::sizing::Sizing;
use crate::slab::{Run, Shape, Slab};
use crate::slabs::Busy;
use crate::source::{PageSource, Wait};
use crate::spec::{CacheFlags, CacheSpec};
use crate::sync::const_fn;
use core::ptr::NonNull;

const NAMES: [&str; 13] = [
    "kmalloc-8",
    "kmalloc-16",
    "kmalloc-32",
    "kmalloc-64",
    "kmalloc-96",
    "kmalloc-128",
    "kmalloc-192",
    "kmalloc-256",
    "kmalloc-512",
    "kmalloc-1k",
    "kmalloc-2k",
    "kmalloc-4k",
    "kmalloc-8k",
];

/// The kernel's general-purpose allocator over one host.
///
/// Uses the slots `first_slot..first_slot + 13` and the classes `first_class..first_class + 14` (the last one marks page
/// runs).
///
/// ```
/// # use fastpath_slub::{Host, Kmalloc, SheafPool, Sizing, SpinLock, StaticRegion, TryLockSlots};
/// # fn cpu() -> usize { 0 }
/// # #[derive(Clone, Copy)] struct Kernel;
/// # static MEMORY: StaticRegion<256> = StaticRegion::new();
/// # static SLOTS: TryLockSlots<fn() -> usize, 1, 16> = TryLockSlots::new(cpu);
/// # static SHEAVES: SheafPool<Kernel> = SheafPool::new(Kernel, 100, &Sizing::kernel(1));
/// # impl Host for Kernel {
/// #     type Source = StaticRegion<256>; type Slots = TryLockSlots<fn() -> usize, 1, 16>; type Lock = SpinLock;
/// #     fn source(&self) -> &Self::Source { &MEMORY }
/// #     fn slots(&self) -> &Self::Slots { &SLOTS }
/// #     fn sheaves(&self) -> &SheafPool<Self> { &SHEAVES }
/// #     fn context(&self) -> usize { 1 }
/// # }
/// static HEAP: Kmalloc<Kernel> = Kmalloc::new(Kernel, 0, 1, &Sizing::kernel(1));
/// let memory = HEAP.kmalloc(100, false);
/// assert_eq!(HEAP.ksize(memory), 128);
/// // SAFETY: from above, not used any more.
/// unsafe { HEAP.kfree(memory) };
/// ```
#[derive(Debug)]
pub struct Kmalloc<H: Host> {
    host: H,
    caches: [Cache<H>; 13],
    first_class: u16,
    page_shift: u32,
    /// Caches keep the number of bytes asked for.
    tracked: bool,
}

impl<H: Host> Kmalloc<H> {
    const_fn! {
        /// An allocator without slabs.
        pub const fn new(host: H, first_slot: usize, first_class: u16, sizing: &Sizing) -> Self {
            Self::with_flags(host, first_slot, first_class, sizing, CacheFlags::NONE)
        }
    }

    const_fn! {
        /// The same with flags for every cache.
        pub const fn with_flags(
            host: H,
            first_slot: usize,
            first_class: u16,
            sizing: &Sizing,
            flags: CacheFlags
        ) -> Self {
            macro_rules! cache {
                ($($index:literal)*) => {[$(Cache::new(
                    host,
                    CacheSpec::new(NAMES[$index], KMALLOC_SIZES[$index])
                        .align(kmalloc_align(KMALLOC_SIZES[$index]))
                        .slot(first_slot + $index)
                        .class(first_class + $index)
                        .flags(flags.with(CacheFlags::KMALLOC)),
                    sizing,
                )),*]};
            }
            let caches = cache!(0 1 2 3 4 5 6 7 8 9 10 11 12);
            let tracked = flags.contains(CacheFlags::STORE_USER);
            Self { host, caches, first_class, page_shift: sizing.page_shift, tracked }
        }
    }

    /// The caches, by rising size.
    pub fn caches(&self) -> &[Cache<H>; 13] {
        &self.caches
    }

    /// Memory of at least `size` bytes: aligned to its own size for powers of two, to 8 bytes at least otherwise.
    /// NULL without memory, [`ZERO_SIZE_PTR`] for size 0. With `zero` all of its room is zeroed.
    #[doc(alias = "kzalloc")]
    pub fn kmalloc(&self, size: usize, zero: bool) -> *mut u8 {
        let (memory, room) = match kmalloc_class(size) {
            KmallocClass::Zero => return ZERO_SIZE_PTR,
            KmallocClass::Cache(class) => (self.caches[class].alloc(), KMALLOC_SIZES[class]),
            KmallocClass::Large => self.large(size, Wait::Yes),
        };
        let Some(memory) = memory else { return core::ptr::null_mut() };
        if zero {
            // SAFETY: `room` bytes, just allocated.
            unsafe { memory.write_bytes(0, room) };
        }
        self.asked_for(memory, size);
        memory.as_ptr()
    }

    /// Memory in any context; NULL is final. No size above the largest cache. One retry with the next larger cache.
    #[doc(alias = "kmalloc_nolock_noprof")]
    pub fn kmalloc_nolock(&self, size: usize) -> *mut u8 {
        match kmalloc_class(size) {
            KmallocClass::Zero => ZERO_SIZE_PTR,
            KmallocClass::Cache(class) => self.caches[class]
                .alloc_nolock()
                .or_else(|| self.caches.get(class + 1).and_then(Cache::alloc_nolock))
                .map_or(core::ptr::null_mut(), |memory| {
                    self.asked_for(memory, size);
                    memory.as_ptr()
                }),
            KmallocClass::Large => core::ptr::null_mut(),
        }
    }

    /// With `U` the number of bytes is kept, so that a write behind them is found.
    #[inline(always)]
    fn asked_for(&self, memory: NonNull<u8>, size: usize) {
        if self.tracked {
            self.note_request(memory, size);
        }
    }

    #[cold]
    fn note_request(&self, memory: NonNull<u8>, size: usize) {
        if let Some((_, Some(cache))) = self.owner(memory.as_ptr()) {
            // SAFETY: just allocated from that cache, with `size` bytes in use.
            unsafe { cache.slabs().set_request(memory, size) };
        }
    }

    /// The number of bytes asked for, where it is kept.
    fn request(&self, memory: *mut u8) -> Option<usize> {
        let (_, cache) = self.owner(memory).filter(|_| self.tracked)?;
        // SAFETY: memory of that cache.
        cache.and_then(|cache| unsafe { cache.slabs().request(memory) })
    }

    fn large(&self, size: usize, wait: Wait) -> (Option<NonNull<u8>>, usize) {
        let Some(pages) = size.checked_add((1 << self.page_shift) - 1).map(|bytes| bytes >> self.page_shift)
        else {
            return (None, 0);
        };
        let order = pages.next_power_of_two().trailing_zeros();
        let bytes = 1usize << (order + self.page_shift);
        let Some(slab) = self.host.source().alloc_slab(order, 1 << self.page_shift, 0, wait) else {
            return (None, 0);
        };
        let shape = Shape { size: 0, reciprocal: 0, class: self.first_class + 13, capacity: 0 };
        // SAFETY: fresh from the source, nobody else knows it.
        unsafe {
            slab.as_ref().make(
                core::ptr::from_ref(self).cast(),
                shape,
                Run { node: 0, order: order as u8 },
                0,
            );
            (NonNull::new(slab.as_ref().base()), bytes)
        }
    }

    /// Whose memory it is: a cache by index, or a page run.
    fn owner(&self, memory: *mut u8) -> Option<(NonNull<Slab>, Option<&Cache<H>>)> {
        let slab = NonNull::new(self.host.source().slab_of(memory))?;
        // SAFETY: descriptors are valid for ever.
        let descriptor = unsafe { slab.as_ref() };
        let class = usize::from(descriptor.class().checked_sub(self.first_class)?);
        match self.caches.get(class) {
            Some(cache) if descriptor.owner() == cache.slabs().id() => Some((slab, Some(cache))),
            None if descriptor.owner() == core::ptr::from_ref(self).cast() => Some((slab, None)),
            _ => None,
        }
    }

    /// Gives memory back. NULL and [`ZERO_SIZE_PTR`] are ignored; anything that is not from here is reported and ignored.
    ///
    /// # Safety
    ///
    /// Nobody uses the memory any more, and it has not been freed since it was allocated.
    pub unsafe fn kfree(&self, memory: *mut u8) {
        // SAFETY: as the caller promises.
        unsafe { self.free_with(memory, Wait::Yes) };
    }

    /// Gives memory from [`kmalloc_nolock`](Self::kmalloc_nolock) back, in any context.
    ///
    /// # Safety
    ///
    /// As for [`kfree`](Self::kfree).
    pub unsafe fn kfree_nolock(&self, memory: *mut u8) {
        // SAFETY: as the caller promises.
        unsafe { self.free_with(memory, Wait::Never) };
    }

    /// # Safety
    ///
    /// As for [`kfree`](Self::kfree).
    unsafe fn free_with(&self, memory: *mut u8, wait: Wait) {
        let Some(object) = NonNull::new(memory).filter(|memory| memory.as_ptr() != ZERO_SIZE_PTR) else {
            return;
        };
        // SAFETY: memory of that cache, or a whole run, that the caller gives up.
        unsafe {
            match self.owner(memory) {
                Some((_, Some(cache))) if wait == Wait::Yes => cache.free(object),
                Some((_, Some(cache))) => cache.free_nolock(object),
                Some((slab, None)) if slab.as_ref().base() == memory => {
                    slab.as_ref().unmake(0);
                    self.host.source().free_slab(slab, wait);
                }
                _ => self.host.corrupted(Corruption::NotAnObject, "kmalloc", memory),
            }
        }
    }

    /// The room behind a pointer in bytes: the class's size, the run's for page runs, 0 for NULL and [`ZERO_SIZE_PTR`].
    ///
    /// Whoever asks may use all of it: where the number of bytes asked for is kept (`U`), it is all of them from now on.
    pub fn ksize(&self, memory: *mut u8) -> usize {
        let room = self.room(memory);
        if let Some(object) = NonNull::new(memory).filter(|_| room != 0) {
            self.asked_for(object, room);
        }
        room
    }

    fn room(&self, memory: *mut u8) -> usize {
        match self.owner(memory) {
            Some((_, Some(cache))) => cache.slabs().ksize(),
            // SAFETY: descriptors are valid for ever.
            Some((slab, None)) => 1 << (unsafe { slab.as_ref() }.order() + self.page_shift),
            None => 0,
        }
    }

    /// Changes the size: in place while the new size fits the room, else by moving. Size 0 frees and returns
    /// [`ZERO_SIZE_PTR`]; NULL allocates. NULL as result: no memory, and `memory` is still valid.
    ///
    /// With `zero` what lies behind the new size is zeroed too, so that a later growth in place shows no old bytes; it
    /// must have been given since the first allocation.
    ///
    /// # Safety
    ///
    /// `memory` is NULL, [`ZERO_SIZE_PTR`] or from here, and only the result is used afterwards.
    pub unsafe fn krealloc(&self, memory: *mut u8, size: usize, zero: bool) -> *mut u8 {
        if size == 0 {
            // SAFETY: the caller gives it up.
            unsafe { self.kfree(memory) };
            return ZERO_SIZE_PTR;
        }
        let room = self.room(memory);
        let used = self.request(memory).unwrap_or(room);
        if size <= room {
            if let Some(object) = NonNull::new(memory) {
                self.asked_for(object, size);
            }
            if zero {
                // Behind the bytes asked for lies a zone that stays red where it is kept; old bytes where it is not.
                let (from, to) = if self.tracked { (used.min(size), size) } else { (size, room) };
                // SAFETY: inside the memory's room.
                unsafe { memory.add(from).write_bytes(0, to - from) };
            }
            return memory;
        }
        let moved = self.kmalloc(size, zero);
        if !moved.is_null() {
            // SAFETY: both have `used` bytes at least; the old one is the caller's to give up.
            unsafe {
                core::ptr::copy_nonoverlapping(memory, moved, used);
                self.kfree(memory);
            }
        }
        moved
    }

    /// Gives all memory of all caches back.
    ///
    /// # Errors
    ///
    /// The first cache's [`Busy`]; the others are given back nevertheless.
    pub fn destroy(&self) -> Result<(), Busy> {
        let mut result = Ok(());
        for cache in &self.caches {
            result = result.and(cache.destroy());
        }
        result
    }
}
