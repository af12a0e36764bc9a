// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The slab allocator under tasks: they are taken away between any two instructions, go on on other processors, and timers'
//! handlers on every processor allocate and free on the cache that they interrupt.
//!
//! A cache with a slot for each processor, whose words change without LOCK by their own processor only. What keeps that
//! sound: the task stays where it is during the exchange (`Preemption`), or the exchange is one instruction relative to the
//! per-CPU base register, and the tid says whether that is still the processor whose list was read.

use crate::interrupts;
use crate::percpu::{Here, PROCESSORS};
use crate::sched::{Preemption, Setup, Tasks, on_tasks};
use crate::slub::{Boot, Front, Own};
use crate::{BootProcessorOnly, Machine};
use core::marker::PhantomData;
use core::ptr::{NonNull, null_mut};
use fastpath_cmpxchg::backend::Generic;
use fastpath_cmpxchg::{Atomic, Ordering};
use fastpath_rtmutex::kernel::Scheduler;
use fastpath_slub::tid::backend::Local;
use fastpath_slub::{
    CacheSpec, Corruption, Host, RawLock, SheafPool, Sizing, SpinLock, StaticRegion, Step, TidCache,
    TryLockSlots,
};
use fastpath_testkit::slub_suite::{self as suite, Numbers};

const PAGES: usize = 24;
const SIZE: usize = 120;
const SIZING: Sizing =
    Sizing { page_shift: 12, min_order: 0, max_order: 0, min_objects: 1, cpus: PROCESSORS };

static MEMORY: StaticRegion<PAGES> = StaticRegion::new();
static SLOTS: TryLockSlots<Boot, 1, 1> = TryLockSlots::new(Boot);

/// The step at which `interrupts::between_steps` is called, or none.
static AT: Atomic<u8> = Atomic::new(NOWHERE);
const NOWHERE: u8 = u8::MAX;

/// A kernel with tasks.
struct Kernel<M>(PhantomData<fn() -> M>);
impl<M> Clone for Kernel<M> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M> Copy for Kernel<M> {}

/// A spinlock whose holder is not taken away: nobody waits for a task that cannot run.
struct Spin<M>(SpinLock, PhantomData<fn() -> M>);

// SAFETY: the inner lock's.
unsafe impl<M: Machine> RawLock for Spin<M> {
    const UNLOCKED: Self = Self(SpinLock::UNLOCKED, PhantomData);
    fn lock(&self, context: usize) -> bool {
        Tasks::<M>::preempt_disable();
        let taken = self.0.lock(context);
        if !taken {
            Tasks::<M>::preempt_enable();
        }
        taken
    }
    fn try_lock(&self, context: usize) -> bool {
        Tasks::<M>::preempt_disable();
        let taken = self.0.try_lock(context);
        if !taken {
            Tasks::<M>::preempt_enable();
        }
        taken
    }
    unsafe fn unlock(&self) {
        // SAFETY: as the caller promises.
        unsafe { self.0.unlock() };
        Tasks::<M>::preempt_enable();
    }
}

impl<M: Machine> Host for Kernel<M> {
    type Source = StaticRegion<PAGES>;
    type Slots = TryLockSlots<Boot, 1, 1>;
    type Lock = Spin<M>;

    fn source(&self) -> &Self::Source {
        &MEMORY
    }
    fn slots(&self) -> &Self::Slots {
        &SLOTS
    }
    fn sheaves(&self) -> &SheafPool<Self> {
        unreachable!("the tid front end has no sheaves")
    }
    /// The task: its handlers have its name and are told that it holds a lock; it keeps the name wherever it goes on.
    fn context(&self) -> usize {
        Tasks::<M>::number() + 1
    }
    fn corrupted(&self, what: Corruption, _cache: &'static str, object: *mut u8) {
        panic!("{what:?}, object {object:p}");
    }
    fn step(&self, at: Step) {
        // ORDERING: Relaxed: set by the task that passes here.
        if at as u8 == AT.load(Ordering::Relaxed) {
            interrupts::between_steps();
        }
    }
}

/// Plain accesses with interrupts off, on the own processor only.
struct OffHere<M>(PhantomData<M>);
impl<M: Machine> Front for OffHere<M> {
    type Backend = Local<Here<M>, Preemption<M>, Generic<BootProcessorOnly<M::Interrupts>>>;
    fn backend() -> Self::Backend {
        Local::detect(Here::new(), Preemption::new()).expect("works everywhere")
    }
}

type Tid<M, F> = TidCache<Kernel<M>, <F as Front>::Backend, PROCESSORS>;

/// The cache of the running test, a `*const Tid<M, F>`.
static UNDER_TEST: Atomic<*const ()> = Atomic::new(core::ptr::null());

