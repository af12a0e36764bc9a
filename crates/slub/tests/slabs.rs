// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The slab layer and what needs no front end: lists, limits, sizes, kmalloc, merging.
#![cfg(not(loom))]
#![expect(unsafe_code, reason = "frees objects under test")]

mod support;

use core::ptr::{NonNull, null_mut};
use fastpath_slub::classes::{KMALLOC_SIZES, KmallocClass, ZERO_SIZE_PTR, kmalloc_class};
use fastpath_slub::merge::{CacheTable, CreateError};
use fastpath_slub::{
    Cache, CacheFlags, CacheSpec, Corruption, GracePeriod, Kmalloc, Sizing, Slabs, StatItem, Step,
    TypedCache, Wait, min_partial,
};
use fastpath_testkit::case;
use support::{SIZING, TestHost, at, leak, script_ran};

const LAYER: &str = "slabs";

fn slabs(host: TestHost, size: usize) -> &'static Slabs<TestHost> {
    leak(Slabs::new(host, CacheSpec::new("test", size), &SIZING))
}

fn alloc(slabs: &Slabs<TestHost>) -> NonNull<u8> {
    slabs.alloc_one(0, Wait::Yes).expect("memory")
}

fn free(slabs: &Slabs<TestHost>, object: NonNull<u8>) {
    // SAFETY: tests free what they allocated, once.
    unsafe { slabs.free_one(object, Wait::Yes) }
}

fn partial(slabs: &Slabs<TestHost>) -> Vec<usize> {
    let mut list = Vec::new();
    slabs.for_each_partial(|_, slab| list.push(slab.as_ptr().addr()));
    list
}

#[test]
fn a_full_slab_is_listed_last_by_its_first_free_and_empty_ones_are_kept_up_to_the_limit() {
    let host = TestHost::new();
    let slabs = slabs(host, 1024);
    let capacity = slabs.layout().objects;
    let mut groups: Vec<Vec<_>> = (0..8).map(|_| (0..capacity).map(|_| alloc(slabs)).collect()).collect();
    assert_eq!(slabs.info().num_slabs, 8);
    assert_eq!(partial(slabs), [], "all full, none listed");
    for (index, group) in groups.iter_mut().enumerate() {
        let before = partial(slabs);
        free(slabs, group.pop().unwrap());
        let after = partial(slabs);
        assert_eq!(after[..index], before[..], "others stay where they are");
        assert_eq!(after.len(), index + 1, "one more, at the tail");
    }
    assert_eq!(slabs.stat(StatItem::FreeAddPartial), 8);
    // Empty them: with more than min_partial listed each is given back, with fewer it is kept.
    assert_eq!(min_partial(1024), 5);
    for (index, group) in groups.into_iter().enumerate() {
        for object in group {
            free(slabs, object);
        }
        let left = 8 - (index + 1).min(4);
        assert_eq!(partial(slabs).len(), left, "slab {index}");
    }
    assert_eq!(slabs.info().num_slabs, 4);
    assert_eq!(slabs.stat(StatItem::FreeSlab), 4);
    assert_eq!(slabs.validate(), Ok(0));
    assert!(!slabs.shrink_slabs());
    assert_eq!(host.pages(), 0);
    case("K25", LAYER);
}

#[test]
fn the_last_two_objects_freed_at_once_discard_the_slab_once() {
    let host = TestHost::new();
    let slabs: &'static Slabs<TestHost> =
        leak(Slabs::new(host, CacheSpec::new("test", 1024).min_partial(0), &SIZING));
    // Interrupted between reading the word and exchanging it.
    for swapped in [false, true] {
        let capacity = slabs.layout().objects;
        let mut objects: Vec<_> = (0..capacity).map(|_| alloc(slabs)).collect();
        let (mut last, mut before) = (objects.pop().unwrap(), objects.pop().unwrap());
        if swapped {
            core::mem::swap(&mut last, &mut before);
        }
        for object in objects {
            free(slabs, object);
        }
        at(Step::FreeRead, 0, move || free(slabs, before));
        free(slabs, last);
        assert!(script_ran());
        assert_eq!(slabs.info().num_slabs, 0, "discarded");
        assert_eq!(host.pages(), 0);
    }
    assert_eq!(slabs.stat(StatItem::FreeSlab), 2, "each slab once");
    assert_eq!(host.reports(), []);
    // The same by threads.
    for _ in 0..200 {
        let (a, b) = (alloc(slabs), alloc(slabs));
        let (a, b) = (a.as_ptr().expose_provenance(), b.as_ptr().expose_provenance());
        let start = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for object in [a, b] {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    free(slabs, NonNull::new(core::ptr::with_exposed_provenance_mut(object)).unwrap());
                });
            }
        });
        assert_eq!(slabs.info().num_slabs, 0);
    }
    case("K26", LAYER);
    case("K27", LAYER);
}

