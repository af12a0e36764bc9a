// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What happens when a CPU's list is empty, or an object is not of the CPU's slab.
#![expect(unsafe_code, reason = "moves raw objects between lists")]

use super::{Seen, TidCache, TidSlot, first_tid, tid_cpu};
use crate::host::{Event, Host};
use crate::slab::{PARTIAL, Slab};
use crate::slabs::{Chain, Discard, Slabs};
use crate::source::Wait;
use crate::spec::CacheFlags;
use crate::stats::StatItem;
use crate::sync::Ordering;
use crate::tid::backend::TidBackend;
use core::ptr::{NonNull, null_mut};

/// How many new objects a slow path cuts at once for the CPU's list.
const CUT: usize = 32;

impl<H: Host, B: TidBackend, const CPUS: usize, const NODES: usize> TidCache<H, B, CPUS, NODES> {
    /// An object, after the CPU's list gave none.
    #[doc(alias = "___slab_alloc")]
    #[cold]
    #[inline(never)]
    pub(super) fn alloc_slow(&self, wait: Wait) -> Option<NonNull<u8>> {
        let node = self.slabs.local_node();
        Slabs::<H, NODES>::tally(&self.slabs.nodes[node].stats, StatItem::AllocSlowpath, 1);
        if self.slabs.config().slow {
            return self.slabs.alloc_one(node, wait);
        }
        let _pin = self.backend.pin();
        let cpu = self.backend.cpu() % CPUS;
        let slot = &self.slots[cpu];
        // ORDERING: Acquire pairs with the Release below: the slot is as the last slow path left it.
        if !slot.busy.try_cmpxchg(&mut 0, 1, Ordering::Acquire) {
            return self.alloc_direct(node, wait);
        }
        let object = self.alloc_on(cpu, slot, node, wait);
        // ORDERING: Release pairs with the Acquire above.
        slot.busy.store(0, Ordering::Release);
        object.or_else(|| self.alloc_direct(node, wait))
    }

    /// One object from the slabs.
    fn alloc_direct(&self, node: usize, wait: Wait) -> Option<NonNull<u8>> {
        let object = self.slabs.alloc_one(node, wait);
        if object.is_some() {
            self.slabs.host.event(Event::Alloc);
        }
        object
    }

    /// With the slot's slow path ours.
    fn alloc_on(&self, cpu: usize, slot: &TidSlot<B::Cell>, node: usize, wait: Wait) -> Option<NonNull<u8>> {
        let code = self.slabs.code();
        self.first_use(cpu, slot);
        loop {
            // The list may have been filled meanwhile.
            let seen = self.seen(cpu, slot);
            if let Some(object) = NonNull::new(self.backend.head(&slot.cell)) {
                // SAFETY: speculative, as in the fast path.
                let next = unsafe { code.next(object.as_ptr()) };
                if self.exchange(&seen, object.as_ptr(), next) {
                    return Some(object);
                }
                continue;
            }
            // ORDERING: Relaxed: only holders of `busy` write it.
            let slab = match NonNull::new(slot.slab.load(Ordering::Relaxed)) {
                Some(slab) => slab,
                None => self.adopt(slot, node, wait)?,
            };
            // SAFETY: a live slab, frozen by us.
            let descriptor = unsafe { slab.as_ref() };
            if let Some((head, rest, taken)) = self.slabs.take_list(descriptor, CUT) {
                Slabs::<H, NODES>::tally(&self.slabs.nodes[node].stats, StatItem::AllocRefill, 1);
                self.slabs.host.event(Event::SheafIn(taken));
                self.load(cpu, slot, rest);
                return Some(head);
            }
            self.detach(cpu, slot, wait);
        }
    }

    /// Gives the slot's cell the first tid of its CPU; until then its list is empty and fast paths leave it alone.
    fn first_use(&self, cpu: usize, slot: &TidSlot<B::Cell>) {
        loop {
            let tid = self.backend.tid(&slot.cell);
            if Self::STEP == 1 || tid_cpu(tid, Self::STEP) == cpu {
                return;
            }
            let head = self.backend.head(&slot.cell);
            if self.backend.exchange(cpu, &slot.cell, (head, tid), (head, tid.wrapping_add(first_tid(cpu)))) {
                return;
            }
        }
    }