fn cache<M: Machine, F: Front>() -> &'static Tid<M, F> {
    // ORDERING: Relaxed: stored before the processors are started.
    // SAFETY: `on_fresh` stores its cache, which outlives the test.
    unsafe { &*UNDER_TEST.load(Ordering::Relaxed).cast() }
}

/// Runs `test` with a fresh cache on all processors; everything must come back.
fn on_fresh<M: Machine, F: Front>(turns: bool, handler: Option<fn()>, test: fn()) {
    let fresh: Tid<M, F> =
        TidCache::new(Kernel(PhantomData), F::backend(), CacheSpec::new("tasks", SIZE), &SIZING);
    // ORDERING: Relaxed: one processor until `on_tasks` starts the others.
    UNDER_TEST.store((&raw const fresh).cast(), Ordering::Relaxed);
    on_tasks::<M>(Setup { processors: M::TASK_PROCESSORS, turns, handler }, test);
    assert_eq!(MEMORY.used(), 0, "all pages came back");
}

fn put<M: Machine, F: Front>(place: &Atomic<*mut u8>, object: *mut u8) {
    // ORDERING: AcqRel: whoever takes the object sees its contents.
    if let Some(object) = NonNull::new(place.xchg(object, Ordering::AcqRel)) {
        suite::check(object, SIZE);
        // SAFETY: taken out of its place by us alone.
        unsafe { cache::<M, F>().free(object) };
    }
}

/// A task that goes to every processor, takes its slab from it, and in the end destroys the cache.
fn sweep<M: Machine, F: Front>(_: usize) {
    for processor in 0..M::TASK_PROCESSORS {
        Tasks::<M>::move_to(processor);
        cache::<M, F>().flush_cpu(processor);
    }
    assert_eq!(cache::<M, F>().destroy(), Ok(()), "every object came back");
}

/// What tasks pass to each other, and what each processor's handler keeps between two ticks.
static MAIL: [Atomic<*mut u8>; 16] = [const { Atomic::new(null_mut()) }; 16];
static KEPT: [[Atomic<*mut u8>; 4]; PROCESSORS] =
    [const { [const { Atomic::new(null_mut()) }; 4] }; PROCESSORS];
/// Ticks that allocated.
static TICKS: [Atomic<u32>; PROCESSORS] = [const { Atomic::new(0) }; PROCESSORS];

/// Frees the object of four ticks ago and takes another, by the ways that never wait.
fn on_tick<M: Machine, F: Front>() {
    let here = M::per_cpu().number();
    // ORDERING: Relaxed everywhere: this processor's.
    let tick = TICKS[here].load(Ordering::Relaxed);
    TICKS[here].store(tick + 1, Ordering::Relaxed);
    let place = &KEPT[here][tick as usize % 4];
    if let Some(object) = NonNull::new(place.load(Ordering::Relaxed)) {
        suite::check(object, SIZE);
        // SAFETY: the handler's own, forgotten here.
        unsafe { cache::<M, F>().free_nolock(object) };
    }
    let object = cache::<M, F>().alloc_nolock();
    if let Some(object) = object {
        suite::mark(object, SIZE);
    }
    place.store(object.map_or(null_mut(), NonNull::as_ptr), Ordering::Relaxed);
}

/// Word 0: tasks that have done their share. Everybody goes on until all have.
const ENOUGH: usize = 0;
const WORKERS: usize = 6;
const SHARE: u32 = 400;

/// Allocates and frees, keeps up to eight objects, and swaps some of them for others' at the mail.
fn work<M: Machine, F: Front>(number: usize) {
    let mut numbers = Numbers::new(number as u64 + 1);
    let mut live = [null_mut::<u8>(); 8];
    let mut round = 0;
    // ORDERING: Relaxed: a count.
    while Tasks::<M>::word(ENOUGH).load(Ordering::Relaxed) < WORKERS as u32 || Tasks::<M>::preemptions() < 60
    {
        let place = &mut live[numbers.below(8)];
        if let Some(object) = NonNull::new(*place) {
            suite::check(object, SIZE);
            if numbers.below(3) == 0 {
                put::<M, F>(&MAIL[numbers.below(16)], object.as_ptr());
            } else {
                // SAFETY: live, forgotten here.
                unsafe { cache::<M, F>().free(object) };
            }
        }
        *place = cache::<M, F>().alloc().map_or(null_mut(), |object| {
            suite::mark(object, SIZE);
            object.as_ptr()
        });
        round += 1;
        if round == SHARE {
            Tasks::<M>::word(ENOUGH).fetch_add(1, Ordering::Relaxed);
        }
        if numbers.below(64) == 0 {
            Tasks::<M>::nap(1);
        }
        if numbers.below(256) == 0 {
            cache::<M, F>().shrink();
        }
    }
    for object in live.into_iter().filter_map(NonNull::new) {
        suite::check(object, SIZE);
        // SAFETY: live, not used afterwards.
        unsafe { cache::<M, F>().free(object) };
    }
}

