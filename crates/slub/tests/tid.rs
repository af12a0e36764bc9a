// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The tid front end on its three backends: the contract suite and the numbered cases, among them scripted
//! interleavings of the kernel's own bugs.
#![cfg(not(loom))]
#![expect(unsafe_code, reason = "frees objects under test")]

mod support;

use core::ptr::NonNull;
use fastpath_slub::tid::backend::{IrqOff, Local, Locked};
use fastpath_slub::tid::{first_tid, next_tid, tid_cpu, tid_event, tid_step};
use fastpath_slub::{CacheSpec, Corruption, StatItem, Step, TidBackend, TidCache, Wait};
use fastpath_testkit::{case, slub_suite as suite};
use std::sync::Mutex;
use support::{AllStop, CPUS, Here, OneTask, SIZING, TestHost, at, leak, no_script, run_on, script_ran};

type OnLocked = Locked<Here>;
type OnLocal = Local<Here, OneTask>;
type OnIrqOff = IrqOff<Here, AllStop>;
type Tid<B> = TidCache<TestHost, B, CPUS>;

support::object_cache!(TidLocked, Tid<OnLocked>);
support::object_cache!(TidLocal, Tid<OnLocal>);
support::object_cache!(TidIrqOff, Tid<OnIrqOff>);

fn locked() -> OnLocked {
    Locked::detect(Here).expect("the machines of this test have a double-word exchange")
}

fn local() -> OnLocal {
    Local::detect(Here, OneTask).expect("the machines of this test have a double-word exchange")
}

fn irq_off() -> OnIrqOff {
    IrqOff::new(Here)
}

fn cache<B: TidBackend>(host: TestHost, backend: B, size: usize) -> &'static Tid<B> {
    leak(TidCache::new(host, backend, CacheSpec::new("test", size), &SIZING))
}

fn alloc<B: TidBackend>(cache: &Tid<B>) -> NonNull<u8> {
    cache.alloc().expect("memory")
}

fn free<B: TidBackend>(cache: &Tid<B>, object: NonNull<u8>) {
    // SAFETY: tests free what they allocated, once.
    unsafe { cache.free(object) }
}

/// Runs a test on every backend.
macro_rules! on_every_backend {
    ($number:literal, $test:ident) => {
        for_each_backend(
            $number,
            |host| $test(host, locked()),
            |host| $test(host, local()),
            |host| $test(host, irq_off()),
        );
    };
}

fn for_each_backend(
    number: &str,
    locked: impl FnOnce(TestHost),
    local: impl FnOnce(TestHost),
    irq: impl FnOnce(TestHost),
) {
    let host = TestHost::new();
    locked(host);
    no_script();
    case(number, "tid-locked");
    let host = TestHost::new();
    local(host);
    no_script();
    case(number, "tid-local");
    let host = TestHost::new();
    irq(host);
    no_script();
    case(number, "tid-irq_off");
}

#[test]
fn tids_name_the_cpu_and_count_events() {
    let step = tid_step(6, true);
    assert_eq!(step, 8);
    assert_eq!([first_tid(3), next_tid(3, step), next_tid(11, step)], [3, 11, 19]);
    assert_eq!((tid_cpu(43, step), tid_event(43, step)), (3, 5));
    assert_eq!(tid_step(6, false), 1);
    let host = TestHost::new();
    let cache = cache(host, locked(), 64);
    run_on(3);
    assert_eq!(cache.tid(3), 3);
    let object = alloc(cache);
    let before = cache.tid(3);
    free(cache, object);
    assert_eq!(cache.tid(3), before + CPUS, "one event");
    assert_eq!(cache.tid(3) % CPUS, 3);
    assert_eq!(cache.tid(1), 1, "nothing happened there");
    case("K18", "tid-locked");
}

#[test]
fn the_last_object_freed_is_the_first_one_allocated() {
    for_each_backend(
        "K19",
        |host| suite::last_in_first_out(&TidLocked(cache(host, locked(), 64))),
        |host| suite::last_in_first_out(&TidLocal(cache(host, local(), 64))),
        |host| suite::last_in_first_out(&TidIrqOff(cache(host, irq_off(), 64))),
    );
}