#[test]
fn limits_and_orders_are_the_kernels() {
    for (size, kept) in [(64, 5), (2048, 5), (4096, 6), (1 << 20, 10)] {
        assert_eq!(min_partial(size), kept, "size {size}");
    }
    case("K28", LAYER);
    let four = Sizing::kernel(4);
    let expected = [
        (64, 0, 64),
        (96, 0, 42),
        (192, 0, 21),
        (256, 0, 16),
        (512, 1, 16),
        (700, 2, 23),
        (1024, 2, 16),
        (2048, 3, 16),
        (4096, 3, 8),
        (8192, 3, 4),
    ];
    for (size, order, objects) in expected {
        assert_eq!(four.order(size, 10), Some(order), "size {size}");
        assert_eq!(four.objects(order, size), objects, "size {size}");
    }
    let sixteen = Sizing::kernel(16);
    for (size, order, objects) in [(192, 1, 42), (256, 1, 32), (512, 2, 32), (1024, 3, 32)] {
        assert_eq!(
            (sixteen.order(size, 10), sixteen.objects(order, size)),
            (Some(order), objects),
            "size {size}"
        );
    }
    assert_eq!(four.order(1 << 20, 10), Some(8), "one object");
    assert_eq!(four.order(1 << 24, 10), None);
    case("K29", LAYER);
}

#[test]
fn kmalloc_takes_the_kernels_classes_and_alignment() {
    let expected = [
        (1, 8),
        (8, 8),
        (9, 16),
        (24, 32),
        (64, 64),
        (65, 96),
        (96, 96),
        (97, 128),
        (128, 128),
        (129, 192),
        (192, 192),
        (193, 256),
        (8192, 8192),
    ];
    for (size, class) in expected {
        let KmallocClass::Cache(index) = kmalloc_class(size) else { panic!("{size}") };
        assert_eq!(KMALLOC_SIZES[index], class, "size {size}");
    }
    assert_eq!(kmalloc_class(0), KmallocClass::Zero);
    assert_eq!(kmalloc_class(8193), KmallocClass::Large);
    let host = TestHost::new();
    let heap = leak(Kmalloc::new(host, 0, 1, &SIZING));
    let large = heap.kmalloc(8193, false);
    assert_eq!(heap.ksize(large), 4 * 4096, "order 2");
    assert_eq!(heap.kmalloc(0, false), ZERO_SIZE_PTR);
    case("K30", LAYER);
    for (size, align) in (3..=12).map(|bits| (1 << bits, 1 << bits)).chain([(96, 32), (192, 64)]) {
        let objects: Vec<_> = (0..20).map(|_| heap.kmalloc(size, false)).collect();
        for object in objects {
            assert!(!object.is_null());
            assert_eq!(object.addr() % align, 0, "size {size}");
            // SAFETY: allocated above.
            unsafe { heap.kfree(object) };
        }
    }
    case("K31", LAYER);
    // SAFETY: from above; the last two are ignored.
    unsafe {
        heap.kfree(large);
        heap.kfree(ZERO_SIZE_PTR);
        heap.kfree(null_mut());
    }
    assert_eq!(heap.destroy(), Ok(()));
    assert_eq!((host.pages(), host.reports()), (0, vec![]));
}

