// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! A handle borrowed for a while: copyable, without touching the count.
#![expect(unsafe_code, reason = "a borrow is a raw pointer to a block that somebody keeps alive")]

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::NonNull;

use super::{Arc, Block};
use crate::allocator::ArcAllocator;
#[cfg(feature = "alloc")]
use crate::allocator::Global;

/// A borrowed [`Arc`]: one word, one indirection less than `&Arc<T>`, and it can still be turned into a handle.
///
/// ```
/// use fastpath_refcount::{Arc, ArcBorrow};
///
/// fn longest<'a>(a: ArcBorrow<'a, str>, b: ArcBorrow<'a, str>) -> ArcBorrow<'a, str> {
///     if a.len() >= b.len() { a } else { b }
/// }
/// let (one, three) = (Arc::from("one"), Arc::from("three"));
/// let kept = longest(Arc::borrow_arc(&one), Arc::borrow_arc(&three)).clone_arc();
/// assert!(Arc::ptr_eq(&kept, &three));
/// ```
///
/// It does not outlive the handle it was borrowed from:
///
/// ```compile_fail,E0505
/// use fastpath_refcount::Arc;
/// let number = Arc::new(5);
/// let borrowed = Arc::borrow_arc(&number);
/// drop(number);
/// assert_eq!(*borrowed, 5);
/// ```
pub struct ArcBorrow<
    'a,
    T: ?Sized,
    #[cfg(feature = "alloc")] A: ArcAllocator = Global,
    #[cfg(not(feature = "alloc"))] A: ArcAllocator,
> {
    block: NonNull<Block<T, A>>,
    /// As good as a reference to the handle.
    borrows: PhantomData<&'a Arc<T, A>>,
}

// SAFETY: it can do what `&Arc` can, which is `Send` and `Sync` under these conditions.
unsafe impl<T: ?Sized + Send + Sync, A: ArcAllocator + Send + Sync> Send for ArcBorrow<'_, T, A> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send + Sync, A: ArcAllocator + Send + Sync> Sync for ArcBorrow<'_, T, A> {}

impl<'a, T: ?Sized, A: ArcAllocator> ArcBorrow<'a, T, A> {
    #[inline]
    pub(super) fn of(handle: &'a Arc<T, A>) -> Self {
        Self { block: handle.block, borrows: PhantomData }
    }

    /// A handle of its own: takes one count. See [`ArcBorrow`] for an example.
    #[inline]
    #[must_use]
    pub fn clone_arc(self) -> Arc<T, A> {
        // SAFETY: the block is alive for 'a. The temporary handle is not dropped: it accounts for nothing.
        let handle = ManuallyDrop::new(unsafe { Arc::from_block(self.block) });
        Arc::clone(&handle)
    }

    /// The value, for as long as the handle is borrowed (`Deref` gives it for as long as this is).
    ///
    /// ```
    /// use fastpath_refcount::Arc;
    /// let number = Arc::new(5);
    /// let value: &i32 = Arc::borrow_arc(&number).get();
    /// assert_eq!(*value, 5);
    /// ```
    #[inline]
    #[must_use]
    pub fn get(self) -> &'a T {
        // SAFETY: the handle borrowed from keeps the block alive, and shared, for 'a.
        unsafe { &(*self.block.as_ptr()).data }
    }

    /// A borrow of the block that `value` lies in.
    ///
    /// # Safety
    ///
    /// `value` came from [`Arc::into_raw`] or [`Arc::as_ptr`] of the same types, and somebody keeps a count of its block for 'a.
    ///
    /// ```
    /// use fastpath_refcount::{Arc, ArcBorrow};
    /// let number = Arc::new(5);
    /// // SAFETY: `number` keeps its count for longer than the borrow is used.
    /// let borrowed: ArcBorrow<'_, i32> = unsafe { ArcBorrow::from_raw_in(Arc::as_ptr(&number)) };
    /// assert_eq!(*borrowed, 5);
    /// ```
    #[inline]
    #[must_use]
    pub unsafe fn from_raw_in(value: *const T) -> Self {
        // SAFETY: as the caller promises; the handle is not dropped, so it accounts for nothing.
        let handle = ManuallyDrop::new(unsafe { Arc::from_raw_in(value) });
        Self { block: handle.block, borrows: PhantomData }
    }
}

impl<T: ?Sized, A: ArcAllocator> Clone for ArcBorrow<'_, T, A> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized, A: ArcAllocator> Copy for ArcBorrow<'_, T, A> {}

impl<T: ?Sized, A: ArcAllocator> Deref for ArcBorrow<'_, T, A> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.get()
    }
}
