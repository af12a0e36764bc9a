// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The slab layer: per size class its slabs, and the *barn* of full and empty sheaves, under one lock.
//!
//! A slab is a run of units cut into objects of one size. Which of them are free is a bitmap in the slab's record,
//! apart from the objects: a free object's memory is never touched, so a use after free cannot steer the heap, a
//! double free is found when the second copy arrives, and a slab needs no building. Objects that lie in sheaves count
//! as taken here.
//!
//! Order of locks: CPU, then bin, then pages, then records.

use core::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};

use fastpath_percpu::sheaf::{MAX_CAPACITY, SHEAF_BYTES, Top};

use crate::classes::{CLASSES, COUNT, UNIT};
use crate::lock::{Guard, Lock, Rank};
use crate::pagemap::{self, Record};
use crate::shared_stats::word;
use crate::{debug, heap, meta, os, pages, report, stats};

/// Full sheaves that a barn holds at most.
const BARN: usize = 64;
/// Bytes of objects that a barn holds at most, in classes whose sheaves are large.
const BARN_BYTES: usize = 512 * 1024;

/// The record of a slab; its bitmap of free objects follows.
#[repr(C)]
struct Slab {
    base: usize,
    next: *mut Slab,
    previous: *mut Slab,
    class: u32,
    free: u32,
    /// No bitmap word before this one has a bit set.
    hint: u32,
    zeroed: bool,
}

impl Slab {
    fn bitmap(this: *mut Self) -> *mut u64 {
        this.wrapping_add(1).cast()
    }
}

/// One size class.
pub(crate) struct Bin {
    class: usize,
    /// Slabs with free objects.
    partial: *mut Slab,
    /// Slabs without a single object in use, among `partial`.
    empty: u32,
    /// Records without a slab.
    records: *mut Slab,
    slabs: u32,
    /// Objects that left the slabs and did not come back.
    taken: usize,
    full: [Top; BARN],
    full_count: usize,
    /// Empty sheaves, linked through their last word.
    empties: Top,
    pub(crate) counts: Counts,
}

/// What happened in one class since the start. Everything here is a slow path; the fast paths count nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Sheaves that went to a CPU, and the objects in them.
    pub(crate) refills: u64,
    pub(crate) refilled: u64,
    /// Sheaves that came from a CPU, and the objects in them.
    pub(crate) flushes: u64,
    pub(crate) flushed: u64,
    /// Objects that were allocated and freed without a sheaf.
    pub(crate) direct_allocs: u64,
    pub(crate) direct_frees: u64,
}

// SAFETY: reached through its lock only.
unsafe impl Send for Bin {}

static BINS: [Lock<Bin>; COUNT] = {
    let mut bins = [const { Lock::new(Rank::Bin, Bin::new(0)) }; COUNT];
    let mut class = 0;
    while class < COUNT {
        bins[class] = Lock::new(Rank::Bin, Bin::new(class));
        class += 1;
    }
    bins
};

/// Objects freed by signal handlers that interrupted the owner of their bin, linked through their first word.
static DEFERRED: [AtomicPtr<u8>; COUNT] = [const { AtomicPtr::new(core::ptr::null_mut()) }; COUNT];

/// The bin of a class; `None` if this thread holds it already, under a signal handler.
#[inline]
pub(crate) fn bin(class: usize) -> Option<Guard<'static, Bin>> {
    let Some(mut bin) = BINS[class].lock() else {
        stats::count(word::REENTERED, 1);
        return None;
    };
    // ORDERING: Relaxed: a deferred object that is missed is found next time.
    if !DEFERRED[class].load(Relaxed).is_null() {
        bin.take_deferred();
    }
    Some(bin)
}

