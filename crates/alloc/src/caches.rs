// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! One cache of the slab allocator per size class, and what it asks of its surroundings.
//!
//! Free objects are linked apart from their memory ([`FreePointer::Apart`]): a free object is never touched, so a use
//! after free cannot steer the heap, and a double free is found when the second copy arrives.
//!
//! Order of locks: a CPU's, then a cache's (one at a time, except around `fork`), then pages, then records.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use fastpath_slub::{
    Cache, CacheFlags, CacheSpec, Corruption, Event, FreePointer, Host, RawLock, SheafPool, Sizing, Slab,
    Slabs, TidCache, Wait, sheaf::SHEAF_MAX,
};

use crate::classes::{CLASSES, COUNT, UNIT};
use crate::cpu::{Count, Cpus};
use crate::lock::{Lock, Rank};
use crate::pagemap::{self, Record};
use crate::profile::apart;
use crate::report::Line;
use crate::shared_stats::word;
use crate::source::{ClassSource, SHEAVES};
use crate::{cpu, heap, os, report, stats, tid};

/// Bytes of objects that a barn holds at most, in classes of small objects and of others: thousands of small ones cost more
/// in their slabs than in their caches' lines, with larger ones it is the other way round.
const BARN_BYTES: [u32; 2] = [2560 * 1024, 640 * 1024];
/// The largest small ones in this sense.
const SMALL: u32 = 256;
/// Full sheaves that a barn holds at most.
const BARN: usize = 44;

/// Objects that a sheaf gets from the slabs of a class that has few: as many as fit in [`REFILL_BYTES`], within these bounds.
const REFILL: [u32; 2] = [8, 120];
const REFILL_BYTES: u32 = 64 * 1024;

/// Added to the class in the descriptors of slabs of sampled objects.
pub(crate) const SAMPLED: u16 = 128;

/// The lock of lists and barns.
#[derive(Debug)]
pub(crate) struct CacheLock(Lock<()>);

/// The thread that is taking all locks for a `fork`: it alone may wait for one while it holds others.
static FORKING: AtomicU64 = AtomicU64::new(0);

// SAFETY: the words of `Lock` exclude each other and order what they guard.
unsafe impl RawLock for CacheLock {
    const UNLOCKED: Self = Self(Lock::new(Rank::Cache, ()));

    #[inline]
    fn lock(&self, context: usize) -> bool {
        // ORDERING: Relaxed: only the thread itself can read its own name there.
        let got =
            if FORKING.load(Relaxed) == context as u64 { self.0.lock_raw() } else { self.0.lock_word() };
        if !got {
            stats::count(word::REENTERED, 1);
        }
        got
    }

    #[inline]
    fn try_lock(&self, _context: usize) -> bool {
        self.0.try_lock_word()
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.0.unlock_raw();
    }
}

/// What a cache stands on: the page layer, the CPUs' sheaves, the locks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heap {
    source: ClassSource,
}

impl Heap {
    /// That of a class.
    pub(crate) const fn of(class: usize) -> Self {
        Self { source: ClassSource { class: class as u8, fast: class != SHEAVES } }
    }

    /// That of the sampled objects of a class.
    pub(crate) const fn of_sampled(class: usize) -> Self {
        Self { source: ClassSource { class: class as u8, fast: false } }
    }
}

impl Host for Heap {
    type Source = ClassSource;
    type Slots = Cpus;
    type Lock = CacheLock;

    // `event` counts what the heap's statistics need, per CPU.
    const STATS: bool = false;

    #[inline(always)]
    fn source(&self) -> &ClassSource {
        &self.source
    }

    #[inline(always)]
    fn slots(&self) -> &Cpus {
        &Cpus
    }

    fn sheaves(&self) -> &SheafPool<Self> {
        &POOL
    }

    #[inline(always)]
    fn context(&self) -> usize {
        crate::lock::my_word() as usize
    }

