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

use super::{Chain, Slabs};
use crate::host::{Corruption, Host};
use crate::slab::Slab;
use crate::source::{PageSource, Wait};
use crate::word::NONE;
use core::ptr::NonNull;

/// On no free list.
const TAKEN: u16 = 0;

/// What a stored link of an object that should be free decodes to if it is not: no object's index.
const BROKEN: u16 = NONE - 1;

/// Bits for the objects of a slab, 64 each: slabs with more objects are never idle in parts.
const IDLE_WORDS: usize = 128;

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

    /// Whether `object` lies on its slab's free list, for caches that keep their links apart: exact while nobody frees or
    /// allocates it, a guess otherwise. `false` for what is no object of the cache.
    pub fn is_free(&self, object: *const u8) -> bool {
        let Some(slab) = NonNull::new(self.host.source().slab_of(object)) else { return false };
        // SAFETY: descriptors are live for ever; the index of an object is below the capacity.
        unsafe {
            let slab = slab.as_ref();
            self.config().apart
                && slab.owner() == self.id()
                && slab.is_object(object, slab.word())
                && self.link(slab, slab.index(object)).read_volatile() != TAKEN
        }
    }

    /// Calls `visit` with the start and length in bytes of each stretch of whole blocks of `1 << shift` bytes that lies
    /// in the run of a slab of the partial lists and holds no byte of an object in use, for caches that keep their links
    /// apart. Nothing of the allocator is in such memory, and nobody gets an object of that slab during the call: the
    /// host may drop its contents. `visit` answers whether to go on with the slab.
    pub fn for_each_idle(&self, shift: u32, mut visit: impl FnMut(*mut u8, usize) -> bool) {
        if !self.config().apart || self.config().debug || self.config().zero_free {
            // Free objects have contents then: poison, zeroes.
            return;
        }
        self.for_each_partial(|_, slab| {
            // SAFETY: a live slab of this cache, under its list lock.
            unsafe { self.visit_idle(slab.as_ref(), shift, &mut visit) };
        });
    }

    /// [`for_each_idle`](Self::for_each_idle) for one slab.
    ///
    /// An object whose link is not `TAKEN` was given up by its user. It is on the free list for good (under this lock), or
    /// on its way there; or a context that cannot take the lock takes the claim back and links the object through its
    /// memory. So a count of such objects that is not the length of the list means: leave this slab alone. Objects that
    /// are claimed after the count are in use here.
    ///
    /// # Safety
    ///
    /// The slab is on a partial list whose lock is held.
    unsafe fn visit_idle(&self, slab: &Slab, shift: u32, visit: &mut impl FnMut(*mut u8, usize) -> bool) {
        let word = slab.word();
        let (objects, size) = (word.objects(), slab.size());
        let mut idle = [0u64; IDLE_WORDS];
        if objects > IDLE_WORDS * 64 {
            return;
        }
        let mut count = 0;
        for index in 0..objects {
            // SAFETY: below the number of objects.
            if unsafe { self.link(slab, index).read_volatile() } != TAKEN {
                idle[index / 64] |= 1 << (index % 64);
                count += 1;
            }
        }
        if count != word.free() || slab.word() != word {
            return;
        }
        let block = 1usize << shift;
        let bytes = slab.capacity() * size;
        let is_idle = |at: usize| {
            let last = ((at + block - 1) / size).min(slab.capacity() - 1);
            (at / size..=last).all(|index| index >= objects || idle[index / 64] & (1 << (index % 64)) != 0)
        };
        let mut at = slab.base().addr().wrapping_neg() & (block - 1);
        while at + block <= bytes {
            let start = at;
            while at + block <= bytes && is_idle(at) {
                at += block;
            }
            if at > start && !visit(slab.base().wrapping_add(start), at - start) {
                return;
            }
            at += block;
        }
    }

    /// [`grab`](Self::grab) for links apart: walks indices, and marks what it took once the exchange has succeeded.
    pub(crate) fn grab_apart(&self, slab: &Slab, out: &mut [*mut u8]) -> (usize, bool) {
        let (links, capacity) = (self.host.source().links(slab), slab.capacity());
        let mut word = slab.word();
        loop {
            let listed = word.free().min(out.len());
            let mut index = word.head();
            // Indices first: what the objects' links say must stay until the exchange has succeeded.
            for place in &mut out[..listed] {
                if usize::from(index) >= word.objects() {
                    return self
                        .corrupt_list(slab, slab.base().wrapping_add(usize::from(index) * slab.size()));
                }
                *place = core::ptr::without_provenance_mut(usize::from(index));
                // SAFETY: below the number of objects; the slab is exclusive (Invariant 2).
                index = decode(unsafe { links.add(usize::from(index)).read_volatile() });
            }
            if index != NONE && usize::from(index) >= word.objects() {
                return self.corrupt_list(slab, slab.base().wrapping_add(usize::from(index) * slab.size()));
            }
            let first = word.objects();
            let cut = capacity.saturating_sub(first).min(out.len() - listed);
            let count = listed + cut;
            if count == 0 {
                return (0, word.full(capacity));
            }
            self.host.step(crate::host::Step::GrabRead);
            let old = word;
            let new = old.cut(cut).take(index, count);
            if slab.try_change(&mut word, new) {
                let (base, size) = (slab.base(), slab.size());
                for (offset, place) in out[listed..count].iter_mut().enumerate() {
                    *place = core::ptr::without_provenance_mut(first + offset);
                }
                for place in &mut out[..count] {
                    let index = place.addr();
                    // SAFETY: objects that were free on the exclusive slab, or new ones below the capacity: ours since
                    // the exchange.
                    unsafe {
                        links.add(index).write_volatile(TAKEN);
                        *place = base.add(index * size);
                    }
                }
                self.construct(&out[listed..count]);
                return (count, new.full(capacity));
            }
        }
    }

    /// [`free_batch`](Self::free_batch) for links apart: an object is checked, claimed and linked by its index alone.
    ///
    /// # Safety
    ///
    /// As there.
    pub(super) unsafe fn free_batch_apart(&self, objects: &mut [*mut u8], wait: Wait) {
        let mut end = objects.len();
        while end > 0 {
            end -= 1;
            let Some(last) = NonNull::new(objects[end]) else { continue };
            let Some(slab) = self.slab_of(last.as_ptr()) else { continue };
            // SAFETY: the slab of a live object is live.
            let descriptor = unsafe { slab.as_ref() };
            let word = descriptor.word();
            let links = self.host.source().links(descriptor);
            let index_of = descriptor.indexer(word);
            let Some(tail) = index_of(last.as_ptr()) else {
                self.host.corrupted(Corruption::NotAnObject, self.name(), last.as_ptr());
                continue;
            };
            // SAFETY: an object of this slab.
            if !unsafe { self.claim(descriptor, last.as_ptr()) } {
                continue;
            }
            let (mut head, mut count) = (tail, 1);
            let mut lookahead = super::free::LOOKAHEAD;
            let mut seen = end;
            // One above the highest object that was skipped: all above it is gone.
            let mut rest = 0;
            while seen > 0 {
                seen -= 1;
                let other = objects[seen];
                let Some(index) = index_of(other) else {
                    if !other.is_null() {
                        rest = rest.max(seen + 1);
                        lookahead -= 1;
                        if lookahead == 0 {
                            break;
                        }
                    }
                    continue;
                };
                if rest != 0 {
                    // It will be passed once more.
                    objects[seen] = core::ptr::null_mut();
                }
                // SAFETY: the index of an object that the caller gives up.
                unsafe {
                    let link = links.add(index);
                    if link.read_volatile() != TAKEN {
                        self.host.corrupted(Corruption::DoubleFree, self.name(), other);
                        continue;
                    }
                    link.write_volatile(encode(head as u16));
                }
                head = index;
                count += 1;
            }
            end = rest;
            // SAFETY: a chain of objects of that slab that the caller gives up.
            unsafe {
                let head = NonNull::new_unchecked(descriptor.object(head));
                self.free_chain(slab, Chain { head, tail: last, count }, wait, false);
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
