// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The tid front end: per CPU a free list and a transaction id, changed together.
//!
//! # The transaction id
//!
//! CPU `n` starts with tid `n`; every event that changes what its free list means adds `STEP`, the number of CPUs
//! rounded up to a power of two. So `tid % STEP` names the CPU and `tid / STEP` counts events, and one exchange of
//! {list, tid} proves at once that this is still the CPU whose list was read and that nothing happened to the list since,
//! even if it looks the same (ABA).
//!
//! # Order
//!
//! Reads: tid first, then the slab, then the list head. A stale head with the old tid makes the exchange fail; the
//! other way round a new tid could vouch for an old head.
//!
//! Writes, when a slab leaves a CPU: first the slot's slab becomes NULL, then one exchange empties the list and bumps the
//! tid. A free that read the old slab read an older tid: either its exchange came first, and its object is on the list
//! that is taken, or it fails. (A missing bump here is how the kernel lost objects: "mm/slub: add missing TID updates on
//! slab deactivation", Jann Horn, 2022.)
//!
//! # Slow paths
//!
//! One slow path at a time works on a slot, guarded by a try-lock that fast paths never look at; whoever finds it taken
//! works on the slabs directly. The slot's slab is *frozen*: objects leave it only through this slot, others only push.
#![expect(unsafe_code, reason = "moves raw objects between lists")]

pub mod backend;
mod slow;

use crate::attributes::{self, AttributeError, FrontFacts};
use crate::host::{Host, Step};
use crate::sizing::Sizing;
use crate::slab::Slab;
use crate::slabs::{Busy, Slabs};
use crate::source::{PageSource, Wait};
use crate::spec::CacheSpec;
use crate::stats::{SlabInfo, StatItem};
use crate::sync::{AtomicPtr, AtomicU32, AtomicUsize, Ordering, Tunable};
use backend::TidBackend;
use core::ptr::NonNull;

/// The distance of two tids of one CPU: `cpus` rounded up to a power of two, or 1 where nothing preempts.
///
/// ```
/// use fastpath_slub::tid::{first_tid, next_tid, tid_cpu, tid_event, tid_step};
/// let step = tid_step(6, true);
/// assert_eq!(step, 8);
/// assert_eq!(next_tid(first_tid(3), step), 11);
/// assert_eq!((tid_cpu(43, step), tid_event(43, step)), (3, 5));
/// ```
#[doc(alias = "TID_STEP")]
pub const fn tid_step(cpus: usize, preemptible: bool) -> usize {
    if preemptible { cpus.next_power_of_two() } else { 1 }
}

/// The tid a CPU starts with.
#[doc(alias = "init_tid")]
pub const fn first_tid(cpu: usize) -> usize {
    cpu
}

/// The tid after one event.
#[inline(always)]
pub const fn next_tid(tid: usize, step: usize) -> usize {
    tid.wrapping_add(step)
}

/// The CPU a tid belongs to.
#[doc(alias = "tid_to_cpu")]
pub const fn tid_cpu(tid: usize, step: usize) -> usize {
    tid % step
}

/// How many events a tid counts.
#[doc(alias = "tid_to_event")]
pub const fn tid_event(tid: usize, step: usize) -> usize {
    tid / step
}

/// What one CPU has.
#[doc(alias = "kmem_cache_cpu")]
#[repr(C, align(64))]
struct TidSlot<C> {
    cell: C,
    /// The frozen slab whose objects are on the list.
    slab: AtomicPtr<Slab>,
    /// Taken by the slow path that works on this slot.
    busy: AtomicU32,
    /// Further frozen slabs with free objects, linked through their `next`: pushed one by one, taken all at once.
    partial: AtomicPtr<Slab>,
    /// How many, and those about to be pushed.
    partials: AtomicUsize,
}

/// Bytes from one CPU's slot in a [`TidCache`] to the next one's: a backend that finds its own CPU's cell by a per-CPU base
/// register needs them. Slots start at a multiple of 64 bytes, with the cell.
///
/// ```
/// use fastpath_slub::tid::{backend::TidBackend, slot_size};
/// /// Where the cell of the first CPU lies, if this one's is at `cell`.
/// fn first<B: TidBackend>(cpu: usize, cell: usize) -> usize {
///     cell - cpu * slot_size::<B>()
/// }
/// ```
pub const fn slot_size<B: TidBackend>() -> usize {
    size_of::<TidSlot<B::Cell>>()
}

