// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The sheaf front end on the try-lock backend and on restartable sequences: the contract suite and the numbered cases
//! of sheaves and barns.
#![cfg(not(loom))]
#![expect(unsafe_code, reason = "frees objects under test")]

mod support;

use core::ptr::NonNull;
use fastpath_slub::{
    Cache, CacheSpec, Corruption, CpuSlots, GracePeriod, Host, RefillError, StatItem, Step, sheaf_capacity,
};
use fastpath_testkit::{case, slub_suite as suite};
use std::sync::Mutex;
use support::{CPUS, Grace, SIZING, TestHost, at, leak, no_script, run_on, run_on_node, script_ran};

/// Makes a host with a world of its own.
type World = fn() -> TestHost;

macro_rules! on_both {
    ($($test:ident)*) => {
        mod trylock {
            $(#[test]
            fn $test() {
                super::$test(super::TestHost::new);
            })*
        }
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        mod rseq {
            $(#[test]
            fn $test() {
                if super::support::rseq::RseqSlots::new().is_some() {
                    super::support::pin_for_real();
                    super::$test(super::on_rseq);
                } else {
                    fastpath_testkit::skip("slub-rseq", "the C library registers no thread for rseq");
                }
            })*
        }
    };
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn on_rseq() -> TestHost {
    TestHost::on(support::Slots::Rseq(support::rseq::RseqSlots::new().expect("asked before")))
}

on_both! {
    the_last_object_freed_is_the_first_one_allocated
    a_long_random_run_knows_every_live_object
    bulk_operations_take_and_give_many
    destroying_reports_the_live_object_and_nothing_is_lost
    out_of_memory_loses_nothing
    capacities_are_the_kernels
    the_boundary_between_main_and_spare_only_swaps
    the_eleventh_full_sheaf_is_flushed
    a_refill_survives_moving_to_another_cpu
    a_trade_with_the_barn_survives_moving_to_another_cpu
    reaping_takes_what_nobody_needed
    refills_grow_with_the_cache
    prefilled_sheaves_keep_their_promise
    a_full_rcu_sheaf_is_one_callback
    a_full_rcu_sheaf_is_handed_over_under_the_lock
    a_deferred_free_without_memory_waits_itself
    a_node_without_barn_works
    exact_statistics_take_the_slow_path_every_time
    nolock_calls_in_a_handler_that_interrupted_the_lock_holder_never_block
    frees_defer_while_the_list_lock_is_held_by_the_same_context
    producer_and_consumers_exchange_objects_across_cpus
    sheaves_go_to_the_slabs_when_the_source_of_sheaves_is_dry
}

#[test]
fn hardened_free_pointers_work_and_are_not_pointers() {
    let host = TestHost::new();
    let cache = cache(host, 64);
    let mut live = vec![core::ptr::null_mut(); 2000];
    // SAFETY: not used yet.
    unsafe { cache.slabs().harden(0x0123_4567_89ab_cdef) };
    suite::every_live_object(&Sheaf(cache), &mut live, 30, 7);
    let slabs = cache.slabs();
    let [a, b] = [(); 2].map(|()| slabs.alloc_one(0, fastpath_slub::Wait::Yes).expect("memory"));
    // SAFETY: allocated above; then the word of a free object is looked at.
    let stored = unsafe {
        slabs.free_one(b, fastpath_slub::Wait::Yes);
        slabs.free_one(a, fastpath_slub::Wait::Yes);
        a.add(32).cast::<usize>().read()
    };
    assert_ne!(stored, b.addr().get());
    assert_eq!(cache.destroy(), Ok(()));
    assert_eq!((host.pages(), host.reports()), (0, vec![]));
}

#[test]
fn a_held_slot_lock_on_trylock() {
    a_held_slot_lock_sends_both_to_the_slabs(TestHost::new);
}

support::object_cache!(Sheaf, Cache<TestHost>);

fn cache(host: TestHost, size: usize) -> &'static Cache<TestHost> {
    leak(Cache::new(host, CacheSpec::new("test", size), &SIZING))
}

