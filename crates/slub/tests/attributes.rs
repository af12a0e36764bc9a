// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The attribute files: names, values, errors.
#![cfg(not(loom))]
#![expect(unsafe_code, reason = "frees objects under test")]

mod support;

use fastpath_slub::merge::CacheTable;
use fastpath_slub::{Cache, CacheFlags, CacheSpec, PageSource, Slabs, StatItem, Wait};
use support::fronts::{free_all, on_every_front_end};
use support::{PLACE, SIZING, TestHost, leak};

const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const EINVAL: i32 = 22;
const ERANGE: i32 = 34;
const ENOSYS: i32 = 38;

#[test]
fn names_and_errors_are_the_kernels() {
    on_every_front_end("K56", |maker| {
        let cache = maker.make(CacheSpec::new("test", 100).align(32).flags(CacheFlags::RECLAIM_ACCOUNT));
        let number = |name: &str| cache.read(name).unwrap().trim_end().parse::<usize>().unwrap();
        // Written and read back; limits.
        assert_eq!(number("remote_node_defrag_ratio"), 100);
        assert_eq!(cache.write("remote_node_defrag_ratio", "101"), Err(ERANGE));
        assert_eq!(cache.write("remote_node_defrag_ratio", "50\n"), Ok(()));
        assert_eq!(number("remote_node_defrag_ratio"), 50);
        assert_eq!(cache.write("remote_node_defrag_ratio", "many"), Err(EINVAL));
        assert_eq!(cache.write("min_partial", "9"), Ok(()));
        assert_eq!(number("min_partial"), 9);
        let tid = maker.name.starts_with("tid");
        assert_eq!(cache.write("cpu_partial", "0"), Ok(()));
        assert_eq!(number("cpu_partial"), 0);
        assert_eq!(cache.write("cpu_partial", "1"), if tid { Ok(()) } else { Err(EINVAL) });
        assert_eq!(number("cpu_partial"), usize::from(tid));
        for (name, value, result) in [
            ("shrink", "2", Err(EINVAL)),
            ("shrink", "1", Ok(())),
            ("validate", "1", Err(EINVAL)), // not a debug cache
            ("alloc_slab", "1", Err(EINVAL)),
            ("alloc_slab", "0", Ok(())),
            ("failslab", "1", Ok(())),
            ("order", "3", Err(EACCES)),
            ("poison", "1", Err(EACCES)),
            ("nothing", "1", Err(ENOENT)),
        ] {
            assert_eq!(cache.write(name, value), result, "{name} {value}");
        }
        assert_eq!(number("failslab"), 1);
        assert_eq!(cache.read("nothing"), Err(ENOENT));
        assert_eq!(cache.read("alloc_calls"), Err(ENOSYS));
        for name in ["shrink", "validate", "ctor"] {
            assert_eq!(cache.read(name).unwrap(), "");
        }
        // The layout.
        let values = ["object_size", "slab_size", "align", "objs_per_slab", "order", "usersize"].map(number);
        assert_eq!(values, [100, 128, 32, 32, 0, 0]);
        let flags = ["reclaim_account", "hwcache_align", "destroy_by_rcu", "cache_dma", "sanity_checks"];
        assert_eq!(flags.map(number), [1, 0, 0, 0, 0]);
        assert_eq!(["red_zone", "poison", "store_user", "trace", "aliases"].map(number), [0; 5]);
        assert_eq!(number("sheaf_capacity"), 60);
        // What is there.
        let objects: Vec<_> = (0..100).map(|_| cache.alloc()).collect();
        let info = cache.slabs().info();
        assert_eq!(number("total_objects"), info.num_objs);
        assert_eq!(number("slabs"), info.num_slabs);
        assert_eq!(number("objects"), info.active_objs);
        assert_eq!(number("partial"), info.partial_slabs);
        assert_eq!(number("objects_partial"), info.objects_in_partial);
        assert!(number("alloc_slab") >= 4);
        assert_eq!(cache.write("alloc_slab", "0"), Ok(()));
        assert_eq!(number("alloc_slab"), 0);
        assert_eq!(number("cpu_slabs"), usize::from(tid));
        assert!(cache.read("slabs_cpu_partial").unwrap().starts_with("0(0)"));
        free_all(cache, objects);
        for item in StatItem::all() {
            assert!(cache.read(item.name()).is_ok(), "{}", item.name());
        }
        assert_eq!(cache.destroy(), Ok(()));
        // Debug caches.
        let all = CacheFlags::CONSISTENCY
            .with(CacheFlags::RED_ZONE)
            .with(CacheFlags::POISON)
            .with(CacheFlags::STORE_USER);
        let cache = maker.cache(64, all);
        let number = |name: &str| cache.read(name).unwrap().trim_end().parse::<usize>().unwrap();
        assert_eq!(["sanity_checks", "red_zone", "poison", "store_user"].map(number), [1; 4]);
        assert_eq!((cache.write("cpu_partial", "1"), number("cpu_partial")), (Err(EINVAL), 0));
        PLACE.set(0xaaa0);
        let mut objects: Vec<_> = (0..100).map(|_| cache.alloc()).collect();
        PLACE.set(0xbbb0);
        objects.extend((0..150).map(|_| cache.alloc()));
        PLACE.set(0xccc0);
        free_all(cache, objects.split_off(240));
        let calls = cache.read("alloc_calls").unwrap();
        let lines: Vec<_> = calls.lines().filter(|line| line.contains("pid=")).collect();
        assert!(lines[0].starts_with("    140 0xbbb0"), "{calls}");
        assert!(lines[1].starts_with("    100 0xaaa0"), "{calls}");
        assert!(cache.read("free_calls").unwrap().starts_with("     10 0xccc0"));
        assert_eq!(cache.write("validate", "1"), Ok(()));
        assert!(maker.host.reports().is_empty());
        // SAFETY: one byte behind an object, on purpose.
        unsafe { objects[0].add(64).write(1) };
        assert_eq!(cache.write("validate", "1"), Ok(()));
        assert_eq!(maker.host.reports().len(), 1, "what is found is reported");
        free_all(cache, objects);
        assert_eq!(cache.destroy(), Ok(()));
    });
}

