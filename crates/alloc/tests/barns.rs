// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What barns keep, seen from outside: one test, because the figures are the process's.

use std::time::{Duration, Instant};

#[global_allocator]
static HEAP: fastpath_alloc::FastPath = fastpath_alloc::FastPath;

fn in_and_out(count: usize, size: usize) {
    let blocks: Vec<Vec<u8>> = (0..count).map(|_| Vec::with_capacity(size)).collect();
    std::hint::black_box(&blocks);
}

/// The others' slabs come and go for a while.
fn others(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        in_and_out(500, 8192);
    }
}

#[test]
fn a_barn_gives_back_what_is_not_used_again() {
    for size in (16..=256).step_by(16) {
        in_and_out(10_000, size);
    }
    let kept = fastpath_alloc::stats().barn_bytes;
    assert!(kept > 2 << 20, "thousands of small blocks are kept for the next round: {kept} bytes");
    // Two turns at least, with a machine that is busy elsewhere.
    let start = Instant::now();
    let mut left = kept;
    while left > kept / 2 && start.elapsed() < Duration::from_secs(20) {
        others(Duration::from_millis(50));
        in_and_out(10, 64);
        left = fastpath_alloc::stats().barn_bytes;
    }
    assert!(left <= kept / 2, "{left} of {kept} bytes are still kept while others need memory");
}