fn alloc(cache: &Cache<TestHost>) -> NonNull<u8> {
    cache.alloc().expect("memory")
}

fn free(cache: &Cache<TestHost>, object: NonNull<u8>) {
    // SAFETY: tests free what they allocated, once.
    unsafe { cache.free(object) }
}

fn the_last_object_freed_is_the_first_one_allocated(world: World) {
    suite::last_in_first_out(&Sheaf(cache(world(), 64)));
    case("K19", world().0.slots.name());
}

fn a_long_random_run_knows_every_live_object(world: World) {
    let mut live = vec![core::ptr::null_mut(); 3000];
    for size in [8, 24, 96, 520, 4096] {
        let host = world();
        let rounds = if size < 1000 { 60 } else { 12 };
        let few = if size < 1000 { 3000 } else { 800 };
        suite::every_live_object(&Sheaf(cache(host, size)), &mut live[..few], rounds, size as u64);
        assert_eq!(host.pages(), 0, "every page came back");
        assert_eq!(host.reports(), []);
    }
    case("K55", world().0.slots.name());
}

fn bulk_operations_take_and_give_many(world: World) {
    let host = world();
    suite::in_bulk(&Sheaf(cache(host, 64)), &mut [core::ptr::null_mut(); 1000]);
    assert_eq!(host.pages(), 0);
}

fn destroying_reports_the_live_object_and_nothing_is_lost(world: World) {
    let host = world();
    suite::destroy_with_a_live_object(&Sheaf(cache(host, 64)));
    let reports = host.reports();
    let cache = cache(host, 128);
    let (kept, freed) = (alloc(cache), alloc(cache));
    free(cache, freed);
    assert_eq!(reports.len(), 1);
    assert_eq!(reports[0].0, Corruption::LeakedObject);
    let busy = cache.destroy().expect_err("an object is live");
    assert_eq!((busy.slabs, busy.objects), (1, 1));
    assert_eq!(host.reports(), [(Corruption::LeakedObject, "test", kept.addr().get())]);
    free(cache, kept);
    assert_eq!(cache.destroy(), Ok(()));
    case("K44", world().0.slots.name());
}

fn out_of_memory_loses_nothing(world: World) {
    let host = world();
    // The array holds more than 2048 pages do.
    suite::out_of_memory(&Sheaf(cache(host, 8000)), &mut vec![core::ptr::null_mut(); 1100]);
    assert_eq!(host.pages(), 0);
}

fn capacities_are_the_kernels(world: World) {
    let expected = [(4096, 0, 4), (1024, 0, 12), (256, 0, 28), (64, 0, 60), (64, 100, 100), (64, 10, 60)];
    for (size, requested, capacity) in expected {
        assert_eq!(sheaf_capacity(size, requested), capacity, "size {size}");
    }
    let host = world();
    for (size, capacity) in [(4096, 4), (1024, 12), (256, 28), (64, 60)] {
        assert_eq!(cache(host, size).sheaf_capacity(), capacity);
    }
    case("K46", world().0.slots.name());
}

fn the_boundary_between_main_and_spare_only_swaps(world: World) {
    let host = world();
    let cache = cache(host, 64);
    // Warm up: main empty, a spare that is neither empty nor full.
    let mut objects: Vec<_> = (0..100).map(|_| alloc(cache)).collect();
    for object in objects.drain(..) {
        free(cache, object);
    }
    let mut held: Vec<_> = (0..60).map(|_| alloc(cache)).collect();
    let counters = [StatItem::BarnGet, StatItem::BarnPut, StatItem::SheafRefill, StatItem::SheafFlush];
    let before = counters.map(|item| cache.stat(item));
    for _ in 0..50 {
        for _ in 0..10 {
            held.push(alloc(cache));
        }
        for object in held.drain(held.len() - 10..) {
            free(cache, object);
        }
    }
    assert_eq!(counters.map(|item| cache.stat(item)), before, "no barn, no slab was involved");
    for object in held {
        free(cache, object);
    }
    // LIFO across the boundary.
    let (a, b) = (alloc(cache), alloc(cache));
    free(cache, a);
    free(cache, b);
    assert_eq!((cache.alloc(), cache.alloc()), (Some(b), Some(a)));
    free(cache, a);
    free(cache, b);
    assert_eq!(cache.destroy(), Ok(()));
    case("K47", world().0.slots.name());
}

