// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `FASTPATH_DEBUG=U`: who allocated each block, and who freed those that were freed last. Every block is followed, as by
//! `FASTPATH_PROFILE_INTERVAL=1`; a report of a check names the owners of the block it is about.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};

use super::{leaks, table, unwind};
use crate::os;
use crate::report::Line;

/// Blocks that were freed and are remembered: the last one of each place in this table.
const REMEMBERED: usize = 1 << 16;

/// A block that was freed: its address, and the stacks of its allocation (low half) and its free.
struct Gone {
    block: AtomicU64,
    stacks: AtomicU64,
}

// ORDERING: Relaxed throughout: what is read here only goes into a report, and a race may at worst name the stacks of
// another block that was freed at the same time.
static TABLE: AtomicPtr<Gone> = AtomicPtr::new(core::ptr::null_mut());

/// Maps the table; false if there is no memory.
pub(super) fn set_up() -> bool {
    let Some(memory) = os::map_memory(REMEMBERED * size_of::<Gone>()) else { return false };
    TABLE.store(memory as *mut Gone, Relaxed);
    true
}

fn place(block: usize) -> Option<&'static Gone> {
    let table = TABLE.load(Relaxed);
    let place = ((block >> 4) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
    // SAFETY: the table has 65536 entries, zeroed at first, for ever.
    (!table.is_null()).then(|| unsafe { &*table.add(place as usize % REMEMBERED) })
}

/// Remembers who frees a block, and who allocated it.
pub(super) fn freed(block: usize, allocated_by: usize) {
    if let Some(gone) = place(block) {
        let mut addresses = [0; unwind::DEPTH];
        let count = unwind::callers(&mut addresses);
        let freed_by = table::number_of(&addresses[..count]);
        gone.block.store(block as u64, Relaxed);
        gone.stacks.store(allocated_by as u64 | (freed_by as u64) << 32, Relaxed);
    }
}

/// Prints what is known of a block, for a report about it.
pub(crate) fn tell(block: usize) {
    let Some(gone) = place(block) else { return };
    if let Some((stack, size)) = table::find(block) {
        Line::new().text("  ").number(size).text(" bytes, allocated by").print();
        leaks::callers(stack);
    }
    if gone.block.load(Relaxed) == block as u64 {
        let stacks = gone.stacks.load(Relaxed) as usize;
        Line::new().text("  freed by").print();
        leaks::callers(stacks >> 32);
        Line::new().text("  when it had been allocated by").print();
        leaks::callers(stacks & 0xffff_ffff);
    }
}
