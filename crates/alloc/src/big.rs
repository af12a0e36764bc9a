// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Blocks above the largest class: page runs to 32 MiB, then mappings of their own, which grow by `mremap`.
//!
//! A block that grows by `realloc` becomes a mapping early (from 1 MiB on) and keeps reserved addresses behind it, so
//! that growing it step by step costs two system calls a step and no copy.

use core::sync::atomic::{
    AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::classes::UNIT;
use crate::lock::{Lock, Rank};
use crate::pagemap::{self, Record};
use crate::shared_stats::word;
use crate::{huge, meta, os, pages, report, stats};

/// Growing blocks become mappings from this size on.
const GROWS_BY_MAPPING: usize = 1 << 20;
/// ... while there are fewer mappings than this: each may cost the kernel a mapping record of its own.
const MAX_GROWING: usize = 256;
/// Runs of at least this many units are kept longer when they are freed.
const KEEP_UNITS: usize = 16;

struct Big {
    next: *mut Big,
    base: usize,
    /// Usable bytes, whole pages.
    size: usize,
    /// Units of the run; of a mapping, the bytes mapped divided by the unit.
    units: usize,
    mapping: bool,
    /// Open to huge pages.
    huge: bool,
    /// End of the addresses reserved behind a mapping.
    reserved_end: usize,
}

struct Records {
    free: *mut Big,
}

// SAFETY: records in the list are reached through the lock only.
unsafe impl Send for Records {}

static RECORDS: Lock<Records> = Lock::new(Rank::Records, Records { free: core::ptr::null_mut() });
static MAPPINGS: AtomicUsize = AtomicUsize::new(0);
/// Bytes of live mappings, and of live runs.
pub(crate) static MAPPED_BYTES: AtomicUsize = AtomicUsize::new(0);
pub(crate) static RUN_BYTES: AtomicUsize = AtomicUsize::new(0);
pub(crate) static BIG_ALLOCS: AtomicUsize = AtomicUsize::new(0);
pub(crate) static BIG_FREES: AtomicUsize = AtomicUsize::new(0);
/// Blocks freed under a signal handler that interrupted the page layer, linked through their first word.
static DEFERRED: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());

fn new_record() -> *mut Big {
    let Some(mut records) = RECORDS.lock() else { return core::ptr::null_mut() };
    let record = records.free;
    if record.is_null() {
        drop(records);
        return meta::take(size_of::<Big>(), 16).cast();
    }
    // SAFETY: records in the list are valid.
    records.free = unsafe { (*record).next };
    record
}

fn drop_record(record: *mut Big) {
    // A record that a signal handler cannot put back is lost: 48 bytes.
    if let Some(mut records) = RECORDS.lock() {
        // SAFETY: the caller took the record out of the map.
        unsafe { (*record).next = records.free };
        records.free = record;
    }
}

/// Allocates `size` bytes at a multiple of `align`. Also tells whether they read as zero.
pub(crate) fn alloc(size: usize, align: usize) -> (*mut u8, bool) {
    take_deferred();
    let null = (core::ptr::null_mut(), false);
    if size > isize::MAX as usize - 2 * UNIT {
        return null;
    }
    let size = size.max(1).next_multiple_of(os::PAGE);
    let units = huge::whole(size).div_ceil(UNIT);
    if units <= pages::MAX_RUN && align <= 32 << 20 {
        let align = if size >= huge::BLOCK && huge::on() { align.max(huge::PAGE) } else { align };
        let record = new_record();
        if !record.is_null() {
            if let Some(run) = pages::take(units, align.div_ceil(UNIT).max(1)) {
                let huge = run.fresh * UNIT >= huge::PAGE && huge::open(run.base, units * UNIT);
                let big = Big {
                    next: core::ptr::null_mut(),
                    base: run.base,
                    size,
                    units,
                    mapping: false,
                    huge,
                    reserved_end: 0,
                };
                // SAFETY: a new record, ours alone.
                unsafe { record.write(big) };
                if pagemap::set_record(run.base, Record::Big(record.addr())) {
                    RUN_BYTES.fetch_add(size, Relaxed);
                    BIG_ALLOCS.fetch_add(1, Relaxed);
                    stats::count(word::BIG_ALLOCS, 1);
                    return (run.base as *mut u8, run.zeroed);
                }
                pages::give(run.base, units, false);
            }
            drop_record(record);
        }
        return null;
    }
    (alloc_mapping(size, align), true)
}