#[test]
fn ksize_is_the_room_and_krealloc_uses_it() {
    let host = TestHost::new();
    let heap = leak(Kmalloc::new(host, 0, 1, &SIZING));
    let memory = heap.kmalloc(100, true);
    assert_eq!(heap.ksize(memory), 128);
    assert_eq!((heap.ksize(null_mut()), heap.ksize(ZERO_SIZE_PTR)), (0, 0));
    let zoned: Slabs<TestHost> =
        Slabs::new(host, CacheSpec::new("zoned", 128).flags(CacheFlags::RED_ZONE), &SIZING);
    assert_eq!(zoned.ksize(), 128, "the object alone");
    case("K32", LAYER);
    // SAFETY: one owner throughout; sizes stay inside the room.
    unsafe {
        memory.write_bytes(0xee, 100);
        assert_eq!(heap.krealloc(memory, 120, true), memory, "in place");
        let shrunk = heap.krealloc(memory, 10, true);
        let grown = heap.krealloc(shrunk, 128, true);
        assert_eq!((shrunk, grown), (memory, memory));
        assert!((0..10).all(|at| grown.add(at).read() == 0xee));
        assert!((10..128).all(|at| grown.add(at).read() == 0), "no stale bytes");
        let moved = heap.krealloc(grown, 300, true);
        assert_ne!(moved, grown);
        assert_eq!(heap.ksize(moved), 512);
        assert!((0..10).all(|at| moved.add(at).read() == 0xee));
        assert!((10..512).all(|at| moved.add(at).read() == 0));
        host.0.memory.fail_after(0);
        let refused = heap.krealloc(moved, 1 << 20, false);
        host.0.memory.fail_after(-1);
        assert!(refused.is_null());
        assert_eq!(moved.read(), 0xee, "a failure leaves the memory as it is");
        assert_eq!(heap.krealloc(moved, 0, false), ZERO_SIZE_PTR);
        let fresh = heap.krealloc(null_mut(), 40, false);
        assert_eq!(heap.ksize(fresh), 64);
        heap.kfree(fresh);
    }
    assert_eq!(heap.destroy(), Ok(()));
    assert_eq!((host.pages(), host.reports()), (0, vec![]));
    case("K45", LAYER);
}

#[test]
fn nolock_sizes_and_wrong_pointers() {
    let host = TestHost::new();
    let heap = leak(Kmalloc::new(host, 0, 1, &SIZING));
    assert_eq!(heap.kmalloc_nolock(0), ZERO_SIZE_PTR);
    assert!(heap.kmalloc_nolock(8193).is_null());
    let memory = heap.kmalloc_nolock(100);
    assert_eq!(heap.ksize(memory), 128);
    let mut local = 0u8;
    // SAFETY: the first is from above; the others are refused.
    unsafe {
        heap.kfree(&raw mut local);
        heap.kfree_nolock(memory);
    }
    assert_eq!(host.reports(), [(Corruption::NotAnObject, "kmalloc", (&raw const local).addr())]);
    assert_eq!(heap.destroy(), Ok(()));
    case("K53", LAYER);
}

#[test]
fn bulk_free_is_one_exchange_per_group_with_three_objects_of_lookahead() {
    let host = TestHost::new();
    let slabs = slabs(host, 256);
    let capacity = slabs.layout().objects;
    let mut first: Vec<_> = (0..capacity).map(|_| alloc(slabs).as_ptr()).collect();
    let second: Vec<_> = (0..capacity).map(|_| alloc(slabs).as_ptr()).collect();
    // One exchange for sixteen objects of one slab.
    host.count(Step::FreeRead);
    let mut group = first.split_off(4);
    // SAFETY: allocated above, each freed once, here and below.
    unsafe { slabs.free_batch(&mut group, Wait::Yes) };
    assert_eq!(host.count(Step::FreeRead), 1);
    // From the end: A A B B A A: two strangers are skipped, two groups.
    let mut mixed = [first[0], first[1], second[0], second[1], first[2], first[3]];
    // SAFETY: as above.
    unsafe { slabs.free_batch(&mut mixed, Wait::Yes) };
    assert_eq!(host.count(Step::FreeRead), 2);
    let more: Vec<_> = (0..4).map(|_| alloc(slabs).as_ptr()).collect();
    host.count(Step::FreeRead);
    // A B B B A: the third stranger ends the group, so A needs two.
    let (a, b): (Vec<_>, Vec<_>) = (more, second[2..5].to_vec());
    let mut mixed = [a[0], b[0], b[1], b[2], a[1]];
    // SAFETY: as above.
    unsafe { slabs.free_batch(&mut mixed, Wait::Yes) };
    assert_eq!(host.count(Step::FreeRead), 3);
    let mut rest: Vec<_> = second[5..].iter().copied().chain(a[2..].iter().copied()).collect();
    // SAFETY: as above.
    unsafe { slabs.free_batch(&mut rest, Wait::Yes) };
    assert_eq!(slabs.validate(), Ok(0));
    assert!(!slabs.shrink_slabs());
    // All or nothing: memory for 56 objects of one per slab, then none.
    let large = leak(Cache::<TestHost>::new(host, CacheSpec::new("large", 8192).order(1), &SIZING));
    let mut out = [null_mut(); 100];
    assert!(large.alloc_bulk(&mut []));
    host.0.memory.fail_after(56);
    assert!(!large.alloc_bulk(&mut out));
    host.0.memory.fail_after(-1);
    assert_eq!(large.info().active_objs, large.info().in_sheaves, "nothing is lost");
    assert_eq!(large.destroy(), Ok(()));
    assert_eq!((host.pages(), host.reports()), (0, vec![]));
    case("K42", LAYER);
}

