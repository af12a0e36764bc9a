// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What only the inside can arrange: counts near the limits.

use std::boxed::Box;
use std::cell::Cell;
use std::string::ToString;
use std::vec::Vec;

use super::*;
use crate::{MAX, SATURATED, set_warn_hook, weak};

/// Counts its drops, in a cell that outlives it.
struct Counted<'a>(&'a Cell<u32>);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

/// Gives the memory of a leaked block back, so that leak checkers see only real leaks.
fn give_back<T: ?Sized>(leaked: Arc<T>) {
    leaked.counter().set(1);
    drop(leaked);
}

#[test]
fn overflow_leaks_and_never_frees_early() {
    set_warn_hook(Some(|_| {}));
    let drops = Cell::new(0);
    let one = Arc::new(Counted(&drops));
    // As many handles as can be counted: all but this one were forgotten.
    one.counter().set(MAX);
    let two = Arc::clone(&one);
    assert!(Arc::is_saturated(&one));
    assert_eq!(Arc::strong_count(&two), SATURATED);

    // Nothing that frees, moves out, or lends mutably works any more.
    let mut two = Arc::try_unwrap(two).map(|_| ()).expect_err("saturated");
    assert!(Arc::get_mut(&mut two).is_none());
    assert!(Arc::into_inner(Arc::clone(&two)).is_none());
    let two = Arc::try_unique(two).map(|_| ()).expect_err("saturated");
    for _ in 0..10 {
        drop(Arc::clone(&two));
    }
    drop(two);
    assert_eq!(drops.get(), 0);
    assert_eq!(Arc::strong_count(&one), SATURATED);
    give_back(one);
    assert_eq!(drops.get(), 1);
}

#[test]
fn one_drop_too_many_leaks() {
    set_warn_hook(Some(|_| {}));
    let drops = Cell::new(0);
    let one = ManuallyDrop::new(Arc::new(Counted(&drops)));
    // Unsound code has brought the count to zero without freeing.
    one.counter().set(0);
    drop(ManuallyDrop::into_inner(one.clone()));
    assert_eq!((drops.get(), Arc::strong_count(&one)), (0, SATURATED));
    give_back(ManuallyDrop::into_inner(one));
    assert_eq!(drops.get(), 1);
}

#[test]
fn make_mut_of_a_saturated_handle_clones() {
    set_warn_hook(Some(|_| {}));
    let mut one = Arc::new(5);
    let kept = ManuallyDrop::new(Arc::clone(&one));
    one.counter().set(SATURATED);
    *Arc::make_mut(&mut one) += 1;
    assert_eq!((*one, **kept), (6, 5));
    give_back(ManuallyDrop::into_inner(kept));
}

/// A storm of clones and drops over the limit, by two threads: leaked, and whole.
#[test]
fn two_threads_clone_over_the_limit() {
    set_warn_hook(Some(|_| {}));
    let one = Arc::new(Box::new(7));
    one.counter().set(MAX - 1);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    let handles: Vec<_> = (0..3).map(|_| Arc::clone(&one)).collect();
                    assert!(handles.iter().all(|handle| ***handle == 7));
                }
            });
        }
    });
    // One thread alone takes three counts at MAX - 1: saturated whatever the schedule.
    assert_eq!((Arc::strong_count(&one), **one), (SATURATED, 7));
    give_back(one);
}

/// The offset that `from_raw` computes is the one the compiler chose, for odd allocators and alignments too.
#[test]
fn data_offsets() {
    #[repr(align(64))]
    struct Wide(#[expect(dead_code, reason = "only its layout matters")] u8);
    fn check<T, A>() {
        let offset = core::mem::offset_of!(Block<T, A>, data);
        assert_eq!(block::data_offset::<RefCount, A>(align_of::<T>()), offset);
        let (layout, from_layout) =
            block::layout::<RefCount, A>(core::alloc::Layout::new::<T>()).expect("small");
        assert_eq!((layout, from_layout), (core::alloc::Layout::new::<Block<T, A>>(), offset));
    }
    check::<u8, ()>();
    check::<u64, ()>();
    check::<Wide, ()>();
    check::<u8, u8>();
    check::<u64, u8>();
    check::<u16, &u8>();
    check::<Wide, (u8, u64)>();
    check::<(), Wide>();
}

#[test]
fn weak_form_saturates_as_well() {
    set_warn_hook(Some(|_| {}));
    let drops = Cell::new(0);
    let one = weak::Arc::new(Counted(&drops));
    weak::tests_access::counts(&one, MAX, MAX);
    let other = weak::Arc::downgrade(&one);
    let strong = other.upgrade().expect("alive");
    drop(strong);
    drop(other);
    assert_eq!((weak::Arc::strong_count(&one), drops.get()), (SATURATED, 0));
    assert_eq!(weak::Arc::weak_count(&one), SATURATED - 1);
    weak::tests_access::counts(&one, 1, 1);
    drop(one);
    assert_eq!(drops.get(), 1);
}

#[test]
fn handles_are_one_word() {
    assert_eq!(size_of::<Option<Arc<u8>>>(), size_of::<usize>());
    assert_eq!(size_of::<Option<ArcBorrow<'_, u8>>>(), size_of::<usize>());
    assert_eq!(size_of::<Option<UniqueArc<u8>>>(), size_of::<usize>());
    assert_eq!(size_of::<weak::Weak<u8>>(), size_of::<usize>());
    assert_eq!(Arc::new(5).to_string(), "5");
}
