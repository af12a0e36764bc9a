// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Objects back into their slabs.
#![expect(
    clippy::cast_ptr_alignment,
    reason = "objects and free-pointer offsets are multiples of the word size"
)]
#![expect(unsafe_code, reason = "links raw objects into lists")]

use super::{Discard, Slabs};
use crate::host::{Corruption, Host, Step};
use crate::node::Held;
use crate::slab::{PARTIAL, Slab};
use crate::source::{PageSource, Wait};
use crate::spec::CacheFlags;
use crate::stats::StatItem;
use crate::sync::Ordering;
use core::ptr::NonNull;

/// How many objects of other slabs a group may skip before it is closed.
pub(super) const LOOKAHEAD: usize = 3;

/// A chain of objects of one slab: `head` links to the next and so on to `tail`, whose link is not set yet.
#[derive(Clone, Copy)]
pub(crate) struct Chain {
    pub(crate) head: NonNull<u8>,
    pub(crate) tail: NonNull<u8>,
    pub(crate) count: usize,
}

impl<H: Host, const NODES: usize> Slabs<H, NODES> {
    /// The slab of an object, if the object is one of this cache; reports it otherwise.
    #[inline]
    pub(crate) fn slab_of(&self, object: *mut u8) -> Option<NonNull<Slab>> {
        let Some(slab) = NonNull::new(self.host.source().slab_of(object)) else {
            self.host.corrupted(Corruption::NotAnObject, self.name(), object);
            return None;
        };
        // SAFETY: the source's descriptors are live for ever.
        if unsafe { slab.as_ref() }.owner() != self.id() {
            self.host.corrupted(Corruption::WrongCache, self.name(), object);
            return None;
        }
        Some(slab)
    }

    /// Gives one object back to its slab.
    ///
    /// # Safety
    ///
    /// The object came from this cache and nobody uses it any more.
    pub unsafe fn free_one(&self, object: NonNull<u8>, wait: Wait) {
        // SAFETY: as the caller promises.
        unsafe { self.free_one_keeping(object, wait, None) };
    }

    /// The same, for an owner of frozen slabs on the node `keep`: a full slab of that node to which the object is the first
    /// to come back is frozen instead of listed, which needs no lock, and returned.
    ///
    /// # Safety
    ///
    /// As for [`free_one`](Self::free_one).
    pub(crate) unsafe fn free_one_keeping(
        &self,
        object: NonNull<u8>,
        wait: Wait,
        keep: Option<usize>,
    ) -> Option<NonNull<Slab>> {
        let slab = self.slab_of(object.as_ptr())?;
        // SAFETY: the slab of a live object is live.
        let descriptor = unsafe { slab.as_ref() };
        if !descriptor.is_object(object.as_ptr(), descriptor.word()) {
            self.host.corrupted(Corruption::NotAnObject, self.name(), object.as_ptr());
            return None;
        }
        // SAFETY: an object of that slab that the caller gives up.
        unsafe {
            if self.config().slow {
                if self.config().debug {
                    self.free_checked(slab, object, wait);
                    return None;
                }
                self.zero_freed(object.as_ptr());
            }
            let keep = keep.is_some_and(|node| node == descriptor.node());
            let kept = self.claim(descriptor, object.as_ptr())
                && self.free_chain(slab, Chain { head: object, tail: object, count: 1 }, wait, keep);
            kept.then_some(slab)
        }
    }

    /// Gives many objects back, one exchange per group of one slab; the slice's contents are used up.
    ///
    /// Groups are gathered from the end, skipping at most three objects of other slabs, as the kernel's bulk free does.
    ///
    /// # Safety
    ///
    /// The objects came from this cache, each once, and nobody uses them any more. NULLs are ignored.
    #[doc(alias = "build_detached_freelist")]
    pub unsafe fn free_batch(&self, objects: &mut [*mut u8], wait: Wait) {
        if self.config().slow {
            for object in objects.iter_mut().filter_map(|object| NonNull::new(*object)) {
                // SAFETY: as the caller promises.
                unsafe { self.free_one(object, wait) };
            }
            return;
        }
        if self.config().apart {
            // SAFETY: as the caller promises.
            return unsafe { self.free_batch_apart(objects, wait) };
        }
        let mut end = objects.len();
        while end > 0 {
            end -= 1;
            let Some(object) = NonNull::new(objects[end]) else { continue };
            let Some(slab) = self.slab_of(object.as_ptr()) else { continue };
            // SAFETY: the slab of a live object is live.
            let descriptor = unsafe { slab.as_ref() };
            let word = descriptor.word();
            if !descriptor.is_object(object.as_ptr(), word) {
                self.host.corrupted(Corruption::NotAnObject, self.name(), object.as_ptr());
                continue;
            }
            // SAFETY: an object of this slab.
            if !unsafe { self.claim(descriptor, object.as_ptr()) } {
                continue;
            }
            let mut chain = Chain { head: object, tail: object, count: 1 };
            let mut lookahead = LOOKAHEAD;
            let mut seen = end;
            // One above the highest object that was skipped: all above it is gone.
            let mut rest = 0;
            while seen > 0 {
                seen -= 1;
                let Some(other) = NonNull::new(objects[seen]) else { continue };
                if descriptor.is_object(other.as_ptr(), word) {
                    objects[seen] = core::ptr::null_mut();
                    if other == chain.head {
                        self.host.corrupted(Corruption::DoubleFree, self.name(), other.as_ptr());
                        continue;
                    }
                    // SAFETY: an object of this slab that the caller gives up.
                    unsafe {
                        if !self.claim(descriptor, other.as_ptr()) {
                            continue;
                        }
                        self.set_next(descriptor, other.as_ptr(), chain.head.as_ptr());
                    }
                    chain.head = other;
                    chain.count += 1;
                } else {
                    rest = rest.max(seen + 1);
                    lookahead -= 1;
                    if lookahead == 0 {
                        break;
                    }
                }
            }
            end = rest;
            // SAFETY: a chain of objects of that slab that the caller gives up.
            unsafe { self.free_chain(slab, chain, wait, false) };
        }
    }

