// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The two loops of slab_test on the global allocator, in ticks of the CPU's counter, size by size.
//!
//! `pairs` allocates and frees at once, untouched. `batch` allocates 10,000 blocks and writes a byte to each, then writes
//! another byte to each and frees it, in the order of allocation. Each figure is the median of many short runs inside
//! the process, so that an interruption does not count; the first runs, which fault the memory in, are left out.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::hint::black_box;

use crate::workloads::Outcome;

/// Sizes of the pair loop.
pub const PAIR_SIZES: [usize; 8] = [8, 16, 32, 64, 128, 256, 512, 1024];
/// Sizes of the batch loop, slab_test's.
pub const BATCH_SIZES: [usize; 12] = [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384];
/// Blocks of a batch.
const BATCH: usize = 10_000;

/// Ticks of the CPU's counter; nanoseconds where it has none that can be read like that.
fn ticks() -> u64 {
    core::cfg_select! {
        // SAFETY: reads a counter, that every CPU of this architecture has.
        target_arch = "x86_64" => unsafe { core::arch::x86_64::_rdtsc() },
        _ => std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64),
    }
}

/// A block as the global allocator gives it.
#[inline(always)]
fn take(layout: Layout) -> *mut u8 {
    // SAFETY: the sizes here are not zero.
    let block = unsafe { alloc(layout) };
    if block.is_null() {
        handle_alloc_error(layout);
    }
    black_box(block)
}

/// The layout of that many bytes with the alignment of a word, its size hidden from the optimizer as far as the loop goes.
fn layout(size: usize) -> Layout {
    Layout::from_size_align(black_box(size), 8).unwrap_or(Layout::new::<u64>())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Nobody else in the process: one block at a time.
pub fn pairs(percent: usize) -> Outcome {
    const RUN: usize = 10_000;
    let runs = (60 * percent / 100).max(5);
    let mut parts = Vec::new();
    let outcome = crate::workloads::timed(runs * RUN * PAIR_SIZES.len(), || {
        for size in PAIR_SIZES {
            let layout = layout(size);
            let mut values: Vec<f64> = (0..runs)
                .map(|_| {
                    let start = ticks();
                    for _ in 0..RUN {
                        let block = take(layout);
                        // SAFETY: just allocated with this layout.
                        unsafe { dealloc(block, layout) };
                    }
                    (ticks() - start) as f64 / RUN as f64
                })
                .collect();
            parts.push((format!("pair/{size}"), median(&mut values)));
        }
    });
    Outcome { parts, ..outcome }
}

/// 10,000 blocks of one size, then all freed, size by size.
pub fn batch(percent: usize) -> Outcome {
    let mut parts = Vec::new();
    let mut blocks = vec![std::ptr::null_mut::<u8>(); BATCH];
    let mut operations = 0;
    let outcome = crate::workloads::timed(1, || {
        for size in BATCH_SIZES {
            let layout = layout(size);
            let runs = (if size <= 1024 { 24 } else { 8 } * percent / 100).max(3);
            let (mut allocs, mut frees, mut sums) = (Vec::new(), Vec::new(), Vec::new());
            for run in 0..runs + 2 {
                let start = ticks();
                for slot in &mut blocks {
                    let block = take(layout);
                    // SAFETY: at least one byte, ours.
                    unsafe { block.write_volatile(22) };
                    *slot = block;
                }
                let middle = ticks();
                for block in &blocks {
                    // SAFETY: allocated above with this layout, freed once.
                    unsafe {
                        block.write_volatile(23);
                        dealloc(*block, layout);
                    }
                }
                let end = ticks();
                operations += BATCH;
                if run >= 2 {
                    allocs.push((middle - start) as f64 / BATCH as f64);
                    frees.push((end - middle) as f64 / BATCH as f64);
                    sums.push((end - start) as f64 / BATCH as f64);
                }
            }
            parts.push((format!("batch/{size}"), median(&mut sums)));
            parts.push((format!("batch-alloc/{size}"), median(&mut allocs)));
            parts.push((format!("batch-free/{size}"), median(&mut frees)));
        }
    });
    Outcome { parts, operations, ..outcome }
}