/// A cache of objects of one size with the tid front end on `CPUS` CPUs.
///
/// It can stand in a static; it must not move once objects exist. Its page source must leave freed pages readable
/// ([`PageSource`] says why): an allocation reads the next-pointer of an object that another one may
/// take, free and give back in between, and drops the value then.
#[doc(alias = "kmem_cache")]
pub struct TidCache<H: Host, B: TidBackend, const CPUS: usize, const NODES: usize = 1> {
    slabs: Slabs<H, NODES>,
    backend: B,
    slots: [TidSlot<B::Cell>; CPUS],
    /// Free objects that slabs on a CPU's partial list may have.
    cpu_partial: Tunable,
}

impl<H: Host, B: TidBackend, const CPUS: usize, const NODES: usize> core::fmt::Debug
    for TidCache<H, B, CPUS, NODES>
{
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("TidCache").field("slabs", &self.slabs).finish_non_exhaustive()
    }
}

/// What was read from a slot before an exchange on it.
struct Seen<'a, C> {
    cpu: usize,
    slot: &'a TidSlot<C>,
    tid: usize,
}

impl<H: Host, B: TidBackend, const CPUS: usize, const NODES: usize> TidCache<H, B, CPUS, NODES> {
    const STEP: usize = tid_step(CPUS, B::PREEMPTIBLE);

    /// A cache without slabs.
    ///
    /// # Panics
    ///
    /// If the spec is impossible ([`Slabs::new`]), or keeps its links apart ([`FreePointer::Apart`]: a CPU's list is linked
    /// through the objects): at compile time in a constant.
    ///
    /// [`FreePointer::Apart`]: crate::FreePointer::Apart
    #[cfg(not(loom))]
    pub const fn new(host: H, backend: B, spec: CacheSpec, sizing: &Sizing) -> Self {
        assert!(!matches!(spec.free_pointer, crate::FreePointer::Apart), "the tid front links objects");
        // Cells are all made alike, with tid 0: the first slow path on a slot gives it its CPU's first tid.
        let slots = [const {
            TidSlot {
                cell: B::CELL,
                slab: AtomicPtr::new(core::ptr::null_mut()),
                busy: AtomicU32::new(0),
                partial: AtomicPtr::new(core::ptr::null_mut()),
                partials: AtomicUsize::new(0),
            }
        }; CPUS];
        Self { slabs: Slabs::new(host, spec, sizing), backend, slots, cpu_partial: Self::limit(&spec) }
    }

    /// A cache without slabs.
    #[cfg(loom)]
    pub fn new(host: H, backend: B, spec: CacheSpec, sizing: &Sizing) -> Self {
        let slots = core::array::from_fn(|_| TidSlot {
            cell: B::cell(),
            slab: AtomicPtr::new(core::ptr::null_mut()),
            busy: AtomicU32::new(0),
            partial: AtomicPtr::new(core::ptr::null_mut()),
            partials: AtomicUsize::new(0),
        });
        Self { slabs: Slabs::new(host, spec, sizing), backend, slots, cpu_partial: Self::limit(&spec) }
    }

    const fn limit(spec: &CacheSpec) -> Tunable {
        Tunable::new(crate::sizing::cpu_partial(spec.size))
    }

    /// Free objects that slabs on a CPU's partial list may have, about.
    pub fn cpu_partial(&self) -> usize {
        self.cpu_partial.get()
    }

    /// Sets it; 0: slabs go to their node at once.
    pub fn set_cpu_partial(&self, objects: usize) {
        self.cpu_partial.set(objects);
        for slot in &self.slots {
            self.flush_partials(slot, Wait::Yes);
        }
    }

    /// The layer below.
    pub fn slabs(&self) -> &Slabs<H, NODES> {
        &self.slabs
    }

    /// The present tid of a CPU.
    pub fn tid(&self, cpu: usize) -> usize {
        let tid = self.backend.tid(&self.slots[cpu].cell);
        if Self::STEP > 1 && tid_cpu(tid, Self::STEP) != cpu { tid.wrapping_add(first_tid(cpu)) } else { tid }
    }

