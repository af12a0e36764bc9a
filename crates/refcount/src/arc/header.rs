// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Slices, strings, and a header followed by a slice, each in one block with its count.
#![expect(unsafe_code, reason = "elements are written into raw memory")]

use core::alloc::Layout;
use core::ptr;

use super::{Arc, Block, UniqueArc};
use crate::RefCount;
#[cfg(feature = "alloc")]
use crate::allocator::Global;
use crate::allocator::{ArcAllocator, out_of_memory};
use crate::block::{self, Elements};

/// A header and, in the same block, what follows it: usually a slice whose length is known when it is made.
///
/// ```
/// use fastpath_refcount::{Arc, HeaderSlice};
///
/// struct Route {
///     metric: u32,
/// }
/// let route: Arc<HeaderSlice<Route, [u8]>> = Arc::from_header_and_iter(Route { metric: 7 }, [10, 0, 0, 1].into_iter());
/// assert_eq!((route.header.metric, &route.slice), (7, &[10, 0, 0, 1][..]));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct HeaderSlice<H, T: ?Sized> {
    /// What comes first.
    pub header: H,
    /// What follows it.
    pub slice: T,
}

#[cfg(feature = "alloc")]
impl<H, T> Arc<HeaderSlice<H, [T]>> {
    /// `header` followed by the elements of `items`. See [`HeaderSlice`] for an example.
    ///
    /// # Panics
    ///
    /// If the iterator's length is not what it says.
    #[must_use]
    pub fn from_header_and_iter(header: H, items: impl ExactSizeIterator<Item = T>) -> Self {
        Self::from_header_and_iter_in(header, items, Global)
    }
}

impl<H, T, A: ArcAllocator> Arc<HeaderSlice<H, [T]>, A> {
    /// [`from_header_and_iter`](Arc::from_header_and_iter) with memory from `allocator`.
    ///
    /// # Panics
    ///
    /// If the iterator's length is not what it says.
    ///
    /// ```
    /// use fastpath_refcount::{Arc, Global};
    /// let block = Arc::from_header_and_iter_in("two", [1, 2].into_iter(), Global);
    /// assert_eq!((block.header, block.slice.len()), ("two", 2));
    /// ```
    #[must_use]
    pub fn from_header_and_iter_in(header: H, items: impl ExactSizeIterator<Item = T>, allocator: A) -> Self {
        let len = items.len();
        let (value, slice_offset) =
            Layout::new::<H>().extend(array::<T>(len)).unwrap_or_else(|_| out_of_memory(Layout::new::<H>()));
        let (memory, data) = block::for_layout::<RefCount, A>(value.pad_to_align(), allocator);
        let block = ptr::slice_from_raw_parts_mut(memory.start(), len) as *mut Block<HeaderSlice<H, [T]>, A>;
        // SAFETY: the memory has the layout of the block (`repr(C)`: header, then slice), header and all elements are written before
        // it is finished, and the new count is the handle's. If the iterator panics, `memory` and `header` are dropped.
        unsafe {
            Elements::fill(data.add(slice_offset).cast::<T>(), len, items);
            data.cast::<H>().write(header);
            Self::from_block(memory.finish(block, RefCount::new(1)))
        }
    }
}

impl<T, A: ArcAllocator> Arc<[T], A> {
    /// The elements of `items`, with memory from `allocator`. (`Arc::from_iter`, `collect` and `From<Vec<T>>` use the global one.)
    ///
    /// # Panics
    ///
    /// If the iterator's length is not what it says.
    ///
    /// ```
    /// use fastpath_refcount::{Arc, Global};
    /// assert_eq!(*Arc::from_iter_in([1, 2, 3].into_iter(), Global), [1, 2, 3]);
    /// ```
    #[must_use]
    pub fn from_iter_in(items: impl ExactSizeIterator<Item = T>, allocator: A) -> Self {
        UniqueArc::from_iter_in(items, allocator).shareable()
    }
}

impl<T, A: ArcAllocator> UniqueArc<[T], A> {
    /// [`Arc::from_iter_in`], not shared yet.
    ///
    /// # Panics
    ///
    /// If the iterator's length is not what it says.
    ///
    /// ```
    /// use fastpath_refcount::{Global, UniqueArc};
    /// let mut numbers = UniqueArc::from_iter_in([3, 1, 2].into_iter(), Global);
    /// numbers.sort_unstable();
    /// assert_eq!(*numbers.shareable(), [1, 2, 3]);
    /// ```
    #[must_use]
    pub fn from_iter_in(items: impl ExactSizeIterator<Item = T>, allocator: A) -> Self {
        let len = items.len();
        let (memory, data) = block::for_layout::<RefCount, A>(array::<T>(len), allocator);
        let block = ptr::slice_from_raw_parts_mut(memory.start(), len) as *mut Block<[T], A>;
        // SAFETY: the memory has the layout of the block, all elements are written before it is finished, and nobody else has it.
        // If the iterator panics, `memory` gives the memory back.
        unsafe {
            Elements::fill(data.cast::<T>(), len, items);
            Self::from_block(memory.finish(block, RefCount::new(1)))
        }
    }
}

impl<A: ArcAllocator> Arc<str, A> {
    /// A copy of `text`, with memory from `allocator`. (`Arc::from(text)` uses the global one.)
    ///
    /// ```
    /// use fastpath_refcount::{Arc, Global};
    /// assert_eq!(&*Arc::from_str_in("text", Global), "text");
    /// ```
    #[must_use]
    pub fn from_str_in(text: &str, allocator: A) -> Self {
        let bytes = core::mem::ManuallyDrop::new(Arc::<[u8], A>::from_iter_in(text.bytes(), allocator));
        // SAFETY: `str` has the layout of `[u8]`, these bytes are UTF-8, and the count moves over.
        unsafe { Self::from_block(ptr::NonNull::new_unchecked(bytes.block.as_ptr() as *mut Block<str, A>)) }
    }
}

fn array<T>(len: usize) -> Layout {
    Layout::array::<T>(len).unwrap_or_else(|_| out_of_memory(Layout::new::<T>()))
}