fn the_eleventh_full_sheaf_is_flushed(world: World) {
    let host = world();
    let cache = cache(host, 64);
    let objects: Vec<_> = (0..60 * 14).map(|_| alloc(cache)).collect();
    for object in objects {
        free(cache, object);
    }
    assert_eq!(cache.stat(StatItem::BarnPut), 10, "ten full sheaves fit");
    assert!(cache.stat(StatItem::SheafFlush) > 0, "the rest went to the slabs");
    assert!(cache.info().in_sheaves >= 600 && cache.info().in_sheaves <= 720, "{:?}", cache.info());
    assert_eq!(cache.slabs().validate().map(|_| ()), Ok(()));
    assert!(!cache.shrink(), "shrinking returns all objects");
    assert_eq!(cache.info().in_sheaves, 0);
    assert_eq!(host.pages(), 0);
    case("K48", world().0.slots.name());
}

fn a_held_slot_lock_sends_both_to_the_slabs(world: World) {
    let host = world();
    let cache = cache(host, 64);
    let kept = alloc(cache);
    let taken = Mutex::new(Vec::new());
    // An interrupt in the middle of an operation on the slot.
    let support::Slots::TryLock(slots) = &host.0.slots else { panic!("a test of the try-lock") };
    let ran = slots.while_locked(0, || {
        let mut taken = taken.lock().unwrap();
        taken.extend((0..5).map(|_| alloc(cache)));
        free(cache, taken.pop().unwrap());
    });
    assert!(ran);
    let mut all = taken.into_inner().unwrap();
    all.push(kept);
    all.extend((0..200).map(|_| alloc(cache)));
    all.sort_unstable();
    let count = all.len();
    all.dedup();
    assert_eq!(all.len(), count, "no object was handed out twice");
    for object in all {
        free(cache, object);
    }
    assert_eq!(cache.destroy(), Ok(()));
    case("K49", world().0.slots.name());
}

fn a_refill_survives_moving_to_another_cpu(world: World) {
    for step in [Step::RefillInHand, Step::GrabRead, Step::NewSlab] {
        let host = world();
        let cache = cache(host, 64);
        run_on(1);
        let on_one: Vec<_> = (0..70).map(|_| alloc(cache)).collect();
        run_on(0);
        at(step, 0, || run_on(1));
        let moved = alloc(cache);
        assert!(script_ran(), "{step:?}");
        // Nothing stayed in hand: what the slabs count as in use is in sheaves or here.
        let info = cache.info();
        assert_eq!(info.active_objs, info.in_sheaves + on_one.len() + 1, "{step:?}");
        for object in on_one {
            free(cache, object);
        }
        free(cache, moved);
        assert_eq!(cache.destroy(), Ok(()));
        assert_eq!(host.pages(), 0, "{step:?}: no sheaf was lost");
    }
    // The same for a free whose sheaf in hand finds another CPU's slot.
    let host = world();
    let cache = cache(host, 64);
    let objects: Vec<_> = (0..200).map(|_| alloc(cache)).collect();
    let mut left = objects.len();
    for object in objects {
        at(Step::BarnInHand, 0, || run_on(2));
        free(cache, object);
        run_on(0);
        left -= 1;
        let info = cache.info();
        assert_eq!(info.active_objs, info.in_sheaves + left);
    }
    assert_eq!(cache.destroy(), Ok(()));
    assert_eq!(host.pages(), 0);
    case("K50", world().0.slots.name());
}