unsafe fn nothing(_: *mut u8) {}

#[test]
fn alike_caches_are_merged() {
    let host = TestHost::new();
    let table: &CacheTable<TestHost, 8> = leak(CacheTable::new(host, 0, 1, &SIZING, true));
    let first = table.create(CacheSpec::new("sixty-four", 64).align(64)).unwrap();
    let alias = table.create(CacheSpec::new("fifty-six", 56).align(64)).unwrap();
    assert!(core::ptr::eq(first, alias));
    assert_eq!((table.users(first), table.aliases(first)), (2, 1));
    let small = table.create(CacheSpec::new("forty", 40)).unwrap();
    assert!(!core::ptr::eq(first, small), "a word or more would be wasted");
    for flags in
        [CacheFlags::TYPESAFE_BY_RCU, CacheFlags::POISON, CacheFlags::CONSISTENCY, CacheFlags::NO_MERGE]
    {
        let own = table.create(CacheSpec::new("own", 64).align(64).flags(flags)).unwrap();
        assert!(!core::ptr::eq(first, own), "{flags:?}");
        assert_eq!(table.destroy(own), Ok(()));
    }
    for own in [
        CacheSpec::new("own", 64).align(64).ctor(nothing),
        CacheSpec::new("own", 64).align(64).sheaf_capacity(20),
        CacheSpec::new("own", 64).align(64).flags(CacheFlags::RECLAIM_ACCOUNT),
    ] {
        let own = table.create(own).unwrap();
        assert!(!core::ptr::eq(first, own));
        assert_eq!(table.destroy(own), Ok(()));
    }
    let object = alias.alloc().expect("memory");
    assert_eq!(table.destroy(first), Ok(()), "one creator less");
    assert_eq!(table.users(alias), 1);
    // SAFETY: allocated above.
    unsafe { alias.free(object) };
    assert_eq!((table.destroy(alias), table.destroy(small)), (Ok(()), Ok(())));
    assert_eq!(table.users(alias), 0);
    assert_eq!(table.create(CacheSpec::new("nothing", 0)).unwrap_err(), CreateError::Invalid);
    assert_eq!(host.pages(), 0);
    case("K43", LAYER);
}

#[test]
fn a_long_list_is_estimated_from_both_ends() {
    // 4096 slabs at most fit into this world: the exact count is checked here, the bound by its own arithmetic.
    let host = TestHost::new();
    let slabs = leak(Slabs::<TestHost>::new(host, CacheSpec::new("test", 2048).order(0), &SIZING));
    let objects: Vec<_> = (0..2000).map(|_| alloc(slabs)).collect();
    for pair in objects.chunks(2) {
        free(slabs, pair[0]);
    }
    let info = slabs.info();
    assert_eq!((info.num_slabs, info.free_in_partial, info.active_objs), (1000, 1000, 1000));
    for pair in objects.chunks(2) {
        free(slabs, pair[1]);
    }
    assert!(!slabs.shrink_slabs());
    case("K55", LAYER);
}