    fn seen<'a>(&self, cpu: usize, slot: &'a TidSlot<B::Cell>) -> Seen<'a, B::Cell> {
        Seen { cpu, slot, tid: self.backend.tid(&slot.cell) }
    }

    /// Puts a private chain on the slot's list, on top of what frees may have put there meanwhile; bumps the tid.
    fn load(&self, cpu: usize, slot: &TidSlot<B::Cell>, chain: *mut u8) {
        let code = self.slabs.code();
        if chain.is_null() {
            return;
        }
        loop {
            let seen = self.seen(cpu, slot);
            let head = self.backend.head(&slot.cell);
            if !head.is_null() {
                // SAFETY: the chain is ours: its tail is found and linked to what is there.
                unsafe {
                    let mut tail = chain;
                    while let Some(next) = NonNull::new(code.next(tail)).filter(|next| next.as_ptr() != head)
                    {
                        tail = next.as_ptr();
                    }
                    code.set_next(tail, head);
                }
            }
            if self.exchange(&seen, head, chain) {
                return;
            }
            if !head.is_null() {
                // The list changed: the tail's link is made NULL again before the next try.
                // SAFETY: the chain is still ours.
                unsafe {
                    let mut tail = chain;
                    while code.next(tail) != head {
                        tail = code.next(tail);
                    }
                    code.set_next(tail, null_mut());
                }
            }
        }
    }

    /// Makes a slab with something to allocate the slot's: from the partial list, or a new one. Frozen from then on.
    fn adopt(&self, slot: &TidSlot<B::Cell>, node: usize, wait: Wait) -> Option<NonNull<Slab>> {
        let slab = match self.take_partial(slot) {
            Some(slab) => slab,
            None => self.acquire_some(slot, node, wait)?,
        };
        // ORDERING: Release: whoever sees the slab sees it frozen.
        slot.slab.store(slab.as_ptr(), Ordering::Release);
        Some(slab)
    }

    /// From the node's list, with a few more for the slot's, so that the next ones need no lock; else a new one.
    #[doc(alias = "get_partial_node")]
    fn acquire_some(&self, slot: &TidSlot<B::Cell>, node: usize, wait: Wait) -> Option<NonNull<Slab>> {
        let more = self.cpu_partial_slabs() / 2;
        self.slabs.acquire(node, wait, more, |slab| {
            Self::push_partial(slot, slab);
            Slabs::<H, NODES>::tally_locked(&self.slabs.nodes[node].stats, StatItem::CpuPartialNode, 1);
        })
    }

    /// Slabs that a CPU's partial list may hold, by the objects that are expected to be free in them: half of each.
    #[doc(alias = "slub_set_cpu_partial")]
    pub(super) fn cpu_partial_slabs(&self) -> usize {
        (2 * self.cpu_partial.get()).div_ceil(self.slabs.layout().objects)
    }

    /// Puts a frozen slab that nobody else knows on the slot's partial list.
    fn push_partial(slot: &TidSlot<B::Cell>, slab: NonNull<Slab>) -> usize {
        // SAFETY: frozen and on no list: the link is ours until it is pushed.
        unsafe { *slab.as_ref().next.get() = null_mut() };
        // Counted before anybody can take it and count it out: the number is never below zero.
        // ORDERING: Relaxed: a hint when the list is too long; the push's Release and the taker's Acquire order the two counts.
        let count = slot.partials.fetch_add(1, Ordering::Relaxed) + 1;
        Self::push_partials(slot, slab, slab);
        count
    }

    /// Puts a chain of such slabs there.
    fn push_partials(slot: &TidSlot<B::Cell>, first: NonNull<Slab>, last: NonNull<Slab>) {
        // ORDERING: Relaxed: the exchange below publishes.
        let mut top = slot.partial.load(Ordering::Relaxed);
        loop {
            // SAFETY: the chain is ours until the push succeeds.
            unsafe { *last.as_ref().next.get() = top };
            // ORDERING: Release publishes the links and pairs with the Acquire in `take_partials`.
            if slot.partial.try_cmpxchg(&mut top, first.as_ptr(), Ordering::Release) {
                return;
            }
        }
    }

    /// The whole partial list of a slot: no ABA, since nothing is popped.
    fn take_partials(slot: &TidSlot<B::Cell>) -> Option<NonNull<Slab>> {
        // ORDERING: Relaxed: a hint; the exchange orders.
        if slot.partial.load(Ordering::Relaxed).is_null() {
            return None;
        }
        // ORDERING: Acquire pairs with the Release in `push_partials`: links and words are visible.
        NonNull::new(slot.partial.xchg(null_mut(), Ordering::Acquire))
    }

    /// One slab from the slot's partial list.
    fn take_partial(&self, slot: &TidSlot<B::Cell>) -> Option<NonNull<Slab>> {
        let slab = Self::take_partials(slot)?;
        // SAFETY: the chain is ours since it was taken.
        unsafe {
            if let Some(rest) = NonNull::new(*slab.as_ref().next.get()) {
                let mut last = rest;
                while let Some(next) = NonNull::new(*last.as_ref().next.get()) {
                    last = next;
                }
                Self::push_partials(slot, rest, last);
            }
        }
        // ORDERING: Relaxed: as in `push_partial`.
        slot.partials.fetch_sub(1, Ordering::Relaxed);
        Slabs::<H, NODES>::tally(&self.slabs.nodes[0].stats, StatItem::CpuPartialAlloc, 1);
        Some(slab)
    }

    /// A slab that was full until an object of it came back here: the CPU keeps it, or its whole list goes to the node.
    #[doc(alias = "put_cpu_partial")]
    fn put_partial(&self, slab: NonNull<Slab>, wait: Wait) {
        let slot = &self.slots[self.backend.cpu() % CPUS];
        Slabs::<H, NODES>::tally(&self.slabs.nodes[0].stats, StatItem::CpuPartialFree, 1);
        if Self::push_partial(slot, slab) > self.cpu_partial_slabs() {
            Slabs::<H, NODES>::tally(&self.slabs.nodes[0].stats, StatItem::CpuPartialDrain, 1);
            self.flush_partials(slot, wait);
        }
    }

    /// Gives the slabs of a slot's partial list to their node.
    #[doc(alias = "put_partials")]
    pub(super) fn flush_partials(&self, slot: &TidSlot<B::Cell>, wait: Wait) {
        let mut next = Self::take_partials(slot);
        while let Some(slab) = next {
            // ORDERING: Relaxed: as in `push_partial`.
            slot.partials.fetch_sub(1, Ordering::Relaxed);
            // SAFETY: the chain is ours since it was taken.
            next = NonNull::new(unsafe { *slab.as_ref().next.get() });
            self.slabs.thaw(slab, false, wait);
        }
    }

    /// Ends the slot's relation to its slab: no slab first, then the list is emptied and the tid bumped in one step, then
    /// what was on the list goes back and the slab is unfrozen.
    #[doc(alias = "deactivate_slab")]
    pub(super) fn detach(&self, cpu: usize, slot: &TidSlot<B::Cell>, wait: Wait) {
        // ORDERING: Release: ordered before the exchange below, whose bump readers of the tid (Acquire) see first.
        let Some(slab) = NonNull::new(slot.slab.xchg(null_mut(), Ordering::AcqRel)) else { return };
        let list = loop {
            let seen = self.seen(cpu, slot);
            let head = self.backend.head(&slot.cell);
            if self.exchange(&seen, head, null_mut()) {
                break head;
            }
        };
        self.slabs.release(slab, list, wait);
    }

    /// Takes the slab of a CPU from it, if the CPU can be reached from here and no slow path is at work there.
    #[doc(alias = "flush_slab")]
    pub fn flush_cpu(&self, cpu: usize) {
        let slot = &self.slots[cpu];
        // The partial list is anyone's to take, from everywhere.
        self.flush_partials(slot, Wait::Yes);
        let _pin = self.backend.pin();
        if !self.backend.reaches(cpu) {
            return;
        }
        // ORDERING: Acquire and Release as in `alloc_slow`.
        if slot.busy.try_cmpxchg(&mut 0, 1, Ordering::Acquire) {
            self.detach(cpu, slot, Wait::Yes);
            Slabs::<H, NODES>::tally(&self.slabs.nodes[0].stats, StatItem::CpuslabFlush, 1);
            // ORDERING: Release pairs with the Acquire above.
            slot.busy.store(0, Ordering::Release);
        }
    }

    /// An object of another slab than the CPU's.
    ///
    /// # Safety
    ///
    /// As for [`free`](Self::free).
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn free_slow(&self, object: NonNull<u8>, wait: Wait) {
        Slabs::<H, NODES>::tally(&self.slabs.nodes[self.slabs.local_node()].stats, StatItem::FreeSlowpath, 1);
        self.slabs.host.event(Event::Free);
        let keeps = !self.slabs.config().slow && self.cpu_partial.get() != 0;
        let node = keeps.then(|| self.slabs.local_node());
        // SAFETY: as the caller promises.
        if let Some(slab) = unsafe { self.slabs.free_one_keeping(object, wait, node) } {
            self.put_partial(slab, wait);
        }
    }
}

