// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Unsizing a handle in place, through the crate `unsize`: what only the compiler's own types can do by themselves.
//!
//! ```
//! use core::fmt::Display;
//! use fastpath_refcount::Arc;
//! use unsize::{CoerceUnsize, Coercion};
//!
//! let shown: Arc<dyn Display> = Arc::new(5).unsize(Coercion::to_display());
//! assert_eq!(shown.to_string(), "5");
//! ```
#![expect(unsafe_code, reason = "a pointer is replaced by its unsized form")]

use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use ::unsize::CoerciblePtr;

use super::{Arc, Block, UniqueArc};
use crate::allocator::ArcAllocator;

// SAFETY: the pointer given out is that of the value, and the new handle has the old one's block and count.
unsafe impl<T, U: ?Sized, A: ArcAllocator> CoerciblePtr<U> for Arc<T, A> {
    type Pointee = T;
    type Output = Arc<U, A>;

    fn as_sized_ptr(&mut self) -> *mut T {
        // The block's address under the value's type: only the metadata of what comes back is of interest, and the address goes
        // through unchanged.
        self.block.as_ptr().cast()
    }

    unsafe fn replace_ptr(self, new: *mut U) -> Arc<U, A> {
        let this = ManuallyDrop::new(self);
        let block = new as *mut Block<U, A>;
        debug_assert_eq!(block.cast::<u8>(), this.block.as_ptr().cast::<u8>());
        // SAFETY: `new` is `as_sized_ptr` unsized, so it is the block's address, not null, with the metadata of U. The value's
        // offset is the same, because unsizing keeps alignment. The count moves over.
        unsafe { Arc::from_block(NonNull::new_unchecked(block)) }
    }
}

// SAFETY: as for the handle inside.
unsafe impl<T, U: ?Sized, A: ArcAllocator> CoerciblePtr<U> for UniqueArc<T, A> {
    type Pointee = T;
    type Output = UniqueArc<U, A>;

    fn as_sized_ptr(&mut self) -> *mut T {
        self.0.block.as_ptr().cast()
    }

    unsafe fn replace_ptr(self, new: *mut U) -> UniqueArc<U, A> {
        let this = ManuallyDrop::new(self);
        debug_assert_eq!(new.cast::<u8>(), this.0.block.as_ptr().cast::<u8>());
        // SAFETY: as for the handle inside; it stays the only one.
        unsafe { UniqueArc::from_block(NonNull::new_unchecked(new as *mut Block<U, A>)) }
    }
}
