// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The sheaf front end: per-CPU stacks of objects over the slab layer, exchanged whole through the node's barn.
//!
//! The fast path is one operation of the per-CPU backend ([`CpuSlots::pop`], [`CpuSlots::push`]). A host that inlines
//! its own pop and push calls only [`Cache::alloc_slow`] and [`Cache::free_slow`], when they fail for whatever reason:
//! empty, full, no slot yet, lock of the slot held.
//!
//! Slow paths never leave a sheaf half exchanged: they work on sheaves *in hand*, which nobody else knows, and each
//! change of a slot is one operation of the backend that may be refused. What cannot be installed goes to the barn, to
//! the slabs, or back to the pool. So a thread may change its CPU between any two steps.
//!
//! | alloc | free |
//! |---|---|
//! | main empty, spare not: swap | main full, spare not: swap |
//! | a full sheaf from the barn becomes main | an empty one (barn, pool) becomes main |
//! | the empty spare (barn, pool) is filled from slabs and becomes main | barn has its limit: the spare is flushed to slabs and becomes main |
//! | one object from the slabs | one object to the slabs |
#![expect(unsafe_code, reason = "moves raw objects and sheaves")]

mod grace;
mod prefill;
mod slow;

pub use grace::{GraceHead, GracePeriod};
pub use prefill::{PrefilledSheaf, RefillError};

use crate::attributes::{self, AttributeError, FrontFacts};
use crate::host::Host;
use crate::sheaf::Sheaf;
use crate::sizing::Sizing;
use crate::slabs::{Busy, Slabs};
use crate::slots::CpuSlots;
use crate::source::Wait;
use crate::spec::CacheSpec;
use crate::stats::{SlabInfo, StatItem};
use crate::sync::const_fn;
use core::ptr::NonNull;

/// A cache of objects of one size with per-CPU sheaves.
///
/// It can stand in a static; it must not move once objects exist ([`Slabs`] says why).
#[doc(alias = "kmem_cache")]
pub struct Cache<H: Host, const NODES: usize = 1> {
    pub(crate) slabs: Slabs<H, NODES>,
}

impl<H: Host, const NODES: usize> core::fmt::Debug for Cache<H, NODES> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Cache").field("slabs", &self.slabs).finish()
    }
}

impl<H: Host, const NODES: usize> Cache<H, NODES> {
    const_fn! {
        /// A cache without slabs.
        ///
        /// # Panics
        ///
        /// If the spec is impossible ([`Slabs::new`]): at compile time in a constant.
        pub const fn new(host: H, spec: CacheSpec, sizing: &Sizing) -> Self {
            Self { slabs: Slabs::new(host, spec, sizing) }
        }
    }

    const_fn! {
        /// The same where only the nodes of the bit mask `barns` have a barn.
        ///
        /// # Panics
        ///
        /// As [`new`](Self::new).
        pub const fn with_barns(host: H, spec: CacheSpec, sizing: &Sizing, barns: usize) -> Self {
            Self { slabs: Slabs::with_barns(host, spec, sizing, barns) }
        }
    }

    /// The layer below.
    #[inline(always)]
    pub fn slabs(&self) -> &Slabs<H, NODES> {
        &self.slabs
    }

    /// Objects per sheaf; 0: the cache has none and works on its slabs (debugging).
    pub fn sheaf_capacity(&self) -> usize {
        self.slabs.config().capacity
    }

    /// Whether every operation takes the slow path (debugging, exact statistics): the slot stays without sheaves.
    #[inline]
    pub(crate) fn without_sheaves(&self) -> bool {
        let config = self.slabs.config();
        config.slow || config.capacity == 0
    }

    /// An object, or `None` without memory. Contents are undefined unless the cache has a constructor.
    #[doc(alias = "kmem_cache_alloc")]
    #[inline]
    pub fn alloc(&self) -> Option<NonNull<u8>> {
        let config = self.slabs.config();
        match self.slabs.host.slots().pop(config.spec.slot) {
            Some(object) => Some(object),
            None => self.alloc_slow(Wait::Yes),
        }
    }

    /// Gives an object back.
    ///
    /// # Safety
    ///
    /// It came from this cache and nobody uses it any more.
    #[doc(alias = "kmem_cache_free")]
    #[inline]
    pub unsafe fn free(&self, object: NonNull<u8>) {
        let config = self.slabs.config();
        // SAFETY: an object of this cache that the caller gives up.
        unsafe {
            if !self.slabs.host.slots().push(config.spec.slot, object) {
                self.free_slow(object, Wait::Yes);
            }
        }
    }

    /// An object in any context, also one that interrupted this very cache (a signal handler, an NMI): never waits.
    /// `None` is final; do not try again in a loop.
    #[doc(alias = "kmalloc_nolock")]
    pub fn alloc_nolock(&self) -> Option<NonNull<u8>> {
        match self.slabs.host.slots().pop(self.slabs.config().spec.slot) {
            Some(object) => Some(object),
            None => self.alloc_slow(Wait::Never),
        }
    }

