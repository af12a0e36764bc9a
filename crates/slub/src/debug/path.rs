// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Allocation and free of caches with debug flags: one object at a time, under the list lock, with checks.
//!
//! A slab whose check fails is *damaged*: frozen, counted as full, on no list, never touched again, and its objects leak
//! when they are freed. An object whose check fails when it is freed leaks.
//!
//! A context that cannot take the lock allocates from a slab that nobody else knows, and leaves frees to the next caller that
//! can. Such a slab is frozen, and its free list is not walked by others meanwhile: objects leave it without the lock.
#![expect(unsafe_code, reason = "moves raw objects between lists")]

use super::pattern;
use super::track::TrackKind;
use crate::hardening::{Shuffle, for_each_shuffled};
use crate::host::{Corruption, Host, Step};
use crate::slab::{DAMAGED, PARTIAL, Slab};
use crate::slabs::{Chain, Discard, Slabs};
use crate::source::Wait;
use crate::spec::CacheFlags;
use crate::stats::StatItem;
use crate::sync::Ordering;
use crate::word::NONE;
use core::ptr::{NonNull, null_mut};

impl<H: Host, const NODES: usize> Slabs<H, NODES> {
    /// Makes and links all objects of a new slab, in a random order if that is asked for.
    pub(crate) fn cut_all(&self, slab: &Slab) {
        let (config, capacity) = (self.config(), slab.capacity());
        if config.spec.flags.contains(CacheFlags::POISON) {
            let (base, len) = self.extent(slab);
            // SAFETY: the whole run, which nobody else knows.
            unsafe { base.write_bytes(pattern::IN_USE, len) };
        }
        let mut head = null_mut();
        let mut add = |index: usize| {
            // SAFETY: below the capacity; a new object, ours.
            unsafe {
                let object = slab.object(index);
                if config.zero_free {
                    object.write_bytes(0, config.layout.object_size);
                }
                if config.debug {
                    self.forget_tracks(object);
                    self.paint(object, false);
                }
                self.construct(&[object]);
                self.set_next(slab, object, head);
                head = object;
            }
        };
        if config.spec.flags.contains(CacheFlags::RANDOM) && capacity > 1 {
            let mut random = Shuffle::new(self.host.random() ^ slab.base().addr() as u64);
            for_each_shuffled(capacity as u32, &mut random, |index| add(index as usize));
        } else {
            (0..capacity).rev().for_each(&mut add);
        }
        let first = slab.index(head) as u16;
        slab.change(|word| word.cut(capacity).repaired(first, 0));
    }

    /// [`alloc_batch`](Self::alloc_batch) with checks.
    pub(crate) fn alloc_checked_batch(&self, out: &mut [*mut u8], node: usize, wait: Wait) -> usize {
        if wait == Wait::Yes && !self.deferred_is_empty() {
            self.flush_deferred();
        }
        let mut got = 0;
        while got < out.len() {
            let Some(object) = self.alloc_checked(node, wait) else { break };
            out[got] = object.as_ptr();
            got += 1;
        }
        got
    }

    #[doc(alias = "alloc_single_from_partial")]
    fn alloc_checked(&self, node: usize, wait: Wait) -> Option<NonNull<u8>> {
        loop {
            match self.pop_partial(node, wait) {
                Ok(Some(object)) => return Some(object),
                Ok(None) => {}
                Err(()) => return self.alloc_unlisted(node),
            }
            for other in (0..NODES).filter(|&other| other != node && self.takes_from(other)) {
                if let Ok(Some(object)) = self.pop_partial(other, Wait::Never) {
                    return Some(object);
                }
            }
            let slab = self.new_slab(node, wait)?;
            self.host.step(Step::NewSlab);
            self.list_new(slab, node, wait);
        }
    }

