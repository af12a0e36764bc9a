// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The slab layer: objects of one size in slabs, node partial lists, batches in and out.
//!
//! # Invariants
//!
//! 1. Each object is in exactly one place: with a user, on its slab's free list, in one sheaf, on a CPU's list (tid
//!    front), on the deferred list, or not cut yet. All but the list and the uncut ones count as `inuse`.
//! 2. Objects leave a slab only while it is *exclusive*: on no list that others look at, or under the list lock, or
//!    frozen by its owner. So nobody else pops while a batch walks the free list; others can only push on top of it.
//! 3. A slab on the partial list is not full and not frozen; its flag `PARTIAL` says it is there, under the list lock.
//! 4. A full slab is on no list of slabs to allocate from, at no time: whoever takes the last object unlists it before the
//!    exchange, under the list lock. Whoever gives the first object back to a full slab (and sees that in the exchange it
//!    wins) lists it, under the lock, or freezes it in that exchange and owns it, without the lock.
//! 5. Whoever makes `inuse` 0 decides about the slab, with the list lock taken *before* the exchange: after it the slab
//!    may be emptied, given back and reused by others.
//! 6. Frozen slabs are exempt from 4 and 5: their owner lists or discards them when it unfreezes them.
#![expect(unsafe_code, reason = "moves raw objects between lists")]

mod free;
mod links;
mod manage;

pub(crate) use free::Chain;
pub use manage::Busy;

use crate::barn::Barn;
use crate::freeptr::FreePointerCode;
use crate::host::{Corruption, Host, Step};
use crate::lock::RawLock;
use crate::node::{Held, Node};
use crate::sizing::{Layout, Sizing, min_partial, sheaf_capacity};
use crate::slab::{PARTIAL, Run, Shape, Slab};
use crate::slots::CpuSlots;
use crate::source::{PageSource, Wait};
use crate::spec::{CacheFlags, CacheSpec, FreePointer};
use crate::stats::{StatItem, Stats};
use crate::sync::{AtomicPtr, Ordering, Tunable, const_fn};
use crate::word::NONE;
use core::cell::UnsafeCell;
use core::ptr::NonNull;

/// What is decided when a cache is made and constant while it is used.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is one decision of the flags, made once")]
pub(crate) struct Config {
    pub(crate) spec: CacheSpec,
    pub(crate) layout: Layout,
    /// Free pointers are stored obfuscated.
    pub(crate) hardened: bool,
    pub(crate) min_partial: usize,
    pub(crate) page_shift: u32,
    /// Objects per sheaf, 0 for none.
    pub(crate) capacity: usize,
    /// Every operation goes through the list lock, one object at a time.
    pub(crate) slow: bool,
    /// A debug flag is set: allocations and frees are those of `debug`.
    pub(crate) debug: bool,
    /// Free objects are filled with poison.
    pub(crate) poison: bool,
    /// Objects are zeroed when they are allocated, when they are freed.
    pub(crate) zero_alloc: bool,
    pub(crate) zero_free: bool,
    /// All objects of a slab are made when the slab is.
    pub(crate) cut_all: bool,
    /// Free objects are linked apart from their memory.
    pub(crate) apart: bool,
}

