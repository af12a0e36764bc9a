// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a cache is asked to be.

/// Flags of a cache; the kernel's meanings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheFlags(u32);

impl CacheFlags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// Consistency checks (`F`).
    #[doc(alias = "SLAB_CONSISTENCY_CHECKS")]
    pub const CONSISTENCY: Self = Self(1);
    /// Red zones (`Z`).
    #[doc(alias = "SLAB_RED_ZONE")]
    pub const RED_ZONE: Self = Self(1 << 1);
    /// Poisoning (`P`).
    #[doc(alias = "SLAB_POISON")]
    pub const POISON: Self = Self(1 << 2);
    /// Who allocated and freed (`U`).
    #[doc(alias = "SLAB_STORE_USER")]
    pub const STORE_USER: Self = Self(1 << 3);
    /// Trace every operation (`T`).
    #[doc(alias = "SLAB_TRACE")]
    pub const TRACE: Self = Self(1 << 4);
    /// Failure injection applies (`A`).
    #[doc(alias = "SLAB_FAILSLAB")]
    pub const FAILSLAB: Self = Self(1 << 5);
    /// A freed object stays of its type until a grace period has passed: it may be allocated again at once, but its slab
    /// goes back to the source only after one ([`Host::grace_period`](crate::Host::grace_period)).
    #[doc(alias = "SLAB_TYPESAFE_BY_RCU")]
    pub const TYPESAFE_BY_RCU: Self = Self(1 << 6);
    /// Never merged with another cache.
    #[doc(alias = "SLAB_NO_MERGE")]
    pub const NO_MERGE: Self = Self(1 << 7);
    /// Objects start on their own cache line where that wastes little.
    #[doc(alias = "SLAB_HWCACHE_ALIGN")]
    pub const HWCACHE_ALIGN: Self = Self(1 << 8);
    /// Objects can be reclaimed under pressure (an attribute only).
    #[doc(alias = "SLAB_RECLAIM_ACCOUNT")]
    pub const RECLAIM_ACCOUNT: Self = Self(1 << 9);
    /// Memory of the DMA zone (an attribute only).
    #[doc(alias = "SLAB_CACHE_DMA")]
    pub const CACHE_DMA: Self = Self(1 << 10);
    /// Accounted to the caller's group (an attribute only).
    #[doc(alias = "SLAB_ACCOUNT")]
    pub const ACCOUNT: Self = Self(1 << 11);
    /// `slab_debug` does not apply.
    #[doc(alias = "SLAB_NO_USER_FLAGS")]
    pub const NO_USER_FLAGS: Self = Self(1 << 12);
    /// Excluded from leak tracing; has no sheaves.
    #[doc(alias = "SLAB_NOLEAKTRACE")]
    pub const NO_LEAK_TRACE: Self = Self(1 << 13);
    /// Free pointers are stored obfuscated, double frees of the list head are refused.
    #[doc(alias = "CONFIG_SLAB_FREELIST_HARDENED")]
    pub const HARDENED: Self = Self(1 << 14);
    /// The first free list of a slab is shuffled.
    #[doc(alias = "CONFIG_SLAB_FREELIST_RANDOM")]
    pub const RANDOM: Self = Self(1 << 15);
    /// Objects are zeroed when allocated.
    #[doc(alias = "init_on_alloc")]
    pub const INIT_ON_ALLOC: Self = Self(1 << 16);
    /// Objects are zeroed when freed.
    #[doc(alias = "init_on_free")]
    pub const INIT_ON_FREE: Self = Self(1 << 17);
    /// Exact counters for every operation: every operation takes the slow path.
    pub const EXACT_STATS: Self = Self(1 << 18);

    /// The cache serves `kmalloc`: with `U` the number of bytes asked for is kept, and with `Z` what lies behind it is red.
    #[doc(alias = "SLAB_KMALLOC")]
    pub const KMALLOC: Self = Self(1 << 19);

    /// The flags that send every operation through the list lock, one object at a time.
    #[doc(alias = "SLAB_DEBUG_FLAGS")]
    pub const DEBUG: Self = Self(0b1_1111);

    /// Both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// `self` without the flags of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether all flags of `other` are set.
    #[inline(always)]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any flag of `other` is set.
    #[inline(always)]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The flags both have.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// Where a free object keeps the pointer to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreePointer {
    /// In the middle of the object (the kernel's choice).
    Middle,
    /// At its start: one cache line less to touch for large objects.
    Start,
    /// Not inside it at all: in a word per object beside the slab's descriptor ([`PageSource::links`]). A free object's
    /// memory is never touched, and a double free is found when the second copy comes back. Not for the tid front.
    ///
    /// [`PageSource::links`]: crate::PageSource::links
    Apart,
    /// At this offset (for caches with a constructor or type-stable ones, whose objects must keep the rest).
    At(usize),
}

