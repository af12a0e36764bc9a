// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What happens when a pop or push fails.
#![expect(unsafe_code, reason = "moves raw objects and sheaves")]

use super::Cache;
use crate::barn::BarnError;
use crate::host::{Event, Host, Step};
use crate::sheaf::{Sheaf, missing};
use crate::slabs::Slabs;
use crate::slots::{CpuSlots, Place, Refused, Side, When};
use crate::source::Wait;
use crate::stats::StatItem;
use crate::sync::Ordering;
use core::ptr::NonNull;

impl<H: Host, const NODES: usize> Cache<H, NODES> {
    /// An object, after the CPU's main sheaf gave none. Leaves the CPU with a filled sheaf where it can. `None`: no
    /// memory (or, with [`Wait::Never`], a lock is busy).
    ///
    /// Safe to call at any time, also when the main sheaf is not empty. May be entered again by a signal handler at
    /// any point.
    #[doc(alias = "__pcs_replace_empty_main")]
    #[cold]
    #[inline(never)]
    pub fn alloc_slow(&self, wait: Wait) -> Option<NonNull<u8>> {
        let slots = self.slabs.host.slots();
        let config = self.slabs.config();
        let slot = config.spec.slot;
        if self.without_sheaves() {
            return self.alloc_direct(wait);
        }
        match slots.swap(slot, Side::Alloc) {
            Ok(()) | Err(Refused::Changed) => {
                if let Some(object) = slots.pop(slot) {
                    return Some(object);
                }
            }
            Err(Refused::Busy) => {
                if wait == Wait::Never || !slots.prepare() {
                    return self.alloc_direct(wait);
                }
            }
        }
        let context = self.slabs.host.context();
        let node = self.slabs.local_node();
        let shared = &self.slabs.nodes[node];
        if let Some(object) = self.trade_empty_main(node, wait) {
            return Some(object);
        }
        // The main may have changed: a full one in hand finds its place.
        if let Ok(mut full) = shared.barn.get_full(context, wait) {
            Slabs::<H, NODES>::tally(&shared.stats, StatItem::BarnGet, 1);
            self.slabs.host.event(Event::SheafIn(full.len(config.capacity)));
            // SAFETY: in hand, ours.
            if let Some(object) = unsafe { full.pop() } {
                self.install(full, wait);
                return Some(object);
            }
            self.put_empty(full, wait);
        }
        if wait == Wait::Never {
            return self.alloc_direct(wait);
        }
        self.refill(node).or_else(|| self.alloc_direct(wait))
    }

    /// Trades this CPU's empty main for a full sheaf of the barn and takes its first object. `None`: the barn has none or is
    /// busy, or the main is not empty any more.
    fn trade_empty_main(&self, node: usize, wait: Wait) -> Option<NonNull<u8>> {
        let slots = self.slabs.host.slots();
        let config = self.slabs.config();
        let shared = &self.slabs.nodes[node];
        let mut got = (None, 0);
        let context = self.slabs.host.context();
        let back = shared.barn.trade(context, wait, true, config.spec.barn_limit, |offer| {
            self.slabs.host.step(Step::BarnInHand);
            let mut full = offer;
            // SAFETY: the lock's holder owns what is in the barn; a refused sheaf is as it was, a pop does not erase.
            unsafe {
                got = (full.pop(), offer.len(config.capacity));
                slots.exchange(config.spec.slot, Place::Main, When::Empty, full).ok()
            }
        });
        let left = back.ok()?;
        Slabs::<H, NODES>::tally(&shared.stats, StatItem::BarnGet, 1);
        self.slabs.host.event(Event::SheafIn(got.1));
        if let Some(empty) = left {
            self.put_empty(empty, wait);
        }
        got.0
    }

