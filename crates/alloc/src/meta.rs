// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory for the heap's own records: taken from the system in chunks, never given back, never mixed with objects.

use crate::lock::{Lock, Rank};
use crate::os;

const CHUNK: usize = 256 * 1024;

struct Bump {
    next: usize,
    end: usize,
    mapped: usize,
}

static BUMP: Lock<Bump> = Lock::new(Rank::Meta, Bump { next: 0, end: 0, mapped: 0 });

/// Returns `bytes` zeroed bytes at a multiple of `align` (at most a page), for ever; null when there are none or when
/// a signal handler interrupted this function.
pub(crate) fn take(bytes: usize, align: usize) -> *mut u8 {
    let Some(mut bump) = BUMP.lock() else { return core::ptr::null_mut() };
    let mut start = bump.next.next_multiple_of(align);
    if bump.next == 0 || start + bytes > bump.end {
        let chunk = if bytes > CHUNK / 4 { bytes.next_multiple_of(os::PAGE) } else { CHUNK };
        // Under a tight limit on address space a single page may still be had.
        let small = bytes.next_multiple_of(os::PAGE);
        let mapped = os::map_memory(chunk).map(|base| (base, chunk));
        let Some((base, size)) = mapped.or_else(|| os::map_memory(small).map(|base| (base, small))) else {
            return core::ptr::null_mut();
        };
        bump.mapped += size;
        if bytes > CHUNK / 4 {
            return base as *mut u8;
        }
        bump.next = base;
        bump.end = base + size;
        start = base;
    }
    bump.next = start + bytes;
    start as *mut u8
}

/// Bytes mapped for records so far.
pub(crate) fn mapped() -> usize {
    BUMP.lock().map_or(0, |bump| bump.mapped)
}

/// Whether the thread that `mine` names holds the lock.
pub(crate) fn held_by(mine: u64) -> bool {
    BUMP.is_held_by(mine)
}

pub(crate) fn before_fork() {
    BUMP.lock_raw();
}

pub(crate) fn after_fork() {
    BUMP.unlock_raw();
}