#[test]
fn a_long_random_run_knows_every_live_object() {
    for size in [8, 96, 520] {
        let mut live = vec![core::ptr::null_mut(); 2000];
        let host = TestHost::new();
        suite::every_live_object(&TidLocked(cache(host, locked(), size)), &mut live, 30, 1);
        assert_eq!((host.pages(), host.reports()), (0, vec![]));
        let host = TestHost::new();
        suite::every_live_object(&TidLocal(cache(host, local(), size)), &mut live, 30, 2);
        assert_eq!((host.pages(), host.reports()), (0, vec![]));
        let host = TestHost::new();
        suite::every_live_object(&TidIrqOff(cache(host, irq_off(), size)), &mut live, 30, 3);
        assert_eq!((host.pages(), host.reports()), (0, vec![]));
    }
    for backend in ["tid-locked", "tid-local", "tid-irq_off"] {
        case("K55", backend);
    }
}

#[test]
fn bulk_destroy_and_exhaustion() {
    let host = TestHost::new();
    suite::in_bulk(&TidLocked(cache(host, locked(), 64)), &mut [core::ptr::null_mut(); 1000]);
    suite::in_bulk(&TidLocal(cache(host, local(), 64)), &mut [core::ptr::null_mut(); 1000]);
    suite::in_bulk(&TidIrqOff(cache(host, irq_off(), 64)), &mut [core::ptr::null_mut(); 1000]);
    suite::out_of_memory(&TidLocked(cache(host, locked(), 8000)), &mut vec![core::ptr::null_mut(); 1100]);
    assert_eq!(host.pages(), 0);
    for_each_backend(
        "K44",
        |host| suite::destroy_with_a_live_object(&TidLocked(cache(host, locked(), 64))),
        |host| suite::destroy_with_a_live_object(&TidLocal(cache(host, local(), 64))),
        |host| suite::destroy_with_a_live_object(&TidIrqOff(cache(host, irq_off(), 64))),
    );
}

/// The list has the same head again, but is not the same list: the tid tells.
fn aba<B: TidBackend + 'static>(host: TestHost, backend: B) {
    let cache = cache(host, backend, 64);
    let (a, b, c) = (alloc(cache), alloc(cache), alloc(cache));
    free(cache, c);
    free(cache, b);
    free(cache, a); // the list starts a, b, c
    let taken = leak(Mutex::new(Vec::new()));
    at(Step::TidHeadRead, 0, || {
        let (first, second) = (alloc(cache), alloc(cache));
        free(cache, first);
        taken.lock().unwrap().push(second);
    });
    let first = alloc(cache);
    assert!(script_ran());
    let second = alloc(cache);
    assert_eq!(first, a);
    assert_eq!(taken.lock().unwrap()[..], [b]);
    assert_ne!(second, b, "handed out twice");
    for object in [first, b, second] {
        free(cache, object);
    }
    assert_eq!(cache.destroy(), Ok(()));
    assert_eq!((host.pages(), host.reports()), (0, vec![]));
}

/// The list changes between the read of the tid and the read of the head: whatever is read afterwards is as new.
fn tid_first<B: TidBackend + 'static>(host: TestHost, backend: B) {
    let cache = cache(host, backend, 64);
    let (a, b, c) = (alloc(cache), alloc(cache), alloc(cache));
    for object in [c, b, a] {
        free(cache, object); // the list starts a, b, c
    }
    let taken = leak(Mutex::new(Vec::new()));
    at(Step::TidRead, 0, || {
        let (first, second) = (alloc(cache), alloc(cache));
        free(cache, first);
        taken.lock().unwrap().push(second);
    });
    let first = alloc(cache);
    let second = alloc(cache);
    assert!(script_ran());
    assert_ne!(second, taken.lock().unwrap()[0], "handed out twice");
    for object in [first, second, b] {
        free(cache, object);
    }
    assert_eq!(cache.destroy(), Ok(()));
}

#[test]
fn nothing_older_than_the_tid_is_used() {
    on_every_backend!("K20", tid_first);
}

#[test]
fn an_equal_head_is_not_an_unchanged_list() {
    on_every_backend!("K20", aba);
}