    /// Trades this CPU's full main for an empty sheaf of the barn that then holds `object`. `false`: the barn has none, has
    /// as many full ones as it may or is busy, or the main is not full any more; the object is still the caller's.
    ///
    /// # Safety
    ///
    /// As for [`free_slow`](Self::free_slow).
    unsafe fn trade_full_main(&self, node: usize, object: NonNull<u8>, wait: Wait) -> bool {
        let slots = self.slabs.host.slots();
        let config = self.slabs.config();
        let shared = &self.slabs.nodes[node];
        let context = self.slabs.host.context();
        let mut objects = 0;
        let back = shared.barn.trade(context, wait, false, config.spec.barn_limit, |offer| {
            self.slabs.host.step(Step::BarnInHand);
            let mut sheaf = offer;
            // SAFETY: the lock's holder owns what is in the barn; a refused sheaf is empty by its old top.
            unsafe {
                if !sheaf.push(object) {
                    return None;
                }
                let full = slots.exchange(config.spec.slot, Place::Main, When::Full, sheaf).ok()?;
                objects = full.len(config.capacity);
                Some(full)
            }
        });
        let Ok(left) = back else { return false };
        if objects != 0 {
            Slabs::<H, NODES>::tally(&shared.stats, StatItem::BarnPut, 1);
            self.slabs.host.event(Event::SheafOut(objects));
        }
        debug_assert!(left.is_none_or(Sheaf::is_missing), "the barn had room");
        true
    }

    /// Fills a sheaf in hand from the slabs, keeps one object and installs the rest.
    fn refill(&self, node: usize) -> Option<NonNull<u8>> {
        let mut sheaf = self.empty_sheaf(node, Wait::Yes)?;
        // SAFETY: in hand, ours; `alloc_batch` writes as many objects as it says.
        let object = unsafe {
            let mut room = sheaf.room();
            // ORDERING: Relaxed: a figure.
            let objects = self.slabs.nodes[node].total_objects.load(Ordering::Relaxed);
            let refill = match self.slabs.config().spec.refill {
                0 => 0,
                least => least.max(objects / 8),
            };
            if (1..room.len()).contains(&refill) {
                room = &mut room[..refill];
            }
            let count = self.slabs.alloc_batch(room, node, Wait::Yes);
            // The last one leaves first: users get objects in the order in which the slab gave them.
            room[..count].reverse();
            Slabs::<H, NODES>::tally(&self.slabs.nodes[node].stats, StatItem::SheafRefill, count);
            self.slabs.host.event(Event::SheafIn(count));
            sheaf.grow(count);
            sheaf.pop()
        };
        let Some(object) = object else {
            self.put_empty(sheaf, Wait::Yes);
            return None;
        };
        self.slabs.host.step(Step::RefillInHand);
        self.install(sheaf, Wait::Yes);
        Some(object)
    }

    /// Gives the sheaf in hand, with what is in it, to whichever CPU this is by now: in the place of an empty main, of
    /// an empty spare, or to the barn, whose limit does not count here. Nothing is lost whatever changed meanwhile.
    pub(crate) fn install(&self, mut sheaf: Sheaf, wait: Wait) {
        let slots = self.slabs.host.slots();
        let slot = self.slabs.config().spec.slot;
        if sheaf.is_empty() {
            self.put_empty(sheaf, wait);
            return;
        }
        for place in [Place::Main, Place::Spare] {
            // SAFETY: in hand, ours, with objects of this cache.
            if let Ok(old) = unsafe { slots.exchange(slot, place, When::Empty, sheaf) } {
                self.put_empty(old, wait);
                return;
            }
        }
        let node = self.slabs.local_node();
        let context = self.slabs.host.context();
        if self.slabs.nodes[node].barn.put(context, wait, sheaf, usize::MAX).is_err() {
            self.flush_objects(&mut sheaf, wait);
            self.put_empty(sheaf, wait);
        }
    }

    /// An empty sheaf in hand: this CPU's spare if that is empty, one from the barn, one from the pool.
    pub(crate) fn empty_sheaf(&self, node: usize, wait: Wait) -> Option<Sheaf> {
        let slots = self.slabs.host.slots();
        let config = self.slabs.config();
        // SAFETY: the missing sheaf belongs to nobody and holds nothing.
        if let Ok(spare) = unsafe { slots.exchange(config.spec.slot, Place::Spare, When::Empty, missing()) }
            && !spare.is_missing()
        {
            return Some(spare);
        }
        let context = self.slabs.host.context();
        if let Ok(sheaf) = self.slabs.nodes[node].barn.get_empty(context, wait) {
            return Some(sheaf);
        }
        self.slabs.host.sheaves().get(config.capacity, wait)
    }

