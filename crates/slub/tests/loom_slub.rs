// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Models: the slab word and its lists, the exchange of sheaves through the barn, the tid front end.
//!
//! Every interleaving of atomic accesses is explored (in one model: with at most two preemptions),
//! with the weak behaviours that loom models (not load buffering, and SeqCst only as AcqRel).
#![cfg(loom)]
#![expect(unsafe_code, reason = "frees objects under test")]

mod model;

use core::ptr::NonNull;
use fastpath_slub::{Cache, CacheSpec, Slabs, TidBackend, TidCache, Wait};
use loom::thread;
use model::{ModelHost, SIZING, Shared, explore, run_as};
use std::sync::Mutex;

/// loom runs one model at a time.
static ONE: Mutex<()> = Mutex::new(());

#[derive(Clone, Copy)]
struct Object(NonNull<u8>);
// SAFETY: an object belongs to whoever holds it.
unsafe impl Send for Object {}

fn take(slabs: &Slabs<ModelHost>) -> Object {
    let object = slabs.alloc_one(0, Wait::Yes).expect("memory");
    // SAFETY: ours. A plain write: loom cannot see it, but a second owner would overwrite it.
    unsafe { object.cast::<u64>().write(object.addr().get() as u64) };
    Object(object)
}

fn give(slabs: &Slabs<ModelHost>, object: Object) {
    // SAFETY: ours since `take`.
    unsafe {
        assert_eq!(object.0.cast::<u64>().read(), object.0.addr().get() as u64, "someone else wrote to it");
        slabs.free_one(object.0, Wait::Yes);
    }
}

fn two_per_slab(host: ModelHost, kept: usize) -> Shared<Slabs<ModelHost>> {
    Shared::new(Slabs::new(host, CacheSpec::new("model", 2048).min_partial(kept).sheaf_capacity(0), &SIZING))
}

#[test]
fn the_last_two_frees_discard_the_slab_once() {
    let _one = ONE.lock();
    explore("slab-last-two", None, 30, || {
        let host = ModelHost::new();
        let slabs = two_per_slab(host, 0);
        let (a, b) = (take(&slabs), take(&slabs));
        let other = thread::spawn(move || {
            run_as(1, 2);
            give(&slabs, b);
        });
        give(&slabs, a);
        other.join().unwrap();
        assert_eq!(slabs.info().num_slabs, 0);
        slabs.end();
        host.end();
    });
    fastpath_testkit::case("K26", "model");
}

#[test]
fn allocating_while_a_full_slab_becomes_partial() {
    let _one = ONE.lock();
    explore("slab-full-to-partial", Some(2), 50, || {
        let host = ModelHost::new();
        let slabs = two_per_slab(host, 1);
        let (a, b) = (take(&slabs), take(&slabs));
        let other = thread::spawn(move || {
            run_as(1, 2);
            give(&slabs, b);
            let again = take(&slabs);
            give(&slabs, again);
        });
        give(&slabs, a);
        let again = take(&slabs);
        give(&slabs, again);
        other.join().unwrap();
        assert_eq!(slabs.validate(), Ok(0));
        assert!(!slabs.shrink_slabs());
        slabs.end();
        host.end();
    });
}

#[test]
fn what_a_context_without_the_lock_leaves_is_found() {
    let _one = ONE.lock();
    explore("slab-nolock", None, 50, || {
        let host = ModelHost::new();
        let slabs = two_per_slab(host, 0);
        let (a, b) = (take(&slabs), take(&slabs));
        let other = thread::spawn(move || {
            run_as(1, 2);
            // SAFETY: ours.
            unsafe { slabs.free_one(b.0, Wait::Never) };
            let mut out = [core::ptr::null_mut(); 1];
            if slabs.alloc_batch(&mut out, 0, Wait::Never) == 1 {
                // SAFETY: ours.
                unsafe { slabs.free_one(NonNull::new(out[0]).unwrap(), Wait::Never) };
            }
        });
        give(&slabs, a);
        other.join().unwrap();
        assert!(
            !slabs.shrink_slabs(),
            "deferred and pending ones included: {:?} {:?}",
            slabs.info(),
            slabs.validate()
        );
        slabs.end();
        host.end();
    });
    fastpath_testkit::case("K53", "model");
}