/// What the start of a mapping is a multiple of.
fn mapping_align(size: usize) -> usize {
    if size >= huge::BLOCK && huge::on() { huge::PAGE } else { UNIT }
}

fn alloc_mapping(size: usize, align: usize) -> *mut u8 {
    if !pages::fits(size.div_ceil(UNIT)) {
        return core::ptr::null_mut();
    }
    let record = new_record();
    if record.is_null() {
        return core::ptr::null_mut();
    }
    let units = size.div_ceil(UNIT);
    if let Some(base) = os::map_aligned(units * UNIT, align.max(mapping_align(size)), true) {
        let huge = huge::open(base, units * UNIT);
        let big = Big {
            next: core::ptr::null_mut(),
            base,
            size,
            units,
            mapping: true,
            huge,
            reserved_end: base + units * UNIT,
        };
        // SAFETY: a new record, ours alone.
        unsafe { record.write(big) };
        if pagemap::set_record(base, Record::Big(record.addr())) {
            MAPPINGS.fetch_add(1, Relaxed);
            MAPPED_BYTES.fetch_add(size, Relaxed);
            BIG_ALLOCS.fetch_add(1, Relaxed);
            stats::count(word::BIG_ALLOCS, 1);
            return base as *mut u8;
        }
        os::unmap(base, units * UNIT);
    }
    drop_record(record);
    core::ptr::null_mut()
}

/// The usable size of the block that starts at `address`; `None` if none starts there.
pub(crate) fn size(record: usize, address: usize) -> Option<usize> {
    let record = record as *const Big;
    // SAFETY: the map leads to valid records, and a live block's base does not change.
    unsafe { ((*record).base == address).then_some((*record).size) }
}

/// Frees the block that starts at `address`.
pub(crate) fn free(record: usize, address: usize) {
    let record = record as *mut Big;
    // SAFETY: as in `size`; the block is the caller's to free.
    let (base, units, size, mapping, huge, end) = unsafe {
        let this = &*record;
        (this.base, this.units, this.size, this.mapping, this.huge, this.reserved_end)
    };
    if base != address {
        report::invalid_free(address);
    }
    // From here on a second free of the same pointer finds nothing.
    pagemap::set_record(base, Record::None);
    if mapping {
        MAPPINGS.fetch_sub(1, Relaxed);
        MAPPED_BYTES.fetch_sub(size, Relaxed);
        if !os::unmap(base, end - base) {
            // Too many mappings to split one: at least the memory goes back.
            os::purge(base, units * UNIT);
        }
    } else {
        if huge {
            huge::close(base, units * UNIT);
        }
        RUN_BYTES.fetch_sub(size, Relaxed);
        if !pages::give(base, units, units >= KEEP_UNITS) {
            RUN_BYTES.fetch_add(size, Relaxed);
            pagemap::set_record(base, Record::Big(record.addr()));
            defer(base as *mut u8);
            return;
        }
    }
    BIG_FREES.fetch_add(1, Relaxed);
    stats::count(word::BIG_FREES, 1);
    drop_record(record);
}

