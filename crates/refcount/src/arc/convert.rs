// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Conversions into a handle: the ones `std::sync::Arc` has.
#![cfg(feature = "alloc")]
#![expect(unsafe_code, reason = "handles are made of new blocks, and of blocks under another type")]

use alloc::borrow::{Cow, ToOwned};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem::ManuallyDrop;
use core::ptr;

use super::{Arc, Block};
use crate::RefCount;
use crate::allocator::{ArcAllocator, Global};
use crate::block;

impl<T> From<T> for Arc<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized> From<Box<T>> for Arc<T> {
    /// Moves the value into a block, whatever its size: the way to an `Arc` of a trait object on stable Rust.
    fn from(value: Box<T>) -> Self {
        // SAFETY: the block is complete, and its count is the handle's.
        unsafe { Self::from_block(block::from_box(value, RefCount::new(1))) }
    }
}

impl<T> From<Vec<T>> for Arc<[T]> {
    fn from(items: Vec<T>) -> Self {
        items.into_iter().collect_exact()
    }
}

impl<T: Clone> From<&[T]> for Arc<[T]> {
    fn from(items: &[T]) -> Self {
        items.iter().cloned().collect_exact()
    }
}

impl<T, const N: usize> From<[T; N]> for Arc<[T]> {
    fn from(items: [T; N]) -> Self {
        items.into_iter().collect_exact()
    }
}

impl<T> FromIterator<T> for Arc<[T]> {
    /// Through a vector, because the number of elements must be known first. [`Arc::from_iter_in`] goes without.
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        items.into_iter().collect::<Vec<T>>().into()
    }
}

impl From<&str> for Arc<str> {
    fn from(text: &str) -> Self {
        Self::from_str_in(text, Global)
    }
}

impl From<String> for Arc<str> {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl<'a, B: ?Sized + ToOwned> From<Cow<'a, B>> for Arc<B>
where
    Self: From<&'a B> + From<B::Owned>,
{
    fn from(value: Cow<'a, B>) -> Self {
        match value {
            Cow::Borrowed(value) => Self::from(value),
            Cow::Owned(value) => Self::from(value),
        }
    }
}

impl<A: ArcAllocator> From<Arc<str, A>> for Arc<[u8], A> {
    fn from(text: Arc<str, A>) -> Self {
        let block = ManuallyDrop::new(text).block.as_ptr() as *mut Block<[u8], A>;
        // SAFETY: `str` has the layout of `[u8]`, and the count moves over.
        unsafe { Self::from_block(ptr::NonNull::new_unchecked(block)) }
    }
}

impl<T, A: ArcAllocator, const N: usize> TryFrom<Arc<[T], A>> for Arc<[T; N], A> {
    type Error = Arc<[T], A>;

    fn try_from(slice: Arc<[T], A>) -> Result<Self, Arc<[T], A>> {
        if slice.len() != N {
            return Err(slice);
        }
        // SAFETY: a slice of N elements has the layout of an array of N, and the count moves over.
        Ok(unsafe { Self::from_block(ManuallyDrop::new(slice).block.cast()) })
    }
}

impl<T: Default> Default for Arc<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Default for Arc<[T]> {
    fn default() -> Self {
        Self::from([])
    }
}

impl Default for Arc<str> {
    fn default() -> Self {
        Self::from("")
    }
}

/// Iterators whose length can be relied on, into a block without a detour.
trait CollectExact: ExactSizeIterator + Sized {
    fn collect_exact(self) -> Arc<[Self::Item]> {
        Arc::from_iter_in(self, Global)
    }
}

impl<I: ExactSizeIterator> CollectExact for I {}
