// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `fork` of a process whose other threads are inside the allocator: the child must be able to allocate.

#![expect(unsafe_code, reason = "fork")]

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[global_allocator]
static HEAP: fastpath_alloc::FastPath = fastpath_alloc::FastPath;

/// Allocates and frees, on the slow path for the most part: batches larger than two sheaves, and page runs.
fn use_heap(rounds: usize) {
    let mut blocks = [(std::ptr::null_mut::<u8>(), Layout::new::<u8>()); 300];
    for round in 0..rounds {
        for (at, block) in blocks.iter_mut().enumerate() {
            let size = if at % 50 == 0 { 100_000 } else { 16 + (at + round) % 3 * 700 };
            let layout = Layout::from_size_align(size, 8).unwrap();
            // SAFETY: the layout is not empty.
            let pointer = unsafe { HEAP.alloc(layout) };
            assert!(!pointer.is_null());
            // SAFETY: a new block.
            unsafe { pointer.write(at as u8) };
            *block = (pointer, layout);
        }
        for (at, &(pointer, layout)) in blocks.iter().enumerate() {
            // SAFETY: allocated above, and not used afterwards.
            unsafe {
                assert_eq!(pointer.read(), at as u8);
                HEAP.dealloc(pointer, layout);
            }
        }
    }
}

#[test]
fn the_child_of_a_busy_process_can_allocate() {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    use_heap(5);
                }
            });
        }
        for number in 0..60 {
            // SAFETY: the child only allocates, which is what the handlers are for, and ends by `_exit`.
            unsafe {
                let pid = libc::fork();
                assert!(pid >= 0);
                if pid == 0 {
                    libc::alarm(15);
                    use_heap(3);
                    libc::_exit(0);
                }
                let mut status = 0;
                assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
                if status != 0 {
                    stop.store(true, Relaxed);
                }
                assert_eq!(status, 0, "child {number} hung or failed");
            }
        }
        stop.store(true, Relaxed);
    });
}