    /// From the first slab of the partial list that passes its checks; `Err` without the lock.
    fn pop_partial(&self, node: usize, wait: Wait) -> Result<Option<NonNull<u8>>, ()> {
        let mut held = self.lock_node(node, wait).ok_or(())?;
        let mut discard = self.list_pending(&mut held, node);
        let mut found = None;
        while let Some(slab) = NonNull::new(held.lists().partial.first()) {
            // SAFETY: members of the list are live descriptors, and the list lock makes the slab exclusive.
            let descriptor = unsafe { slab.as_ref() };
            // SAFETY: as above.
            found = unsafe { self.pop_checked(descriptor) };
            if found.is_none() || descriptor.word().full(descriptor.capacity()) {
                // SAFETY: under the list lock; it was the first of the list.
                unsafe {
                    held.lists().partial.remove(slab);
                    descriptor.set_flags(descriptor.flags() & !PARTIAL);
                    if found.is_some() {
                        self.track_full(&mut held, slab);
                    }
                }
                held.publish_len();
            }
            if found.is_some() {
                Self::tally_locked(&self.nodes[node].stats, StatItem::AllocFromPartial, 1);
                break;
            }
        }
        drop(held);
        self.discard_chain(&mut discard, node, wait);
        Ok(found)
    }

    /// An object for a context that cannot take the lock: from pending slabs, which are ours alone between the two exchanges, or
    /// from a new one.
    fn alloc_unlisted(&self, node: usize) -> Option<NonNull<u8>> {
        // ORDERING: Acquire pairs with the Release in `push_pending`.
        let mut next = self.nodes[node].pending.xchg(null_mut(), Ordering::Acquire);
        let mut found = None;
        while let Some(slab) = NonNull::new(next) {
            // SAFETY: the whole chain is ours since the exchange; frozen, so exclusive.
            unsafe {
                next = *slab.as_ref().next.get();
                if found.is_none() {
                    found = self.pop_checked(slab.as_ref());
                }
            }
            self.push_pending(slab, node);
        }
        if found.is_none() {
            let slab = self.new_slab(node, Wait::Never)?;
            // SAFETY: nobody else knows it.
            found = unsafe { self.pop_checked(slab.as_ref()) };
            self.push_pending(slab, node);
        }
        found
    }

    /// Takes the first free object of an exclusive slab. `None`: the slab is full, or damaged now.
    ///
    /// # Safety
    ///
    /// The slab is exclusive: under its list lock, or frozen by the caller.
    #[doc(alias = "alloc_debug_processing")]
    unsafe fn pop_checked(&self, slab: &Slab) -> Option<NonNull<u8>> {
        loop {
            let mut word = slab.word();
            // SAFETY: exclusive (caller).
            if unsafe { slab.flags() } & DAMAGED != 0 {
                return None;
            }
            let object = NonNull::new(slab.head(word))?;
            // SAFETY: exclusive; a free object of it.
            let next = unsafe {
                if !self.check_counters(slab, word)
                    || !slab.is_object(object.as_ptr(), word)
                    || !self.check_object(slab, object.as_ptr(), false)
                {
                    Self::give_up(slab);
                    return None;
                }
                self.next(slab, object.as_ptr())
            };
            let head = if next.is_null() {
                NONE
            } else if slab.is_object(next, word) {
                slab.index(next) as u16
            } else {
                // SAFETY: exclusive (caller).
                unsafe {
                    self.finding(
                        slab,
                        object.as_ptr(),
                        Corruption::FreePointer,
                        "Freepointer corrupt",
                        pattern::ALL_USED,
                    );
                    Self::give_up(slab);
                }
                return None;
            };
            self.host.step(Step::GrabRead);
            let taken = word.take(head, 1);
            if slab.try_change(&mut word, taken) {
                // SAFETY: ours since the exchange.
                unsafe {
                    self.unclaim(slab, object.as_ptr());
                    self.set_request(object, self.config().layout.object_size);
                    self.paint(object.as_ptr(), true);
                    self.note(object.as_ptr(), TrackKind::Alloc);
                    self.zero_allocated(object.as_ptr());
                }
                return Some(object);
            }
        }
    }

    /// Declares an exclusive slab damaged.
    ///
    /// # Safety
    ///
    /// As for [`pop_checked`](Self::pop_checked).
    unsafe fn give_up(slab: &Slab) {
        // SAFETY: exclusive (caller).
        unsafe { slab.set_flags(slab.flags() | DAMAGED) };
        slab.change(|word| word.repaired(NONE, word.objects()).with_frozen(true));
    }

