// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! A block that nobody shares yet.
#![expect(unsafe_code, reason = "the only handle of a block may be written through")]

use core::mem::MaybeUninit;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

use super::{Arc, Block};
use crate::allocator::ArcAllocator;
#[cfg(feature = "alloc")]
use crate::allocator::Global;

/// The only handle of a block: its value can be changed, and shared later without being moved.
///
/// ```
/// use fastpath_refcount::UniqueArc;
///
/// let mut list = UniqueArc::new(vec![3, 1, 2]);
/// list.sort_unstable();
/// let shared = list.shareable();
/// assert_eq!(*shared, [1, 2, 3]);
/// ```
///
/// It cannot be cloned:
///
/// ```compile_fail,E0599
/// let unique = fastpath_refcount::UniqueArc::new(1);
/// let two = unique.clone().shareable();
/// ```
pub struct UniqueArc<
    T: ?Sized,
    #[cfg(feature = "alloc")] A: ArcAllocator = Global,
    #[cfg(not(feature = "alloc"))] A: ArcAllocator,
>(pub(super) Arc<T, A>);

// SAFETY: the value is reached through this handle alone, so it may go to another thread as a box does.
unsafe impl<T: ?Sized + Send, A: ArcAllocator + Send> Send for UniqueArc<T, A> {}
// SAFETY: a shared handle gives out `&T` and nothing else.
unsafe impl<T: ?Sized + Sync, A: ArcAllocator + Sync> Sync for UniqueArc<T, A> {}

#[cfg(feature = "alloc")]
impl<T> UniqueArc<T> {
    /// A new block with `value`. See [`UniqueArc`] for an example.
    #[inline]
    #[must_use]
    pub fn new(value: T) -> Self {
        Self(Arc::new(value))
    }

    /// A new block whose value is to be written in place.
    ///
    /// ```
    /// use fastpath_refcount::UniqueArc;
    /// let mut number = UniqueArc::new_uninit();
    /// number.write(5);
    /// // SAFETY: the value has been written.
    /// assert_eq!(*unsafe { number.assume_init() }.shareable(), 5);
    /// ```
    #[inline]
    #[must_use]
    pub fn new_uninit() -> UniqueArc<MaybeUninit<T>> {
        UniqueArc(Arc::new(MaybeUninit::uninit()))
    }
}

impl<T, A: ArcAllocator> UniqueArc<T, A> {
    /// A new block with `value`, from `allocator`.
    ///
    /// ```
    /// use fastpath_refcount::{Global, UniqueArc};
    /// assert_eq!(*UniqueArc::new_in(5, Global), 5);
    /// ```
    #[inline]
    #[must_use]
    pub fn new_in(value: T, allocator: A) -> Self {
        Self(Arc::new_in(value, allocator))
    }

    /// The value.
    ///
    /// ```
    /// assert_eq!(fastpath_refcount::UniqueArc::new(5).into_inner(), 5);
    /// ```
    #[inline]
    #[must_use]
    pub fn into_inner(self) -> T {
        let this = core::mem::ManuallyDrop::new(self);
        // SAFETY: the only handle of the block, and it is not dropped: nobody looks at the count again.
        unsafe { this.0.take() }
    }
}

impl<T, A: ArcAllocator> UniqueArc<MaybeUninit<T>, A> {
    /// The block with its value taken as written.
    ///
    /// # Safety
    ///
    /// The value has been written.
    ///
    /// See [`new_uninit`](UniqueArc::new_uninit) for an example.
    #[inline]
    #[must_use]
    pub unsafe fn assume_init(self) -> UniqueArc<T, A> {
        let block = core::mem::ManuallyDrop::new(self).0.block;
        // SAFETY: `MaybeUninit<T>` and `T` have one layout, so the block has too; the count moves over.
        UniqueArc(unsafe { Arc::from_block(block.cast()) })
    }
}

impl<T: ?Sized, A: ArcAllocator> UniqueArc<T, A> {
    /// # Safety
    ///
    /// `arc` is the only handle of its block.
    pub(super) unsafe fn from_arc(arc: Arc<T, A>) -> Self {
        Self(arc)
    }

    /// # Safety
    ///
    /// The block is new, with one count, and nobody else has it.
    pub(super) unsafe fn from_block(block: NonNull<Block<T, A>>) -> Self {
        // SAFETY: the one count is this handle's.
        Self(unsafe { Arc::from_block(block) })
    }

    /// The handle as one that can be cloned. See [`UniqueArc`] for an example.
    #[inline]
    #[must_use]
    pub fn shareable(self) -> Arc<T, A> {
        self.0
    }
}

impl<T: ?Sized, A: ArcAllocator> Deref for UniqueArc<T, A> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized, A: ArcAllocator> DerefMut for UniqueArc<T, A> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the only handle of the block, borrowed mutably.
        unsafe { &mut (*self.0.block.as_ptr()).data }
    }
}

impl<T: ?Sized, A: ArcAllocator> From<UniqueArc<T, A>> for Arc<T, A> {
    fn from(unique: UniqueArc<T, A>) -> Self {
        unique.shareable()
    }
}

impl<T: ?Sized, A: ArcAllocator> TryFrom<Arc<T, A>> for UniqueArc<T, A> {
    type Error = Arc<T, A>;

    fn try_from(shared: Arc<T, A>) -> Result<Self, Arc<T, A>> {
        Arc::try_unique(shared)
    }
}