    /// Gives an object back in any context: what cannot be done now is left to the next caller that can.
    ///
    /// # Safety
    ///
    /// As for [`free`](Self::free).
    #[doc(alias = "kfree_nolock")]
    pub unsafe fn free_nolock(&self, object: NonNull<u8>) {
        // SAFETY: an object of this cache that the caller gives up.
        unsafe {
            if !self.slabs.host.slots().push(self.slabs.config().spec.slot, object) {
                self.free_slow(object, Wait::Never);
            }
        }
    }

    /// Fills `out` with objects. All or nothing: `true`, or `false` with nothing kept.
    #[doc(alias = "kmem_cache_alloc_bulk")]
    #[must_use]
    pub fn alloc_bulk(&self, out: &mut [*mut u8]) -> bool {
        let (mut got, slot) = (0, self.slabs.config().spec.slot);
        while got < out.len() {
            let Some(object) = self.slabs.host.slots().pop(slot) else { break };
            out[got] = object.as_ptr();
            got += 1;
        }
        while got < out.len() {
            let more = self.slabs.alloc_batch(&mut out[got..], self.slabs.local_node(), Wait::Yes);
            if more == 0 {
                // SAFETY: the first `got` are ours.
                unsafe { self.free_bulk(&mut out[..got]) };
                return false;
            }
            got += more;
        }
        true
    }

    /// Gives many objects back, as many as fit on the CPU's sheaf, the rest to their slabs. The slice is used up.
    ///
    /// # Safety
    ///
    /// Each came from this cache, each once, and nobody uses them any more.
    #[doc(alias = "kmem_cache_free_bulk")]
    pub unsafe fn free_bulk(&self, objects: &mut [*mut u8]) {
        let slot = self.slabs.config().spec.slot;
        let mut left = objects.len();
        if !self.without_sheaves() {
            while left > 0 {
                let Some(object) = NonNull::new(objects[left - 1]) else {
                    left -= 1;
                    continue;
                };
                // SAFETY: an object of this cache that the caller gives up.
                if !unsafe { self.slabs.host.slots().push(slot, object) } {
                    break;
                }
                left -= 1;
            }
        }
        // SAFETY: as the caller promises for the rest.
        unsafe { self.slabs.free_batch(&mut objects[..left], Wait::Yes) };
    }

    /// Returns the sheaves of the CPUs that can be reached and the barns' to the slabs, then empty slabs to the source.
    /// `true` if slabs remain (objects are in use, or lie in sheaves of CPUs that could not be reached).
    #[doc(alias = "kmem_cache_shrink")]
    pub fn shrink(&self) -> bool {
        let slots = self.slabs.host.slots();
        let slot = self.slabs.config().spec.slot;
        for cpu in 0..slots.cpus() {
            if let Ok((main, spare)) = slots.take(slot, Some(cpu)) {
                self.flush_sheaf(main, Wait::Yes);
                self.flush_sheaf(spare, Wait::Yes);
            }
        }
        self.shrink_barns();
        self.slabs.shrink_slabs()
    }

    /// Empties this CPU's slot only: for a thread or CPU that goes away.
    #[doc(alias = "flush_this_cpu")]
    pub fn flush_cpu(&self) {
        if let Ok((main, spare)) = self.slabs.host.slots().take(self.slabs.config().spec.slot, None) {
            self.flush_sheaf(main, Wait::Yes);
            self.flush_sheaf(spare, Wait::Yes);
        }
    }

    /// Gives all memory back. The cache can be used again afterwards.
    ///
    /// # Errors
    ///
    /// [`Busy`] if objects are in use: each is reported to [`Host::corrupted`], and the cache stays as it is.
    #[doc(alias = "kmem_cache_destroy")]
    pub fn destroy(&self) -> Result<(), Busy> {
        self.shrink();
        self.slabs.destroy_slabs()
    }

    /// The cache in numbers.
    pub fn info(&self) -> SlabInfo {
        let config = self.slabs.config();
        let mut info = self.slabs.info();
        info.in_barns = self.in_barns();
        info.in_sheaves = self.slabs.host.slots().fill(config.spec.slot, config.capacity) + info.in_barns;
        info
    }

