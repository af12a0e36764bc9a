// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Shared pointers whose blocks are objects of a slab cache.
#![expect(unsafe_code, reason = "objects of a cache are handed out as memory")]

use core::alloc::Layout;
use core::ptr::NonNull;

use fastpath_slub::{Cache, Host};

use crate::allocator::ArcAllocator;

/// A cache of `fastpath-slub` as the allocator of an [`Arc`](crate::Arc): the cache's objects hold count, this reference
/// and value ([`Arc::block_layout`](crate::Arc::block_layout) says how large they must be).
///
/// A cache in a static can also be named by a type of its own, as below: then the block holds no reference.
///
/// ```
/// use core::alloc::Layout;
/// use core::ptr::NonNull;
/// use fastpath_refcount::{Arc, ArcAllocator, CacheAllocator};
/// use fastpath_slub::{Cache, CacheSpec, Host, SheafPool, Sizing, SpinLock, StaticRegion, TryLockSlots};
///
/// #[derive(Clone, Copy)]
/// struct Kernel; // its surroundings, as on the front page of fastpath-slub
/// # static MEMORY: StaticRegion<64> = StaticRegion::new();
/// # static SLOTS: TryLockSlots<fn() -> usize, 4, 8> = TryLockSlots::new(|| 0);
/// # static SHEAVES: SheafPool<Kernel> = SheafPool::new(Kernel, 100, &SIZING);
/// # const SIZING: Sizing = Sizing::kernel(4);
/// # impl Host for Kernel {
/// #     type Source = StaticRegion<64>;
/// #     type Slots = TryLockSlots<fn() -> usize, 4, 8>;
/// #     type Lock = SpinLock;
/// #     fn source(&self) -> &Self::Source { &MEMORY }
/// #     fn slots(&self) -> &Self::Slots { &SLOTS }
/// #     fn sheaves(&self) -> &SheafPool<Self> { &SHEAVES }
/// #     fn context(&self) -> usize { 1 }
/// # }
///
/// type Shared<'a> = Arc<[u64; 4], CacheAllocator<'a, Kernel>>;
/// static SESSIONS: Cache<Kernel> = Cache::new(
///     Kernel,
///     CacheSpec::new("session", Shared::block_layout().size()),
///     &SIZING,
/// );
/// let session = Shared::new_in([1, 2, 3, 4], CacheAllocator::new(&SESSIONS));
/// let again = Arc::clone(&session);
/// assert_eq!(SESSIONS.slabs().validate().map(|_| again[3]), Ok(4));
/// drop((session, again));
///
/// // The cache named by a type: blocks without a reference to it.
/// struct InSessions;
/// // SAFETY: everything is passed on to the cache, which never goes away.
/// unsafe impl ArcAllocator for InSessions {
///     fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
///         CacheAllocator::new(&SESSIONS).allocate(layout)
///     }
///     unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
///         // SAFETY: the caller's promise is the one asked for.
///         unsafe { CacheAllocator::new(&SESSIONS).deallocate(memory, layout) }
///     }
/// }
/// assert_eq!(*Arc::new_in(7_u64, InSessions), 7);
/// // A value that does not fit gets no memory.
/// assert!(Arc::try_new_in([0_u64; 100], InSessions).is_err());
/// ```
#[derive(Clone, Copy)]
pub struct CacheAllocator<'a, H: Host, const NODES: usize = 1> {
    cache: &'a Cache<H, NODES>,
}

impl<'a, H: Host, const NODES: usize> CacheAllocator<'a, H, NODES> {
    /// Objects of `cache` as memory.
    #[must_use]
    pub const fn new(cache: &'a Cache<H, NODES>) -> Self {
        Self { cache }
    }
}

impl<H: Host, const NODES: usize> core::fmt::Debug for CacheAllocator<'_, H, NODES> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("CacheAllocator").field(&self.cache.slabs().name()).finish()
    }
}

// SAFETY: an object of the cache is memory of the cache's size and alignment, used by nobody else until it is freed; the cache is
// borrowed, so it stays where it is, and dropping the reference does nothing to it.
unsafe impl<H: Host, const NODES: usize> ArcAllocator for CacheAllocator<'_, H, NODES> {
    /// An object, or `None` if there is no memory, or if `layout` is larger than the cache's objects.
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        let objects = self.cache.slabs().layout();
        if layout.size() > objects.object_size || layout.align() > objects.align {
            return None;
        }
        self.cache.alloc()
    }

    unsafe fn deallocate(&self, memory: NonNull<u8>, _: Layout) {
        // SAFETY: the caller promises that the memory came from `allocate`, so it is an object of the cache, and is given up.
        unsafe { self.cache.free(memory) };
    }
}