/// A free is interrupted after it read tid and (empty) list; meanwhile the slab leaves the CPU.
fn missing_bump<B: TidBackend + 'static>(host: TestHost, backend: B) {
    let cache = cache(host, backend, 1024);
    let capacity = cache.slabs().layout().objects;
    // All objects of the CPU's slab are out: its list is empty.
    let mut objects: Vec<_> = (0..capacity).map(|_| alloc(cache)).collect();
    let last = objects.pop().unwrap();
    at(Step::TidFreeRead, 0, || cache.flush_cpu(0));
    free(cache, last);
    assert!(script_ran());
    // The object is on its slab's list, not on the list of a CPU without a slab, where a flush would not find it.
    cache.flush_cpu(0);
    assert_eq!(cache.info().active_objs, objects.len());
    let again = alloc(cache);
    assert_eq!(again, last);
    objects.push(again);
    for object in objects {
        free(cache, object);
    }
    assert_eq!(cache.destroy(), Ok(()));
    assert_eq!((host.pages(), host.reports()), (0, vec![]));
}

#[test]
fn a_free_that_overlaps_the_loss_of_the_cpu_slab_is_redone() {
    on_every_backend!("K21", missing_bump);
}

/// An allocation of an interrupt between a bulk pop and the slow path gets none of the objects already popped.
fn bulk_bump<B: TidBackend + 'static>(host: TestHost, backend: B) {
    let cache = cache(host, backend, 64);
    for step in [Step::TidBulkSlow, Step::TidHeadRead] {
        let warm: Vec<_> = (0..10).map(|_| alloc(cache)).collect();
        for object in warm {
            free(cache, object);
        }
        let taken = leak(Mutex::new(Vec::new()));
        at(step, 0, || {
            let mut taken = taken.lock().unwrap();
            taken.extend((0..6).map(|_| alloc(cache)));
        });
        let mut out = [core::ptr::null_mut(); 100];
        assert!(cache.alloc_bulk(&mut out));
        assert!(script_ran(), "{step:?}");
        let mut all: Vec<_> = out.iter().map(|&object| NonNull::new(object).unwrap()).collect();
        all.extend(taken.lock().unwrap().iter().copied());
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 106, "no object was handed out twice");
        for object in all {
            free(cache, object);
        }
        assert_eq!(cache.destroy(), Ok(()));
    }
    assert_eq!((host.pages(), host.reports()), (0, vec![]));
}

#[test]
fn an_interrupt_inside_a_bulk_allocation_gets_other_objects() {
    on_every_backend!("K22", bulk_bump);
}

/// The task moves between the read of the tid and the read of the slot.
fn migration<B: TidBackend + 'static>(host: TestHost, backend: B) {
    let cache = cache(host, backend, 64);
    // Both CPUs have a list.
    let here: Vec<_> = (0..4).map(|_| alloc(cache)).collect();
    run_on(1);
    let there: Vec<_> = (0..4).map(|_| alloc(cache)).collect();
    for &object in &there {
        free(cache, object);
    }
    run_on(0);
    for &object in &here {
        free(cache, object);
    }
    let tids = (cache.tid(0), cache.tid(1));
    at(Step::TidRead, 0, || run_on(1));
    let object = alloc(cache);
    assert!(script_ran());
    assert_eq!(object, there[3], "from the list of the CPU the task is on");
    assert_eq!((cache.tid(0), cache.tid(1)), (tids.0, tids.1 + CPUS), "only that CPU saw an event");
    free(cache, object);
    // Between reading the head and the exchange: the exchange fails on `local` and succeeds on the old CPU's list on
    // `locked`; either way the object is popped once.
    run_on(0);
    at(Step::TidHeadRead, 0, || run_on(1));
    let object = alloc(cache);
    run_on(0);
    let others: Vec<_> = (0..20).map(|_| alloc(cache)).collect();
    assert!(!others.contains(&object));
    for object in others.into_iter().chain([object]) {
        free(cache, object);
    }
    run_on(1);
    cache.flush_cpu(1);
    run_on(0);
    assert_eq!(cache.destroy(), Ok(()));
    assert_eq!((host.pages(), host.reports()), (0, vec![]));
}

#[test]
fn a_task_that_moves_never_pops_across_cpus() {
    on_every_backend!("K23", migration);
}