    /// Gives one object back, if it passes the checks.
    ///
    /// # Safety
    ///
    /// An object of `slab`, a slab of this cache, that the caller gives up.
    #[doc(alias = "free_to_partial_list")]
    #[cold]
    pub(crate) unsafe fn free_checked(&self, slab: NonNull<Slab>, object: NonNull<u8>, wait: Wait) {
        // SAFETY: a live descriptor.
        let descriptor = unsafe { slab.as_ref() };
        let node = descriptor.node();
        let Some(mut held) = self.lock_node(node, wait) else {
            // SAFETY: the caller's object.
            unsafe { self.defer_chain(descriptor, Chain { head: object, tail: object, count: 1 }) };
            return;
        };
        let mut discard = self.list_pending(&mut held, node);
        // SAFETY: under the list lock; an object that the caller gives up.
        unsafe {
            if self.check_free(descriptor, object.as_ptr()) {
                self.note(object.as_ptr(), TrackKind::Free);
                self.zero_freed(object.as_ptr());
                self.paint(object.as_ptr(), false);
                self.put_checked(&mut held, slab, object, &mut discard);
            }
        }
        drop(held);
        self.discard_chain(&mut discard, node, wait);
    }

    /// # Safety
    ///
    /// Under the list lock; the object is the caller's.
    unsafe fn put_checked(
        &self,
        held: &mut crate::node::Held<'_, H::Lock>,
        slab: NonNull<Slab>,
        object: NonNull<u8>,
        discard: &mut Discard,
    ) {
        // SAFETY: a live descriptor.
        let descriptor = unsafe { slab.as_ref() };
        let index = descriptor.index(object.as_ptr()) as u16;
        let mut word = descriptor.word();
        loop {
            let was_full = word.full(descriptor.capacity());
            let new = word.give(index, 1);
            // SAFETY: the caller's object until the exchange; under the list lock, which makes the list this call's business
            // unless the slab is frozen by its owner.
            unsafe {
                self.set_next(descriptor, object.as_ptr(), descriptor.head(word));
                self.host.step(Step::FreeRead);
                if descriptor.try_change(&mut word, new) {
                    if !new.frozen() && self.list_after_free(held, slab, was_full, new.inuse() == 0) {
                        self.condemn(held, slab, discard);
                    }
                    return;
                }
            }
        }
    }

    /// Whether an object may be freed. Reports what speaks against it.
    ///
    /// # Safety
    ///
    /// Under the list lock; an object of the slab.
    #[doc(alias = "free_debug_processing")]
    unsafe fn check_free(&self, slab: &Slab, object: *mut u8) -> bool {
        let checks = self.flags().contains(CacheFlags::CONSISTENCY);
        // SAFETY: under the list lock (caller).
        unsafe {
            if slab.flags() & DAMAGED != 0 {
                return false;
            }
            let word = slab.word();
            if !self.check_counters(slab, word) {
                return false;
            }
            // Objects leave a frozen slab without this lock: its list is not walked.
            let again = !self.is_taken(slab, object)
                || slab.head(word) == object
                || checks && !word.frozen() && self.walk(slab, object);
            if again || slab.word().inuse() == 0 {
                self.finding(slab, object, Corruption::DoubleFree, "Object already free", pattern::NOT_FREED);
                return false;
            }
            self.check_object(slab, object, true)
        }
    }

    /// What allocation does to an object of a cache that zeroes.
    ///
    /// # Safety
    ///
    /// The caller's object.
    #[inline]
    pub(crate) unsafe fn zero_allocated(&self, object: *mut u8) {
        let config = self.config();
        let layout = &config.layout;
        if config.zero_alloc {
            // SAFETY: the caller's object.
            unsafe { object.write_bytes(0, layout.object_size) };
        } else if config.zero_free && layout.offset < layout.object_size && !config.apart {
            // Zeroed when it was freed, except for the free pointer.
            // SAFETY: inside the object.
            unsafe { object.add(layout.offset).write_bytes(0, size_of::<usize>()) };
        }
    }

    /// What freeing does to an object of a cache that zeroes.
    ///
    /// # Safety
    ///
    /// The caller's object.
    #[inline]
    pub(crate) unsafe fn zero_freed(&self, object: *mut u8) {
        if self.config().zero_free {
            // SAFETY: the caller's object.
            unsafe { object.write_bytes(0, self.config().layout.object_size) };
        }
    }
}
