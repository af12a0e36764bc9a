// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The base of 2008: per CPU a list of free objects, with interrupts off around each use. A program has a lock instead.
//!
//! It is that design's lower bound, not an allocator for use: classes are powers of two, objects go to the list of the
//! CPU that frees them without asking which slab they are from, and memory is never given back.

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use super::worker::Heap;
use crate::bench::pin;

const CPUS: usize = 256;
const CLASSES: usize = 20;
/// Bytes that a list is refilled with.
const CHUNK: usize = 64 << 10;

/// One list with its lock, on cache lines of its own.
#[repr(align(128))]
struct List {
    locked: AtomicBool,
    first: std::cell::UnsafeCell<*mut u8>,
}

// SAFETY: `first` and what it leads to are touched only with `locked` held.
unsafe impl Sync for List {}

/// All lists: of CPU c and class k at c * CLASSES + k.
pub(super) struct Locked(Vec<List>);

impl Locked {
    pub(super) fn new() -> Self {
        let empty =
            || List { locked: AtomicBool::new(false), first: std::cell::UnsafeCell::new(ptr::null_mut()) };
        // Whether rseq tells the CPU is decided before the first use.
        fastpath_percpu::backend();
        Self((0..CPUS * CLASSES).map(|_| empty()).collect())
    }

    #[inline(always)]
    fn with<T>(&self, size: usize, work: impl FnOnce(*mut *mut u8) -> T) -> T {
        let list = &self.0[cpu() * CLASSES + class(size)];
        // ORDERING: Acquire pairs with the Release below: the previous owner's list is seen.
        while list.locked.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        let result = work(list.first.get());
        // ORDERING: Release pairs with the Acquire above.
        list.locked.store(false, Ordering::Release);
        result
    }
}

/// The CPU we are on, or were on a moment ago: any list will do, the near one is the uncontended one.
#[inline(always)]
fn cpu() -> usize {
    let cpu = fastpath_sys::rseq::cpu_id();
    if cpu >= 0 { cpu as usize % CPUS } else { pin::current() % CPUS }
}

/// log2 of the size, rounded up.
#[inline(always)]
fn class(size: usize) -> usize {
    (size.max(8) - 1).ilog2() as usize + 1
}

impl Heap for Locked {
    #[inline(always)]
    fn alloc(&self, size: usize) -> *mut u8 {
        self.with(size, |first| {
            // SAFETY: `first` is ours while the lock is held. Free objects are at least
            // 8 bytes, 8-byte aligned, and hold the next one's address in their first word.
            unsafe {
                if (*first).is_null() {
                    refill(first, 1 << class(size));
                }
                let object = *first;
                #[expect(clippy::cast_ptr_alignment, reason = "classes are multiples of 8 bytes")]
                {
                    *first = object.cast::<*mut u8>().read();
                }
                object
            }
        })
    }

    #[inline(always)]
    unsafe fn free(&self, object: *mut u8, size: usize) {
        self.with(size, |first| {
            // SAFETY: as in `alloc`; the object is the caller's to give.
            unsafe {
                #[expect(clippy::cast_ptr_alignment, reason = "classes are multiples of 8 bytes")]
                object.cast::<*mut u8>().write(*first);
                *first = object;
            }
        });
    }
}

/// Fills an empty list with a fresh chunk's objects, in the order of their addresses.
///
/// # Safety
/// The list's lock is held.
#[cold]
unsafe fn refill(first: *mut *mut u8, size: usize) {
    let chunk = Box::leak(vec![0_u64; CHUNK.max(size) / 8].into_boxed_slice()).as_mut_ptr();
    for at in (0..CHUNK.max(size) / size).rev() {
        // SAFETY: within the chunk, which lives for ever; `first` is ours.
        unsafe {
            let object = chunk.byte_add(at * size);
            object.cast::<*mut u8>().write(*first);
            *first = object.cast();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Locked, class};
    use crate::bench::slab::worker::Heap as _;

    #[test]
    fn classes_are_powers_of_two() {
        assert_eq!([1, 8, 9, 16, 17, 4096, 16384].map(class), [3, 3, 4, 4, 5, 12, 14]);
    }

    #[test]
    fn objects_are_distinct_and_come_back() {
        let heap = Locked::new();
        let mut blocks: Vec<*mut u8> = (0..5000).map(|_| heap.alloc(24)).collect();
        for block in &blocks {
            // SAFETY: 24 bytes of ours.
            unsafe { block.write_bytes(0xab, 24) };
        }
        let last = blocks[4999];
        for block in &blocks {
            // SAFETY: allocated above with this size.
            unsafe { heap.free(*block, 24) };
        }
        blocks.sort_unstable();
        blocks.dedup();
        assert_eq!(blocks.len(), 5000);
        let _ = last;
    }
}