impl Config {
    /// `None` if the spec is impossible.
    pub(crate) const fn of(spec: CacheSpec, sizing: &Sizing) -> Option<Self> {
        let Some(layout) = Layout::of(&spec, sizing, 20) else { return None };
        if spec.class == 0 {
            return None; // marks a vacant descriptor
        }
        let kept = match spec.min_partial {
            Some(kept) => kept,
            None => min_partial(layout.size),
        };
        // Objects that are always in constructed state, or that readers look at while free, keep their contents.
        let keeps = spec.ctor.is_some() || spec.flags.contains(CacheFlags::TYPESAFE_BY_RCU);
        // Poison takes precedence.
        let zeroes = !keeps && !spec.flags.contains(CacheFlags::POISON);
        let zero_alloc = zeroes && spec.flags.contains(CacheFlags::INIT_ON_ALLOC);
        let zero_free = zeroes && spec.flags.contains(CacheFlags::INIT_ON_FREE);
        let none = spec.flags.intersects(CacheFlags::DEBUG.with(CacheFlags::NO_LEAK_TRACE));
        let wished = sheaf_capacity(layout.size, spec.sheaf_capacity);
        let capacity = if none {
            0
        } else if wished > crate::sheaf::SHEAF_MAX {
            crate::sheaf::SHEAF_MAX
        } else {
            wished
        };
        Some(Self {
            spec,
            layout,
            hardened: spec.flags.contains(CacheFlags::HARDENED),
            min_partial: kept,
            page_shift: sizing.page_shift,
            capacity,
            slow: spec.flags.intersects(CacheFlags::DEBUG.with(CacheFlags::EXACT_STATS))
                || zero_alloc
                || zero_free,
            debug: spec.flags.intersects(CacheFlags::DEBUG),
            poison: spec.flags.contains(CacheFlags::POISON) && !keeps,
            zero_alloc,
            zero_free,
            cut_all: zero_free || spec.flags.intersects(CacheFlags::DEBUG.with(CacheFlags::RANDOM)),
            apart: matches!(spec.free_pointer, FreePointer::Apart),
        })
    }
}

/// The slab layer of one cache: `NODES` nodes over the host's page source.
///
/// It can stand in a static. Its address names it in the descriptors of its slabs, so it must stay where it is from the
/// first allocation to the last free; an object freed to a moved one is refused (leaked), not confused.
///
/// Batches are the interface: [`alloc_batch`](Self::alloc_batch) and [`free_batch`](Self::free_batch) move many objects
/// with one exchange per slab. The front ends stand on it.
pub struct Slabs<H: Host, const NODES: usize = 1> {
    pub(crate) host: H,
    config: UnsafeCell<Config>,
    /// Of obfuscated free pointers; 0: not chosen yet.
    pub(crate) secret: Tunable,
    /// Empty slabs a node keeps.
    pub(crate) min_partial: Tunable,
    /// How readily a remote node's slabs are taken before a new one, of 1024.
    pub(crate) defrag_ratio: Tunable,
    /// Whether failure injection applies: for the host to look at.
    pub(crate) failslab: Tunable,
    pub(crate) nodes: [Node<H::Lock>; NODES],
    /// Objects freed by contexts that could not take a lock, linked by plain pointers in their free-pointer words.
    deferred: AtomicPtr<u8>,
}

// SAFETY: `config` is constant while the cache is used (see `reconfigure`); everything else is shared by its own rules.
unsafe impl<H: Host, const NODES: usize> Sync for Slabs<H, NODES> {}
// SAFETY: nothing in it is bound to a thread.
unsafe impl<H: Host, const NODES: usize> Send for Slabs<H, NODES> where H::Lock: Send {}

impl<H: Host, const NODES: usize> core::fmt::Debug for Slabs<H, NODES> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Slabs")
            .field("name", &self.name())
            .field("info", &self.info())
            .finish_non_exhaustive()
    }
}

impl<H: Host, const NODES: usize> Slabs<H, NODES> {
    const_fn! {
        /// A slab layer without slabs. Every node has a barn.
        ///
        /// # Panics
        ///
        /// If the spec is impossible (size 0, alignment no power of two, object larger than a slab can be): at compile
        /// time in a constant.
        pub const fn new(host: H, spec: CacheSpec, sizing: &Sizing) -> Self {
            Self::with_barns(host, spec, sizing, usize::MAX)
        }
    }