    #[cold]
    fn corrupted(&self, what: Corruption, _cache: &'static str, object: *mut u8) {
        let address = object.addr();
        match what {
            // A block from under a signal handler, freed by its size: it never was in a slab.
            Corruption::NotAnObject => match pagemap::record_at(address) {
                Record::Emergency(mapping) if heap::free_emergency(mapping, address) => {}
                _ => report::invalid_free(address),
            },
            Corruption::WrongCache => match class_at(address) {
                Some(class) => report::wrong_size(address, CLASSES[class].size as usize),
                None => report::invalid_free(address),
            },
            Corruption::DoubleFree => report::double_free(address),
            Corruption::FreePointer => {
                Line::new().text("the heap's records were overwritten, near ").hex(address).abort()
            }
            Corruption::LeakedObject => {}
            // Of caches with debugging flags, which the heap's have not.
            Corruption::RedZone | Corruption::Poison | Corruption::Padding | Corruption::Counters => {
                report::invalid_free(address)
            }
        }
    }

    /// splitmix64 over a counter that starts at a number from the system.
    fn random(&self) -> u64 {
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        static STATE: AtomicU64 = AtomicU64::new(0);
        // ORDERING: Relaxed: only that each caller gets another number matters.
        if STATE.load(Relaxed) == 0 {
            let _ = STATE.compare_exchange(0, os::random() | 1, Relaxed, Relaxed);
        }
        let mut mixed = STATE.fetch_add(GOLDEN, Relaxed);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    #[inline]
    fn event(&self, what: Event) {
        match what {
            Event::SheafIn(objects) => {
                note(Count::Refills, word::REFILLS, 1);
                note(Count::Refilled, word::REFILLED, objects);
            }
            Event::SheafOut(objects) => {
                note(Count::Flushes, word::FLUSHES, 1);
                note(Count::Flushed, word::FLUSHED, objects);
            }
            Event::Alloc => note(Count::DirectAllocs, word::DIRECT_ALLOCS, 1),
            Event::Free => note(Count::DirectFrees, word::DIRECT_FREES, 1),
        }
    }
}

/// Counts for this process, and in the file it may share with others.
#[inline]
fn note(what: Count, shared: usize, amount: usize) {
    cpu::count(what, amount as u64);
    stats::count(shared, amount as u64);
}

pub(crate) const SIZING: Sizing =
    Sizing { page_shift: UNIT.trailing_zeros(), min_order: 0, max_order: 3, min_objects: 1, cpus: 1 };

pub(crate) const fn spec(class: usize) -> CacheSpec {
    let info = &CLASSES[class];
    let fit = REFILL_BYTES / info.size;
    let refill = if fit > REFILL[1] {
        REFILL[1]
    } else if fit < REFILL[0] {
        REFILL[0]
    } else {
        fit
    };
    let barn = (BARN_BYTES[(info.size > SMALL) as usize] / (info.sheaf * info.size)) as usize;
    CacheSpec::new("malloc", info.size as usize)
        .align(16)
        .free_pointer(FreePointer::Apart)
        .sheaf_capacity(info.sheaf as usize)
        .refill(if info.sheaf > refill { refill } else { info.sheaf } as usize)
        .order(info.units.trailing_zeros())
        .min_partial(if info.units >= 4 { 1 } else { 4 / info.units as usize })
        .barn_limit(if barn > BARN {
            BARN
        } else if barn < 2 {
            2
        } else {
            barn
        })
        .slot(class)
        .class(class as u16)
}

/// Indexed by class; entry 0 is not used.
static CACHES: [Cache<Heap>; COUNT] = {
    let mut caches = [const { Cache::new(Heap::of(1), spec(1), &SIZING) }; COUNT];
    let mut class = 1;
    while class < COUNT {
        caches[class] = Cache::new(Heap::of(class), spec(class), &SIZING);
        class += 1;
    }
    caches
};

/// Where sheaves come from.
static POOL: SheafPool<Heap> = SheafPool::new(Heap::of(SHEAVES), SHEAVES as u16, &SIZING);

/// The cache of a class.
#[inline(always)]
pub(crate) fn cache(class: usize) -> &'static Cache<Heap> {
    &CACHES[class]
}