impl<H: Host, const NODES: usize> crate::slabs::Slabs<H, NODES> {
    /// All that is free in a frozen slab, as a chain: the first object, the rest, and how many they are together. If
    /// nothing is, up to `cut` new ones.
    fn take_list(&self, slab: &Slab, cut: usize) -> Option<(NonNull<u8>, *mut u8, usize)> {
        let code = self.code();
        let mut word = slab.word();
        loop {
            let first = word.objects();
            let listed = word.free();
            let (new, fresh) = if listed != 0 {
                (word.take(crate::word::NONE, listed), 0)
            } else {
                let fresh = slab.capacity().saturating_sub(first).min(cut);
                if fresh == 0 {
                    return None;
                }
                (word.cut(fresh).take(crate::word::NONE, fresh), fresh)
            };
            let head = slab.head(word);
            if !slab.try_change(&mut word, new) {
                continue;
            }
            if fresh == 0 {
                let head = NonNull::new(head)?;
                // SAFETY: the whole list is ours.
                return Some((head, unsafe { code.next(head.as_ptr()) }, listed));
            }
            let mut rest = null_mut();
            for index in (first..first + fresh).rev() {
                // SAFETY: below the capacity; new objects, ours.
                unsafe {
                    let object = slab.object(index);
                    if let Some(ctor) = self.config().spec.ctor {
                        ctor(object);
                    }
                    if index == first {
                        return NonNull::new(object).map(|object| (object, rest, fresh));
                    }
                    code.set_next(object, rest);
                    rest = object;
                }
            }
        }
    }