    /// Slot and tid of one and the same CPU.
    #[inline(always)]
    fn here(&self) -> Seen<'_, B::Cell> {
        loop {
            let tid = self.backend.tid(&self.slots[self.backend.cpu() % CPUS].cell);
            self.slabs.host.step(Step::TidRead);
            let cpu = self.backend.cpu() % CPUS;
            let slot = &self.slots[cpu];
            // The task may have moved between the two reads: tid and slot must be of one CPU. Two slots share a tid only
            // while both are untouched, and then neither has objects.
            if !B::PREEMPTIBLE || tid == self.backend.tid(&slot.cell) {
                return Seen { cpu, slot, tid };
            }
        }
    }

    /// Changes list and tid of a slot in one step, if both are as seen.
    #[inline(always)]
    fn exchange(&self, seen: &Seen<'_, B::Cell>, head: *mut u8, new: *mut u8) -> bool {
        let next = next_tid(seen.tid, Self::STEP);
        self.backend.exchange(seen.cpu, &seen.slot.cell, (head, seen.tid), (new, next))
    }

    /// An object, or `None` without memory. Contents are undefined unless the cache has a constructor.
    #[doc(alias = "kmem_cache_alloc")]
    #[inline]
    pub fn alloc(&self) -> Option<NonNull<u8>> {
        self.alloc_or(Wait::Yes)
    }

    /// An object in any context: never waits, `None` is final.
    #[doc(alias = "kmalloc_nolock")]
    pub fn alloc_nolock(&self) -> Option<NonNull<u8>> {
        self.alloc_or(Wait::Never)
    }

    #[inline(always)]
    fn alloc_or(&self, wait: Wait) -> Option<NonNull<u8>> {
        let code = self.slabs.code();
        loop {
            let seen = self.here();
            let head = self.backend.head(&seen.slot.cell);
            let Some(object) = NonNull::new(head) else { return self.alloc_slow(wait) };
            self.slabs.host.step(Step::TidHead);
            // Speculative: the object may be anyone's by now, and its page given back (but readable).
            // SAFETY: the source keeps pages readable; the value counts only if the exchange proves that the object was free.
            let next = unsafe { code.next(head) };
            self.slabs.host.step(Step::TidHeadRead);
            if self.exchange(&seen, head, next) {
                return Some(object);
            }
            Slabs::<H, NODES>::tally(&self.slabs.nodes[0].stats, StatItem::CmpxchgDoubleCpuFail, 1);
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
        // SAFETY: as the caller promises.
        unsafe { self.free_or(object, Wait::Yes) };
    }

    /// Gives an object back in any context.
    ///
    /// # Safety
    ///
    /// As for [`free`](Self::free).
    #[doc(alias = "kfree_nolock")]
    pub unsafe fn free_nolock(&self, object: NonNull<u8>) {
        // SAFETY: as the caller promises.
        unsafe { self.free_or(object, Wait::Never) };
    }

    /// # Safety
    ///
    /// As for [`free`](Self::free).
    #[inline(always)]
    unsafe fn free_or(&self, object: NonNull<u8>, wait: Wait) {
        let code = self.slabs.code();
        let slab = self.slabs.host.source().slab_of(object.as_ptr());
        loop {
            let seen = self.here();
            // ORDERING: Relaxed: read after the tid (whose read is an Acquire); a stale slab goes with a stale tid, and the
            // exchange fails.
            if seen.slot.slab.load(Ordering::Relaxed) != slab || slab.is_null() {
                // SAFETY: as the caller promises.
                unsafe { self.free_slow(object, wait) };
                return;
            }
            let head = self.backend.head(&seen.slot.cell);
            if head == object.as_ptr() {
                self.slabs.host.corrupted(crate::host::Corruption::DoubleFree, self.slabs.name(), head);
                return;
            }
            // SAFETY: the object is ours until the exchange.
            unsafe { code.set_next(object.as_ptr(), head) };
            self.slabs.host.step(Step::TidFreeRead);
            if self.exchange(&seen, head, object.as_ptr()) {
                return;
            }
            Slabs::<H, NODES>::tally(&self.slabs.nodes[0].stats, StatItem::CmpxchgDoubleCpuFail, 1);
        }
    }

    /// Fills `out` with objects. All or nothing: `true`, or `false` with nothing kept.
    #[doc(alias = "kmem_cache_alloc_bulk")]
    #[must_use]
    pub fn alloc_bulk(&self, out: &mut [*mut u8]) -> bool {
        let code = self.slabs.code();
        let mut got = 0;
        while got < out.len() {
            // As many as the CPU's list holds, with one exchange, which bumps the tid: an interrupt between this and the
            // slow path sees a list without them.
            let seen = self.here();
            let head = self.backend.head(&seen.slot.cell);
            let (mut next, mut count) = (head, 0);
            while count < out.len() - got && !next.is_null() && self.plausible(seen.slot, next) {
                out[got + count] = next;
                // SAFETY: speculative, as in `alloc`; the address was checked to lie in the slot's slab.
                next = unsafe { code.next(next) };
                count += 1;
            }
            self.slabs.host.step(Step::TidHeadRead);
            if count != 0 {
                if self.exchange(&seen, head, next) {
                    got += count;
                }
                continue;
            }
            self.slabs.host.step(Step::TidBulkSlow);
            let Some(object) = self.alloc_slow(Wait::Yes) else {
                // SAFETY: the first `got` are ours.
                unsafe { self.free_bulk(&mut out[..got]) };
                return false;
            };
            out[got] = object.as_ptr();
            got += 1;
        }
        true
    }

    /// Whether a speculatively read address can be an object of the slot's slab at all.
    fn plausible(&self, slot: &TidSlot<B::Cell>, object: *mut u8) -> bool {
        // ORDERING: Relaxed: a plausibility check; the exchange decides.
        let slab = slot.slab.load(Ordering::Relaxed);
        let Some(slab) = NonNull::new(slab) else { return false };
        // SAFETY: descriptors are valid for ever; a stale answer does no harm.
        let slab = unsafe { slab.as_ref() };
        slab.owner() == self.slabs.id() && slab.is_object(object, slab.word())
    }

    /// Gives many objects back, one exchange per group of one slab. The slice is used up.
    ///
    /// # Safety
    ///
    /// Each came from this cache, each once, and nobody uses them any more.
    #[doc(alias = "kmem_cache_free_bulk")]
    pub unsafe fn free_bulk(&self, objects: &mut [*mut u8]) {
        // SAFETY: as the caller promises.
        unsafe { self.slabs.free_batch(objects, Wait::Yes) };
    }

    /// Takes the slabs of the CPUs that can be reached from them and gives empty slabs back. `true` if slabs remain.
    #[doc(alias = "kmem_cache_shrink")]
    pub fn shrink(&self) -> bool {
        for cpu in 0..CPUS {
            self.flush_cpu(cpu);
        }
        self.slabs.shrink_slabs()
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

    /// Writes the value of an attribute of the cache, by the kernel's name ([`attributes`]).
    ///
    /// # Errors
    ///
    /// See [`AttributeError`].
    pub fn read_attribute(&self, name: &str, out: &mut dyn core::fmt::Write) -> Result<(), AttributeError> {
        // ORDERING: Relaxed: snapshots.
        let owned = |slot: &&TidSlot<B::Cell>| !slot.slab.load(Ordering::Relaxed).is_null();
        // ORDERING: Relaxed, as above.
        let length = |slot: &TidSlot<B::Cell>| slot.partials.load(Ordering::Relaxed);
        let partials = self.slots.iter().map(length).fold(0, usize::wrapping_add);
        let front = FrontFacts {
            slabs: self.slots.iter().filter(owned).count() + partials,
            partials,
            limit: if self.slabs.config().slow { 0 } else { self.cpu_partial.get() },
        };
        self.slabs.read_attribute(&front, name, out)
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
            }
            "cpu_partial" => {
                let objects = attributes::number(value)?;
                if objects != 0 && self.slabs.config().slow {
                    return Err(AttributeError::Invalid);
                }
                self.set_cpu_partial(objects);
            }
            _ => return self.slabs.write_attribute(name, value),
        }
        Ok(())
    }

    /// The cache in numbers. Objects on CPUs' lists count as active.
    pub fn info(&self) -> SlabInfo {
        self.slabs.info()
    }
}