#[test]
fn a_full_sheaf_goes_from_one_cpu_to_another() {
    let _one = ONE.lock();
    explore("sheaf-barn", None, 5, || {
        let host = ModelHost::new();
        // Four objects per sheaf, one per page.
        let cache = Shared::new(Cache::<ModelHost>::new(host, CacheSpec::new("model", 4096), &SIZING));
        let objects: Vec<_> = (0..10).map(|_| Object(cache.alloc().expect("memory"))).collect();
        let free = |object: Object| {
            // SAFETY: allocated above, once.
            unsafe { cache.free(object.0) };
        };
        // Main and spare of CPU 0 full: the next free sends a sheaf to the barn.
        objects[2..].iter().for_each(|&object| free(object));
        let last = objects[0];
        let producer = thread::spawn(move || {
            run_as(0, 2);
            // SAFETY: allocated above, once.
            unsafe { cache.free(last.0) };
        });
        run_as(1, 1);
        let mine = Object(cache.alloc().expect("memory"));
        // SAFETY: ours.
        unsafe { mine.0.cast::<u64>().write(1) };
        producer.join().unwrap();
        free(mine);
        free(objects[1]);
        assert_eq!(cache.destroy(), Ok(()), "no object and no sheaf is lost");
        cache.end();
        host.end();
    });
    fastpath_testkit::case("K50", "model");
}

#[test]
fn two_threads_with_the_same_cpu_number() {
    let _one = ONE.lock();
    explore("sheaf-hint", None, 50, || {
        let host = ModelHost::new();
        let cache = Shared::new(Cache::<ModelHost>::new(host, CacheSpec::new("model", 4096), &SIZING));
        let warm = cache.alloc().expect("memory");
        // SAFETY: ours.
        unsafe { cache.free(warm) };
        let other = thread::spawn(move || {
            run_as(0, 2);
            let object = cache.alloc().expect("memory");
            // SAFETY: ours.
            unsafe {
                object.cast::<u64>().write(2);
                assert_eq!(object.cast::<u64>().read(), 2);
                cache.free(object);
            }
        });
        let object = cache.alloc().expect("memory");
        // SAFETY: ours.
        unsafe { object.cast::<u64>().write(1) };
        other.join().unwrap();
        // SAFETY: ours.
        unsafe {
            assert_eq!(object.cast::<u64>().read(), 1, "handed out twice");
            cache.free(object);
        }
        assert_eq!(cache.destroy(), Ok(()));
        cache.end();
        host.end();
    });
    fastpath_testkit::case("K49", "model");
}

/// {list, tid} in one word of the model: loom has no double-word atomics. An address becomes its offset in the region.
struct Packed {
    base: *mut u8,
}
// SAFETY: an address only.
unsafe impl Send for Packed {}
// SAFETY: as above.
unsafe impl Sync for Packed {}

impl Packed {
    fn pack(&self, (head, tid): (*mut u8, usize)) -> u64 {
        let offset = if head.is_null() { 0 } else { head.addr() - self.base.addr() + 1 };
        (offset as u64) << 32 | tid as u64 & 0xffff_ffff
    }
}

// SAFETY: one compare-and-exchange.
unsafe impl TidBackend for Packed {
    type Cell = loom::sync::atomic::AtomicU64;
    type Pin = ();
    fn cell() -> Self::Cell {
        Self::Cell::new(0)
    }
    fn cpu(&self) -> usize {
        0
    }
    fn pin(&self) {}
    fn tid(&self, cell: &Self::Cell) -> usize {
        (cell.load(loom::sync::atomic::Ordering::Acquire) & 0xffff_ffff) as usize
    }
    fn head(&self, cell: &Self::Cell) -> *mut u8 {
        match cell.load(loom::sync::atomic::Ordering::Relaxed) >> 32 {
            0 => core::ptr::null_mut(),
            offset => self.base.wrapping_add(offset as usize - 1),
        }
    }
    fn exchange(&self, _: usize, cell: &Self::Cell, old: (*mut u8, usize), new: (*mut u8, usize)) -> bool {
        use loom::sync::atomic::Ordering::{AcqRel, Relaxed};
        cell.compare_exchange(self.pack(old), self.pack(new), AcqRel, Relaxed).is_ok()
    }
}

type Tid = TidCache<ModelHost, Packed, 1>;

