// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Where the free objects of a slab are linked: inside them, or apart from them ([`FreePointer::Apart`]).
//!
//! Apart means one 16-bit word per object, in memory of the source beside the descriptors:
//!
//! | stored | meaning |
//! |---|---|
//! | 0 | in use (or lying in a sheaf): on no free list |
//! | `i + 1` | free, object `i` is next |
//! | `0xffff` | free, and the last of the list |
//!
//! A free object's own memory is then never read or written, so that a write to it cannot steer the allocator, its pages
//! can be dropped, and a refill touches two bytes per object. And "in use" is a state of its own: an object that comes
//! back twice is found when the second copy arrives.
//!
//! The words follow the rules of in-object links: they are written by the owner of the object (a free, before its
//! exchange) and by the owner of an exclusive slab (Invariant 2), and the exchange of the slab word publishes them.
//!
//! [`FreePointer::Apart`]: crate::FreePointer::Apart
#![expect(unsafe_code, reason = "reads and writes links of raw objects")]

use super::Slabs;
use crate::host::{Corruption, Host};
use crate::slab::Slab;
use crate::source::PageSource;
use crate::word::NONE;

/// On no free list.
const TAKEN: u16 = 0;

/// What a stored link of an object that should be free decodes to if it is not: no object's index.
const BROKEN: u16 = NONE - 1;

const fn encode(next: u16) -> u16 {
    if next == NONE { NONE } else { next + 1 }
}

const fn decode(stored: u16) -> u16 {
    match stored {
        TAKEN => BROKEN,
        NONE => NONE,
        other => other - 1,
    }
}

impl<H: Host, const NODES: usize> Slabs<H, NODES> {
    /// The link of object `index`, for caches that keep them apart.
    ///
    /// # Safety
    ///
    /// The slab is one of this cache, which keeps its links apart; `index` is below its capacity.
    #[inline(always)]
    unsafe fn link(&self, slab: &Slab, index: usize) -> *mut u16 {
        // SAFETY: the source has a word per object (contract of `PageSource::links`).
        unsafe { self.host.source().links(slab).add(index) }
    }

    /// The free object after `object`.
    ///
    /// # Safety
    ///
    /// `object` is an object of `slab`, a slab of this cache. If it is not free, the value means nothing.
    #[inline(always)]
    pub(crate) unsafe fn next(&self, slab: &Slab, object: *mut u8) -> *mut u8 {
        if !self.config().apart {
            // SAFETY: as the caller promises.
            return unsafe { self.code().next(object) };
        }
        // SAFETY: the index of an object is below the capacity; volatile, because a validation may read while a free
        // writes, and throws the value away then.
        let next = decode(unsafe { self.link(slab, slab.index(object)).read_volatile() });
        if next == NONE {
            return core::ptr::null_mut();
        }
        // Out of bounds for a broken link: whoever walks checks that it is an object.
        slab.base().wrapping_add(usize::from(next) * slab.size())
    }

    /// Makes `next` the free object after `object`.
    ///
    /// # Safety
    ///
    /// `object` is an object of `slab`, a slab of this cache, and belongs to the caller; `next` is another one or NULL.
    #[inline(always)]
    pub(crate) unsafe fn set_next(&self, slab: &Slab, object: *mut u8, next: *mut u8) {
        if !self.config().apart {
            // SAFETY: as the caller promises.
            return unsafe { self.code().set_next(object, next) };
        }
        let stored = if next.is_null() { NONE } else { encode(slab.index(next) as u16) };
        // SAFETY: the index of an object is below the capacity.
        unsafe { self.link(slab, slab.index(object)).write_volatile(stored) };
    }

