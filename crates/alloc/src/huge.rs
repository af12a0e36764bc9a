// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Transparent huge pages, where they pay and cost no memory that would not be used.
//!
//! One fault brings 2 MiB instead of 4 KiB, which is most of what growing to some hundred MiB costs. But memory that the
//! kernel may back by huge pages for ever grows back: a background thread of the kernel (khugepaged) fills the holes that
//! were given back to the system. So nothing here stays open to it but blocks that are alive:
//!
//! * Memory for small objects is asked for 2 MiB at a time once the heap has [`FROM`] of slabs. Such a step becomes one huge
//!   page at once, and is then closed to huge pages: what is given back later comes in small pages again.
//! * A block of at least [`BLOCK`] is open to huge pages from its allocation to its free, and faults them in as it is
//!   touched; a mapping of its own starts at a multiple of 2 MiB.
//!
//! `FASTPATH_HUGE_PAGES=off` turns both off. Where the system's setting is `never`, or the kernel has none, asking changes
//! nothing.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::{limit, os};

/// Bytes of a huge page, on every machine here with pages of 4 KiB.
pub(crate) const PAGE: usize = 2 << 20;
/// Heaps with less in slabs take small pages: the last step of a larger one is a small part of it.
pub(crate) const FROM: usize = 8 << 20;
/// Blocks from this size on are open to huge pages.
pub(crate) const BLOCK: usize = 4 << 20;

/// Off by the setting, or because the kernel refused.
static OFF: AtomicBool = AtomicBool::new(false);

/// Turns huge pages off.
pub(crate) fn turn_off() {
    // ORDERING: Relaxed: a switch that publishes nothing.
    OFF.store(true, Relaxed);
}

/// Whether huge pages may be asked for.
pub(crate) fn on() -> bool {
    !OFF.load(Relaxed)
}

/// Backs fresh memory by one huge page, if it is just that large and the kernel has one, and closes it to more.
pub(crate) fn fill(base: usize, bytes: usize) {
    if bytes != PAGE || !base.is_multiple_of(PAGE) || !on() {
        return;
    }
    // Closed first, and so joined to the mapping below while it has no memory: mappings whose memory was faulted in apart
    // are not joined again, and every step would cost the kernel a mapping.
    os::close_to_huge_pages(base, bytes);
    if !os::open_to_huge_pages(base, bytes) {
        return turn_off();
    }
    os::touch(base);
    os::close_to_huge_pages(base, bytes);
}

/// The bytes that serve a block of `size`: the end of one that is open to huge pages becomes one too, if it is most of one.
pub(crate) fn whole(size: usize) -> usize {
    let large = size >= BLOCK && on() && !limit::on();
    if large && size % PAGE >= PAGE / 2 { size.next_multiple_of(PAGE) } else { size }
}

/// Opens a block to huge pages; whether it has to be [closed](close) again before others use its memory.
pub(crate) fn open(base: usize, bytes: usize) -> bool {
    let first = base.next_multiple_of(PAGE);
    let end = (base + bytes) & !(PAGE - 1);
    on() && bytes >= BLOCK && first < end && os::open_to_huge_pages(first, end - first)
}

/// Closes the memory of a block, or a part of it.
pub(crate) fn close(base: usize, bytes: usize) {
    os::close_to_huge_pages(base, bytes);
}