fn a_trade_with_the_barn_survives_moving_to_another_cpu(world: World) {
    // The other CPU's main: neither empty nor full, so that it refuses; or none at all.
    for other in [1, 2] {
        let host = world();
        let cache = cache(host, 64);
        run_on(1);
        let held = alloc(cache);
        run_on(0);
        let many: Vec<_> = (0..500).map(|_| alloc(cache)).collect();
        for object in many {
            free(cache, object);
        }
        let (mut live, mut trades) = (Vec::new(), 0);
        let whole = |live: &[NonNull<u8>]| {
            let info = cache.info();
            assert_eq!(info.active_objs, info.in_sheaves + live.len() + 1, "CPU {other}");
        };
        for _ in 0..400 {
            at(Step::BarnInHand, 0, move || run_on(other));
            live.push(alloc(cache));
            trades += usize::from(script_ran());
            run_on(0);
            whole(&live);
        }
        while let Some(object) = live.pop() {
            at(Step::BarnInHand, 0, move || run_on(other));
            free(cache, object);
            trades += usize::from(script_ran());
            run_on(0);
            whole(&live);
        }
        no_script();
        assert!(trades > 6, "{trades} trades");
        free(cache, held);
        assert_eq!(cache.destroy(), Ok(()));
        assert_eq!(host.pages(), 0, "no sheaf was lost");
    }
    case("K50", world().0.slots.name());
}

fn reaping_takes_what_nobody_needed(world: World) {
    let host = world();
    let cache = cache(host, 64);
    let in_and_out = |count: usize| {
        let objects: Vec<_> = (0..count).map(|_| alloc(cache)).collect();
        for object in objects {
            free(cache, object);
        }
    };
    in_and_out(60 * 8);
    let full = cache.info().in_barns / 60;
    assert!(full >= 5, "{full} full sheaves");
    assert_eq!(cache.reap(), 0, "all of them are new");
    // Main and spare hold up to 120: of the barn's, two or three are needed.
    in_and_out(60 * 4);
    let reaped = cache.reap();
    assert!((1..=full - 2).contains(&reaped), "{reaped} of {full}");
    assert_eq!(cache.info().in_barns / 60, full - reaped, "what was needed stays");
    in_and_out(60 * 4);
    assert_eq!(cache.reap(), 0);
    // Nobody comes any more.
    assert_eq!((cache.reap(), cache.info().in_barns), (full - reaped, 0));
    assert_eq!(cache.slabs().validate().map(|_| ()), Ok(()));
    assert_eq!(cache.destroy(), Ok(()));
    assert_eq!(host.pages(), 0);
}

fn refills_grow_with_the_cache(world: World) {
    let host = world();
    let cache = leak(Cache::new(host, CacheSpec::new("test", 64).refill(5), &SIZING));
    let mut last = 0;
    let mut refill = || {
        let refilled = cache.stat(StatItem::SheafRefill) - last;
        last += refilled;
        refilled
    };
    let mut objects = vec![alloc(cache)];
    assert_eq!(refill(), 5);
    let mut largest = 0;
    for _ in 0..1000 {
        objects.push(alloc(cache));
        let objects_of_slabs = cache.info().num_objs;
        let refilled = refill();
        assert!(refilled <= (objects_of_slabs / 8).max(5), "{refilled} of {objects_of_slabs}");
        largest = largest.max(refilled);
    }
    assert_eq!(largest, 60, "a whole sheaf in the end");
    for object in objects {
        free(cache, object);
    }
    assert_eq!(cache.destroy(), Ok(()));
}