    const_fn! {
        /// The same where only the nodes of the bit mask `barns` have a barn: a node without memory has none.
        ///
        /// # Panics
        ///
        /// As [`new`](Self::new).
        pub const fn with_barns(host: H, spec: CacheSpec, sizing: &Sizing, barns: usize) -> Self {
            #[cfg(not(loom))]
            let nodes = {
                let mut nodes =
                    [const { Node::new(H::Lock::UNLOCKED, Barn::new(H::Lock::UNLOCKED, true)) }; NODES];
                let mut i = 0;
                while i < NODES {
                    nodes[i].barn.present = i >= usize::BITS as usize || barns >> i & 1 != 0;
                    i += 1;
                }
                nodes
            };
            #[cfg(loom)]
            let nodes = core::array::from_fn(|i| {
                Node::new(H::Lock::unlocked(), Barn::new(H::Lock::unlocked(), barns >> i & 1 != 0))
            });
            let Some(config) = Config::of(spec, sizing) else { panic!("an impossible cache: see CacheSpec") };
            Self {
                host,
                config: UnsafeCell::new(config),
                secret: Tunable::new(0),
                min_partial: Tunable::new(config.min_partial),
                defrag_ratio: Tunable::new(1000),
                failslab: Tunable::new(spec.flags.contains(CacheFlags::FAILSLAB) as usize),
                nodes,
                deferred: AtomicPtr::new(core::ptr::null_mut()),
            }
        }
    }

    #[inline(always)]
    pub(crate) fn config(&self) -> &Config {
        // SAFETY: written only by `reconfigure`, whose caller promises that nobody else uses the cache.
        unsafe { &*self.config.get() }
    }

    /// Changes what was decided at construction: for settings that are known only at run time.
    ///
    /// # Safety
    ///
    /// Nobody else uses the cache during the call, and it has no slabs.
    pub(crate) unsafe fn reconfigure(&self, change: impl FnOnce(&mut Config)) {
        // SAFETY: exclusive (caller).
        let config = unsafe { &mut *self.config.get() };
        change(config);
        self.min_partial.set(config.min_partial);
    }