/// Between the read of the head and the read of its next-pointer the object is taken, and its page becomes something else.
fn speculative<B: TidBackend + 'static>(host: TestHost, backend: B) {
    let spec = CacheSpec::new("test", 64).min_partial(0);
    let cache: &'static Tid<B> = leak(TidCache::new(host, backend, spec, &SIZING));
    let first = alloc(cache);
    free(cache, first);
    let size = cache.slabs().layout().size;
    at(Step::TidHead, 0, move || {
        // An interrupt takes the CPU's slab away; it is empty, so its page goes back and is somebody else's now.
        cache.shrink();
        assert_eq!(host.pages(), 0);
        for word in 0..size / 8 {
            // SAFETY: a page of the region that nobody owns: the new owner's contents.
            unsafe { first.cast::<usize>().add(word).write(0xdead_0000_0000_0001) };
        }
    });
    let object = alloc(cache);
    assert!(script_ran());
    let next = alloc(cache);
    assert_ne!(next.addr().get(), 0xdead_0000_0000_0001, "what was read there was dropped");
    for object in [object, next] {
        suite::mark(object, 64);
        free(cache, object);
    }
    assert_eq!(cache.destroy(), Ok(()));
    assert_eq!((host.pages(), host.reports()), (0, vec![]));
}

#[test]
fn a_next_pointer_read_from_a_page_that_was_given_back_is_dropped() {
    on_every_backend!("K20", speculative);
}

/// Full slabs that get an object back stay with the CPU, up to the limit; then all of them go to the node.
fn partials<B: TidBackend + 'static>(host: TestHost, backend: B) {
    let cache = cache(host, backend, 1024);
    let capacity = cache.slabs().layout().objects;
    assert_eq!((cache.cpu_partial(), capacity), (24, 16), "three slabs");
    let stat = |item| cache.slabs().stat(item);
    let mut groups: Vec<Vec<_>> = (0..8).map(|_| (0..capacity).map(|_| alloc(cache)).collect()).collect();
    // No lock is needed for it: an interrupt while the list lock is held defers nothing.
    assert!(cache.slabs().fork_prepare());
    for group in &mut groups[..2] {
        // SAFETY: allocated above.
        unsafe { cache.free_nolock(group.pop().unwrap()) };
    }
    // SAFETY: prepared above.
    unsafe { cache.slabs().fork_done() };
    assert_eq!((stat(StatItem::FreeDeferred), stat(StatItem::CpuPartialFree)), (0, 2));
    assert_eq!(cache.info().partial_slabs, 0, "not the node's");
    free(cache, groups[2].pop().unwrap());
    assert_eq!(cache.info().partial_slabs, 0);
    free(cache, groups[3].pop().unwrap());
    assert_eq!((cache.info().partial_slabs, stat(StatItem::CpuPartialDrain)), (4, 1), "one too many");
    // The next ones are taken from the node several at once, and from the CPU's list without its lock.
    cache.flush_cpu(0);
    let taken: Vec<_> = (0..4).map(|_| alloc(cache)).collect();
    assert_eq!(stat(StatItem::AllocFromPartial) + stat(StatItem::CpuPartialAlloc), 4);
    assert!(stat(StatItem::CpuPartialAlloc) > 0 && stat(StatItem::CpuPartialNode) > 0);
    // Without the list everything goes to the node at once.
    cache.set_cpu_partial(0);
    let drained = stat(StatItem::CpuPartialFree);
    for object in groups.into_iter().flatten().chain(taken) {
        free(cache, object);
    }
    assert_eq!(stat(StatItem::CpuPartialFree), drained);
    assert_eq!(cache.slabs().validate(), Ok(0));
    assert_eq!(cache.destroy(), Ok(()));
    assert_eq!((host.pages(), host.reports()), (0, vec![]));
}

/// A slab of the node's list becomes full; before the list's owner gets further, an object comes back to it and the CPU
/// keeps it, for which it needs no lock.
fn full_and_kept<B: TidBackend + 'static>(host: TestHost, backend: B) {
    let cache = cache(host, backend, 1024);
    let capacity = cache.slabs().layout().objects;
    let mut groups: Vec<Vec<_>> = (0..4).map(|_| (0..capacity).map(|_| alloc(cache)).collect()).collect();
    // Two slabs with one free object each on the node's list.
    for group in &mut groups[..2] {
        // SAFETY: allocated above.
        unsafe { cache.slabs().free_one(group.pop().unwrap(), Wait::Yes) };
    }
    assert_eq!(cache.info().partial_slabs, 2);
    let back = groups[0].pop().unwrap();
    at(Step::Grabbed, 0, move || free(cache, back));
    let last = cache.slabs().alloc_one(0, Wait::Yes).expect("memory");
    assert!(script_ran());
    assert_eq!(cache.slabs().stat(StatItem::CpuPartialFree), 1);
    assert_eq!((cache.info().partial_slabs, cache.info().free_in_partial), (1, 1), "the other one");
    assert!(cache.slabs().validate().is_ok());
    for object in groups.into_iter().flatten().chain([last]) {
        free(cache, object);
    }
    assert_eq!(cache.destroy(), Ok(()));
    assert_eq!((host.pages(), host.reports()), (0, vec![]));
}

