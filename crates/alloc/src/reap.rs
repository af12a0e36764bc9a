// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Objects that nobody needs any more go from the barns back to their slabs, so that other sizes can have the memory.
//!
//! A barn may hold a few MiB of objects of its size: a program that allocates and frees thousands in turn is served from
//! there. When it has gone on to other sizes they are in the way. So now and then, when slabs come or go, each barn gives up
//! as many full sheaves as were never touched since the last time.

use core::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::{caches, os};

/// Milliseconds between two turns, at least: what is used again within that time stays.
const PERIOD: u64 = 8;
/// Slabs that come or go before the clock is looked at.
const SLABS: usize = 16;

static COUNT: AtomicUsize = AtomicUsize::new(0);
static LAST: AtomicU64 = AtomicU64::new(0);
static RUNNING: AtomicBool = AtomicBool::new(false);

/// A slab came or went. The caller holds no lock.
#[inline]
pub(crate) fn tick() {
    // ORDERING: Relaxed: a count that may lose some.
    let count = COUNT.load(Relaxed).wrapping_add(1);
    COUNT.store(count, Relaxed);
    if count.is_multiple_of(SLABS) {
        turn(os::milliseconds());
    }
}

#[cold]
fn turn(now: u64) {
    // ORDERING: Relaxed: who reads an old time is stopped below.
    if now.wrapping_sub(LAST.load(Relaxed)) < PERIOD {
        return;
    }
    // ORDERING: Acquire pairs with the Release below: one turn at a time. Flushing gives slabs back, which ends here again;
    // and so does a signal handler.
    if RUNNING.swap(true, Acquire) {
        return;
    }
    LAST.store(now, Relaxed);
    caches::reap();
    RUNNING.store(false, Release);
}

/// The thread that was in the middle of a turn may not exist in the child.
pub(crate) fn after_fork() {
    // ORDERING: Relaxed: the child has one thread.
    RUNNING.store(false, Relaxed);
}
