// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Where the memory of an `Arc` comes from.
#![expect(unsafe_code, reason = "an unsafe trait, and the calls of the global allocator")]

use core::alloc::Layout;
use core::ptr::NonNull;

/// Memory for [`Arc`](crate::Arc) and its family.
///
/// Implemented by [`Global`], and with the feature `allocator-api2` by every `Allocator` of that crate, 0.4. An own type can implement
/// it directly, without that crate:
///
/// ```
/// use core::alloc::Layout;
/// use core::ptr::NonNull;
/// use core::sync::atomic::{AtomicUsize, Ordering};
/// use fastpath_refcount::{Arc, ArcAllocator, Global};
///
/// static LIVE: AtomicUsize = AtomicUsize::new(0);
/// struct Counting;
///
/// // SAFETY: everything is passed on to `Global`, which keeps the contract.
/// unsafe impl ArcAllocator for Counting {
///     fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
///         LIVE.fetch_add(1, Ordering::Relaxed);
///         Global.allocate(layout)
///     }
///     unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
///         LIVE.fetch_sub(1, Ordering::Relaxed);
///         // SAFETY: the caller's promise is the one asked for.
///         unsafe { Global.deallocate(memory, layout) }
///     }
/// }
///
/// let number = Arc::new_in(5, Counting);
/// let again = Arc::clone(&number);
/// assert_eq!(LIVE.load(Ordering::Relaxed), 1);
/// drop((number, again));
/// assert_eq!(LIVE.load(Ordering::Relaxed), 0);
/// ```
///
/// The allocator is kept inside the allocation, behind the counter: a handle stays one word, and cloning a handle does not clone it.
///
/// # Safety
///
/// `allocate` returns memory of that size and alignment which is used by nobody else and stays valid until it is passed to
/// `deallocate`. Moving the allocator changes nothing about that; dropping it does not either while memory of it is in use
/// (an allocator that owns its memory implements this for a reference or a counted pointer to it).
pub unsafe trait ArcAllocator {
    /// Memory for `layout`, whose size is never zero; `None` if there is none.
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>>;

    /// Gives memory back.
    ///
    /// # Safety
    ///
    /// `memory` came from `allocate` of this allocator (or of what it was cloned or moved from) with this `layout`, and
    /// is not used any more.
    unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout);
}

/// The global allocator of the program (with the feature `alloc`). See [`ArcAllocator`] for an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Global;

#[cfg(feature = "alloc")]
// SAFETY: the global allocator keeps this contract (`GlobalAlloc`), and it outlives the program.
unsafe impl ArcAllocator for Global {
    #[inline]
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        debug_assert_ne!(layout.size(), 0);
        // SAFETY: the layout's size is not zero: it holds a counter at least.
        NonNull::new(unsafe { alloc::alloc::alloc(layout) })
    }

    #[inline]
    unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller promises that the memory came from `allocate` above with this layout.
        unsafe { alloc::alloc::dealloc(memory.as_ptr(), layout) }
    }
}

#[cfg(feature = "allocator-api2")]
// SAFETY: the contract of `Allocator` includes this one.
unsafe impl<A: allocator_api2::alloc::Allocator> ArcAllocator for A {
    #[inline]
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        allocator_api2::alloc::Allocator::allocate(self, layout).ok().map(NonNull::cast)
    }

    #[inline]
    unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise is the one asked for.
        unsafe { allocator_api2::alloc::Allocator::deallocate(self, memory, layout) }
    }
}

/// What to do when there is no memory and the caller cannot be told.
#[cold]
pub(crate) fn out_of_memory(layout: Layout) -> ! {
    #[cfg(feature = "alloc")]
    alloc::alloc::handle_alloc_error(layout);
    #[cfg(not(feature = "alloc"))]
    panic!("no memory for {} bytes", layout.size());
}
