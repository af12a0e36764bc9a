// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sheaves filled in advance, for contexts that must not fail later.
#![expect(unsafe_code, reason = "moves raw objects and sheaves")]

use super::Cache;
use crate::host::Host;
use crate::sheaf::Sheaf;
use crate::slabs::Slabs;
use crate::slots::{CpuSlots, Place, When};
use crate::source::Wait;
use crate::stats::StatItem;
use core::ptr::NonNull;

/// Why a refill did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefillError {
    /// There is no sheaf to refill (the kernel's `EINVAL`).
    Invalid,
    /// No memory (`ENOMEM`); the sheaf is as it was or fuller.
    NoMemory,
}

/// Objects set aside: the promised number of allocations cannot fail. Returned to the cache on drop.
///
/// A larger number than a sheaf holds gives a private chain of sheaves that is freed afterwards.
#[doc(alias = "slab_sheaf")]
pub struct PrefilledSheaf<'c, H: Host, const NODES: usize> {
    cache: &'c Cache<H, NODES>,
    /// The sheaf in use; further ones are linked through their first words.
    sheaf: Option<Sheaf>,
    oversize: bool,
}

impl<H: Host, const NODES: usize> core::fmt::Debug for PrefilledSheaf<'_, H, NODES> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("PrefilledSheaf").field("len", &self.len()).field("oversize", &self.oversize).finish()
    }
}

fn next_of(sheaf: Sheaf) -> Option<Sheaf> {
    // SAFETY: written by `link`: NULL or the top of the next sheaf of the chain.
    unsafe { NonNull::new(sheaf.words().read().cast()).map(|top| Sheaf::from_top(top)) }
}

fn link(sheaf: Sheaf, next: Option<Sheaf>) {
    // SAFETY: in hand, ours.
    unsafe { sheaf.words().write(next.map_or(core::ptr::null_mut(), |next| next.top().cast())) };
}

impl<H: Host, const NODES: usize> Cache<H, NODES> {
    /// Sets `size` objects aside, or `None` without memory.
    #[doc(alias = "kmem_cache_prefill_sheaf")]
    pub fn prefill(&self, size: usize) -> Option<PrefilledSheaf<'_, H, NODES>> {
        let node = self.slabs.local_node();
        let shared = &self.slabs.nodes[node];
        let capacity = self.slabs.config().capacity;
        let oversize = size > capacity;
        let mut prefilled = PrefilledSheaf { cache: self, sheaf: None, oversize };
        if oversize {
            Slabs::<H, NODES>::tally(&shared.stats, StatItem::SheafPrefillOversize, 1);
        } else if let Ok(full) = shared.barn.get_full(self.slabs.host.context(), Wait::Yes) {
            Slabs::<H, NODES>::tally(&shared.stats, StatItem::SheafPrefillFast, 1);
            link(full, None);
            prefilled.sheaf = Some(full);
        } else {
            Slabs::<H, NODES>::tally(&shared.stats, StatItem::SheafPrefillSlow, 1);
        }
        // A failed one returns on drop what it holds.
        prefilled.refill(size).ok()?;
        Some(prefilled)
    }

    /// Tops a prefilled sheaf up to `size` objects.
    ///
    /// # Errors
    ///
    /// [`RefillError::Invalid`] without a sheaf, [`RefillError::NoMemory`] with the sheaf intact.
    #[doc(alias = "kmem_cache_refill_sheaf")]
    pub fn refill_sheaf(
        &self,
        sheaf: Option<&mut PrefilledSheaf<'_, H, NODES>>,
        size: usize,
    ) -> Result<(), RefillError> {
        sheaf.ok_or(RefillError::Invalid)?.refill(size)
    }
}