/// The description of a cache, built up in constants.
///
/// ```
/// use fastpath_slub::{CacheFlags, CacheSpec};
/// const DENTRY: CacheSpec = CacheSpec::new("dentry", 192).align(64).flags(CacheFlags::RECLAIM_ACCOUNT).slot(3);
/// assert_eq!((DENTRY.size, DENTRY.align, DENTRY.slot), (192, 64, 3));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct CacheSpec {
    /// Name, for statistics and reports.
    pub name: &'static str,
    /// Object size in bytes.
    pub size: usize,
    /// Alignment of objects in bytes, a power of two.
    pub align: usize,
    /// Flags.
    pub flags: CacheFlags,
    /// Runs once on each object when it comes to exist; the object is then always in constructed state while free.
    pub ctor: Option<unsafe fn(*mut u8)>,
    /// Where free objects keep their next-pointer.
    pub free_pointer: FreePointer,
    /// Objects per sheaf: 0 chooses by size; a request wins if it is larger, up to the layout's maximum of 252.
    pub sheaf_capacity: usize,
    /// Objects that an empty sheaf is filled with in a cache that has few; later an eighth of what its slabs hold. 0: as
    /// many as it holds.
    pub refill: usize,
    /// Order of slabs, `None` chooses.
    pub order: Option<u32>,
    /// Empty slabs to keep per node, `None` chooses.
    pub min_partial: Option<usize>,
    /// Full and empty sheaves a barn keeps, each.
    pub barn_limit: usize,
    /// The slot of the per-CPU backend.
    pub slot: usize,
    /// Written into each slab descriptor ([`Slab::class`](crate::Slab::class)); not 0.
    pub class: u16,
}

impl CacheSpec {
    /// A cache of objects of `size` bytes with word alignment.
    pub const fn new(name: &'static str, size: usize) -> Self {
        Self {
            name,
            size,
            align: core::mem::size_of::<usize>(),
            flags: CacheFlags::NONE,
            ctor: None,
            free_pointer: FreePointer::Middle,
            sheaf_capacity: 0,
            refill: 0,
            order: None,
            min_partial: None,
            barn_limit: 10,
            slot: 0,
            class: 1,
        }
    }

    /// Sets the alignment.
    #[must_use]
    pub const fn align(mut self, align: usize) -> Self {
        self.align = align;
        self
    }

    /// Sets the flags.
    #[must_use]
    pub const fn flags(mut self, flags: CacheFlags) -> Self {
        self.flags = flags;
        self
    }

    /// Sets the constructor.
    #[must_use]
    pub const fn ctor(mut self, ctor: unsafe fn(*mut u8)) -> Self {
        self.ctor = Some(ctor);
        self
    }

    /// Sets the place of the free pointer.
    #[must_use]
    pub const fn free_pointer(mut self, place: FreePointer) -> Self {
        self.free_pointer = place;
        self
    }

    /// Asks for a sheaf capacity.
    #[must_use]
    pub const fn sheaf_capacity(mut self, capacity: usize) -> Self {
        self.sheaf_capacity = capacity;
        self
    }

    /// Sets how many objects an empty sheaf is filled with at first: a cache of large objects that is hardly used takes no
    /// more memory than it needs. A cache that has many objects takes an eighth as many at a time.
    #[must_use]
    pub const fn refill(mut self, count: usize) -> Self {
        self.refill = count;
        self
    }

    /// Fixes the order of slabs.
    #[must_use]
    pub const fn order(mut self, order: u32) -> Self {
        self.order = Some(order);
        self
    }

    /// Sets how many empty slabs a node keeps.
    #[must_use]
    pub const fn min_partial(mut self, count: usize) -> Self {
        self.min_partial = Some(count);
        self
    }

    /// Sets how many full and how many empty sheaves a barn keeps.
    #[must_use]
    pub const fn barn_limit(mut self, count: usize) -> Self {
        self.barn_limit = count;
        self
    }

    /// Sets the slot of the per-CPU backend.
    #[must_use]
    pub const fn slot(mut self, slot: usize) -> Self {
        self.slot = slot;
        self
    }

    /// Sets the class number that slab descriptors carry.
    #[must_use]
    pub const fn class(mut self, class: u16) -> Self {
        self.class = class;
        self
    }
}