#[test]
fn shrinking_sorts_fullest_first() {
    let host = TestHost::new();
    let slabs = slabs(host, 512);
    let capacity = slabs.layout().objects;
    let mut groups: Vec<Vec<_>> = (0..4).map(|_| (0..capacity).map(|_| alloc(slabs)).collect()).collect();
    for (group, freed) in groups.iter_mut().zip([3, 9, 1, 6]) {
        for object in group.drain(..freed) {
            free(slabs, object);
        }
    }
    assert!(slabs.shrink_slabs(), "slabs remain");
    let mut inuse = Vec::new();
    // SAFETY: live slabs under their list lock.
    slabs.for_each_partial(|_, slab| inuse.push(unsafe { slab.as_ref() }.word().inuse()));
    assert_eq!(inuse, [capacity - 1, capacity - 3, capacity - 6, capacity - 9]);
    for object in groups.into_iter().flatten() {
        free(slabs, object);
    }
    assert!(!slabs.shrink_slabs());
    assert_eq!(host.pages(), 0);
}

#[test]
fn a_smaller_order_serves_when_the_preferred_one_cannot_be_had() {
    let host = TestHost::new();
    let slabs = slabs(host, 2048);
    assert_eq!(slabs.layout().order, 3);
    host.0.memory.largest_order.store(1, std::sync::atomic::Ordering::SeqCst);
    let objects: Vec<_> = (0..10).map(|_| alloc(slabs)).collect();
    assert!(slabs.stat(StatItem::OrderFallback) > 0);
    for object in objects {
        free(slabs, object);
    }
    assert_eq!(slabs.validate(), Ok(0));
    assert!(!slabs.shrink_slabs());
    assert_eq!(host.pages(), 0);
}

#[test]
fn damaged_next_pointers_cost_the_slab_and_nothing_else() {
    let host = TestHost::new();
    let slabs = slabs(host, 64);
    let (a, b) = (alloc(slabs), alloc(slabs));
    free(slabs, b);
    free(slabs, a);
    // SAFETY: a write after free, on purpose, into the word that links the free objects.
    unsafe { a.add(32).cast::<usize>().write(0x4141_4141) };
    let mut out = [null_mut(); 60];
    let got = slabs.alloc_batch(&mut out, 0, Wait::Yes);
    assert!(got >= 30, "from other slabs");
    assert_eq!(host.reports()[0].0, Corruption::FreePointer);
}

#[test]
fn frees_of_what_is_no_object_are_refused() {
    let host = TestHost::new();
    let (one, other) = (slabs(host, 64), slabs(host, 128));
    let (mine, theirs) = (alloc(one), alloc(other));
    let mut outside = 0u64;
    free(one, theirs);
    // SAFETY: inside the object; refused.
    free(one, unsafe { mine.add(8) });
    free(one, NonNull::from(&mut outside).cast());
    free(one, mine);
    free(one, mine);
    let kinds: Vec<_> = host.reports().into_iter().map(|(what, ..)| what).collect();
    let [wrong, no, double] = [Corruption::WrongCache, Corruption::NotAnObject, Corruption::DoubleFree];
    assert_eq!(kinds, [wrong, no, no, double]);
    assert_eq!(
        (one.validate(), other.info().active_objs),
        (Ok(0), other.info().num_objs - other.info().free_in_partial)
    );
}

#[test]
fn constructors_run_once_per_object_and_contents_survive_freeing() {
    static MADE: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    unsafe fn construct(object: *mut u8) {
        MADE.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        // SAFETY: the allocator passes a new object of 64 bytes.
        unsafe { object.write_bytes(0x5c, 64) };
    }
    let host = TestHost::new();
    let cache = leak(Cache::<TestHost>::new(host, CacheSpec::new("made", 64).ctor(construct), &SIZING));
    assert_eq!(cache.slabs().layout().size, 72, "the free pointer lies behind the object");
    for _ in 0..3 {
        let objects: Vec<_> = (0..200).map(|_| cache.alloc().expect("memory")).collect();
        for object in objects {
            // SAFETY: allocated above; constructed contents.
            unsafe {
                assert!((0..64).all(|at| object.add(at).read() == 0x5c));
                cache.free(object);
            }
        }
    }
    let made = MADE.load(std::sync::atomic::Ordering::SeqCst);
    assert!((200..=600).contains(&made), "{made}");
    assert_eq!(cache.destroy(), Ok(()));
}

