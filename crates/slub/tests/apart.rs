// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Free objects linked apart from their memory.
#![expect(unsafe_code, reason = "frees objects under test")]

mod support;

use core::ptr::NonNull;
use fastpath_slub::{Cache, CacheSpec, Corruption, FreePointer, Slabs, StatItem, Step, Wait};
use std::collections::HashSet;
use support::{SIZING, TestHost, at, leak, script_ran};

fn spec(size: usize) -> CacheSpec {
    CacheSpec::new("apart", size).free_pointer(FreePointer::Apart)
}

fn slabs(host: TestHost, size: usize) -> &'static Slabs<TestHost> {
    leak(Slabs::new(host, spec(size), &SIZING))
}

fn free(slabs: &Slabs<TestHost>, object: NonNull<u8>) {
    // SAFETY: tests free what they allocated; a second free is what some of them are about.
    unsafe { slabs.free_one(object, Wait::Yes) }
}

#[test]
fn batches_come_and_go_whole_and_every_object_is_its_own() {
    let host = TestHost::new();
    let slabs = slabs(host, 48);
    let mut seed = 7u32;
    let mut live: Vec<*mut u8> = Vec::new();
    for round in 0..400 {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let mut batch = vec![core::ptr::null_mut(); 1 + (seed >> 24) as usize % 90];
        if round % 2 == 0 || live.len() < batch.len() {
            let got = slabs.alloc_batch(&mut batch, 0, Wait::Yes);
            assert!(got > 0);
            live.extend(&batch[..got]);
        } else {
            // From anywhere in the set, so that lists become well mixed.
            for place in &mut batch {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *place = live.swap_remove((seed >> 8) as usize % live.len());
            }
            // SAFETY: from above, each once.
            unsafe { slabs.free_batch(&mut batch, Wait::Yes) };
        }
        assert_eq!(live.iter().collect::<HashSet<_>>().len(), live.len(), "handed out twice");
        slabs.validate().expect("the layer's invariants");
    }
    // SAFETY: from above, each once.
    unsafe { slabs.free_batch(&mut live, Wait::Yes) };
    assert_eq!(slabs.validate(), Ok(0));
    assert_eq!(host.reports(), []);
    assert!(!slabs.shrink_slabs());
    assert_eq!(host.pages(), 0);
}

#[test]
fn a_free_objects_memory_is_never_touched_and_writing_to_it_changes_nothing() {
    let host = TestHost::new();
    let slabs = slabs(host, 64);
    let mut batch = [core::ptr::null_mut(); 60];
    assert_eq!(slabs.alloc_batch(&mut batch, 0, Wait::Yes), 60);
    for &object in &batch {
        // SAFETY: allocated above, 64 bytes.
        unsafe { object.write_bytes(0xee, 64) };
    }
    let kept = batch;
    // SAFETY: from above, each once.
    unsafe { slabs.free_batch(&mut batch, Wait::Yes) };
    for &object in &kept {
        // SAFETY: the region's memory stays readable and writable; writing after the free is what is tested.
        unsafe {
            assert_eq!(core::slice::from_raw_parts(object, 64), [0xee; 64]);
            object.write_bytes(0x41, 64);
        }
    }
    let mut again = [core::ptr::null_mut(); 60];
    assert_eq!(slabs.alloc_batch(&mut again, 0, Wait::Yes), 60);
    assert_eq!(again.iter().collect::<HashSet<_>>(), kept.iter().collect::<HashSet<_>>());
    assert_eq!(host.reports(), []);
    // SAFETY: from above, each once.
    unsafe { slabs.free_batch(&mut again, Wait::Yes) };
}

#[test]
fn a_double_free_is_found_whatever_lies_between() {
    let host = TestHost::new();
    let slabs = slabs(host, 64);
    let objects: Vec<_> = (0..10).map(|_| slabs.alloc_one(0, Wait::Yes).unwrap()).collect();
    for &object in &objects {
        free(slabs, object);
    }
    assert_eq!(host.reports(), []);
    free(slabs, objects[3]);
    assert_eq!(host.reports(), [(Corruption::DoubleFree, "apart", objects[3].addr().get())]);
    // Twice in one batch, next to each other and apart.
    let pair = [slabs.alloc_one(0, Wait::Yes).unwrap(), slabs.alloc_one(0, Wait::Yes).unwrap()];
    let mut batch = [pair[0], pair[0], pair[1], pair[0]].map(NonNull::as_ptr);
    // SAFETY: the mistake under test.
    unsafe { slabs.free_batch(&mut batch, Wait::Yes) };
    assert_eq!(host.reports().len(), 2);
    assert_eq!(slabs.validate(), Ok(0), "each object is free once");
}

#[test]
fn frees_that_must_wait_for_the_lock_are_found_again() {
    let host = TestHost::new();
    let slabs = slabs(host, 1024);
    let capacity = slabs.layout().objects;
    let objects: Vec<_> = (0..capacity).map(|_| slabs.alloc_one(0, Wait::Yes).unwrap()).collect();
    let (first, second) = (objects[0], objects[1]);
    // The handler interrupts a free that holds the list lock, and frees in turn.
    at(Step::FreeListed, 0, move || free(slabs, second));
    free(slabs, first);
    assert!(script_ran());
    slabs.flush_deferred();
    assert_eq!(slabs.validate(), Ok(capacity - 2));
    assert_eq!(host.reports(), []);
    for &object in &objects[2..] {
        free(slabs, object);
    }
    assert_eq!(slabs.validate(), Ok(0));
}