fn tid_cache(host: ModelHost, size: usize) -> Shared<Tid> {
    let base = host.world().source.base();
    Shared::new(TidCache::new(host, Packed { base }, CacheSpec::new("model", size).min_partial(0), &SIZING))
}

#[test]
fn a_full_slab_is_kept_by_one_cpu() {
    let _one = ONE.lock();
    explore("tid-partial", Some(3), 500, || {
        let host = ModelHost::new();
        let cache = tid_cache(host, 2048);
        // One full slab, and another that is the CPU's.
        let [a, b, c] = [(); 3].map(|()| Object(cache.alloc().expect("memory")));
        let other = thread::spawn(move || {
            run_as(1, 2);
            // SAFETY: ours.
            unsafe { cache.free(b.0) };
            // What either of them kept goes to the node, whoever takes it.
            cache.flush_cpu(0);
        });
        // SAFETY: ours.
        unsafe { cache.free(a.0) };
        let again = Object(cache.alloc().expect("memory"));
        other.join().unwrap();
        // SAFETY: ours.
        unsafe {
            cache.free(again.0);
            cache.free(c.0);
        }
        assert_eq!(cache.destroy(), Ok(()), "no slab is lost or kept twice");
        cache.end();
        host.end();
    });
    fastpath_testkit::case("K26", "model");
}

#[test]
fn a_slab_that_becomes_full_under_the_lock_is_kept_by_another() {
    let _one = ONE.lock();
    explore("tid-keep-listed", None, 15, || {
        let host = ModelHost::new();
        let cache = tid_cache(host, 2048);
        // Two slabs with one free object each on the node's list, and one that is the CPU's.
        let [a, b, c, d, e] = [(); 5].map(|()| Object(cache.alloc().expect("memory")));
        // SAFETY: ours.
        unsafe {
            cache.slabs().free_one(b.0, Wait::Yes);
            cache.slabs().free_one(d.0, Wait::Yes);
        }
        let other = thread::spawn(move || {
            run_as(1, 2);
            // It may be the first to come back to a slab that has just become full.
            // SAFETY: ours.
            unsafe { cache.free(a.0) };
        });
        let last = take(cache.slabs());
        other.join().unwrap();
        // SAFETY: ours.
        unsafe {
            for object in [last, c, e] {
                cache.free(object.0);
            }
        }
        assert_eq!(cache.destroy(), Ok(()), "no slab is lost");
        cache.end();
        host.end();
    });
    fastpath_testkit::case("K26", "model");
}

#[test]
fn a_free_against_the_loss_of_the_cpu_slab() {
    let _one = ONE.lock();
    explore("tid-detach", None, 50, || {
        let host = ModelHost::new();
        let cache = tid_cache(host, 2048);
        let (a, b) = (Object(cache.alloc().expect("memory")), Object(cache.alloc().expect("memory")));
        let other = thread::spawn(move || {
            run_as(0, 2);
            cache.flush_cpu(0);
        });
        // SAFETY: ours.
        unsafe { cache.free(a.0) };
        other.join().unwrap();
        // SAFETY: ours.
        unsafe { cache.free(b.0) };
        assert_eq!(cache.destroy(), Ok(()), "no object is lost");
        cache.end();
        host.end();
    });
    fastpath_testkit::case("K21", "model");
}

#[test]
fn two_allocations_and_frees_on_one_list() {
    let _one = ONE.lock();
    explore("tid-pair", None, 50, || {
        let host = ModelHost::new();
        let cache = tid_cache(host, 1024);
        let warm = cache.alloc().expect("memory");
        // SAFETY: ours.
        unsafe { cache.free(warm) };
        let other = thread::spawn(move || {
            run_as(0, 2);
            let object = cache.alloc().expect("memory");
            // SAFETY: ours.
            unsafe {
                object.cast::<u64>().write(2);
                cache.free(object);
            }
        });
        let object = cache.alloc().expect("memory");
        // SAFETY: ours.
        unsafe { object.cast::<u64>().write(1) };
        other.join().unwrap();
        // SAFETY: ours.
        unsafe {
            assert_eq!(object.cast::<u64>().read(), 1, "handed out twice");
            cache.free(object);
        }
        assert_eq!(cache.destroy(), Ok(()));
        cache.end();
        host.end();
    });
    fastpath_testkit::case("K20", "model");
}