#[test]
fn boxes_free_on_drop() {
    let host = TestHost::new();
    let cache: &'static TypedCache<String, TestHost> = leak(TypedCache::new(host, "strings", 0, 1, &SIZING));
    let mut hello = cache.alloc("hello".to_owned()).expect("memory");
    hello.push_str(", world");
    assert_eq!(*hello, "hello, world");
    let moved = std::thread::spawn(move || hello.into_inner()).join().unwrap();
    assert_eq!(moved, "hello, world");
    let many: Vec<_> = (0..500).map(|number| cache.alloc(number.to_string()).expect("memory")).collect();
    assert!(cache.cache().destroy().is_err());
    drop(many);
    host.0.memory.fail_after(0);
    assert_eq!(cache.cache().destroy(), Ok(()));
    assert_eq!(cache.alloc("no".to_owned()).unwrap_err(), "no", "the value comes back");
    host.0.memory.fail_after(-1);
    let _ = host.reports();
    assert_eq!(host.pages(), 0);
}

#[test]
fn locks_are_taken_for_a_fork_all_or_none() {
    let host = TestHost::new();
    let cache = leak(Cache::<TestHost, 2>::new(host, CacheSpec::new("test", 64), &SIZING));
    let object = cache.alloc().expect("memory");
    assert!(cache.fork_prepare());
    assert!(!cache.fork_prepare(), "held already");
    // A handler that comes now is not caught.
    let other = cache.alloc_nolock();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            if let Some(object) = cache.slabs().alloc_one(0, Wait::Never) {
                // SAFETY: allocated just now.
                unsafe { cache.slabs().free_one(object, Wait::Never) };
            }
        });
    });
    // SAFETY: prepared above.
    unsafe { cache.fork_done() };
    assert!(cache.fork_prepare());
    // SAFETY: prepared above; then both objects are given up.
    unsafe {
        cache.fork_done();
        cache.free(object);
        if let Some(object) = other {
            cache.free(object);
        }
    }
    assert_eq!(cache.destroy(), Ok(()));
    assert_eq!((host.pages(), host.reports()), (0, vec![]));
}

#[test]
fn slabs_are_counted_out_before_the_lock_is_given_back() {
    // Whoever looks between the list change and the release of the memory finds numbers that fit.
    let host = TestHost::new();
    let slabs: &'static Slabs<TestHost> =
        leak(Slabs::new(host, CacheSpec::new("test", 1024).min_partial(0), &SIZING));
    let object = alloc(slabs);
    at(Step::Discard, 0, || {
        let info = slabs.info();
        assert_eq!((info.num_slabs, info.num_objs, info.active_objs), (0, 0, 0));
        assert_eq!(slabs.validate(), Ok(0));
    });
    free(slabs, object);
    assert!(script_ran());
    assert_eq!(host.pages(), 0);
}

#[test]
fn slabs_of_type_stable_objects_wait_for_their_readers() {
    for flags in [CacheFlags::TYPESAFE_BY_RCU, CacheFlags::TYPESAFE_BY_RCU.with(CacheFlags::RED_ZONE)] {
        let host = TestHost::new();
        let grace = leak(support::Grace::default());
        assert!(host.0.grace.set(grace).is_ok());
        let cache = leak(Cache::<TestHost>::new(host, CacheSpec::new("stable", 64).flags(flags), &SIZING));
        let objects: Vec<_> = (0..300).map(|_| cache.alloc().expect("memory")).collect();
        for &object in &objects {
            // SAFETY: allocated above; then freed, while a reader may still look.
            unsafe {
                object.write_bytes(0x5c, 64);
                cache.free(object);
            }
        }
        assert!(!cache.shrink(), "no slab is the cache's any more");
        let used = host.pages();
        assert!(used >= 5, "but no page is the source's either: {used}");
        assert!(!grace.waiting.lock().unwrap().is_empty());
        for object in objects {
            // SAFETY: the page is still there for readers.
            unsafe { assert_eq!(object.read(), 0x5c) };
        }
        grace.barrier();
        assert_eq!(host.pages(), 0);
        // Destruction waits by itself: nothing refers to the cache afterwards.
        let object = cache.alloc().expect("memory");
        // SAFETY: allocated above.
        unsafe { cache.free(object) };
        assert_eq!(cache.destroy(), Ok(()));
        assert_eq!((host.pages(), grace.waiting.lock().unwrap().len()), (0, 0));
    }
}