#[test]
fn a_push_between_the_walk_and_the_exchange_of_a_refill_is_kept() {
    let host = TestHost::new();
    let slabs = slabs(host, 64);
    let objects: Vec<_> = (0..20).map(|_| slabs.alloc_one(0, Wait::Yes).unwrap()).collect();
    let extra = objects[19];
    for &object in &objects[..10] {
        free(slabs, object);
    }
    at(Step::GrabRead, 0, move || free(slabs, extra));
    let mut batch = [core::ptr::null_mut(); 5];
    assert_eq!(slabs.alloc_batch(&mut batch, 0, Wait::Yes), 5);
    assert!(script_ran());
    assert_eq!(slabs.validate(), Ok(14));
    assert!(batch.contains(&extra.as_ptr()), "the last one freed is the first to come back");
    assert_eq!(host.reports(), []);
}

#[test]
fn the_sheaf_front_end_stands_on_it() {
    let host = TestHost::new();
    let cache: &'static Cache<TestHost> = leak(Cache::new(host, spec(256), &SIZING));
    let mut live = HashSet::new();
    for round in 0..2000_usize {
        let object = cache.alloc().unwrap();
        assert!(live.insert(object), "handed out twice");
        if round % 3 == 0 {
            let gone = *live.iter().next().unwrap();
            live.remove(&gone);
            // SAFETY: live, once.
            unsafe { cache.free(gone) };
        }
    }
    for object in live {
        // SAFETY: live, once.
        unsafe { cache.free(object) };
    }
    assert!(cache.destroy().is_ok());
    assert_eq!(host.reports(), []);
    assert_eq!(host.pages(), 0);
}

#[test]
fn idle_stretches_hold_no_object_in_use_and_all_free_ones_in_whole_blocks() {
    let host = TestHost::new();
    let slabs = slabs(host, 64);
    let capacity = slabs.layout().objects;
    let objects: Vec<_> = (0..capacity).map(|_| slabs.alloc_one(0, Wait::Yes).unwrap()).collect();
    // One object of each block but the first stays in use.
    let (shift, block) = (10, 1024);
    let mut kept = HashSet::new();
    for (index, &object) in objects.iter().enumerate() {
        let in_first = object.addr().get() - objects[0].addr().get() < block;
        if !in_first && index % (block / 64) == 3 {
            kept.insert(object.addr().get());
        } else {
            free(slabs, object);
        }
    }
    let mut idle = Vec::new();
    slabs.for_each_idle(shift, |start, bytes| {
        idle.push((start.addr(), bytes));
        true
    });
    assert_eq!(idle, [(objects[0].addr().get(), block)]);
    assert!(slabs.is_free(objects[0].as_ptr()) && !slabs.is_free(objects[block / 64 + 3].as_ptr()));
    assert!(!slabs.is_free(objects[0].as_ptr().wrapping_add(8)), "no object");
    for &object in objects.iter().filter(|object| kept.contains(&object.addr().get())) {
        free(slabs, object);
    }
    assert_eq!(slabs.validate(), Ok(0));
    assert_eq!(host.reports(), []);
}

#[test]
fn a_slab_with_a_free_on_its_way_is_left_alone_by_idle_walks() {
    let host = TestHost::new();
    let slabs = slabs(host, 64);
    let objects: Vec<_> =
        (0..slabs.layout().objects).map(|_| slabs.alloc_one(0, Wait::Yes).unwrap()).collect();
    free(slabs, objects[0]);
    // A free that has claimed its object and not yet exchanged the slab word: it may still turn out to be refused.
    let seen = std::rc::Rc::new(std::cell::Cell::new(0));
    let counted = seen.clone();
    at(Step::FreeRead, 0, move || {
        slabs.for_each_idle(6, |_, _| {
            counted.set(counted.get() + 1);
            true
        });
    });
    free(slabs, objects[1]);
    assert!(script_ran());
    assert_eq!(seen.get(), 0, "the count of claimed objects is not the length of the list");
    slabs.for_each_idle(6, |_, _| {
        seen.set(seen.get() + 1);
        true
    });
    assert_eq!(seen.get(), 1, "two neighbours are one stretch");
}

#[test]
fn a_refill_leaves_the_room_that_was_asked_for_and_gives_ascending_objects() {
    let host = TestHost::new();
    let cache: &Cache<TestHost> = leak(Cache::new(host, spec(64).refill(50), &SIZING));
    let capacity = cache.sheaf_capacity();
    assert!(capacity > 52);
    let first = cache.alloc().unwrap();
    let second = cache.alloc().unwrap();
    assert_eq!(second.addr().get() - first.addr().get(), 64);
    assert_eq!(cache.info().in_sheaves, 48);
    // SAFETY: from above, each once.
    unsafe {
        cache.free(second);
        cache.free(first);
    }
    assert_eq!(cache.stat(StatItem::FreeSlowpath), 0);
    assert_eq!(cache.info().in_sheaves, 50, "room was left for them");
    cache.destroy().expect("nothing in use");
    assert_eq!(host.pages(), 0);
}
