// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The feature `allocator-api2`: collections with an allocator parameter, on stable Rust.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};

use crate::FastPath;

fn block(pointer: *mut u8, size: usize) -> Result<NonNull<[u8]>, AllocError> {
    NonNull::new(pointer).map(|start| NonNull::slice_from_raw_parts(start, size)).ok_or(AllocError)
}

/// A pointer for a layout of no bytes.
fn dangling(layout: Layout) -> NonNull<[u8]> {
    // An alignment is not 0, so neither is the address.
    let start =
        NonNull::new(core::ptr::without_provenance_mut(layout.align())).unwrap_or(NonNull::dangling());
    NonNull::slice_from_raw_parts(start, 0)
}

// SAFETY: blocks stay where they are until they are given back, whatever happens to the values of this type, which are
// all the same heap.
unsafe impl Allocator for FastPath {
    #[inline]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            return Ok(dangling(layout));
        }
        // SAFETY: the layout is not empty.
        block(unsafe { self.alloc(layout) }, layout.size())
    }

    #[inline]
    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            return Ok(dangling(layout));
        }
        // SAFETY: the layout is not empty.
        block(unsafe { self.alloc_zeroed(layout) }, layout.size())
    }

    #[inline]
    unsafe fn deallocate(&self, pointer: NonNull<u8>, layout: Layout) {
        if layout.size() > 0 {
            // SAFETY: the caller's promise: a block of this allocator with this layout.
            unsafe { self.dealloc(pointer.as_ptr(), layout) };
        }
    }

    unsafe fn grow(
        &self,
        pointer: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promise.
        unsafe { resize(*self, pointer, old, new) }
    }

    unsafe fn shrink(
        &self,
        pointer: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promise.
        unsafe { resize(*self, pointer, old, new) }
    }
}

/// # Safety
///
/// A block of the allocator with the layout `old`.
unsafe fn resize(
    heap: FastPath,
    pointer: NonNull<u8>,
    old: Layout,
    new: Layout,
) -> Result<NonNull<[u8]>, AllocError> {
    // SAFETY: the caller's promise; both layouts are not empty where `realloc` is used.
    unsafe {
        if old.align() == new.align() && old.size() > 0 && new.size() > 0 {
            return block(heap.realloc(pointer.as_ptr(), old, new.size()), new.size());
        }
        let moved = heap.allocate(new)?;
        core::ptr::copy_nonoverlapping(
            pointer.as_ptr(),
            moved.cast::<u8>().as_ptr(),
            old.size().min(new.size()),
        );
        heap.deallocate(pointer, old);
        Ok(moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_lives_on_it() {
        let mut vector = allocator_api2::vec::Vec::new_in(FastPath);
        for n in 0..10_000u32 {
            vector.push(n);
        }
        vector.truncate(10);
        vector.shrink_to_fit();
        assert_eq!(&vector[..], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let empty = FastPath.allocate(Layout::from_size_align(0, 64).unwrap()).unwrap();
        assert_eq!((empty.len(), empty.cast::<u8>().as_ptr().addr() % 64), (0, 0));
    }
}