/// Tasks of equal urgency, whose turns end at each processor's ticks, and two more urgent ones that come in between.
fn preempted_anywhere<M: Machine, F: Front>() {
    fn test<M: Machine, F: Front>() {
        for number in 0..WORKERS {
            Tasks::<M>::make(if number < 4 { 50 } else { 40 }, work::<M, F>, number);
        }
        Tasks::<M>::all_ended();
    }
    fn clean<M: Machine, F: Front>() {
        for place in MAIL.iter().chain(KEPT.iter().flatten()) {
            put::<M, F>(place, null_mut());
        }
        Tasks::<M>::make(50, sweep::<M, F>, 0);
        Tasks::<M>::all_ended();
    }
    let fresh: Tid<M, F> =
        TidCache::new(Kernel(PhantomData), F::backend(), CacheSpec::new("tasks", SIZE), &SIZING);
    // ORDERING: Relaxed: one processor until `on_tasks` starts the others.
    UNDER_TEST.store((&raw const fresh).cast(), Ordering::Relaxed);
    let setup = Setup { processors: M::TASK_PROCESSORS, turns: true, handler: Some(on_tick::<M, F>) };
    on_tasks::<M>(setup, test::<M, F>);
    on_tasks::<M>(Setup { turns: false, handler: None, ..setup }, clean::<M, F>);
    assert_eq!(MEMORY.used(), 0, "all pages came back");
}

/// K27 and its like, scripted: between each two steps of an allocation and a free the task goes on on the last processor. What
/// it then does belongs to that one's list; the first one's is as it was.
fn moved_between_steps<M: Machine, F: Front>() {
    fn go<M: Machine>() {
        // Once.
        interrupts::script(None);
        AT.store(NOWHERE, Ordering::Relaxed);
        Tasks::<M>::move_to(M::TASK_PROCESSORS - 1);
    }
    /// `at` = `NOWHERE`: when the task is about to be pinned.
    fn arm<M: Machine>(at: u8) {
        AT.store(at, Ordering::Relaxed);
        interrupts::script(Some(go::<M>));
    }
    fn scripted<M: Machine, F: Front>(_: usize) {
        let cache = cache::<M, F>();
        let last = M::TASK_PROCESSORS - 1;
        let take = || cache.alloc().expect("memory");
        // The first free object of each processor's list.
        let [first, other] = [0, last].map(|processor| {
            Tasks::<M>::move_to(processor);
            let object = take();
            // SAFETY: allocated here.
            unsafe { cache.free(object) };
            object
        });
        assert_eq!(first != other, last != 0);
        let allocating = [Step::TidRead, Step::TidHead, Step::TidHeadRead].map(|step| step as u8);
        for at in allocating.into_iter().chain([NOWHERE]) {
            Tasks::<M>::move_to(0);
            arm::<M>(at);
            let object = take();
            interrupts::script(None);
            let moved = M::per_cpu().number() == last;
            // A backend that is not pinned for the exchange has no such point.
            assert!(moved || at == NOWHERE);
            assert_eq!(object, if moved { other } else { first }, "step {at}");
            // SAFETY: allocated here.
            unsafe { cache.free(object) };
            Tasks::<M>::move_to(0);
            let object = take();
            assert_eq!(object, first, "after step {at}");
            // SAFETY: allocated here.
            unsafe { cache.free(object) };
        }
        for at in [Step::TidRead as u8, Step::TidFreeRead as u8, NOWHERE] {
            Tasks::<M>::move_to(0);
            let object = take();
            arm::<M>(at);
            // SAFETY: allocated here.
            unsafe { cache.free(object) };
            interrupts::script(None);
            if last != 0 {
                Tasks::<M>::move_to(last);
                let object = take();
                assert_eq!(object, other, "free, step {at}");
                // SAFETY: allocated here.
                unsafe { cache.free(object) };
            }
        }
        AT.store(NOWHERE, Ordering::Relaxed);
        sweep::<M, F>(0);
    }
    fn test<M: Machine, F: Front>() {
        Tasks::<M>::make(50, scripted::<M, F>, 0);
        Tasks::<M>::all_ended();
    }
    on_fresh::<M, F>(false, None, test::<M, F>);
}

/// By both backends.
pub(crate) fn cases<M: Machine>() -> [(&'static str, fn()); 4] {
    let tests: [fn(); 4] = [
        moved_between_steps::<M, Own<M>>,
        moved_between_steps::<M, OffHere<M>>,
        preempted_anywhere::<M, Own<M>>,
        preempted_anywhere::<M, OffHere<M>>,
    ];
    core::array::from_fn(|at| (crate::SLUB_TASKS_CASES[at], tests[at]))
}