fn prefilled_sheaves_keep_their_promise(world: World) {
    let host = world();
    let cache = cache(host, 64);
    let mut sheaf = cache.prefill(5).expect("memory");
    host.0.memory.fail_after(0);
    let five: Vec<_> = (0..5).map(|_| sheaf.alloc().expect("promised")).collect();
    assert_eq!(sheaf.alloc(), None, "emptied, and never from elsewhere");
    host.0.memory.fail_after(-1);
    assert_eq!(cache.refill_sheaf(Some(&mut sheaf), 60), Ok(()));
    assert_eq!(sheaf.len(), 60);
    assert_eq!(cache.refill_sheaf(None, 5), Err(RefillError::Invalid));
    drop(sheaf);
    let mut large = cache.prefill(150).expect("memory");
    assert_eq!(large.len(), 150);
    let many: Vec<_> = (0..150).map(|_| large.alloc().expect("promised")).collect();
    assert_eq!(large.alloc(), None);
    drop(large);
    let left_over = cache.prefill(130).expect("memory");
    drop(left_over);
    // A refill that fails leaves the sheaf as it is.
    let mut sheaf = cache.prefill(3).expect("memory");
    let hoard: Vec<_> = {
        host.0.memory.fail_after(0);
        core::iter::from_fn(|| cache.alloc()).collect()
    };
    let before = sheaf.len();
    assert_eq!(
        cache.refill_sheaf(Some(&mut sheaf), 60),
        if before >= 60 { Ok(()) } else { Err(RefillError::NoMemory) }
    );
    assert!(sheaf.len() >= before.min(3));
    host.0.memory.fail_after(-1);
    drop(sheaf);
    for object in five.into_iter().chain(many).chain(hoard) {
        free(cache, object);
    }
    assert_eq!(cache.stat(StatItem::SheafPrefillOversize), 2);
    assert_eq!(cache.destroy(), Ok(()));
    assert_eq!(host.pages(), 0, "oversize sheaves are freed");
    case("K51", world().0.slots.name());
}

fn a_full_rcu_sheaf_is_one_callback(world: World) {
    let host = world();
    let cache = cache(host, 64);
    let grace = leak(Grace::default());
    let objects: Vec<_> = (0..60).map(|_| alloc(cache)).collect();
    for &object in &objects {
        assert_eq!(grace.waiting.lock().unwrap().len(), 0);
        // SAFETY: allocated above, no readers.
        unsafe { cache.free_deferred(object, grace) };
    }
    assert_eq!(grace.waiting.lock().unwrap().len(), 1, "sixty frees, one callback");
    // Before the grace period nobody gets them.
    let others: Vec<_> = (0..300).map(|_| alloc(cache)).collect();
    assert!(objects.iter().all(|object| !others.contains(object)));
    grace.barrier();
    assert_eq!(*grace.runs.lock().unwrap(), 1);
    // A barrier after a partial sheaf frees all.
    for &object in &others[..7] {
        // SAFETY: allocated above, no readers.
        unsafe { cache.free_deferred(object, grace) };
    }
    assert_eq!(grace.waiting.lock().unwrap().len(), 0, "not full yet");
    cache.deferred_barrier(grace);
    assert_eq!(*grace.runs.lock().unwrap(), 2);
    for &object in &others[7..] {
        free(cache, object);
    }
    assert_eq!(cache.stat(StatItem::FreeRcuSheaf), 67);
    assert_eq!(cache.destroy(), Ok(()));
    assert_eq!(host.pages(), 0);
    case("K52", world().0.slots.name());
}

