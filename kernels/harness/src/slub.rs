// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The slab allocator on the machine: the tid front end over two static pages, with both backends for bare metal.
//!
//! The front end is the boot processor's alone; objects also come back from interrupts and from other processors.
//! Two pages, so that the smallest machine runs every test. `slub_tasks.rs` has tasks on all processors.

use crate::{BootProcessorOnly, Machine, interrupts};
use core::marker::PhantomData;
use core::ptr::NonNull;
use fastpath_cmpxchg::{Atomic, Ordering};
use fastpath_slub::tid::backend::{IrqOff, TidBackend};
use fastpath_slub::{
    CacheSpec, Corruption, CurrentCpu, Host, SheafPool, Sizing, SpinLock, StaticRegion, TidCache,
    TryLockSlots, Wait,
};
use fastpath_testkit::slub_suite::{self as suite, Numbers};

const PAGES: usize = 2;
pub(crate) const SIZING: Sizing =
    Sizing { page_shift: 12, min_order: 0, max_order: 0, min_objects: 1, cpus: 1 };

static MEMORY: StaticRegion<PAGES> = StaticRegion::new();
static SLOTS: TryLockSlots<Boot, 1, 1> = TryLockSlots::new(Boot);
static SHEAVES: SheafPool<Image> = SheafPool::new(Image, 100, &SIZING);
/// Whether several processors are in the allocator.
static SEVERAL: Atomic<bool> = Atomic::new(false);

/// The one processor that uses the front end.
#[derive(Debug)]
pub(crate) struct Boot;

impl CurrentCpu for Boot {
    fn cpu(&self) -> usize {
        0
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Image;

impl Host for Image {
    type Source = StaticRegion<PAGES>;
    type Slots = TryLockSlots<Boot, 1, 1>;
    type Lock = SpinLock;

    fn source(&self) -> &Self::Source {
        &MEMORY
    }

    fn slots(&self) -> &Self::Slots {
        &SLOTS
    }

    fn sheaves(&self) -> &SheafPool<Self> {
        &SHEAVES
    }

    /// With one processor a handler has the name of what it interrupted, and is told so instead of waiting for it. With
    /// several there are no handlers, and each processor is named by its stack.
    fn context(&self) -> usize {
        let here = 0_u8;
        // ORDERING: Relaxed: set while one processor runs.
        if SEVERAL.load(Ordering::Relaxed) { (&raw const here).addr() | 1 } else { 1 }
    }

    fn corrupted(&self, what: Corruption, _cache: &'static str, object: *mut u8) {
        // K44 leaves an object on purpose.
        assert_eq!(what, Corruption::LeakedObject, "object {object:p}");
    }
}

/// A way to change {list, tid}, by name.
pub(crate) trait Front: 'static {
    type Backend: TidBackend;
    fn backend() -> Self::Backend;
}

/// Interrupts off for the exchange.
pub(crate) struct Off<M>(PhantomData<M>);
impl<M: Machine> Front for Off<M> {
    type Backend = IrqOff<Boot, BootProcessorOnly<M::Interrupts>>;
    fn backend() -> Self::Backend {
        IrqOff::new(Boot)
    }
}

/// The machine's own.
pub(crate) struct Own<M>(PhantomData<M>);
impl<M: Machine> Front for Own<M> {
    type Backend = M::Front;
    fn backend() -> M::Front {
        M::front()
    }
}

type Tid<F> = TidCache<Image, <F as Front>::Backend, 1>;

struct Cache<'a, F: Front>(&'a Tid<F>);

