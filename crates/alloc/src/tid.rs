// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The second front end, `FASTPATH_FRONT=tid`: per CPU a list and a transaction id, exchanged together.
//!
//! In user space a thread can lose its CPU at any instruction, so the exchange is the one for all processors; the CPU
//! number is a hint that spreads the threads. Free objects are linked through their own memory here, and their memory is
//! read before it is known that they are free still: while this front end serves, address space of slabs stays mapped
//! ([`keeps_pages`]).
//!
//! The caches are made at set-up, and only then: a process with sheaves pays nothing for them.

use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};

use fastpath_slub::tid::backend::Locked;
use fastpath_slub::{CurrentCpu, FreePointer, TidCache};

use crate::caches::{self, Heap, SIZING};
use crate::classes::COUNT;
use crate::{cpu, meta};

/// CPU numbers from here on share the slots of lower ones.
const CPUS: usize = 64;

pub(crate) type Cache = TidCache<Heap, Locked<Hint>, CPUS>;

/// The CPU this probably is.
#[derive(Debug)]
pub(crate) struct Hint;

impl CurrentCpu for Hint {
    #[inline(always)]
    fn cpu(&self) -> usize {
        cpu::number()
    }
}

/// Indexed by class; null unless this front end serves.
static CACHES: AtomicPtr<Cache> = AtomicPtr::new(core::ptr::null_mut());

/// Makes the caches; false without memory, or on a machine without a double-word exchange.
pub(crate) fn set_up() -> bool {
    let memory = meta::take(COUNT * size_of::<Cache>(), align_of::<Cache>()).cast::<Cache>();
    if memory.is_null() {
        return false;
    }
    for class in 1..COUNT {
        let Some(backend) = Locked::detect(Hint) else { return false };
        let spec = caches::spec(class).free_pointer(FreePointer::Start);
        // SAFETY: room for one per class; nobody else knows the memory.
        unsafe { memory.add(class).write(TidCache::new(Heap::of(class), backend, spec, &SIZING)) };
    }
    // ORDERING: Release pairs with the Acquire in `all`: the caches are seen whole.
    CACHES.store(memory, Release);
    true
}

/// The caches, from class 1 on; none unless this front end serves.
pub(crate) fn all() -> impl Iterator<Item = &'static Cache> {
    // ORDERING: Acquire pairs with the Release in `set_up`.
    let memory = CACHES.load(Acquire);
    // SAFETY: `set_up` made one for each class but 0, for ever.
    (1..COUNT).filter(move |_| !memory.is_null()).map(move |class| unsafe { &*memory.add(class) })
}

/// The cache of a class.
fn cache(class: usize) -> &'static Cache {
    // ORDERING: Relaxed: the Acquire of the heap's mode came first.
    // SAFETY: called in the mode that this front end serves only: `set_up` made it.
    unsafe { &*CACHES.load(Relaxed).add(class) }
}

/// Whether address space of slabs must stay mapped.
pub(crate) fn keeps_pages() -> bool {
    // ORDERING: Relaxed: set before the first slab exists.
    !CACHES.load(Relaxed).is_null()
}

pub(crate) fn alloc(class: usize) -> *mut u8 {
    cache(class).alloc().map_or(core::ptr::null_mut(), NonNull::as_ptr)
}

pub(crate) fn free(class: usize, object: *mut u8) {
    if let Some(object) = NonNull::new(object) {
        // SAFETY: the callers' caller gave the object up; what is no object is refused.
        unsafe { cache(class).free(object) };
    }
}

/// Takes every CPU's list back and gives empty slabs back.
pub(crate) fn trim() {
    all().for_each(|cache| {
        cache.shrink();
    });
}