/// A barrier that comes when a full sheaf has left the node but is not handed over would miss it: both happen under one lock.
fn a_full_rcu_sheaf_is_handed_over_under_the_lock(world: World) {
    let host = world();
    let cache = cache(host, 64);
    let grace = leak(Grace::default());
    let looked = leak(std::sync::atomic::AtomicUsize::new(0));
    let script = move || {
        // Whoever holds the lock is told so; a barrier by anybody else waits for it.
        assert!(!cache.fork_prepare(), "the node's barn is locked");
        looked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    };
    assert!(grace.at_defer.set(Box::new(script)).is_ok());
    for object in (0..67).map(|_| alloc(cache)).collect::<Vec<_>>() {
        // SAFETY: allocated above, no readers.
        unsafe { cache.free_deferred(object, grace) };
    }
    cache.deferred_barrier(grace);
    assert_eq!(looked.load(std::sync::atomic::Ordering::SeqCst), 2);
    assert_eq!((cache.destroy(), host.pages()), (Ok(()), 0));
    case("K52", world().0.slots.name());
}

fn a_deferred_free_without_memory_waits_itself(world: World) {
    let host = world();
    let spec = CacheSpec::new("test", 64).flags(fastpath_slub::CacheFlags::EXACT_STATS);
    let cache = leak(Cache::<TestHost>::new(host, spec, &SIZING));
    let grace = leak(Grace::default());
    let object = alloc(cache);
    // SAFETY: allocated above, no readers.
    unsafe { cache.free_deferred(object, grace) };
    assert_eq!(cache.stat(StatItem::FreeRcuSheafFail), 1);
    assert_eq!(cache.destroy(), Ok(()));
}

fn a_node_without_barn_works(world: World) {
    let host = world();
    // Two nodes; only node 0 has a barn. Everything happens on node 1.
    let cache: &'static Cache<TestHost, 2> =
        leak(Cache::with_barns(host, CacheSpec::new("test", 64), &SIZING, 0b01));
    run_on_node(1);
    let mut objects: Vec<_> = (0..1000).map(|_| cache.alloc().expect("memory")).collect();
    let grace = leak(Grace::default());
    // SAFETY: each is allocated above and freed once.
    unsafe {
        cache.free_deferred(objects.pop().unwrap(), grace);
        for object in objects.drain(500..) {
            cache.free(object);
        }
        run_on_node(0);
        for object in objects.drain(..) {
            cache.free(object);
        }
    }
    run_on_node(1);
    drop(cache.prefill(70).expect("memory"));
    assert_eq!(cache.slabs().node_stat(1, StatItem::BarnPut), 0, "nothing was put where there is no barn");
    assert_eq!(cache.destroy(), Ok(()));
    assert_eq!(host.pages(), 0);
    case("K54", world().0.slots.name());
}

fn exact_statistics_take_the_slow_path_every_time(world: World) {
    let host = world();
    let spec = CacheSpec::new("test", 64).flags(fastpath_slub::CacheFlags::EXACT_STATS);
    let cache = leak(Cache::<TestHost>::new(host, spec, &SIZING));
    let objects: Vec<_> = (0..100).map(|_| alloc(cache)).collect();
    for object in objects {
        free(cache, object);
    }
    assert_eq!((cache.stat(StatItem::AllocSlowpath), cache.stat(StatItem::FreeSlowpath)), (100, 100));
    assert!(host.0.slots.pop(0).is_none(), "no sheaf was ever made");
    assert_eq!(cache.destroy(), Ok(()));
}

fn nolock_calls_in_a_handler_that_interrupted_the_lock_holder_never_block(world: World) {
    let host = world();
    let cache = cache(host, 64);
    let held: Vec<_> = (0..300).map(|_| alloc(cache)).collect();
    // The free at hand holds the list lock when the handler comes: the last of a slab that was full.
    let results = leak(Mutex::new(Vec::new()));
    for object in held {
        at(Step::FreeListed, 0, || {
            let mut results = results.lock().unwrap();
            for _ in 0..70 {
                results.extend(cache.alloc_nolock());
            }
            if let Some(object) = results.pop() {
                // SAFETY: allocated just now.
                unsafe { cache.free_nolock(object) };
            }
        });
        free(cache, object);
    }
    no_script();
    let mut results = std::mem::take(&mut *results.lock().unwrap());
    let count = results.len();
    results.sort_unstable();
    results.dedup();
    assert_eq!(results.len(), count);
    for object in results {
        // SAFETY: from the handler.
        unsafe { cache.free_nolock(object) };
    }
    assert_eq!(cache.destroy(), Ok(()), "the deferred ones are drained, no object is in use");
    assert_eq!(host.pages(), 0);
    case("K53", world().0.slots.name());
}