    /// Gives a chain of objects of one slab back with one exchange; defers it if a lock is needed and cannot be had.
    ///
    /// With `keep` a full slab is frozen instead of listed. `true`: it was, and is the caller's from then on.
    ///
    /// # Safety
    ///
    /// The chain belongs to the caller, and all its objects to `slab`, which belongs to this cache.
    #[doc(alias = "__slab_free")]
    pub(crate) unsafe fn free_chain(
        &self,
        slab: NonNull<Slab>,
        chain: Chain,
        wait: Wait,
        keep: bool,
    ) -> bool {
        // SAFETY: a live descriptor.
        let descriptor = unsafe { slab.as_ref() };
        let (node, capacity) = (descriptor.node(), descriptor.capacity());
        let shared = &self.nodes[node];
        let mut held: Option<Held<'_, H::Lock>> = None;
        let mut word = descriptor.word();
        let head = descriptor.index(chain.head.as_ptr()) as u16;
        let tail = descriptor.index(chain.tail.as_ptr()) as u16;
        loop {
            if word.inuse() < chain.count || word.head() == head || word.head() == tail {
                drop(held);
                self.host.corrupted(Corruption::DoubleFree, self.name(), chain.head.as_ptr());
                return false;
            }
            // SAFETY: the tail is the caller's until the exchange.
            unsafe { self.set_next(descriptor, chain.tail.as_ptr(), descriptor.head(word)) };
            let mut new = word.give(head, chain.count);
            let was_full = word.full(capacity);
            let keeping = keep && was_full && !word.frozen();
            if keeping {
                new = new.with_frozen(true);
            }
            let listing = (new.inuse() == 0 || was_full) && !new.frozen();
            if listing && held.is_none() {
                // Invariant 5: before the exchange.
                held = self.lock_node(node, wait);
                if held.is_none() {
                    // SAFETY: still the caller's chain.
                    unsafe { self.defer_chain(descriptor, chain) };
                    return false;
                }
            } else if !listing {
                held = None;
            }
            self.host.step(Step::FreeRead);
            if descriptor.try_change(&mut word, new) {
                let Some(mut held) = held else {
                    return keeping;
                };
                self.host.step(Step::FreeListed);
                let mut discard = Discard::new();
                // SAFETY: under the list lock; the exchange made it this call's business (Invariants 4 and 5). If it is to
                // go it is empty and on no list, and its last object came back in this call.
                unsafe {
                    if self.list_after_free(&mut held, slab, was_full, new.inuse() == 0) {
                        self.condemn(&mut held, slab, &mut discard);
                    }
                }
                drop(held);
                self.discard_chain(&mut discard, node, wait);
                return false;
            }
            Self::tally(&shared.stats, StatItem::CmpxchgDoubleFail, 1);
        }
    }

    /// List handling after a free that filled up or emptied the slab. `true`: it is on no list and must be given back.
    ///
    /// # Safety
    ///
    /// Under the list lock, which was held during the exchange.
    pub(crate) unsafe fn list_after_free(
        &self,
        held: &mut Held<'_, H::Lock>,
        slab: NonNull<Slab>,
        was_full: bool,
        empty: bool,
    ) -> bool {
        // SAFETY: a live descriptor.
        let descriptor = unsafe { slab.as_ref() };
        let shared = &self.nodes[descriptor.node()];
        // SAFETY: under the list lock.
        unsafe {
            let listed = descriptor.flags() & PARTIAL != 0;
            if was_full && !listed && self.config().spec.flags.contains(CacheFlags::STORE_USER) {
                held.lists().full.remove(slab);
            }
            if empty && held.lists().partial.len() >= self.min_partial.get() {
                if listed {
                    held.lists().partial.remove(slab);
                    descriptor.set_flags(descriptor.flags() & !PARTIAL);
                    held.publish_len();
                    Self::tally_locked(&shared.stats, StatItem::FreeRemovePartial, 1);
                    return true;
                }
                // Full until now and all of it came back at once. If it is detached instead, it is its owner's.
                return was_full;
            }
            if was_full && !listed {
                held.lists().partial.push_back(slab);
                descriptor.set_flags(descriptor.flags() | PARTIAL);
                held.publish_len();
                Self::tally_locked(&shared.stats, StatItem::FreeAddPartial, 1);
            }
        }
        false
    }