/// Leaves an object for the next owner of its bin. For signal handlers.
pub(crate) fn defer(class: usize, object: *mut u8) {
    let head = &DEFERRED[class];
    let mut seen = head.load(Relaxed);
    loop {
        // SAFETY: the object was just freed by the caller and has at least 16 bytes.
        unsafe { object.cast::<*mut u8>().write(seen) };
        // ORDERING: Release publishes the link to the Acquire in `take_deferred`.
        match head.compare_exchange_weak(seen, object, Release, Relaxed) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}

/// Word index of the sentinel of this class's sheaves.
#[inline]
pub(crate) fn sentinel(class: usize) -> usize {
    MAX_CAPACITY - CLASSES[class].sheaf as usize
}

/// The number of objects below `top`.
#[inline]
pub(crate) fn fill(class: usize, top: Top) -> usize {
    (top.addr() % SHEAF_BYTES) / 8 - sentinel(class)
}

impl Bin {
    const fn new(class: usize) -> Self {
        Self {
            class,
            partial: core::ptr::null_mut(),
            empty: 0,
            records: core::ptr::null_mut(),
            slabs: 0,
            taken: 0,
            full: [core::ptr::null_mut(); BARN],
            full_count: 0,
            empties: core::ptr::null_mut(),
            counts: Counts {
                refills: 0,
                refilled: 0,
                flushes: 0,
                flushed: 0,
                direct_allocs: 0,
                direct_frees: 0,
            },
        }
    }

    /// Objects in use by the program or lying in sheaves.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// Objects in the barn.
    pub(crate) fn in_barn(&self) -> usize {
        self.full[..self.full_count].iter().map(|&top| fill(self.class, top)).sum()
    }

    /// Bytes of this class's slabs.
    pub(crate) fn slab_bytes(&self) -> usize {
        self.slabs as usize * CLASSES[self.class].units as usize * UNIT
    }

    /// Takes up to `want` objects out of the slabs, lowest addresses first; how many.
    pub(crate) fn take(&mut self, out: &mut [*mut u8]) -> usize {
        let info = &CLASSES[self.class];
        let mut got = 0;
        while got < out.len() {
            let slab = self.partial;
            if slab.is_null() {
                // What is already there is enough for now: a new slab only if there is nothing at all.
                if got > 0 || !self.add_slab() {
                    break;
                }
                continue;
            }
            // SAFETY: a listed slab's record is valid and this bin's alone; its bitmap has a bit per object.
            unsafe {
                let record = &mut *slab;
                if record.free == info.objects {
                    self.empty -= 1;
                }
                let bitmap = Slab::bitmap(slab);
                while got < out.len() && record.free > 0 {
                    let word = &mut *bitmap.add(record.hint as usize);
                    if *word == 0 {
                        record.hint += 1;
                        continue;
                    }
                    let mut bits = *word;
                    let first = record.hint as usize * 64;
                    let before = got;
                    while bits != 0 && got < out.len() {
                        let index = first + bits.trailing_zeros() as usize;
                        bits &= bits - 1;
                        out[got] = (record.base + index * info.size as usize) as *mut u8;
                        got += 1;
                    }
                    *word = bits;
                    record.free -= (got - before) as u32;
                }
                if record.free == 0 {
                    self.unlist(slab);
                }
            }
        }
        self.taken += got;
        got
    }

    /// Takes the slab out of the list of those with free objects.
    ///
    /// # Safety
    ///
    /// The slab is in that list.
    unsafe fn unlist(&mut self, slab: *mut Slab) {
        // SAFETY: neighbours in the list are valid records of this bin.
        unsafe {
            let (previous, next) = ((*slab).previous, (*slab).next);
            if previous.is_null() {
                self.partial = next;
            } else {
                (*previous).next = next;
            }
            if !next.is_null() {
                (*next).previous = previous;
            }
        }
    }

    /// Puts the slab at the head of the list of those with free objects.
    ///
    /// # Safety
    ///
    /// The slab is this bin's and in no list.
    unsafe fn list(&mut self, slab: *mut Slab) {
        // SAFETY: as in `unlist`.
        unsafe {
            (*slab).previous = core::ptr::null_mut();
            (*slab).next = self.partial;
            if !self.partial.is_null() {
                (*self.partial).previous = slab;
            }
            self.partial = slab;
        }
    }

    #[cold]
    fn add_slab(&mut self) -> bool {
        let info = &CLASSES[self.class];
        let objects = info.objects as usize;
        let words = objects.div_ceil(64);
        let mut slab = self.records;
        // SAFETY: a record in the list of free ones is valid; a new one has room for the bitmap. Nobody else knows
        // the record before it is listed.
        unsafe {
            if slab.is_null() {
                slab = meta::take(size_of::<Slab>() + words * 8, 64).cast();
                if slab.is_null() {
                    return false;
                }
            } else {
                self.records = (*slab).next;
            }
            let units = info.units as usize;
            let run = pages::take(units, 1);
            let mapped = run.is_some_and(|run| {
                (0..units).all(|unit| {
                    let address = run.base + unit * UNIT;
                    pagemap::set_record(address, Record::Slab(slab.addr()))
                        && (!heap::fast_map() || pagemap::set_class2(address, self.class * 2))
                })
            });
            let Some(run) = run.filter(|_| mapped) else {
                if let Some(run) = run {
                    Self::forget(run.base, units);
                    pages::give(run.base, units, false);
                }
                (*slab).next = self.records;
                self.records = slab;
                return false;
            };
            slab.write(Slab {
                base: run.base,
                next: core::ptr::null_mut(),
                previous: core::ptr::null_mut(),
                class: self.class as u32,
                free: info.objects,
                hint: 0,
                zeroed: run.zeroed,
            });
            debug::new_slab(run.base, units * UNIT);
            let bitmap = Slab::bitmap(slab);
            for word in 0..words {
                let bits = (objects - word * 64).min(64);
                bitmap.add(word).write(u64::MAX >> (64 - bits));
            }
            self.list(slab);
        }
        self.slabs += 1;
        self.empty += 1;
        true
    }

    fn forget(base: usize, units: usize) {
        for unit in 0..units {
            let address = base + unit * UNIT;
            if pagemap::class2_at(address) != 0 {
                pagemap::set_class2(address, 0);
            }
            if pagemap::record_at(address) != Record::None {
                pagemap::set_record(address, Record::None);
            }
        }
    }

    /// Puts objects back into their slabs. Ends the process on a double free or a pointer that is no object.
    ///
    /// Neighbours come together for the most part, so the bitmap's word and the slab's count are kept at hand until the
    /// next object lies elsewhere.
    pub(crate) fn give(&mut self, objects: &[*mut u8]) {
        let info = &CLASSES[self.class];
        let slab_bytes = info.units as usize * UNIT;
        let mut slab: *mut Slab = core::ptr::null_mut();
        let (mut base, mut word, mut bits, mut count) = (0, usize::MAX, 0u64, 0u32);
        for &object in objects {
            let address = object.addr();
            if slab.is_null() || address.wrapping_sub(base) >= slab_bytes {
                // SAFETY: the slab and the word are those of the objects before.
                unsafe { self.settle(slab, word, bits, count) };
                (slab, word, count) = (core::ptr::null_mut(), usize::MAX, 0);
                match pagemap::record_at(address) {
                    Record::Slab(record) => slab = record as *mut Slab,
                    // A block from under a signal handler, freed by its size: it never left a slab.
                    Record::Emergency(mapping) if heap::free_emergency(mapping, address) => {
                        self.taken += 1;
                        continue;
                    }
                    _ => report::invalid_free(address),
                }
                // SAFETY: the map leads to valid records of listed or full slabs.
                unsafe {
                    if (*slab).class as usize != self.class {
                        report::wrong_size(address, CLASSES[(*slab).class as usize].size as usize);
                    }
                    base = (*slab).base;
                }
            }
            let offset = address - base;
            let index = ((offset as u64 * info.reciprocal) >> 40) as usize;
            if index * info.size as usize != offset || index >= info.objects as usize {
                report::invalid_free(address);
            }
            if index / 64 != word {
                // SAFETY: the slab is this bin's, and the index is that of one of its objects.
                unsafe {
                    if word != usize::MAX {
                        Slab::bitmap(slab).add(word).write(bits);
                    }
                    word = index / 64;
                    bits = Slab::bitmap(slab).add(word).read();
                    (*slab).hint = (*slab).hint.min(word as u32);
                }
            }
            let bit = 1 << (index % 64);
            if bits & bit != 0 {
                report::double_free(address);
            }
            bits |= bit;
            count += 1;
        }
        // SAFETY: as above.
        unsafe { self.settle(slab, word, bits, count) };
        self.taken -= objects.len();
    }

    /// Writes back what [`Self::give`] had at hand of a slab, and puts the slab where it now belongs.
    ///
    /// # Safety
    ///
    /// The slab is null or this bin's, and the word one of its bitmap's.
    unsafe fn settle(&mut self, slab: *mut Slab, word: usize, bits: u64, count: u32) {
        if slab.is_null() || count == 0 {
            return;
        }
        // SAFETY: the caller's promise.
        unsafe {
            Slab::bitmap(slab).add(word).write(bits);
            let was = (*slab).free;
            (*slab).free = was + count;
            if was == 0 {
                self.list(slab);
            }
            if was + count == CLASSES[self.class].objects {
                self.empty += 1;
                if self.empty > 1 {
                    self.release(slab);
                }
            }
        }
    }

    /// Gives an empty slab back to the page layer.
    ///
    /// # Safety
    ///
    /// The slab is listed and has no object in use.
    unsafe fn release(&mut self, slab: *mut Slab) -> bool {
        let units = CLASSES[self.class].units as usize;
        // SAFETY: the record is valid; after `unlist` nobody but us knows it.
        unsafe {
            let base = (*slab).base;
            Self::forget(base, units);
            if !pages::give(base, units, false) {
                // A signal handler that interrupted the page layer: the slab stays.
                for unit in 0..units {
                    let address = base + unit * UNIT;
                    pagemap::set_record(address, Record::Slab(slab.addr()));
                    if heap::fast_map() {
                        pagemap::set_class2(address, self.class * 2);
                    }
                }
                return false;
            }
            self.unlist(slab);
            (*slab).next = self.records;
        }
        self.records = slab;
        self.slabs -= 1;
        self.empty -= 1;
        true
    }

    /// Releases every slab without objects in use.
    pub(crate) fn trim(&mut self) {
        while self.full_count > 0 {
            let top = self.pop_full();
            self.empty_out(top);
        }
        let mut slab = self.partial;
        while !slab.is_null() {
            // SAFETY: listed records are valid.
            unsafe {
                let next = (*slab).next;
                if (*slab).free == CLASSES[self.class].objects {
                    if !self.release(slab) {
                        return;
                    }
                } else if !debug::on() {
                    self.purge_pages(slab);
                }
                slab = next;
            }
        }
    }

    /// Gives the pages of a slab back that hold free objects only.
    ///
    /// # Safety
    ///
    /// The slab is this bin's. Free objects have no content: nothing in the heap is in them.
    unsafe fn purge_pages(&self, slab: *mut Slab) {
        let info = &CLASSES[self.class];
        let (size, objects) = (info.size as usize, info.objects as usize);
        let pages = info.units as usize * UNIT / os::PAGE;
        // SAFETY: by the caller's promise; a page's objects are those that overlap it.
        unsafe {
            let bitmap = Slab::bitmap(slab);
            let is_free = |page: usize| {
                let first = page * os::PAGE / size;
                let last = (((page + 1) * os::PAGE - 1) / size).min(objects - 1);
                (first..=last).all(|index| *bitmap.add(index / 64) & (1 << (index % 64)) != 0)
            };
            let mut page = 0;
            while page < pages {
                let start = page;
                while page < pages && is_free(page) {
                    page += 1;
                }
                if page > start && !os::purge((*slab).base + start * os::PAGE, (page - start) * os::PAGE) {
                    return;
                }
                page += 1;
            }
        }
    }

    /// The free objects a signal handler left behind.
    #[cold]
    fn take_deferred(&mut self) {
        // ORDERING: Acquire pairs with the Release in `defer`: the links are seen.
        let mut object = DEFERRED[self.class].swap(core::ptr::null_mut(), Acquire);
        while !object.is_null() {
            // SAFETY: `defer` wrote the link into the freed object.
            let next = unsafe { object.cast::<*mut u8>().read() };
            self.give(&[object]);
            object = next;
        }
    }

    /// An empty sheaf; null if there is no memory.
    fn empty_sheaf(&mut self) -> Top {
        let sentinel = sentinel(self.class);
        // SAFETY: sheaves are 64 words of memory that stays; those in the list belong to the bin.
        unsafe {
            let sheaf = if self.empties.is_null() {
                let sheaf: Top = meta::take(SHEAF_BYTES, SHEAF_BYTES).cast();
                if sheaf.is_null() {
                    return sheaf;
                }
                sheaf
            } else {
                let sheaf = self.empties;
                self.empties = sheaf.add(MAX_CAPACITY).read().cast();
                sheaf
            };
            let top = sheaf.add(sentinel);
            top.write(core::ptr::null_mut());
            top
        }
    }

    /// Keeps a sheaf without objects for later.
    pub(crate) fn keep_empty(&mut self, top: Top) {
        let sheaf = base_of(top);
        // SAFETY: the caller owns the sheaf.
        unsafe { sheaf.add(MAX_CAPACITY).write(self.empties.cast()) };
        self.empties = sheaf;
    }

    /// Puts a sheaf's objects back into their slabs and returns its top, empty.
    fn empty_out(&mut self, top: Top) -> Top {
        let count = fill(self.class, top);
        let bottom = base_of(top).wrapping_add(sentinel(self.class));
        if count > 0 {
            // SAFETY: the caller owns the sheaf; its `count` words above the sentinel hold objects.
            let objects = unsafe { core::slice::from_raw_parts(bottom.add(1), count) };
            self.give(objects);
        }
        bottom
    }

    fn pop_full(&mut self) -> Top {
        self.full_count -= 1;
        self.full[self.full_count]
    }

    /// Trades an empty sheaf (or none) for one with objects, minus one object for the caller.
    ///
    /// Returns the object (null if there is no memory) and the sheaf's top (null if there is no sheaf).
    pub(crate) fn refill(&mut self, hand: Option<Top>) -> (*mut u8, Option<Top>) {
        self.counts.refills += 1;
        stats::count(word::REFILLS, 1);
        if self.full_count > 0 {
            if let Some(hand) = hand {
                self.keep_empty(hand);
            }
            let top = self.pop_full();
            let count = fill(self.class, top) as u64;
            self.counts.refilled += count;
            stats::count(word::REFILLED, count);
            // SAFETY: the barn's sheaf is full, so there is an object at its top.
            return unsafe { (top.read(), Some(top.sub(1))) };
        }
        let mut objects = [core::ptr::null_mut(); MAX_CAPACITY];
        let capacity = CLASSES[self.class].sheaf as usize;
        // Not quite full: a program that now frees before it allocates more finds room.
        let count = self.take(&mut objects[..capacity - capacity / 8]);
        if count == 0 {
            return (core::ptr::null_mut(), hand);
        }
        self.counts.refilled += count as u64;
        stats::count(word::REFILLED, count as u64);
        let bottom = match hand {
            Some(hand) => hand,
            None => self.empty_sheaf(),
        };
        if bottom.is_null() {
            self.give(&objects[1..count]);
            return (objects[0], None);
        }
        // Highest address first, so that the program gets ascending ones.
        let rest = count - 1;
        for (at, &object) in objects[1..count].iter().enumerate() {
            // SAFETY: the caller's or our own empty sheaf has room for its capacity above the sentinel.
            unsafe { bottom.add(rest - at).write(object) };
        }
        (objects[0], Some(bottom.wrapping_add(rest)))
    }

    /// Trades a sheaf with objects (or none) for an empty one (none if there is no memory).
    pub(crate) fn flush(&mut self, hand: Option<Top>) -> Option<Top> {
        let Some(top) = hand else {
            return Some(self.empty_sheaf()).filter(|top| !top.is_null());
        };
        let count = fill(self.class, top);
        self.counts.flushes += 1;
        self.counts.flushed += count as u64;
        stats::count(word::FLUSHES, 1);
        stats::count(word::FLUSHED, count as u64);
        let capacity = CLASSES[self.class].sheaf as usize;
        let room = (BARN_BYTES / (capacity * CLASSES[self.class].size as usize)).clamp(2, BARN);
        if count == capacity && self.full_count < room {
            let empty = self.empty_sheaf();
            if !empty.is_null() {
                self.full[self.full_count] = top;
                self.full_count += 1;
                return Some(empty);
            }
        }
        Some(self.empty_out(top))
    }

    /// Takes back a sheaf that could not be installed.
    pub(crate) fn retire(&mut self, top: Top) {
        let empty = self.empty_out(top);
        self.keep_empty(empty);
    }
}

/// The first word of the sheaf that `top` points into.
fn base_of(top: Top) -> Top {
    top.wrapping_byte_sub(top.addr() % SHEAF_BYTES)
}

/// Size of the object at `address` if it is exactly the start of an object of a slab; `Err` if it lies inside one.
pub(crate) fn check_object(record: usize, address: usize) -> Result<usize, ()> {
    let slab = record as *const Slab;
    // SAFETY: the map leads to valid records; base and class of a slab with objects in use do not change.
    let (base, class) = unsafe { ((*slab).base, (*slab).class as usize) };
    let info = &CLASSES[class];
    let offset = address - base;
    let index = ((offset as u64 * info.reciprocal) >> 40) as usize;
    if index * info.size as usize == offset && index < info.objects as usize { Ok(class) } else { Err(()) }
}

/// Start and class of the object that `address` lies in.
pub(crate) fn object_around(record: usize, address: usize) -> Option<(usize, usize)> {
    let slab = record as *const Slab;
    // SAFETY: as in `check_object`.
    let (base, class) = unsafe { ((*slab).base, (*slab).class as usize) };
    let info = &CLASSES[class];
    let index = (((address - base) as u64 * info.reciprocal) >> 40) as usize;
    (index < info.objects as usize).then(|| (base + index * info.size as usize, class))
}

/// Whether the object that starts at `start` is free in its slab.
pub(crate) fn is_free(record: usize, start: usize) -> bool {
    let slab = record as *mut Slab;
    // SAFETY: as in `check_object`; the bin's lock keeps the bitmap still.
    unsafe {
        let info = &CLASSES[(*slab).class as usize];
        let Some(_bin) = bin((*slab).class as usize) else { return false };
        let index = (start - (*slab).base) / info.size as usize;
        *Slab::bitmap(slab).add(index / 64) & (1 << (index % 64)) != 0
    }
}

/// Whether the thread that `mine` names holds the lock.
pub(crate) fn held_by(mine: u64) -> bool {
    BINS.iter().any(|bin| bin.is_held_by(mine))
}

pub(crate) fn before_fork() {
    for bin in &BINS {
        bin.lock_raw();
    }
}

pub(crate) fn after_fork() {
    for bin in &BINS {
        bin.unlock_raw();
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_handler_above_the_pages_does_not_wait_for_a_bin() {
        let (taken, is_taken) = mpsc::channel();
        let (done, is_done) = mpsc::channel::<()>();
        let owner = std::thread::spawn(move || {
            let bin = bin(3).expect("free");
            taken.send(()).unwrap();
            is_done.recv().unwrap();
            drop(bin);
        });
        is_taken.recv().unwrap();
        let (answer, answered) = mpsc::channel();
        std::thread::spawn(move || {
            // What a signal handler finds that interrupted a thread inside the page layer.
            let pages = pages::lock_for_test();
            let refused = bin(3).is_none();
            drop(pages);
            let _ = answer.send(refused);
        });
        let refused = answered.recv_timeout(std::time::Duration::from_secs(20));
        assert_eq!(refused, Ok(true), "it waits for a lock that ranks below one it holds");
        done.send(()).unwrap();
        owner.join().unwrap();
        assert!(bin(3).is_some());
    }
}