    /// Puts an empty sheaf (or none) where it is wanted: spare, barn, pool.
    pub(crate) fn put_empty(&self, sheaf: Sheaf, wait: Wait) {
        if sheaf.is_missing() {
            return;
        }
        let slots = self.slabs.host.slots();
        let config = self.slabs.config();
        // SAFETY: in hand, ours.
        if unsafe { slots.exchange(config.spec.slot, Place::Spare, When::Missing, sheaf) }.is_ok() {
            return;
        }
        let context = self.slabs.host.context();
        let node = self.slabs.local_node();
        if self.slabs.nodes[node].barn.put(context, wait, sheaf, config.spec.barn_limit).is_err() {
            // SAFETY: in hand, ours, empty.
            unsafe { self.slabs.host.sheaves().put(sheaf, wait) };
        }
    }

    /// Gives the objects of a sheaf in hand back to their slabs; it is empty afterwards.
    pub(crate) fn flush_objects(&self, sheaf: &mut Sheaf, wait: Wait) {
        let capacity = self.slabs.config().capacity;
        let count = sheaf.len(capacity);
        if count != 0 {
            // SAFETY: in hand, ours, objects of this cache.
            unsafe { self.slabs.free_batch(sheaf.objects(capacity), wait) };
            sheaf.clear(capacity);
            Slabs::<H, NODES>::tally(&self.slabs.nodes[0].stats, StatItem::SheafFlush, count);
        }
    }

    /// One object from the slabs.
    #[cold]
    pub(crate) fn alloc_direct(&self, wait: Wait) -> Option<NonNull<u8>> {
        let node = self.slabs.local_node();
        Slabs::<H, NODES>::tally(&self.slabs.nodes[node].stats, StatItem::AllocSlowpath, 1);
        let object = self.slabs.alloc_one(node, wait);
        if object.is_some() {
            self.slabs.host.event(Event::Alloc);
        }
        object
    }

    /// One object to the slabs.
    ///
    /// # Safety
    ///
    /// As for [`free`](Self::free).
    #[cold]
    pub(crate) unsafe fn free_direct(&self, object: NonNull<u8>, wait: Wait) {
        Slabs::<H, NODES>::tally(&self.slabs.nodes[self.slabs.local_node()].stats, StatItem::FreeSlowpath, 1);
        self.slabs.host.event(Event::Free);
        // SAFETY: as the caller promises.
        unsafe { self.slabs.free_one(object, wait) };
    }

    /// Takes an object back, after the CPU's main sheaf took it not. Leaves the CPU with room where it can.
    ///
    /// Safe to call at any time, also when there is room. May be entered again by a signal handler at any point.
    ///
    /// # Safety
    ///
    /// The object came from this cache and nobody uses it any more.
    #[doc(alias = "__pcs_replace_full_main")]
    #[cold]
    #[inline(never)]
    pub unsafe fn free_slow(&self, object: NonNull<u8>, wait: Wait) {
        let slots = self.slabs.host.slots();
        let config = self.slabs.config();
        let slot = config.spec.slot;
        // SAFETY: the object is the caller's until one of these takes it.
        unsafe {
            if self.without_sheaves() || self.is_remote(object) {
                return self.free_direct(object, wait);
            }
            match slots.swap(slot, Side::Free) {
                Ok(()) | Err(Refused::Changed) => {
                    if slots.push(slot, object) {
                        return;
                    }
                }
                Err(Refused::Busy) => {
                    if wait == Wait::Never || !slots.prepare() {
                        return self.free_direct(object, wait);
                    }
                }
            }
            let node = self.slabs.local_node();
            if self.trade_full_main(node, object, wait) {
                return;
            }
            let barn = &self.slabs.nodes[node].barn;
            let mut in_hand = None;
            if !barn.present || barn.nr_full() >= config.spec.barn_limit {
                // No room for another full sheaf: the spare's objects go to their slabs.
                if let Ok(mut spare) = slots.exchange(slot, Place::Spare, When::Full, missing())
                    && !spare.is_missing()
                {
                    self.slabs.host.event(Event::SheafOut(spare.len(config.capacity)));
                    self.flush_objects(&mut spare, wait);
                    in_hand = Some(spare);
                }
            }
            let Some(mut sheaf) = in_hand.or_else(|| self.empty_sheaf(node, wait)) else {
                return self.free_direct(object, wait);
            };
            if !sheaf.push(object) {
                self.put_empty(sheaf, wait);
                return self.free_direct(object, wait);
            }
            self.slabs.host.step(Step::BarnInHand);
            match slots.exchange(slot, Place::Main, When::Full, sheaf) {
                Ok(full) => self.put_full(full, wait),
                // The CPU changed: this sheaf holds one object and is as good as any.
                Err(_) => self.install(sheaf, wait),
            }
        }
    }