    /// Chains an empty slab for discarding. It is counted out here, under the lock, so that no count is ever off for
    /// whoever holds the lock.
    ///
    /// # Safety
    ///
    /// Under the list lock; the slab is on no list, no object is in use, and nobody else will reach it.
    pub(crate) unsafe fn condemn(
        &self,
        _held: &mut Held<'_, H::Lock>,
        slab: NonNull<Slab>,
        discard: &mut Discard,
    ) {
        // SAFETY: a live descriptor.
        let descriptor = unsafe { slab.as_ref() };
        let shared = &self.nodes[descriptor.node()];
        // ORDERING: Relaxed: counts publish nothing.
        shared.nr_slabs.fetch_sub(1, Ordering::Relaxed);
        // ORDERING: Relaxed, as above.
        shared.total_objects.fetch_sub(descriptor.capacity(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { discard.push(slab) };
    }

    /// Gives slabs back to the source, with no lock held.
    pub(crate) fn discard_chain(&self, discard: &mut Discard, node: usize, wait: Wait) {
        while let Some(slab) = discard.pop() {
            self.host.step(Step::Discard);
            #[cfg(not(loom))]
            if self.flags().contains(CacheFlags::TYPESAFE_BY_RCU)
                && let Some(grace) = self.host.grace_period()
            {
                Self::tally(&self.nodes[node].stats, StatItem::FreeSlab, 1);
                // SAFETY: `Discard` holds empty slabs that nobody else reaches; the owner is this layer.
                unsafe { grace.defer(Slab::wait_as(slab, Self::after_grace)) };
                continue;
            }
            // SAFETY: `Discard` holds empty slabs that nobody else reaches.
            unsafe {
                slab.as_ref().unmake(self.config().layout.red_left);
                Self::tally(&self.nodes[node].stats, StatItem::FreeSlab, 1);
                self.host.source().free_slab(slab, wait);
            }
        }
    }

    /// Gives a slab back that no reader looks at any more.
    ///
    /// # Safety
    ///
    /// `head` is a slab of a layer of this very type that waited for its grace period.
    #[cfg(not(loom))]
    unsafe fn after_grace(head: NonNull<crate::cache::GraceHead>) {
        // SAFETY: `discard_chain` put a layer of this type there; it lives, since `destroy_slabs` waits for the grace period.
        unsafe {
            let this = &*head.as_ref().cache().cast::<Self>();
            let slab = Slab::waited_as(head);
            slab.as_ref().unmake(this.config().layout.red_left);
            this.host.source().free_slab(slab, Wait::Yes);
        }
    }

    /// Leaves a chain to whoever can take a lock next.
    ///
    /// # Safety
    ///
    /// The chain belongs to the caller.
    #[cold]
    pub(crate) unsafe fn defer_chain(&self, slab: &Slab, chain: Chain) {
        let code = self.code();
        let mut object = chain.head.as_ptr();
        for left in (0..chain.count).rev() {
            // SAFETY: links of the chain were set by the caller, except the tail's, which is not followed.
            let next = if left == 0 { core::ptr::null_mut() } else { unsafe { self.next(slab, object) } };
            // SAFETY: still the caller's; the real free will claim it again.
            unsafe { self.unclaim(slab, object) };
            // ORDERING: Relaxed: the exchange below publishes.
            let mut top = self.deferred.load(Ordering::Relaxed);
            loop {
                // SAFETY: the object is ours until the push succeeds.
                unsafe { object.add(code.offset).cast::<*mut u8>().write(top) };
                // ORDERING: Release publishes the link and the user's last writes; pairs with the Acquire below.
                if self.deferred.try_cmpxchg(&mut top, object, Ordering::Release) {
                    break;
                }
            }
            object = next;
        }
        Self::tally(&self.nodes[0].stats, StatItem::FreeDeferred, chain.count);
    }

    #[inline]
    pub(crate) fn deferred_is_empty(&self) -> bool {
        // ORDERING: Relaxed: a hint.
        self.deferred.load(Ordering::Relaxed).is_null()
    }

    /// Frees what contexts without a lock left behind.
    #[doc(alias = "free_deferred_objects")]
    pub fn flush_deferred(&self) {
        // ORDERING: Acquire pairs with the Release in `defer_chain`. The whole list is taken: no ABA.
        let mut next = self.deferred.xchg(core::ptr::null_mut(), Ordering::Acquire);
        let code = self.code();
        while let Some(object) = NonNull::new(next) {
            // SAFETY: the chain is ours since the exchange. The word is made an encoded NULL again before the real free,
            // or a check would take the plain link for damage.
            unsafe {
                next = object.as_ptr().add(code.offset).cast::<*mut u8>().read();
                code.set_next(object.as_ptr(), core::ptr::null_mut());
                self.free_one(object, Wait::Yes);
            }
        }
    }
}
