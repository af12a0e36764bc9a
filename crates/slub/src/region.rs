// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! A page source over a static array, for kernels, firmware and tests.
//!
//! With [`TryLockSlots`](crate::TryLockSlots) and [`SpinLock`](crate::SpinLock) it completes a [`Host`](crate::Host);
//! the crate's front page has the whole example.
#![expect(unsafe_code, reason = "hands out memory of a static array")]

use crate::slab::Slab;
use crate::source::{PageSource, Wait};
use crate::sync::{AtomicU32, Ordering};
use core::cell::UnsafeCell;
use core::ptr::NonNull;

const SHIFT: u32 = 12;

/// One page of a [`StaticRegion`].
#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Page([u8; 1 << SHIFT]);

/// `PAGES` pages of 4 KiB and their descriptors, as one value for a `static`. Zero bytes at the start: it lies in
/// `.bss`.
///
/// Runs are found first-fit from a hint on; each page's owner is one word, claimed by compare-and-exchange, so no lock is involved and
/// any context may allocate. Pages are never unmapped, which is what the tid front end asks of a source.
///
/// ```
/// use fastpath_slub::{PageSource, StaticRegion, Wait};
/// static MEMORY: StaticRegion<16> = StaticRegion::new();
/// let run = MEMORY.alloc_slab(2, 8, 0, Wait::Yes).unwrap();
/// // SAFETY: a live descriptor.
/// let start = unsafe { run.as_ref() }.base();
/// assert_eq!(MEMORY.slab_of(start.wrapping_add(4 * 4096 - 1)), run.as_ptr());
/// assert!(MEMORY.slab_of(start.wrapping_add(4 * 4096)).is_null());
/// // SAFETY: from above, unused.
/// unsafe { MEMORY.free_slab(run, Wait::Yes) };
/// assert_eq!(MEMORY.used(), 0);
/// ```
pub struct StaticRegion<const PAGES: usize> {
    pages: UnsafeCell<[Page; PAGES]>,
    slabs: [Slab; PAGES],
    /// For each page: 0 if free, else the first page of its run plus one.
    owners: [AtomicU32; PAGES],
    /// Where to look first. Only a hint: a search that finds nothing from here on looks everywhere.
    hint: AtomicU32,
}

// SAFETY: a page is written only by the owner of its run; claims are atomic.
unsafe impl<const PAGES: usize> Sync for StaticRegion<PAGES> {}

impl<const PAGES: usize> core::fmt::Debug for StaticRegion<PAGES> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("StaticRegion")
            .field("pages", &PAGES)
            .field("used", &self.used())
            .finish_non_exhaustive()
    }
}

impl<const PAGES: usize> StaticRegion<PAGES> {
    /// A region whose pages are all free.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            pages: UnsafeCell::new([Page([0; 1 << SHIFT]); PAGES]),
            slabs: [const { Slab::new() }; PAGES],
            owners: [const { AtomicU32::new(0) }; PAGES],
            hint: AtomicU32::new(0),
        }
    }

    /// A region whose pages are all free.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self {
            pages: UnsafeCell::new([Page([0; 1 << SHIFT]); PAGES]),
            slabs: core::array::from_fn(|_| Slab::new()),
            owners: core::array::from_fn(|_| AtomicU32::new(0)),
            hint: AtomicU32::new(0),
        }
    }

    /// Pages in use.
    pub fn used(&self) -> usize {
        // ORDERING: Relaxed: a snapshot.
        self.owners.iter().filter(|owner| owner.load(Ordering::Relaxed) != 0).count()
    }

    fn release(&self, pages: core::ops::Range<usize>) {
        for owner in &self.owners[pages] {
            // ORDERING: Release: the last owner's accesses end before the next claim (Acquire) begins.
            owner.store(0, Ordering::Release);
        }
    }

    /// The first free run from page `first` on.
    fn find(&self, mut first: usize, count: usize, align: usize) -> Option<NonNull<Slab>> {
        let base = self.pages.get().cast::<u8>();
        while first + count <= PAGES {
            // SAFETY: inside the array.
            let start = unsafe { base.add(first << SHIFT) };
            if !start.addr().is_multiple_of(align) {
                first += 1;
                continue;
            }
            match self.claim(first, count) {
                Ok(()) => {
                    let slab = &self.slabs[first];
                    // SAFETY: the claim makes this call the only user of the descriptor.
                    unsafe { slab.set_base(start) };
                    // ORDERING: Relaxed: a hint.
                    self.hint.store((first + count) as u32, Ordering::Relaxed);
                    return Some(NonNull::from(slab));
                }
                Err(taken) => first = taken + 1,
            }
        }
        None
    }

    /// Claims the pages `first..first + count`, all or none. On failure says which page was taken.
    fn claim(&self, first: usize, count: usize) -> Result<(), usize> {
        for page in first..first + count {
            // ORDERING: Acquire pairs with the Release in `release`.
            if !self.owners[page].try_cmpxchg(&mut 0, first as u32 + 1, Ordering::Acquire) {
                self.release(first..page);
                return Err(page);
            }
        }
        Ok(())
    }
}

impl<const PAGES: usize> Default for StaticRegion<PAGES> {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: `claim` makes a run exclusive; its descriptor is the one of its first page.
unsafe impl<const PAGES: usize> PageSource for StaticRegion<PAGES> {
    const PAGE_SHIFT: u32 = SHIFT;

    fn alloc_slab(&self, order: u32, align: usize, _node: usize, _wait: Wait) -> Option<NonNull<Slab>> {
        let count = 1usize.checked_shl(order)?;
        // ORDERING: Relaxed: a hint.
        let hint = self.hint.load(Ordering::Relaxed) as usize;
        self.find(hint, count, align).or_else(|| self.find(0, count, align))
    }

    unsafe fn free_slab(&self, slab: NonNull<Slab>, _wait: Wait) {
        // SAFETY: a descriptor of this region (caller).
        let start = unsafe { slab.as_ref() }.base().addr();
        let first = (start - self.pages.get().addr()) >> SHIFT;
        // ORDERING: Relaxed: the run is the caller's, nobody changes its owners.
        let owned = |page: &usize| self.owners[*page].load(Ordering::Relaxed) == first as u32 + 1;
        let end = (first..PAGES).take_while(owned).last().map_or(first, |page| page + 1);
        self.release(first..end);
        // ORDERING: Relaxed: a hint; a lost update costs a longer search.
        if (self.hint.load(Ordering::Relaxed) as usize) > first {
            self.hint.store(first as u32, Ordering::Relaxed);
        }
    }

    #[inline]
    fn slab_of(&self, address: *const u8) -> *mut Slab {
        let page = address.addr().wrapping_sub(self.pages.get().addr()) >> SHIFT;
        // ORDERING: Relaxed: whoever asks for an object holds it, so the run was claimed before.
        match self.owners.get(page).map_or(0, |owner| owner.load(Ordering::Relaxed)) {
            0 => core::ptr::null_mut(),
            owner => core::ptr::from_ref(&self.slabs[owner as usize - 1]).cast_mut(),
        }
    }
}