#[test]
fn a_slab_that_becomes_full_may_be_kept_at_once() {
    on_every_backend!("K26", full_and_kept);
}

#[test]
fn a_cpu_keeps_some_partial_slabs_to_itself() {
    on_every_backend!("K25", partials);
}

#[test]
fn producers_and_consumers_on_different_cpus() {
    /// `place` puts a thread on a CPU.
    fn exchange<B: TidBackend + Send + 'static>(host: TestHost, backend: B, total: usize, place: fn(usize)) {
        let cache = cache(host, backend, 64);
        let (sender, receiver) = std::sync::mpsc::sync_channel::<Vec<usize>>(16);
        let receiver = Mutex::new(receiver);
        std::thread::scope(|scope| {
            for producer in 0..4 {
                let sender = sender.clone();
                scope.spawn(move || {
                    // All four on one slot: the CPU number is a hint.
                    place(0);
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
                    place(consumer);
                    loop {
                        let Ok(batch) = receiver.lock().unwrap().recv() else { break };
                        for object in batch {
                            let object =
                                NonNull::new(core::ptr::with_exposed_provenance_mut(object)).unwrap();
                            suite::check(object, 64);
                            free(cache, object);
                        }
                    }
                });
            }
        });
        assert_eq!(host.reports(), []);
        for cpu in 0..CPUS {
            place(cpu);
            cache.flush_cpu(cpu);
        }
        let info = cache.info();
        assert_eq!(info.active_objs, 0, "nothing is in use: {info:?}");
        assert!(info.num_slabs <= 5, "at most min_partial empty slabs are kept: {info:?}");
        assert_eq!(cache.slabs().validate(), Ok(0));
        assert_eq!(cache.destroy(), Ok(()));
        assert_eq!(host.pages(), 0);
    }
    // What it takes to show rare interleavings.
    const TOTAL: usize = 10_000_000;
    exchange(TestHost::new(), locked(), TOTAL, run_on);
    case("K24", "tid-locked");
    exchange(TestHost::new(), irq_off(), TOTAL, run_on);
    case("K24", "tid-irq_off");
    // Unlocked exchanges: every slot is touched from one processor only, to which the threads are bound.
    exchange(TestHost::new(), local(), TOTAL, |cpu| {
        support::pin_for_real();
        run_on(cpu);
    });
    case("K24", "tid-local");
}

#[test]
fn the_same_without_a_wide_exchange() {
    // `irq_off` has no double-word instruction: pairs change with interrupts off. Every case above ran on it.
    let host = TestHost::new();
    aba(host, irq_off());
    missing_bump(TestHost::new(), irq_off());
    bulk_bump(TestHost::new(), irq_off());
    migration(TestHost::new(), irq_off());
    case("K27", "tid-irq_off");
}

#[test]
fn an_immediate_double_free_is_reported() {
    let host = TestHost::new();
    let cache = cache(host, locked(), 64);
    let object = alloc(cache);
    free(cache, object);
    free(cache, object);
    assert_eq!(host.reports(), [(Corruption::DoubleFree, "test", object.addr().get())]);
    assert_ne!(cache.alloc(), cache.alloc());
}

#[test]
fn a_slow_path_that_finds_its_slot_busy_uses_the_slabs() {
    let host = TestHost::new();
    let cache = cache(host, locked(), 64);
    let nested = leak(Mutex::new(Vec::new()));
    // The first allocation's slow path is interrupted when its slab is fresh; the handler allocates on the same CPU.
    at(Step::TidRead, 1, || {});
    no_script();
    let first = alloc(cache);
    cache.flush_cpu(0);
    at(Step::FreeRead, 0, || nested.lock().unwrap().extend((0..40).map(|_| alloc(cache))));
    cache.flush_cpu(0);
    free(cache, first);
    no_script();
    for &object in nested.lock().unwrap().iter() {
        free(cache, object);
    }
    assert!(cache.slabs().stat(StatItem::AllocSlowpath) > 0);
    assert_eq!(cache.destroy(), Ok(()));
    assert_eq!((host.pages(), host.reports()), (0, vec![]));
}
