// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counted objects in slab caches, and handles to them.
#![expect(unsafe_code, reason = "objects are raw memory of a cache until they are written")]

use core::ops::Deref;
use core::ptr::NonNull;

use fastpath_refcount::RefCount;
use fastpath_slub::Cache;

use crate::slab::Process;

/// What counts the handles of an object: `RefCount` in earnest, something else to compare it with.
pub trait Count: Send + Sync + 'static {
    /// A counter for one handle.
    fn one() -> Self;
    /// One more.
    fn get(&self);
    /// One less; true for the last one, and then everything done through the others has happened.
    fn put(&self) -> bool;
}

impl Count for RefCount {
    fn one() -> Self {
        Self::new(1)
    }

    #[inline]
    fn get(&self) {
        self.inc();
    }

    #[inline]
    fn put(&self) -> bool {
        self.dec_and_test()
    }
}

/// A type whose objects live in a cache. Not to be named outside this crate, whose own types are the only ones.
pub trait Cached: Send + Sync + 'static {
    /// The cache, whose objects are large enough for an `Object` of this type.
    fn cache() -> &'static Cache<Process>;
}

/// An object of a cache: count and value.
pub(crate) struct Object<T, C> {
    count: C,
    value: T,
}

/// A handle to a counted object.
///
/// It is `fastpath_refcount::Arc` in small; written out here so that it can be generic over the counter.
#[derive(Debug)]
pub struct Ref<T: Cached, C: Count = RefCount> {
    object: NonNull<Object<T, C>>,
}

// SAFETY: the value can be used (`Sync`) and dropped (`Send`) on any thread; the counter is atomic.
unsafe impl<T: Cached, C: Count> Send for Ref<T, C> {}
// SAFETY: as above.
unsafe impl<T: Cached, C: Count> Sync for Ref<T, C> {}

impl<T: Cached, C: Count> Ref<T, C> {
    /// A new object with one handle; `None` without memory.
    pub(crate) fn new(value: T) -> Option<Self> {
        let layout = T::cache().slabs().layout();
        assert!(
            size_of::<Object<T, C>>() <= layout.object_size && align_of::<Object<T, C>>() <= layout.align
        );
        let object = T::cache().alloc()?.cast::<Object<T, C>>();
        // SAFETY: memory of that size and alignment, ours alone.
        unsafe { object.write(Object { count: C::one(), value }) };
        Some(Self { object })
    }

    fn object(&self) -> &Object<T, C> {
        // SAFETY: this handle has a count of its own, so the object is alive.
        unsafe { self.object.as_ref() }
    }
}

impl<T: Cached, C: Count> Clone for Ref<T, C> {
    #[inline]
    fn clone(&self) -> Self {
        self.object().count.get();
        Self { object: self.object }
    }
}

impl<T: Cached, C: Count> Deref for Ref<T, C> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.object().value
    }
}

impl<T: Cached, C: Count> Drop for Ref<T, C> {
    #[inline]
    fn drop(&mut self) {
        if self.object().count.put() {
            // SAFETY: that was the last handle, and the count acquired what the others did: the object is ours, and goes back
            // to the cache that it came from.
            unsafe {
                self.object.drop_in_place();
                T::cache().free(self.object.cast());
            }
        }
    }
}
