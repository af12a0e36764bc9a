// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Slabs that hold sampled objects only.
//!
//! They are not entered in the fast map. So `free` of an object that was not sampled is what it always is, and that of a
//! sampled one takes the slow path by itself: nobody has to look every freed block up.

use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};

use fastpath_slub::{Event, Host as _, Slabs, Wait};

use crate::caches::{self, Heap, SAMPLED, SIZING};
use crate::classes::COUNT;
use crate::meta;

/// Indexed by class; null unless objects are sampled under rseq.
static SLABS: AtomicPtr<Slabs<Heap>> = AtomicPtr::new(core::ptr::null_mut());

/// Makes them; false without memory.
pub(crate) fn set_up() -> bool {
    let memory =
        meta::take(COUNT * size_of::<Slabs<Heap>>(), align_of::<Slabs<Heap>>()).cast::<Slabs<Heap>>();
    if memory.is_null() {
        return false;
    }
    for class in 1..COUNT {
        let spec = caches::spec(class).class(SAMPLED + class as u16).min_partial(1);
        // SAFETY: room for one per class; nobody else knows the memory.
        unsafe { memory.add(class).write(Slabs::new(Heap::of_sampled(class), spec, &SIZING)) };
    }
    // ORDERING: Release pairs with the Acquire in `all`: the slab layers are seen whole.
    SLABS.store(memory, Release);
    true
}

/// Whether sampled objects lie apart.
#[inline]
pub(crate) fn on() -> bool {
    // ORDERING: Relaxed: set before the first object exists.
    !SLABS.load(Relaxed).is_null()
}

/// The slab layers, from class 1 on; none unless sampled objects lie apart.
pub(crate) fn all() -> impl Iterator<Item = &'static Slabs<Heap>> {
    // ORDERING: Acquire pairs with the Release in `set_up`.
    let memory = SLABS.load(Acquire);
    // SAFETY: `set_up` made one for each class but 0, for ever.
    (1..COUNT).filter(move |_| !memory.is_null()).map(move |class| unsafe { &*memory.add(class) })
}

/// The slabs of a class. [`on`] must hold.
fn slabs(class: usize) -> &'static Slabs<Heap> {
    // SAFETY: the callers' condition: `set_up` made it.
    unsafe { &*SLABS.load(Relaxed).add(class) }
}

/// Room for a sampled object of a class. [`on`] must hold. Null if there is none to be had now.
pub(crate) fn alloc(class: usize) -> *mut u8 {
    slabs(class).alloc_one(0, Wait::Yes).map_or(core::ptr::null_mut(), |object| {
        Heap::of_sampled(class).event(Event::Alloc);
        object.as_ptr()
    })
}

/// Frees a sampled object.
pub(crate) fn free(class: usize, object: *mut u8) {
    if let Some(object) = NonNull::new(object) {
        Heap::of_sampled(class).event(Event::Free);
        // SAFETY: the callers' caller gave the object up; what is no object is refused.
        unsafe { slabs(class).free_one(object, Wait::Yes) };
    }
}
