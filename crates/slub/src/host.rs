// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Everything the allocator asks of its surroundings, bundled.

use crate::cache::GracePeriod;
use crate::debug::{Report, Track};
use crate::lock::RawLock;
use crate::pool::SheafPool;
use crate::slots::CpuSlots;
use crate::source::PageSource;

/// What went wrong with an object. The allocator leaks what it cannot trust and goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corruption {
    /// The address is no object of the cache.
    NotAnObject,
    /// The object belongs to another cache.
    WrongCache,
    /// The object is free already.
    DoubleFree,
    /// The next-pointer inside a free object leads out of its slab, or in a circle.
    FreePointer,
    /// Bytes before or behind an object were written (`Z`).
    RedZone,
    /// A free object was written to (`P`).
    Poison,
    /// The padding behind an object or at the end of its slab was written to (`P`).
    Padding,
    /// The counters of a slab contradict each other or its free list (`F`).
    Counters,
    /// Objects were still in use when the cache was destroyed.
    LeakedObject,
}

/// A point between two steps of a slow path, for tests that script an interleaving there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A free has read the slab word and not yet exchanged it.
    FreeRead,
    /// A free has changed the slab word and still has list work to do.
    FreeListed,
    /// A refill has read the slab word and walked the list, and not yet exchanged it.
    GrabRead,
    /// A refill has taken objects of a listed slab, and the list is not in order yet; the list lock is held.
    Grabbed,
    /// A new slab was allocated and nobody knows it yet.
    NewSlab,
    /// A refilled sheaf is in hand and not yet installed.
    RefillInHand,
    /// A sheaf of the barn is in hand for this CPU; the barn's lock may be held.
    BarnInHand,
    /// An empty slab is about to go back to the source; no lock is held.
    Discard,
    /// Tid front, alloc: the head was read, its next-pointer not yet.
    TidHead,
    /// Tid front, alloc: the tid was read, the list head not yet.
    TidRead,
    /// Tid front, alloc: head and next are read, the exchange has not happened.
    TidHeadRead,
    /// Tid front, free: everything is read, the exchange has not happened.
    TidFreeRead,
    /// Tid front, bulk: an object was popped and the slow path is about to be called.
    TidBulkSlow,
}

/// What the slow paths of a front end did; for hosts that keep counts of their own ([`Host::event`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A CPU was given a sheaf (a list, at the tid front) with so many objects, one of them on its way to the caller.
    SheafIn(usize),
    /// A CPU gave a sheaf with so many objects away.
    SheafOut(usize),
    /// An object went to its user without a sheaf.
    Alloc,
    /// An object came back without a sheaf.
    Free,
}

/// The surroundings of a cache: memory, per-CPU slots, locks, and who is running. A small `Copy` value (a reference, or
/// a zero-sized type that names statics), so that caches can live in statics.
///
/// [`fastpath_slub::region`](crate::region) has a complete small one.
pub trait Host: Copy + Send + Sync {
    /// Where slabs come from.
    type Source: PageSource;
    /// The per-CPU backend.
    type Slots: CpuSlots;
    /// The lock of nodes and barns.
    type Lock: RawLock;

    /// Whether the slow paths count for [`StatItem`](crate::StatItem): one locked instruction each.
    #[doc(alias = "CONFIG_SLUB_STATS")]
    const STATS: bool = true;

    /// The page source.
    fn source(&self) -> &Self::Source;

    /// The per-CPU slots.
    fn slots(&self) -> &Self::Slots;

    /// Where sheaves come from. One pool serves all caches of a host.
    fn sheaves(&self) -> &SheafPool<Self>;

    /// The identity of the running thread, not 0: the same in a signal handler that interrupts it, different for every
    /// thread that may hold a lock at the same time.
    fn context(&self) -> usize;

    /// Called for an object that the allocator refuses; it is leaked. Must not allocate from the cache.
    fn corrupted(&self, what: Corruption, cache: &'static str, object: *mut u8) {
        let _ = (what, cache, object);
    }

    /// Called for each finding of the debug flags ([`debug`](crate::debug)), with all that is known about it. Nothing is
    /// formatted unless the implementation does it: a [`Report`] is [`Display`](core::fmt::Display), into any buffer.
    /// Locks of the cache are held: it must not allocate from, free to or ask anything of this cache.
    ///
    /// Unless overridden, calls [`corrupted`](Self::corrupted).
    fn report(&self, report: &Report<'_>) {
        self.corrupted(report.what, report.cache, report.object);
    }

    /// Fills in who allocates or frees an object (`U`): the stack as far as it fits, processor, thread and time. Called
    /// under a lock of the cache; must not allocate from it. Unless overridden, only the thread is known.
    fn track(&self, who: &mut Track) {
        who.pid = self.context();
    }

    /// How to wait for readers of the objects of caches with [`TYPESAFE_BY_RCU`](crate::CacheFlags::TYPESAFE_BY_RCU): their
    /// slabs go back to the page source only after a grace period. `None`: at once (readers are safe then only if the
    /// source itself waits).
    fn grace_period(&self) -> Option<&dyn GracePeriod> {
        None
    }

    /// Called between the steps of slow paths. Empty, and gone after inlining, unless a test scripts interleavings.
    #[inline(always)]
    fn step(&self, at: Step) {
        let _ = at;
    }

    /// Called by the slow paths of the front ends with what they did. Empty, and gone after inlining, unless the host
    /// counts.
    #[inline(always)]
    fn event(&self, what: Event) {
        let _ = what;
    }

    /// An unpredictable number: secrets and shuffles of hardened caches. `nolock` contexts call it too. A host that only
    /// returns 0 (as this does) hardens with the secret 0: a free pointer is then stored scrambled by its address alone.
    fn random(&self) -> u64 {
        0
    }
}