fn defer(block: *mut u8) {
    let mut seen = DEFERRED.load(Relaxed);
    loop {
        // SAFETY: the block was just freed by the caller.
        unsafe { block.cast::<*mut u8>().write(seen) };
        // ORDERING: Release publishes the link to the Acquire in `take_deferred`.
        match DEFERRED.compare_exchange_weak(seen, block, Release, Relaxed) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}

fn take_deferred() {
    // ORDERING: Relaxed: a block that is missed is found next time.
    if DEFERRED.load(Relaxed).is_null() {
        return;
    }
    // ORDERING: Acquire pairs with the Release in `defer`.
    let mut block = DEFERRED.swap(core::ptr::null_mut(), Acquire);
    while !block.is_null() {
        // SAFETY: `defer` wrote the link.
        let next = unsafe { block.cast::<*mut u8>().read() };
        if let Record::Big(record) = pagemap::record_at(block.addr()) {
            free(record, block.addr());
        }
        block = next;
    }
}

/// Changes the size of a block without copying, where that can be done; the block's address, or null.
pub(crate) fn resize(record: usize, address: usize, new: usize) -> *mut u8 {
    let big = record as *mut Big;
    let null = core::ptr::null_mut();
    if new > isize::MAX as usize - 2 * UNIT {
        return null;
    }
    let new = new.max(1).next_multiple_of(os::PAGE);
    let units = new.div_ceil(UNIT);
    // SAFETY: the block is the caller's, so its record is too.
    let this = unsafe { &mut *big };
    if this.base != address {
        report::invalid_free(address);
    }
    if this.mapping {
        return resize_mapping(this, big, new);
    }
    if units < this.units {
        if this.huge {
            huge::close(this.base + units * UNIT, (this.units - units) * UNIT);
        }
        if !pages::give(this.base + units * UNIT, this.units - units, this.units >= KEEP_UNITS) {
            return null;
        }
        this.units = units;
    } else if units > this.units {
        // A small run that grows past the threshold moves once, to a place where it can go on growing.
        let early = this.units <= 2 * KEEP_UNITS && grows_by_mapping(new);
        if early
            || units > pages::MAX_RUN
            || pages::extend(this.base, this.units, units - this.units).is_none()
        {
            return null;
        }
        this.units = units;
    }
    RUN_BYTES.fetch_add(new.wrapping_sub(this.size), Relaxed);
    this.size = new;
    address as *mut u8
}

/// Whether a block that has to grow to `size` bytes had better become a mapping.
pub(crate) fn grows_by_mapping(size: usize) -> bool {
    // ORDERING: Relaxed: a rule of thumb.
    size >= GROWS_BY_MAPPING && MAPPINGS.load(Relaxed) < MAX_GROWING
}

/// A mapping for a block that is growing.
pub(crate) fn alloc_growing(size: usize) -> *mut u8 {
    if size > isize::MAX as usize - 2 * UNIT {
        return core::ptr::null_mut();
    }
    alloc_mapping(size.next_multiple_of(os::PAGE), UNIT)
}

fn resize_mapping(this: &mut Big, record: *mut Big, new: usize) -> *mut u8 {
    let old_bytes = this.units * UNIT;
    let new_bytes = new.next_multiple_of(UNIT);
    let moved = |this: &mut Big| {
        MAPPED_BYTES.fetch_add(new.wrapping_sub(this.size), Relaxed);
        this.size = new;
        this.units = new_bytes / UNIT;
        if !this.huge {
            this.huge = huge::open(this.base, new_bytes);
        }
        this.base as *mut u8
    };
    if new_bytes == old_bytes {
        return moved(this);
    }
    if new_bytes < old_bytes {
        // The tail goes back; what was reserved behind it goes too.
        if !os::unmap(this.base + new_bytes, this.reserved_end - (this.base + new_bytes)) {
            return core::ptr::null_mut();
        }
        this.reserved_end = this.base + new_bytes;
        return moved(this);
    }
    if !pages::fits((new_bytes - old_bytes) / UNIT) {
        return core::ptr::null_mut();
    }
    let end = this.base + old_bytes;
    if this.reserved_end > end {
        // Open a gap of the right size. If another thread maps something there first, growing fails and we move.
        let gap = (new_bytes - old_bytes).min(this.reserved_end - end);
        if os::unmap(end, gap) {
            if gap == new_bytes - old_bytes && os::resize_in_place(this.base, old_bytes, new_bytes) {
                return moved(this);
            }
            if this.reserved_end > end + gap {
                os::unmap(end + gap, this.reserved_end - end - gap);
            }
        }
        this.reserved_end = end;
    }
    if os::resize_in_place(this.base, old_bytes, new_bytes) {
        this.reserved_end = this.base + new_bytes;
        return moved(this);
    }
    let roomy =
        if os::address_space_limit().is_some() { new_bytes } else { new_bytes + new_bytes.min(1 << 30) };
    for total in [roomy, new_bytes] {
        let Some(target) = os::map_aligned(total, mapping_align(new), false) else { continue };
        if !pagemap::set_record(target, Record::Big(record.addr())) {
            os::unmap(target, total);
            return core::ptr::null_mut();
        }
        let old = this.base;
        if os::move_to(old, old_bytes, new_bytes, target) {
            pagemap::set_record(old, Record::None);
            this.base = target;
            this.reserved_end = target + total;
            return moved(this);
        }
        pagemap::set_record(target, Record::None);
        os::unmap(target, total);
        break;
    }
    core::ptr::null_mut()
}

/// Whether the thread that `mine` names holds the lock.
pub(crate) fn held_by(mine: u64) -> bool {
    RECORDS.is_held_by(mine)
}

pub(crate) fn before_fork() {
    RECORDS.lock_raw();
}

pub(crate) fn after_fork() {
    RECORDS.unlock_raw();
}