    /// A counter. `alloc_fastpath` and `free_fastpath` are derived: exact with [`CacheFlags::EXACT_STATS`] (where they
    /// are 0), otherwise a lower bound, from the objects that whole sheaves carried past the slow paths.
    ///
    /// [`CacheFlags::EXACT_STATS`]: crate::CacheFlags::EXACT_STATS
    pub fn stat(&self, item: StatItem) -> usize {
        match item {
            StatItem::AllocFastpath => {
                let capacity = self.slabs.config().capacity;
                let supplied =
                    self.slabs.stat(StatItem::SheafRefill) + self.slabs.stat(StatItem::BarnGet) * capacity;
                supplied.saturating_sub(self.slabs.stat(StatItem::AllocSlowpath))
            }
            StatItem::FreeFastpath => {
                let capacity = self.slabs.config().capacity;
                let carried =
                    self.slabs.stat(StatItem::SheafFlush) + self.slabs.stat(StatItem::BarnPut) * capacity;
                carried.saturating_sub(self.slabs.stat(StatItem::FreeSlowpath))
            }
            item => self.slabs.stat(item),
        }
    }

    /// Writes the value of an attribute of the cache, by the kernel's name ([`attributes`]).
    ///
    /// ```
    /// # use fastpath_slub::{Cache, CacheSpec, Host, SheafPool, Sizing, SpinLock, StaticRegion, TryLockSlots};
    /// # fn cpu() -> usize { 0 }
    /// # #[derive(Clone, Copy)] struct Kernel;
    /// # static MEMORY: StaticRegion<64> = StaticRegion::new();
    /// # static SLOTS: TryLockSlots<fn() -> usize, 1, 1> = TryLockSlots::new(cpu);
    /// # static SHEAVES: SheafPool<Kernel> = SheafPool::new(Kernel, 100, &Sizing::kernel(1));
    /// # impl Host for Kernel {
    /// #     type Source = StaticRegion<64>; type Slots = TryLockSlots<fn() -> usize, 1, 1>; type Lock = SpinLock;
    /// #     fn source(&self) -> &Self::Source { &MEMORY }
    /// #     fn slots(&self) -> &Self::Slots { &SLOTS }
    /// #     fn sheaves(&self) -> &SheafPool<Self> { &SHEAVES }
    /// #     fn context(&self) -> usize { 1 }
    /// # }
    /// static INODES: Cache<Kernel> = Cache::new(Kernel, CacheSpec::new("inode", 600), &Sizing::kernel(1));
    /// let mut text = String::new();
    /// INODES.read_attribute("object_size", &mut text).unwrap();
    /// assert_eq!(text, "600\n");
    /// INODES.write_attribute("min_partial", "7\n").unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// See [`AttributeError`].
    pub fn read_attribute(&self, name: &str, out: &mut dyn core::fmt::Write) -> Result<(), AttributeError> {
        match StatItem::from_name(name) {
            // Derived here.
            Some(item @ (StatItem::AllocFastpath | StatItem::FreeFastpath)) => {
                Ok(writeln!(out, "{}", self.stat(item))?)
            }
            _ => self.slabs.read_attribute(&FrontFacts::default(), name, out),
        }
    }

    /// Writes to an attribute.
    ///
    /// # Errors
    ///
    /// See [`AttributeError`].
    pub fn write_attribute(&self, name: &str, value: &str) -> Result<(), AttributeError> {
        match name {
            "shrink" => {
                attributes::go(value)?;
                self.shrink();
                Ok(())
            }
            // A sheaf front has no such lists.
            "cpu_partial" if attributes::number(value)? == 0 => Ok(()),
            "cpu_partial" => Err(AttributeError::Invalid),
            _ => self.slabs.write_attribute(name, value),
        }
    }

    /// The locks of a fork: [`Slabs::fork_prepare`].
    pub fn fork_prepare(&self) -> bool {
        self.slabs.fork_prepare()
    }

    /// [`Slabs::fork_done`].
    ///
    /// # Safety
    ///
    /// As there.
    pub unsafe fn fork_done(&self) {
        // SAFETY: as the caller promises.
        unsafe { self.slabs.fork_done() };
    }

    /// Takes a sheaf out of use that a host took out of its slots by means of its own (a whole CPU's slots at once, say):
    /// its objects go to their slabs, and it goes to the pool.
    ///
    /// # Safety
    ///
    /// The sheaf is missing, or it was in a slot of this cache and nobody else can reach it.
    pub unsafe fn retire(&self, sheaf: Sheaf) {
        self.flush_sheaf(sheaf, Wait::Yes);
    }

    /// Objects in sheaves of the barns.
    fn in_barns(&self) -> usize {
        let (context, capacity) = (self.slabs.host.context(), self.slabs.config().capacity);
        self.slabs.nodes.iter().map(|node| node.barn.objects(context, capacity)).sum()
    }

    /// Gives a sheaf's objects back to the slabs and the sheaf to the pool.
    pub(crate) fn flush_sheaf(&self, mut sheaf: Sheaf, wait: Wait) {
        if !sheaf.is_missing() {
            self.flush_objects(&mut sheaf, wait);
            // SAFETY: ours and empty.
            unsafe { self.slabs.host.sheaves().put(sheaf, wait) };
        }
    }
}
