// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The allocator of a Rust program.

use core::alloc::{GlobalAlloc, Layout};

use crate::classes::MAX_SMALL;
use crate::heap;

/// The per-CPU allocator. All values of this type are the same heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastPath;

// SAFETY: blocks have the size and alignment asked for, do not overlap, and stay until they are freed; nothing unwinds.
unsafe impl GlobalAlloc for FastPath {
    #[cfg_attr(feature = "inline", inline(always))]
    #[cfg_attr(not(feature = "inline"), inline)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= 16 {
            heap::malloc::<true>(layout.size())
        } else {
            heap::alloc_any(layout.size(), layout.align()).0
        }
    }

    #[cfg_attr(feature = "inline", inline(always))]
    #[cfg_attr(not(feature = "inline"), inline)]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise: a live block of this heap, with this layout.
        unsafe {
            if layout.align() <= 16 {
                heap::free_sized::<true>(pointer, layout.size());
            } else {
                heap::free::<true>(pointer);
            }
        }
    }

    #[cfg_attr(feature = "inline", inline(always))]
    #[cfg_attr(not(feature = "inline"), inline)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        heap::zeroed(layout.size(), layout.align())
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe {
            if layout.align() <= 16 && layout.size() <= MAX_SMALL && new_size <= MAX_SMALL {
                // The block may only stay if it would be freed into the class it came from.
                heap::realloc_small::<true>(pointer, layout.size(), new_size)
            } else {
                heap::realloc(pointer, new_size, layout.align())
            }
        }
    }
}