    /// A frozen slab with something to allocate, on no list. Up to `more` others of the node's list, frozen too, are given to
    /// `keep`.
    #[doc(alias = "acquire_slab")]
    fn acquire(
        &self,
        node: usize,
        wait: Wait,
        more: usize,
        mut keep: impl FnMut(NonNull<Slab>),
    ) -> Option<NonNull<Slab>> {
        if !self.deferred_is_empty() && wait == Wait::Yes {
            self.flush_deferred();
        }
        if let Some(mut held) = self.lock_node(node, wait) {
            let mut discard = self.list_pending(&mut held, node);
            let first = NonNull::new(held.lists().partial.first());
            let mut left = more + 1;
            while let Some(slab) = NonNull::new(held.lists().partial.first()).filter(|_| left != 0) {
                // SAFETY: under the list lock, first of the list.
                unsafe {
                    held.lists().partial.remove(slab);
                    slab.as_ref().set_flags(slab.as_ref().flags() & !PARTIAL);
                }
                held.publish_len();
                Self::freeze(slab);
                if first == Some(slab) {
                    Self::tally_locked(&self.nodes[node].stats, StatItem::AllocFromPartial, 1);
                } else {
                    keep(slab);
                }
                left -= 1;
            }
            drop(held);
            self.discard_chain(&mut discard, node, wait);
            if first.is_some() {
                return first;
            }
        }
        let slab = self.new_slab(node, wait)?;
        Self::freeze(slab);
        Some(slab)
    }

    /// Gives a frozen slab up, with the objects `list` (a chain that ends in NULL).
    fn release(&self, slab: NonNull<Slab>, list: *mut u8, wait: Wait) {
        let code = self.code();
        // SAFETY: a live slab, frozen by the caller.
        let descriptor = unsafe { slab.as_ref() };
        if let Some(head) = NonNull::new(list) {
            let mut chain = Chain { head, tail: head, count: 1 };
            let word = descriptor.word();
            // SAFETY: the list is the caller's; a link that leads astray cuts the rest off.
            unsafe {
                let mut next = code.next(head.as_ptr());
                while descriptor.is_object(next, word) && chain.count < word.objects() {
                    chain.tail = NonNull::new_unchecked(next);
                    chain.count += 1;
                    next = code.next(next);
                }
                if !next.is_null() {
                    self.host.corrupted(crate::host::Corruption::FreePointer, self.name(), next);
                }
                self.free_chain(slab, chain, wait, false);
            }
        }
        self.thaw(slab, true, wait);
    }

    /// Gives a frozen slab that the caller owns to its node, at the front of the list or at its end.
    fn thaw(&self, slab: NonNull<Slab>, front: bool, wait: Wait) {
        // SAFETY: a live slab, frozen by the caller.
        let descriptor = unsafe { slab.as_ref() };
        let node = descriptor.node();
        let stats = &self.nodes[node].stats;
        // A full slab is on no list: whoever frees the first object of it lists it, so it needs no lock here.
        let mut word = descriptor.word();
        while word.full(descriptor.capacity()) && !self.flags().contains(CacheFlags::STORE_USER) {
            let new = word.with_frozen(false);
            if descriptor.try_change(&mut word, new) {
                Slabs::<H, NODES>::tally(stats, StatItem::DeactivateFull, 1);
                return;
            }
        }
        let Some(mut held) = self.lock_node(node, wait) else {
            self.push_pending(slab, node);
            return;
        };
        let mut discard = Discard::new();
        self.unfreeze(&mut held, slab, front, &mut discard);
        drop(held);
        Self::tally(stats, if front { StatItem::DeactivateToHead } else { StatItem::DeactivateToTail }, 1);
        self.discard_chain(&mut discard, node, wait);
    }
}