fn frees_defer_while_the_list_lock_is_held_by_the_same_context(world: World) {
    let host = world();
    let cache = cache(host, 2048);
    let slabs = cache.slabs();
    let mut objects = [core::ptr::null_mut(); 48];
    let first = slabs.alloc_batch(&mut objects, 0, fastpath_slub::Wait::Yes);
    assert_eq!(first, 32, "two whole slabs are better than half of a third");
    assert_eq!(slabs.alloc_batch(&mut objects[first..], 0, fastpath_slub::Wait::Yes), 16);
    let spare = objects[47];
    at(Step::FreeListed, 0, move || {
        let object = NonNull::new(spare).unwrap();
        // SAFETY: taken out of the batch.
        unsafe { slabs.free_one(object, fastpath_slub::Wait::Never) };
    });
    // SAFETY: allocated above; the last one is freed by the handler. Its slab is full, so both frees want the lock.
    unsafe { slabs.free_batch(&mut objects[..16], fastpath_slub::Wait::Yes) };
    assert!(script_ran());
    assert_eq!(slabs.stat(StatItem::FreeDeferred), 1);
    // SAFETY: allocated above.
    unsafe { slabs.free_batch(&mut objects[16..47], fastpath_slub::Wait::Yes) };
    assert_eq!(cache.destroy(), Ok(()));
}

fn producer_and_consumers_exchange_objects_across_cpus(world: World) {
    let host = world();
    let cache = cache(host, 64);
    let total: usize = 10_000_000;
    let (sender, receiver) = std::sync::mpsc::sync_channel::<Vec<usize>>(16);
    let receiver = Mutex::new(receiver);
    std::thread::scope(|scope| {
        for producer in 0..4 {
            let sender = sender.clone();
            scope.spawn(move || {
                run_on(0);
                let mut numbers = suite::Numbers::new(producer);
                let mut made = 0;
                while made < total / 4 {
                    let batch: Vec<_> = (0..=numbers.below(100))
                        .map(|_| {
                            let object = alloc(cache);
                            suite::mark(object, 64);
                            object.as_ptr().expose_provenance()
                        })
                        .collect();
                    made += batch.len();
                    sender.send(batch).unwrap();
                }
            });
        }
        drop(sender);
        for consumer in 1..4 {
            let receiver = &receiver;
            scope.spawn(move || {
                run_on(consumer % CPUS);
                loop {
                    let Ok(batch) = receiver.lock().unwrap().recv() else { break };
                    for object in batch {
                        let object = NonNull::new(core::ptr::with_exposed_provenance_mut(object)).unwrap();
                        suite::check(object, 64);
                        free(cache, object);
                    }
                }
            });
        }
    });
    assert_eq!(host.reports(), []);
    cache.shrink();
    assert_eq!(cache.info().active_objs, 0, "nothing is in use");
    assert!(cache.info().num_slabs == 0);
    assert_eq!(host.pages(), 0);
    case("K24", world().0.slots.name());
}

fn sheaves_go_to_the_slabs_when_the_source_of_sheaves_is_dry(world: World) {
    let host = world();
    let cache = cache(host, 64);
    let object = alloc(cache);
    free(cache, object);
    let _ = host.sheaves();
    let objects: Vec<_> = (0..300).map(|_| alloc(cache)).collect();
    host.0.memory.fail_after(0);
    for object in objects {
        free(cache, object);
    }
    host.0.memory.fail_after(-1);
    assert_eq!(cache.destroy(), Ok(()));
    assert_eq!(host.pages(), 0);
}