/// Random order of objects in every class. At set-up only.
pub(crate) fn harden() {
    for (class, cache) in CACHES.iter().enumerate().skip(1) {
        // SAFETY: no object exists yet, and nobody else is in the heap.
        let done = unsafe { cache.slabs().set_flags(CacheFlags::RANDOM, &SIZING) };
        debug_assert!(done, "class {class}");
    }
}

/// Allocates from the slabs of a class, without a sheaf.
pub(crate) fn alloc_direct(class: usize) -> *mut u8 {
    let object = CACHES[class].slabs().alloc_one(0, Wait::Yes);
    object.map_or(core::ptr::null_mut(), |object| {
        Heap::of(class).event(Event::Alloc);
        object.as_ptr()
    })
}

/// Frees into the slabs of a class, without a sheaf.
pub(crate) fn free_direct(class: usize, object: *mut u8) {
    if let Some(object) = core::ptr::NonNull::new(object) {
        Heap::of(class).event(Event::Free);
        // SAFETY: the callers' caller gave the object up; what is no object is refused.
        unsafe { CACHES[class].slabs().free_one(object, Wait::Yes) };
    }
}

/// The class of the slab at `address`, `None` if there is no slab of objects.
fn class_at(address: usize) -> Option<usize> {
    match pagemap::record_at(address) {
        Record::Slab(slab) => class_of(slab),
        _ => None,
    }
}

/// Whether the slab is one of sampled objects.
pub(crate) fn is_sampled(record: usize) -> bool {
    // SAFETY: as in `class_of`.
    unsafe { (*(record as *const Slab)).class() >= SAMPLED }
}

fn class_of(record: usize) -> Option<usize> {
    // SAFETY: the map leads to live descriptors.
    let class = usize::from(unsafe { (*(record as *const Slab)).class() }) % usize::from(SAMPLED);
    (1..COUNT).contains(&class).then_some(class)
}

/// Start and class of the object that `address` lies in.
pub(crate) fn object_around(record: usize, address: usize) -> Option<(usize, usize)> {
    let class = class_of(record)?;
    // SAFETY: the map leads to live descriptors; what is read of one with objects in use does not change.
    let (base, capacity) = unsafe {
        let slab = record as *const Slab;
        ((*slab).base().addr(), (*slab).capacity())
    };
    let info = &CLASSES[class];
    let index = ((address.wrapping_sub(base) as u64 * info.reciprocal) >> 40) as usize;
    (index < capacity).then(|| (base + index * info.size as usize, class))
}

/// The class of the object at `address` if it is exactly the start of an object of a slab.
pub(crate) fn check_object(record: usize, address: usize) -> Option<usize> {
    object_around(record, address).and_then(|(start, class)| (start == address).then_some(class))
}

/// Whether the object that starts at `start` is free in its slab.
pub(crate) fn is_free(class: usize, start: usize) -> bool {
    CACHES[class].slabs().is_free(start as *const u8)
}

/// Gives back every slab without objects in use, and the pages of others that hold free objects only.
pub(crate) fn trim(purge_pages: bool) {
    for cache in &CACHES[1..] {
        cache.shrink();
        if purge_pages {
            cache
                .slabs()
                .for_each_idle(os::PAGE.trailing_zeros(), |start, bytes| os::purge(start.addr(), bytes));
        }
    }
    for slabs in apart::all() {
        slabs.shrink_slabs();
    }
    POOL.slabs().shrink_slabs();
    tid::trim();
}

/// Gives back what lay in the barns all the time since the last call.
pub(crate) fn reap() {
    for cache in &CACHES[1..] {
        cache.reap();
    }
}

/// What a class holds at this moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holding {
    /// Objects with the program.
    pub(crate) used: usize,
    /// Objects in sheaves.
    pub(crate) cached: usize,
    /// Of them, those in barns.
    pub(crate) barn: usize,
    /// Bytes of its slabs.
    pub(crate) slab_bytes: usize,
}