    /// Takes a freed object over, before anything else is done with it. `false`: it is free already (reported), and must
    /// be left alone. Always `true` for links inside objects, which cannot tell.
    ///
    /// # Safety
    ///
    /// `object` is an object of `slab`, a slab of this cache.
    #[inline(always)]
    pub(crate) unsafe fn claim(&self, slab: &Slab, object: *mut u8) -> bool {
        if !self.config().apart {
            return true;
        }
        // SAFETY: the index of an object is below the capacity.
        unsafe {
            let link = self.link(slab, slab.index(object));
            if link.read_volatile() != TAKEN {
                self.host.corrupted(Corruption::DoubleFree, self.name(), object);
                return false;
            }
            link.write_volatile(NONE);
        }
        true
    }

    /// Whether an object is on no free list, as far as links apart tell: always `true` for links inside objects.
    ///
    /// # Safety
    ///
    /// As for [`claim`](Self::claim).
    pub(crate) unsafe fn is_taken(&self, slab: &Slab, object: *mut u8) -> bool {
        // SAFETY: the index of an object is below the capacity.
        !self.config().apart || unsafe { self.link(slab, slab.index(object)).read_volatile() } == TAKEN
    }

    /// Undoes [`claim`](Self::claim): the object is on no free list after all.
    ///
    /// # Safety
    ///
    /// As [`set_next`](Self::set_next).
    #[inline]
    pub(crate) unsafe fn unclaim(&self, slab: &Slab, object: *mut u8) {
        if self.config().apart {
            // SAFETY: the index of an object is below the capacity.
            unsafe { self.link(slab, slab.index(object)).write_volatile(TAKEN) };
        }
    }

    /// [`grab`](Self::grab) for links apart: walks indices, and marks what it took once the exchange has succeeded.
    pub(crate) fn grab_apart(&self, slab: &Slab, out: &mut [*mut u8]) -> usize {
        let (links, capacity) = (self.host.source().links(slab), slab.capacity());
        let mut word = slab.word();
        loop {
            let listed = word.free().min(out.len());
            let mut index = word.head();
            for place in &mut out[..listed] {
                if usize::from(index) >= word.objects() {
                    return self
                        .corrupt_list(slab, slab.base().wrapping_add(usize::from(index) * slab.size()));
                }
                // SAFETY: below the number of objects; the slab is exclusive (Invariant 2).
                unsafe {
                    *place = slab.object(usize::from(index));
                    index = decode(links.add(usize::from(index)).read_volatile());
                }
            }
            if index != NONE && usize::from(index) >= word.objects() {
                return self.corrupt_list(slab, slab.base().wrapping_add(usize::from(index) * slab.size()));
            }
            let first = word.objects();
            let cut = capacity.saturating_sub(first).min(out.len() - listed);
            let count = listed + cut;
            if count == 0 {
                return 0;
            }
            self.host.step(crate::host::Step::GrabRead);
            let old = word;
            if slab.try_change(&mut word, old.cut(cut).take(index, count)) {
                let mut taken = usize::from(old.head());
                for _ in 0..listed {
                    // SAFETY: the objects that were walked above: others push on top of the list, never into it.
                    unsafe {
                        let link = links.add(taken);
                        taken = usize::from(decode(link.read_volatile()));
                        link.write_volatile(TAKEN);
                    }
                }
                for (offset, place) in out[listed..count].iter_mut().enumerate() {
                    // SAFETY: new objects, below the capacity, ours.
                    unsafe {
                        links.add(first + offset).write_volatile(TAKEN);
                        *place = slab.object(first + offset);
                    }
                }
                self.construct(&out[listed..count]);
                return count;
            }
        }
    }

    /// Runs the constructor on new objects.
    #[inline]
    pub(crate) fn construct(&self, objects: &[*mut u8]) {
        if let Some(ctor) = self.config().spec.ctor {
            for &object in objects {
                // SAFETY: a new object, ours; the spec's constructor is made for it.
                unsafe { ctor(object) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_says_in_use_free_or_last() {
        assert_eq!(decode(encode(0)), 0);
        assert_eq!(decode(encode(0x7ffe)), 0x7ffe);
        assert_eq!(decode(encode(NONE)), NONE);
        assert_ne!(encode(0), TAKEN, "the first object as next is not 'in use'");
        assert_eq!(decode(TAKEN), BROKEN);
    }
}