impl<H: Host, const NODES: usize> PrefilledSheaf<'_, H, NODES> {
    /// Objects that are left.
    #[doc(alias = "kmem_cache_sheaf_size")]
    pub fn len(&self) -> usize {
        let capacity = self.room();
        let (mut at, mut len) = (self.sheaf, 0);
        while let Some(sheaf) = at {
            len += sheaf.len(capacity);
            at = next_of(sheaf);
        }
        len
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Objects per sheaf of the chain; caches without sheaves get full-sized private ones.
    fn room(&self) -> usize {
        match self.cache.slabs.config().capacity {
            0 => crate::sheaf::SHEAF_MAX,
            capacity => capacity,
        }
    }

    /// An object that was set aside; `None` when all are used. Never falls back to the cache.
    #[doc(alias = "kmem_cache_alloc_from_sheaf")]
    pub fn alloc(&mut self) -> Option<NonNull<u8>> {
        loop {
            let mut sheaf = self.sheaf?;
            let next = next_of(sheaf);
            // SAFETY: in hand, ours.
            if let Some(object) = unsafe { sheaf.pop() } {
                self.sheaf = Some(sheaf);
                return Some(object);
            }
            next?;
            self.sheaf = next;
            // SAFETY: in hand, ours, empty.
            unsafe { self.cache.slabs.host.sheaves().put(sheaf, Wait::Yes) };
        }
    }

    /// Tops it up to `size` objects.
    ///
    /// # Errors
    ///
    /// [`RefillError::NoMemory`]; what was there is still there.
    pub fn refill(&mut self, size: usize) -> Result<(), RefillError> {
        let capacity = self.room();
        let slabs = &self.cache.slabs;
        let node = slabs.local_node();
        let mut missing = size.saturating_sub(self.len());
        while missing > 0 {
            if self.sheaf.is_none_or(Sheaf::is_full) {
                let fresh = if self.oversize || slabs.config().capacity == 0 {
                    slabs.host.sheaves().get(capacity, Wait::Yes)
                } else {
                    self.cache.empty_sheaf(node, Wait::Yes)
                };
                let fresh = fresh.ok_or(RefillError::NoMemory)?;
                link(fresh, self.sheaf);
                self.sheaf = Some(fresh);
            }
            let Some(mut sheaf) = self.sheaf else { return Err(RefillError::NoMemory) };
            // SAFETY: in hand, ours; `alloc_batch` writes as many objects as it says.
            let got = unsafe {
                let room = sheaf.room();
                let want = room.len().min(missing);
                let got = slabs.alloc_batch(&mut room[..want], node, Wait::Yes);
                sheaf.grow(got);
                got
            };
            self.sheaf = Some(sheaf);
            if got == 0 {
                return Err(RefillError::NoMemory);
            }
            missing -= got;
        }
        Ok(())
    }
}

impl<H: Host, const NODES: usize> Drop for PrefilledSheaf<'_, H, NODES> {
    /// The kernel's return: an empty spare place first, then the barn after topping up, else the objects go to their slabs.
    fn drop(&mut self) {
        let slabs = &self.cache.slabs;
        let capacity = self.room();
        let mut at = self.sheaf.take();
        while let Some(mut sheaf) = at {
            at = next_of(sheaf);
            if self.oversize || slabs.config().capacity == 0 {
                // SAFETY: in hand, ours, objects of this cache.
                unsafe {
                    slabs.free_batch(sheaf.objects(capacity), Wait::Yes);
                    sheaf.clear(capacity);
                    slabs.host.sheaves().put(sheaf, Wait::Yes);
                }
                continue;
            }
            let slot = slabs.config().spec.slot;
            let shared = &slabs.nodes[slabs.local_node()];
            // SAFETY: in hand, ours, objects of this cache.
            if unsafe { slabs.host.slots().exchange(slot, Place::Spare, When::Missing, sheaf) }.is_ok() {
                Slabs::<H, NODES>::tally(&shared.stats, StatItem::SheafReturnFast, 1);
                continue;
            }
            Slabs::<H, NODES>::tally(&shared.stats, StatItem::SheafReturnSlow, 1);
            if sheaf.is_empty() {
                self.cache.put_empty(sheaf, Wait::Yes);
                continue;
            }
            // SAFETY: in hand, ours; `alloc_batch` writes as many objects as it says.
            unsafe {
                if shared.barn.nr_full() < slabs.config().spec.barn_limit {
                    let got = slabs.alloc_batch(sheaf.room(), slabs.local_node(), Wait::Yes);
                    sheaf.grow(got);
                }
            }
            self.cache.put_full(sheaf, Wait::Yes);
        }
    }
}