fastpath_testkit::object_cache! { ['a, F: Front] Cache<'a, F> }

/// Runs `test` on a fresh cache, which must leave the memory as it was.
fn on_fresh<F: Front>(test: impl FnOnce(&Tid<F>)) {
    let cache: Tid<F> = TidCache::new(Image, F::backend(), CacheSpec::new("image", 120), &SIZING);
    test(&cache);
    assert_eq!(MEMORY.used(), 0, "all pages came back");
}

/// The suite's cases.
pub(crate) fn cases<M: Machine, F: Front>() -> [(&'static str, fn()); 7] {
    let tests: [fn(); 7] = [
        || on_fresh::<F>(|cache| suite::last_in_first_out(&Cache::<F>(cache))),
        || {
            on_fresh::<F>(|cache| {
                let mut live = [core::ptr::null_mut(); 40];
                suite::every_live_object(&Cache::<F>(cache), &mut live, 60, 11);
            });
        },
        || on_fresh::<F>(|cache| suite::in_bulk(&Cache::<F>(cache), &mut [core::ptr::null_mut(); 40])),
        || on_fresh::<F>(|cache| suite::destroy_with_a_live_object(&Cache::<F>(cache))),
        || {
            on_fresh::<F>(|cache| {
                suite::out_of_memory(
                    &Cache::<F>(cache),
                    &mut [core::ptr::null_mut(); PAGES * 4096 / 120 + 1],
                );
            });
        },
        under_a_timer::<M, F>,
        from_every_processor::<M, F>,
    ];
    core::array::from_fn(|at| (crate::SLUB_CASES[at], tests[at]))
}

/// The cache that the handler uses too, as a `*const Tid<F>`; what the handler keeps between two ticks.
static UNDER_TEST: Atomic<*const ()> = Atomic::new(core::ptr::null());
static KEPT: [Atomic<*mut u8>; 4] = [const { Atomic::new(core::ptr::null_mut()) }; 4];

/// Frees the object of four ticks ago and takes another; both by the ways that never wait.
fn on_tick<F: Front>(tick: u32) {
    // ORDERING: Relaxed everywhere: one processor.
    // SAFETY: `under_a_timer` stores its cache while the timer runs.
    let cache = unsafe { &*UNDER_TEST.load(Ordering::Relaxed).cast::<Tid<F>>() };
    let place = &KEPT[tick as usize % KEPT.len()];
    if let Some(object) = NonNull::new(place.load(Ordering::Relaxed)) {
        suite::check(object, 120);
        // SAFETY: the handler's own, forgotten here.
        unsafe { cache.free_nolock(object) };
    }
    let object = cache.alloc_nolock();
    if let Some(object) = object {
        suite::mark(object, 120);
    }
    place.store(object.map_or(core::ptr::null_mut(), NonNull::as_ptr), Ordering::Relaxed);
}

/// A real timer interrupts allocations and frees anywhere, and its handler does the same on the same cache.
fn under_a_timer<M: Machine, F: Front>() {
    on_fresh::<F>(|cache| {
        UNDER_TEST.store(core::ptr::from_ref(cache).cast(), Ordering::Relaxed);
        let mut numbers = Numbers::new(5);
        let mut live = [core::ptr::null_mut::<u8>(); 16];
        let mut rounds = 0_u32;
        interrupts::during::<M>(on_tick::<F>, 200, || {
            let place = &mut live[numbers.below(16)];
            if let Some(object) = NonNull::new(*place) {
                suite::check(object, 120);
                // SAFETY: live, forgotten here.
                unsafe { cache.free(object) };
            }
            *place = cache.alloc().map_or(core::ptr::null_mut(), |object| {
                suite::mark(object, 120);
                object.as_ptr()
            });
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(64) {
                cache.shrink();
            }
        });
        for object in live
            .into_iter()
            .chain(KEPT.iter().map(|place| place.xchg(core::ptr::null_mut(), Ordering::Relaxed)))
        {
            if let Some(object) = NonNull::new(object) {
                suite::check(object, 120);
                // SAFETY: live, forgotten here.
                unsafe { cache.free(object) };
            }
        }
        assert_eq!(cache.destroy(), Ok(()), "every object came back");
    });
}

/// Objects on their way to other processors.
static MAIL: [Atomic<*mut u8>; 8] = [const { Atomic::new(core::ptr::null_mut()) }; 8];

/// The boot processor allocates, whoever comes first frees; with one processor it frees itself.
fn from_every_processor<M: Machine, F: Front>() {
    on_fresh::<F>(|cache| {
        UNDER_TEST.store(core::ptr::from_ref(cache).cast(), Ordering::Relaxed);
        SEVERAL.store(true, Ordering::Relaxed);
        for _ in 0..40 {
            for place in &MAIL {
                if let Some(object) = cache.alloc() {
                    suite::mark(object, 120);
                    place.store(object.as_ptr(), Ordering::Relaxed);
                }
            }
            // ORDERING: `everywhere` orders what the boot processor did before it with what the others do in it, and that
            // with what follows.
            M::everywhere(take_mail::<F>);
        }
        SEVERAL.store(false, Ordering::Relaxed);
        assert_eq!(cache.destroy(), Ok(()), "every object came back");
    });
}

fn take_mail<F: Front>() {
    // SAFETY: the cache outlives the round; only its slab layer, which is for all processors, is used here.
    let cache = unsafe { &*UNDER_TEST.load(Ordering::Relaxed).cast::<Tid<F>>() };
    for place in &MAIL {
        if let Some(object) = NonNull::new(place.xchg(core::ptr::null_mut(), Ordering::AcqRel)) {
            suite::check(object, 120);
            // SAFETY: taken out of the mail by this processor alone.
            unsafe { cache.slabs().free_one(object, Wait::Yes) };
        }
    }
}