    /// Puts a full sheaf where it is wanted: spare if there is none, barn, slabs.
    pub(crate) fn put_full(&self, mut sheaf: Sheaf, wait: Wait) {
        if sheaf.is_missing() {
            return;
        }
        let slots = self.slabs.host.slots();
        let config = self.slabs.config();
        // SAFETY: in hand, ours, with objects of this cache.
        if unsafe { slots.exchange(config.spec.slot, Place::Spare, When::Missing, sheaf) }.is_ok() {
            return;
        }
        let node = self.slabs.local_node();
        let shared = &self.slabs.nodes[node];
        self.slabs.host.event(Event::SheafOut(sheaf.len(config.capacity)));
        match shared.barn.put(self.slabs.host.context(), wait, sheaf, config.spec.barn_limit) {
            Ok(()) => Slabs::<H, NODES>::tally(&shared.stats, StatItem::BarnPut, 1),
            Err(error) => {
                if error == BarnError::TooMany {
                    Slabs::<H, NODES>::tally(&shared.stats, StatItem::BarnPutFail, 1);
                }
                self.flush_objects(&mut sheaf, wait);
                self.put_empty(sheaf, wait);
            }
        }
    }

    /// Whether the object lies on another node: those go to their slabs, not into sheaves.
    #[inline]
    fn is_remote(&self, object: NonNull<u8>) -> bool {
        NODES > 1
            && self.slabs.slab_of(object.as_ptr()).is_none_or(|slab| {
                // SAFETY: the slab of a live object.
                unsafe { slab.as_ref() }.node() != self.slabs.local_node()
            })
    }

    /// Gives the objects of full sheaves back to the slabs that stayed in the barns all the time since the last call, and
    /// returns how many sheaves that were. For a host that calls it now and then: what a program does not need any more
    /// becomes free for other sizes, and what it takes and puts back all the time stays.
    #[doc(alias = "cache_reap")]
    pub fn reap(&self) -> usize {
        let context = self.slabs.host.context();
        let mut count = 0;
        for node in &self.slabs.nodes {
            for _ in 0..node.barn.unneeded() {
                let Ok(mut sheaf) = node.barn.get_full(context, Wait::Yes) else { break };
                self.flush_objects(&mut sheaf, Wait::Yes);
                // SAFETY: in hand, ours, empty.
                unsafe { self.slabs.host.sheaves().put(sheaf, Wait::Yes) };
                count += 1;
            }
        }
        count
    }

    /// Flushes all barns.
    pub(crate) fn shrink_barns(&self) {
        let context = self.slabs.host.context();
        for node in &self.slabs.nodes {
            while let Ok(mut sheaf) = node.barn.get_full(context, Wait::Yes) {
                self.flush_objects(&mut sheaf, Wait::Yes);
                // SAFETY: in hand, ours, empty.
                unsafe { self.slabs.host.sheaves().put(sheaf, Wait::Yes) };
            }
            while let Ok(sheaf) = node.barn.get_empty(context, Wait::Yes) {
                // SAFETY: in hand, ours, empty.
                unsafe { self.slabs.host.sheaves().put(sheaf, Wait::Yes) };
            }
        }
    }
}