#[test]
fn aliases_are_shown_and_keep_failure_injection_away() {
    let host = TestHost::new();
    let table: &CacheTable<TestHost, 4> = leak(CacheTable::new(host, 0, 1, &SIZING, true));
    let cache = table.create(CacheSpec::new("one", 64)).unwrap();
    assert!(table.write_attribute(cache, "failslab", "1").is_ok());
    table.create(CacheSpec::new("other", 64)).unwrap();
    let mut text = String::new();
    table.read_attribute(cache, "aliases", &mut text).unwrap();
    table.read_attribute(cache, "object_size", &mut text).unwrap();
    assert_eq!(text, "1\n64\n");
    assert_eq!(table.write_attribute(cache, "failslab", "1").unwrap_err().errno(), EINVAL);
}

#[test]
fn numbers_of_several_nodes_are_told_apart() {
    let host = TestHost::new();
    let cache = leak(Cache::<TestHost, 2>::new(host, CacheSpec::new("test", 64), &SIZING));
    let layer: &Slabs<TestHost, 2> = cache.slabs();
    let objects =
        [layer.alloc_one(0, Wait::Yes), layer.alloc_one(1, Wait::Yes), layer.alloc_one(1, Wait::Yes)];
    let mut text = String::new();
    cache.read_attribute("slabs", &mut text).unwrap();
    assert_eq!(text, "2 N0=1 N1=1\n");
    for object in objects.into_iter().flatten() {
        // SAFETY: allocated above.
        unsafe { layer.free_one(object, Wait::Yes) };
    }
}

#[test]
fn the_ratio_says_whether_another_nodes_slabs_are_taken() {
    for (ratio, node) in [("100", 1), ("0", 0)] {
        let host = TestHost::new();
        let cache = leak(Cache::<TestHost, 2>::new(host, CacheSpec::new("test", 64), &SIZING));
        let layer: &Slabs<TestHost, 2> = cache.slabs();
        let [kept, freed] = [(); 2].map(|()| layer.alloc_one(1, Wait::Yes).expect("memory"));
        // SAFETY: allocated above.
        unsafe { layer.free_one(freed, Wait::Yes) };
        cache.write_attribute("min_partial", "0").unwrap();
        cache.write_attribute("remote_node_defrag_ratio", ratio).unwrap();
        let object = layer.alloc_one(0, Wait::Yes).expect("memory");
        // SAFETY: the slab of a live object.
        assert_eq!(unsafe { host.0.memory.slab_of_object(object).as_ref() }.node(), node, "ratio {ratio}");
        for object in [kept, object] {
            // SAFETY: allocated above.
            unsafe { layer.free_one(object, Wait::Yes) };
        }
        assert_eq!(cache.destroy(), Ok(()));
    }
}
