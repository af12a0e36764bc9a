// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Where the slabs of the size classes come from: runs of the page layer, with their descriptors apart.
//!
//! A "page" of the slab layer is a unit of the page map. Descriptors lie in the heap's own records, each followed by one
//! link per object ([`FreePointer::Apart`](fastpath_slub::FreePointer::Apart)); they are kept per class and never given
//! back, because late readers look at them.

use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use fastpath_slub::{PageSource, Slab, Wait};

use crate::classes::{CLASSES, COUNT, UNIT};
use crate::lock::{Lock, Rank};
use crate::pagemap::{self, Record};
use crate::{debug, heap, meta, pages, reap};

/// The class of the slabs that sheaves lie in.
pub(crate) const SHEAVES: usize = COUNT;

/// Descriptors without a run, linked through their source words, by class.
struct Vacant([*mut Slab; COUNT + 1]);

// SAFETY: reached through its lock only.
unsafe impl Send for Vacant {}

static VACANT: Lock<Vacant> = Lock::new(Rank::Vacant, Vacant([core::ptr::null_mut(); COUNT + 1]));

/// Slabs that could not be given back because a signal handler had interrupted the page layer, linked through their
/// source words.
static LEFT: AtomicPtr<Slab> = AtomicPtr::new(core::ptr::null_mut());

/// Units of all slabs.
static SLAB_UNITS: AtomicUsize = AtomicUsize::new(0);

/// Whether the thread that `mine` names holds the lock.
pub(crate) fn held_by(mine: u64) -> bool {
    VACANT.is_held_by(mine)
}

pub(crate) fn before_fork() {
    VACANT.lock_raw();
}

pub(crate) fn after_fork() {
    VACANT.unlock_raw();
}

/// The slabs of one class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClassSource {
    pub(crate) class: u8,
    /// Whether `free` finds the slabs in the fast map. Those of sampled objects it must not find.
    pub(crate) fast: bool,
}

impl ClassSource {
    /// A descriptor without a run.
    fn descriptor(self) -> Option<NonNull<Slab>> {
        let class = usize::from(self.class);
        let mut vacant = VACANT.lock()?;
        if let Some(slab) = NonNull::new(vacant.0[class]) {
            // SAFETY: vacant descriptors are ours, and their source words link them.
            vacant.0[class] = unsafe { *slab.as_ref().source_word() as *mut Slab };
            return Some(slab);
        }
        drop(vacant);
        let links = if class == SHEAVES { 0 } else { CLASSES[class].objects as usize };
        // A descriptor of zero bytes is a vacant one.
        NonNull::new(meta::take(size_of::<Slab>() + links * size_of::<u16>(), align_of::<Slab>()).cast())
    }

    /// Keeps a descriptor for the next slab of the class. It is lost if a signal handler interrupted this very thing.
    fn keep(self, slab: NonNull<Slab>) {
        if let Some(mut vacant) = VACANT.lock() {
            let first = &mut vacant.0[usize::from(self.class)];
            // SAFETY: the descriptor has no run and is ours.
            unsafe { *slab.as_ref().source_word() = first.addr() };
            *first = slab.as_ptr();
        }
    }

    /// Enters a run in the maps; false if there is no memory for them.
    fn enter(self, slab: NonNull<Slab>, base: usize, units: usize) -> bool {
        let fast = self.fast && heap::fast_map();
        (0..units).all(|unit| {
            let address = base + unit * UNIT;
            pagemap::set_record(address, Record::Slab(slab.addr().get()))
                && (!fast || pagemap::set_class2(address, usize::from(self.class) * 2))
        })
    }

    /// Takes a run out of the maps.
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

    /// Gives back what signal handlers could not.
    #[cold]
    fn give_left() {
        // ORDERING: Acquire pairs with the Release in `leave`. The whole list is taken: no ABA.
        let mut next = LEFT.swap(core::ptr::null_mut(), Acquire);
        while let Some(slab) = NonNull::new(next) {
            // SAFETY: the chain is ours since the exchange; `leave` wrote links, classes and runs.
            let (base, units, class) = unsafe {
                let word = *slab.as_ref().source_word();
                next = slab.as_ref().base().cast();
                (word & !(UNIT - 1), (word >> 8) & 0xff, word as u8)
            };
            // SAFETY: as above.
            unsafe { slab.as_ref().set_base(base as *mut u8) };
            Self { class, fast: false }.give(slab, base, units);
        }
    }

    /// Gives a run that is in no map to the page layer and keeps its descriptor, or leaves both for later.
    fn give(self, slab: NonNull<Slab>, base: usize, units: usize) {
        if pages::give(base, units, false) {
            self.keep(slab);
            return;
        }
        // SAFETY: vacant and in no map: nobody else reaches it. A run starts at a multiple of a unit, so there is room
        // for its length and class below; the place of the base holds the link.
        unsafe { *slab.as_ref().source_word() = base | units << 8 | usize::from(self.class) };
        // ORDERING: Relaxed: the exchange below publishes.
        let mut top = LEFT.load(Relaxed);
        loop {
            // SAFETY: as above.
            unsafe { slab.as_ref().set_base(top.cast()) };
            // ORDERING: Release pairs with the Acquire in `give_left`.
            match LEFT.compare_exchange_weak(top, slab.as_ptr(), Release, Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }
}

// SAFETY: runs come from the page layer, which hands each unit out once, and start at multiples of a unit, which is at
// least any class's alignment; the record map leads from every unit of a run to its descriptor, and to no other.
unsafe impl PageSource for ClassSource {
    const PAGE_SHIFT: u32 = UNIT.trailing_zeros();

    fn alloc_slab(&self, order: u32, _align: usize, _node: usize, wait: Wait) -> Option<NonNull<Slab>> {
        if wait == Wait::Never {
            return None;
        }
        // ORDERING: Relaxed: a hint.
        if !LEFT.load(Relaxed).is_null() {
            Self::give_left();
        }
        reap::tick();
        let slab = self.descriptor()?;
        let units = 1 << order;
        // ORDERING: Relaxed: a figure.
        let Some(run) = pages::take_for_slab(units, SLAB_UNITS.load(Relaxed)) else {
            self.keep(slab);
            return None;
        };
        // SAFETY: nobody else knows the descriptor.
        unsafe { slab.as_ref().set_base(run.base as *mut u8) };
        if !self.enter(slab, run.base, units) {
            Self::forget(run.base, units);
            self.give(slab, run.base, units);
            return None;
        }
        // ORDERING: Relaxed, as above.
        SLAB_UNITS.fetch_add(units, Relaxed);
        debug::new_slab(run.base, units * UNIT);
        Some(slab)
    }

    unsafe fn free_slab(&self, slab: NonNull<Slab>, _wait: Wait) {
        // SAFETY: the caller gives the slab up.
        let (base, units) = unsafe { (slab.as_ref().base().addr(), 1 << slab.as_ref().order()) };
        // ORDERING: Relaxed: a figure.
        SLAB_UNITS.fetch_sub(units, Relaxed);
        Self::forget(base, units);
        self.give(slab, base, units);
        reap::tick();
    }

    #[inline]
    fn slab_of(&self, address: *const u8) -> *mut Slab {
        match pagemap::record_at(address.addr()) {
            Record::Slab(slab) => slab as *mut Slab,
            _ => core::ptr::null_mut(),
        }
    }

    #[inline(always)]
    fn links(&self, slab: &Slab) -> *mut u16 {
        // The links follow the descriptor.
        core::ptr::from_ref(slab).cast_mut().wrapping_add(1).cast()
    }
}