/// What a class holds at this moment. Takes its locks.
pub(crate) fn holding(class: usize) -> Holding {
    let info = CACHES[class].info();
    let cached = info.in_sheaves.min(info.active_objs);
    let mut holding = Holding {
        used: info.active_objs - cached,
        cached,
        barn: info.in_barns.min(cached),
        slab_bytes: info.num_slabs * info.pagesperslab * UNIT,
    };
    if let Some(slabs) = apart::all().nth(class - 1) {
        let info = slabs.info();
        holding.used += info.active_objs;
        holding.slab_bytes += info.num_slabs * info.pagesperslab * UNIT;
    }
    if let Some(cache) = tid::all().nth(class - 1) {
        // Objects on CPUs' lists count as the program's: nobody can walk those lists.
        let info = cache.info();
        holding.used += info.active_objs;
        holding.slab_bytes += info.num_slabs * info.pagesperslab * UNIT;
    }
    holding
}

/// Bytes of the slabs that sheaves lie in.
pub(crate) fn sheaf_bytes() -> usize {
    let info = POOL.slabs().info();
    info.num_slabs * info.pagesperslab * UNIT
}

/// Whether the thread that `mine` names holds a lock of a cache.
pub(crate) fn held_by(mine: u64) -> bool {
    layers().flat_map(|(layer, _)| layer.locks()).any(|lock| lock.0.is_held_by(mine))
}

/// Which slab layers' locks are held for a `fork`: all, unless it happens in a signal handler that interrupted one.
static HELD: [AtomicBool; 3 * COUNT + 1] = [const { AtomicBool::new(false) }; 3 * COUNT + 1];

/// All slab layers, in the order of their locks.
fn layers() -> impl Iterator<Item = (&'static Slabs<Heap>, &'static AtomicBool)> {
    let sheaf = CACHES[1..].iter().map(Cache::slabs);
    let tid = tid::all().map(TidCache::slabs);
    sheaf.chain(tid).chain(apart::all()).chain(core::iter::once(POOL.slabs())).zip(&HELD)
}

pub(crate) fn before_fork() {
    // ORDERING: Relaxed here and below: read back by this thread only, or by the one that is its copy.
    FORKING.store(crate::lock::my_word(), Relaxed);
    for (layer, held) in layers() {
        held.store(layer.fork_prepare(), Relaxed);
    }
}

pub(crate) fn after_fork() {
    for (layer, held) in layers() {
        if held.swap(false, Relaxed) {
            // SAFETY: prepared above, by this thread or the one it is the copy of.
            unsafe { layer.fork_done() };
        }
    }
    FORKING.store(0, Relaxed);
}

const _: () = {
    let mut class = 1;
    while class < COUNT {
        assert!(CLASSES[class].sheaf as usize <= SHEAF_MAX);
        class += 1;
    }
};

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::pages;
    use std::sync::mpsc;

    static LOCK: CacheLock = CacheLock::UNLOCKED;

    #[test]
    fn a_handler_above_the_pages_does_not_wait_for_a_cache() {
        let (taken, is_taken) = mpsc::channel();
        let (done, is_done) = mpsc::channel::<()>();
        let owner = std::thread::spawn(move || {
            assert!(LOCK.lock(crate::lock::my_word() as usize));
            taken.send(()).unwrap();
            is_done.recv().unwrap();
            // SAFETY: taken above.
            unsafe { LOCK.unlock() };
        });
        is_taken.recv().unwrap();
        let (answer, answered) = mpsc::channel();
        std::thread::spawn(move || {
            // What a signal handler finds that interrupted a thread inside the page layer.
            let pages = pages::lock_for_test();
            let refused = !LOCK.lock(crate::lock::my_word() as usize);
            drop(pages);
            let _ = answer.send(refused);
        });
        let refused = answered.recv_timeout(std::time::Duration::from_secs(20));
        assert_eq!(refused, Ok(true), "it waits for a lock that ranks below one it holds");
        done.send(()).unwrap();
        owner.join().unwrap();
        assert!(LOCK.lock(crate::lock::my_word() as usize));
    }

    #[test]
    fn the_classes_are_what_the_slab_layer_makes_of_them() {
        for class in 1..COUNT {
            let (info, layout) = (&CLASSES[class], *CACHES[class].slabs().layout());
            assert_eq!(layout.size, info.size as usize);
            assert_eq!(layout.objects, info.objects as usize);
            assert_eq!(CACHES[class].sheaf_capacity(), info.sheaf as usize);
        }
    }
}