    /// How free pointers are stored.
    #[inline(always)]
    pub(crate) fn code(&self) -> FreePointerCode<'_> {
        let config = self.config();
        FreePointerCode { offset: config.layout.offset, secret: &self.secret, hardened: config.hardened }
    }

    /// Sets the debugging flags, for settings that are known only when the program runs (`FASTPATH_DEBUG`, a boot
    /// parameter): the cache is as if made with `flags` in its spec. `false`, with nothing changed: objects would not fit
    /// in a slab.
    ///
    /// # Safety
    ///
    /// Nobody else uses the cache during the call, and it has no slabs and no objects in sheaves.
    pub unsafe fn set_flags(&self, flags: CacheFlags, sizing: &Sizing) -> bool {
        let Some(config) = Config::of(self.config().spec.flags(flags), sizing) else { return false };
        // SAFETY: as the caller promises.
        unsafe { self.reconfigure(|old| *old = config) };
        true
    }

    /// The name given in the spec.
    pub fn name(&self) -> &'static str {
        self.config().spec.name
    }

    /// Where things lie in objects and slabs.
    pub fn layout(&self) -> &Layout {
        &self.config().layout
    }

    /// The flags.
    pub fn flags(&self) -> CacheFlags {
        self.config().spec.flags
    }

    /// The identity that descriptors carry.
    #[inline(always)]
    pub(crate) fn id(&self) -> *const () {
        core::ptr::from_ref(self).cast()
    }

    /// Counts, if the host wants statistics.
    #[inline(always)]
    pub(crate) fn tally(stats: &Stats, item: StatItem, n: usize) {
        if H::STATS {
            stats.add(item, n);
        }
    }

    /// [`Stats::add_locked`], if the host wants statistics.
    #[inline(always)]
    pub(crate) fn tally_locked(stats: &Stats, item: StatItem, n: usize) {
        if H::STATS {
            stats.add_locked(item, n);
        }
    }

    /// The node of this CPU.
    #[inline]
    pub(crate) fn local_node(&self) -> usize {
        if NODES == 1 { 0 } else { self.host.slots().node() % NODES }
    }

    #[inline]
    pub(crate) fn lock_node(&self, node: usize, wait: Wait) -> Option<Held<'_, H::Lock>> {
        let context = self.host.context();
        match wait {
            Wait::Yes => self.nodes[node].lock(context),
            Wait::Never => self.nodes[node].try_lock(context),
        }
    }

    /// Takes up to `out.len()` objects from the slabs, from `node` first, and returns how many. Less than
    /// half of them come only if the source has no memory (or `wait` forbids to wait for it): a batch prefers what is there
    /// to another slab.
    #[doc(alias = "__refill_objects")]
    pub fn alloc_batch(&self, out: &mut [*mut u8], node: usize, wait: Wait) -> usize {
        if self.config().slow {
            return self.alloc_batch_slow(out, node, wait);
        }
        self.alloc_batch_fast(out, node, wait)
    }

    /// Batches of caches whose objects need something done to each.
    #[cold]
    fn alloc_batch_slow(&self, out: &mut [*mut u8], node: usize, wait: Wait) -> usize {
        let config = self.config();
        if config.debug {
            return self.alloc_checked_batch(out, node, wait);
        }
        let got = self.alloc_batch_fast(out, node, wait);
        for &mut object in &mut out[..got] {
            // SAFETY: just allocated, ours.
            unsafe { self.zero_allocated(object) };
        }
        got
    }

    fn alloc_batch_fast(&self, out: &mut [*mut u8], node: usize, wait: Wait) -> usize {
        let mut got = self.take_partial(out, node, wait);
        if got < out.len() && !self.deferred_is_empty() && wait == Wait::Yes {
            self.flush_deferred();
            got += self.take_partial(&mut out[got..], node, wait);
        }
        // Half a batch from what is there is better than another slab: whoever needs more asks again.
        if got == 0 || got < out.len() / 2 {
            for other in (0..NODES).filter(|&other| other != node) {
                // A remote node gives only what it keeps beyond its own minimum.
                if got == 0 && self.takes_from(other) {
                    got += self.take_partial(&mut out[got..], other, Wait::Never);
                }
            }
        }
        while got == 0 || got < out.len() / 2 {
            let fresh = self.take_new(&mut out[got..], node, wait);
            if fresh == 0 {
                break;
            }
            got += fresh;
        }
        if got == 0 && wait == Wait::Never {
            got = self.take_pending(out, node);
        }
        got
    }

    /// Whether slabs of another node may be taken before a new one: as often as the ratio says, and only what the node
    /// keeps beyond its own minimum.
    pub(crate) fn takes_from(&self, other: usize) -> bool {
        let ratio = self.defrag_ratio.get();
        self.nodes[other].nr_partial() > self.min_partial.get()
            && ratio != 0
            && self.host.random() as usize % 1024 <= ratio
    }

    /// One object, or `None` without memory.
    pub fn alloc_one(&self, node: usize, wait: Wait) -> Option<NonNull<u8>> {
        let mut out = [core::ptr::null_mut(); 1];
        if self.alloc_batch(&mut out, node, wait) == 0 { None } else { NonNull::new(out[0]) }
    }

    /// From the slabs of a node's partial list, in one turn of its lock.
    fn take_partial(&self, out: &mut [*mut u8], node: usize, wait: Wait) -> usize {
        let shared = &self.nodes[node];
        // ORDERING: Relaxed: a hint whether the lock is worth taking.
        let nothing = shared.nr_partial() == 0 && shared.pending.load(Ordering::Relaxed).is_null();
        if nothing {
            return 0;
        }
        let Some(mut held) = self.lock_node(node, wait) else { return 0 };
        let mut discard = self.list_pending(&mut held, node);
        let mut got = 0;
        while got < out.len() {
            let Some(slab) = NonNull::new(held.lists().partial.first()) else { break };
            // SAFETY: members of the list are live descriptors, and the list lock makes the slab exclusive.
            let descriptor = unsafe { slab.as_ref() };
            // Invariant 4: it leaves the list before it can be full. Frees meanwhile only leave more in it.
            let word = descriptor.word();
            let left = word.free() + descriptor.capacity().saturating_sub(word.objects());
            let leaving = left <= out.len() - got;
            if leaving {
                // SAFETY: under the list lock; it is the first of the list.
                unsafe { Self::unlist(&mut held, slab) };
            }
            let (taken, full) = self.grab(descriptor, &mut out[got..]);
            got += taken;
            self.host.step(Step::Grabbed);
            if leaving && !full {
                // SAFETY: under the list lock; on no list, and nobody else lists or keeps it while it is not full.
                unsafe {
                    held.lists().partial.push_front(slab);
                    descriptor.set_flags(descriptor.flags() | PARTIAL);
                }
                held.publish_len();
            } else if !leaving && full {
                // Given up for its damage, and frozen: nobody else touches its place.
                // SAFETY: under the list lock; it is the first of the list.
                unsafe { Self::unlist(&mut held, slab) };
            }
        }
        if got != 0 {
            Self::tally_locked(&shared.stats, StatItem::AllocFromPartial, 1);
        }
        drop(held);
        self.discard_chain(&mut discard, node, wait);
        got
    }

    /// Takes a slab off the partial list.
    ///
    /// # Safety
    ///
    /// Under the list lock; the slab is on that list.
    unsafe fn unlist(held: &mut Held<'_, H::Lock>, slab: NonNull<Slab>) {
        // SAFETY: as the caller promises.
        unsafe {
            held.lists().partial.remove(slab);
            slab.as_ref().set_flags(slab.as_ref().flags() & !PARTIAL);
        }
        held.publish_len();
    }

    /// Takes up to `out.len()` objects out of an exclusive slab with one exchange: first from its list, then by cutting
    /// new ones. Says how many, and whether the exchange made the slab full: it is nobody's then, and whoever gives the first
    /// object back decides about it.
    fn grab(&self, slab: &Slab, out: &mut [*mut u8]) -> (usize, bool) {
        let config = self.config();
        if config.apart {
            return self.grab_apart(slab, out);
        }
        let code = self.code();
        let capacity = slab.capacity();
        let mut word = slab.word();
        loop {
            let listed = word.free().min(out.len());
            let mut object = slab.head(word);
            for place in &mut out[..listed] {
                if !slab.is_object(object, word) {
                    return self.corrupt_list(slab, object);
                }
                *place = object;
                // SAFETY: a free object of an exclusive slab (Invariant 2): the link is not changed by others.
                object = unsafe { code.next(object) };
            }
            let head = if object.is_null() {
                NONE
            } else if slab.is_object(object, word) {
                slab.index(object) as u16
            } else {
                return self.corrupt_list(slab, object);
            };
            let first = word.objects();
            let cut = capacity.saturating_sub(first).min(out.len() - listed);
            let count = listed + cut;
            if count == 0 {
                return (0, word.full(capacity));
            }
            self.host.step(Step::GrabRead);
            let new = word.cut(cut).take(head, count);
            if slab.try_change(&mut word, new) {
                for (index, place) in out[listed..count].iter_mut().enumerate() {
                    // SAFETY: `first + index` is below the capacity.
                    *place = unsafe { slab.object(first + index) };
                }
                self.construct(&out[listed..count]);
                return (count, new.full(capacity));
            }
        }
    }

    /// A free list leads astray: what remains of the slab is given up, as if all were in use, and nothing is ever taken from
    /// it again (frozen). Returns no objects, and that the slab is full.
    #[cold]
    fn corrupt_list(&self, slab: &Slab, object: *mut u8) -> (usize, bool) {
        self.host.corrupted(Corruption::FreePointer, self.name(), object);
        let mut word = slab.word();
        loop {
            let rest = slab.capacity().saturating_sub(word.objects());
            let used = word.cut(rest).take(NONE, word.free() + rest).with_frozen(true);
            if slab.try_change(&mut word, used) {
                return (0, true);
            }
        }
    }

    /// From a slab that the source gives.
    fn take_new(&self, out: &mut [*mut u8], node: usize, wait: Wait) -> usize {
        let Some(slab) = self.new_slab(node, wait) else { return 0 };
        self.host.step(Step::NewSlab);
        // SAFETY: a live descriptor, and nobody else knows it.
        let descriptor = unsafe { slab.as_ref() };
        let (got, _) = self.grab(descriptor, out);
        self.list_new(slab, node, wait);
        got
    }

    /// A slab from the source that nobody else knows.
    pub(crate) fn new_slab(&self, node: usize, wait: Wait) -> Option<NonNull<Slab>> {
        let config = self.config();
        let layout = &config.layout;
        let (align, source) = (layout.align, self.host.source());
        let mut order = layout.order;
        let slab = source.alloc_slab(order, align, node, wait).or_else(|| {
            order = layout.min_order;
            let smaller =
                (order < layout.order).then(|| source.alloc_slab(order, align, node, wait)).flatten();
            if smaller.is_some() {
                Self::tally(&self.nodes[node].stats, StatItem::OrderFallback, 1);
            }
            smaller
        })?;
        let bytes = 1usize << (order + config.page_shift);
        // Each object brings its own left red zone along.
        let capacity = (bytes / layout.size).min(crate::word::MAX_OBJECTS);
        let shape = Shape {
            size: layout.size as u32,
            reciprocal: Shape::reciprocal(layout.size as u32, bytes),
            class: config.spec.class,
            capacity: capacity as u16,
        };
        let run = Run { node: node as u8, order: order as u8 };
        // SAFETY: fresh from the source, nobody else knows it.
        unsafe { slab.as_ref().make(self.id(), shape, run, layout.red_left) };
        if config.hardened && self.secret.get() == 0 {
            self.secret.set_once(self.host.random() as usize);
        }
        if config.cut_all {
            // SAFETY: as above.
            self.cut_all(unsafe { slab.as_ref() });
        }
        let shared = &self.nodes[node];
        // ORDERING: Relaxed: counts publish nothing.
        shared.nr_slabs.fetch_add(1, Ordering::Relaxed);
        // ORDERING: Relaxed, as above.
        shared.total_objects.fetch_add(capacity, Ordering::Relaxed);
        Self::tally(&shared.stats, StatItem::AllocSlab, 1);
        Some(slab)
    }

    /// Puts a slab that nobody else knows on the partial list, or has the next holder of the lock do it.
    pub(crate) fn list_new(&self, slab: NonNull<Slab>, node: usize, wait: Wait) {
        // SAFETY: a live descriptor.
        let descriptor = unsafe { slab.as_ref() };
        let Some(mut held) = self.lock_node(node, wait) else {
            self.push_pending(slab, node);
            return;
        };
        // Objects of it may be free again by now: what counts is the word, under the lock.
        // A free that found the slab full has listed it already, or waits for this lock to do so.
        // SAFETY: under the list lock.
        unsafe {
            if descriptor.flags() & PARTIAL == 0 && !descriptor.word().full(descriptor.capacity()) {
                held.lists().partial.push_front(slab);
                descriptor.set_flags(descriptor.flags() | PARTIAL);
                held.publish_len();
            } else if descriptor.flags() & PARTIAL == 0 {
                self.track_full(&mut held, slab);
            }
        }
    }

    /// Freezes a slab that the caller owns.
    pub(crate) fn freeze(slab: NonNull<Slab>) {
        // SAFETY: a live descriptor.
        let descriptor = unsafe { slab.as_ref() };
        let mut word = descriptor.word();
        loop {
            let new = word.with_frozen(true);
            if descriptor.try_change(&mut word, new) {
                return;
            }
        }
    }

    /// Freezes a slab that nobody else knows (apart from holders of its objects) and leaves it to the next holder of the
    /// list lock.
    pub(crate) fn push_pending(&self, slab: NonNull<Slab>, node: usize) {
        Self::freeze(slab);
        let pending = &self.nodes[node].pending;
        // ORDERING: Relaxed: the exchange below publishes.
        let mut top = pending.load(Ordering::Relaxed);
        loop {
            // SAFETY: frozen and on no list: the link is ours until the push succeeds.
            unsafe { *slab.as_ref().next.get() = top };
            // ORDERING: Release publishes the link and pairs with the Acquire in `list_pending` and `take_pending`.
            if pending.try_cmpxchg(&mut top, slab.as_ptr(), Ordering::Release) {
                return;
            }
        }
    }

    /// Unfreezes and lists the pending slabs of a node; returns those that are to be given back, chained.
    pub(crate) fn list_pending(&self, held: &mut Held<'_, H::Lock>, node: usize) -> Discard {
        let mut discard = Discard::new();
        let pending = &self.nodes[node].pending;
        // ORDERING: Relaxed: a hint; the exchange below orders.
        if pending.load(Ordering::Relaxed).is_null() {
            return discard;
        }
        // ORDERING: Acquire pairs with the Release in `push_pending`: links and words are visible.
        let mut next = pending.xchg(core::ptr::null_mut(), Ordering::Acquire);
        while let Some(slab) = NonNull::new(next) {
            // SAFETY: the whole chain is ours since the exchange.
            next = unsafe { *slab.as_ref().next.get() };
            self.unfreeze(held, slab, false, &mut discard);
        }
        discard
    }

    /// Ends the frozen time of a slab that the caller owns and is on no list: lists it (at the front if `front`), leaves
    /// it alone if it is full, or chains it for discarding. Under the list lock.
    pub(crate) fn unfreeze(
        &self,
        held: &mut Held<'_, H::Lock>,
        slab: NonNull<Slab>,
        front: bool,
        discard: &mut Discard,
    ) {
        // SAFETY: a live descriptor.
        let descriptor = unsafe { slab.as_ref() };
        let mut word = descriptor.word();
        loop {
            // Invariant 6: while it is frozen nobody else lists it; the list change must be decided with the exchange.
            let empty = word.inuse() == 0 && held.lists().partial.len() >= self.min_partial.get();
            let full = word.full(descriptor.capacity());
            let new = word.with_frozen(false);
            if descriptor.try_change(&mut word, new) {
                // SAFETY: under the list lock, on no list.
                unsafe {
                    if empty {
                        self.condemn(held, slab, discard);
                    } else if full {
                        self.track_full(held, slab);
                    } else {
                        if front {
                            held.lists().partial.push_front(slab);
                        } else {
                            held.lists().partial.push_back(slab);
                        }
                        descriptor.set_flags(descriptor.flags() | PARTIAL);
                        held.publish_len();
                    }
                }
                return;
            }
        }
    }

    /// Objects from pending slabs, for a context that can take no lock. They are ours alone between the two exchanges.
    fn take_pending(&self, out: &mut [*mut u8], node: usize) -> usize {
        let pending = &self.nodes[node].pending;
        // ORDERING: Acquire pairs with the Release in `push_pending`.
        let mut next = pending.xchg(core::ptr::null_mut(), Ordering::Acquire);
        let mut got = 0;
        while let Some(slab) = NonNull::new(next) {
            // SAFETY: the whole chain is ours since the exchange; frozen, so exclusive (Invariant 2).
            unsafe {
                next = *slab.as_ref().next.get();
                got += self.grab(slab.as_ref(), &mut out[got..]).0;
            }
            self.push_pending(slab, node);
        }
        got
    }

    /// Full slabs are listed only where users are tracked, for reports and validation.
    ///
    /// # Safety
    ///
    /// Under the list lock; `slab` is on no list.
    #[inline]
    pub(crate) unsafe fn track_full(&self, held: &mut Held<'_, H::Lock>, slab: NonNull<Slab>) {
        if self.config().spec.flags.contains(CacheFlags::STORE_USER) {
            // SAFETY: as the caller promises.
            unsafe { held.lists().full.push_back(slab) };
        }
    }
}

/// Slabs to be given back once no lock is held, chained through their `next`.
#[derive(Debug)]
pub(crate) struct Discard(*mut Slab);

impl Discard {
    pub(crate) const fn new() -> Self {
        Self(core::ptr::null_mut())
    }

    /// Adds a slab.
    ///
    /// # Safety
    ///
    /// It is on no list, no object is in use, and nobody else will reach it.
    pub(crate) unsafe fn push(&mut self, slab: NonNull<Slab>) {
        // SAFETY: its link is ours (caller).
        unsafe { *slab.as_ref().next.get() = self.0 };
        self.0 = slab.as_ptr();
    }

    fn pop(&mut self) -> Option<NonNull<Slab>> {
        let slab = NonNull::new(self.0)?;
        // SAFETY: chained by `push`.
        self.0 = unsafe { *slab.as_ref().next.get() };
        Some(slab)
    }
}
