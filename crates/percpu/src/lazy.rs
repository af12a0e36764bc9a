// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! [`Lazy`]: per-CPU objects as statics.

use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::slots::Slot;
use crate::word::Word;
use crate::{Counter, OutOfMemory, PerCpu};

/// A per-CPU object that is one pointer to its slots.
///
/// # Safety
///
/// `Self` has the layout of a non-null pointer, and every value stays valid when its bytes are read through `&Self`.
pub unsafe trait Handle: Sized + Send + Sync {
    /// Makes an empty one.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`].
    fn create() -> Result<Self, OutOfMemory>;
}

// SAFETY: `repr(transparent)` over `NonNull`.
unsafe impl<T: Slot> Handle for PerCpu<T> {
    fn create() -> Result<Self, OutOfMemory> {
        Self::new()
    }
}

// SAFETY: `repr(transparent)` over `PerCpu`.
unsafe impl Handle for Counter {
    fn create() -> Result<Self, OutOfMemory> {
        Self::new()
    }
}

/// A static that becomes a `T` at its first use. Lock-free: usable in signal handlers and forked children.
///
/// ```
/// use fastpath_percpu::{Counter, Lazy};
///
/// static REQUESTS: Lazy<Counter> = Lazy::new();
///
/// REQUESTS.add(1);
/// assert_eq!(REQUESTS.sum(), 1);
/// ```
///
/// It costs one load and a predictable branch per use. It is never dropped.
#[doc(alias = "DEFINE_PER_CPU")]
pub struct Lazy<T: Handle> {
    pointer: AtomicPtr<u8>,
    holds: PhantomData<T>,
}

impl<T: Handle> Lazy<T> {
    /// Not made yet.
    #[must_use]
    pub const fn new() -> Self {
        const { assert!(size_of::<T>() == size_of::<*mut u8>()) };
        Self { pointer: AtomicPtr::new(core::ptr::null_mut()), holds: PhantomData }
    }

    /// The object, made now if this is the first use.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] when it has to be made and cannot.
    #[inline]
    pub fn get(&self) -> Result<&T, OutOfMemory> {
        // ORDERING: Acquire pairs with the Release in `make`: what the object refers to is in place.
        if self.pointer.load(Ordering::Acquire).is_null() {
            self.make()?;
        }
        // SAFETY: `pointer` holds the bytes of a `T` since `make`, and never changes again.
        Ok(unsafe { &*(&raw const self.pointer).cast::<T>() })
    }

    #[cold]
    fn make(&self) -> Result<(), OutOfMemory> {
        let made = T::create()?;
        // SAFETY: `T` has the layout of a non-null pointer (`Handle`'s contract).
        let pointer = unsafe { core::mem::transmute_copy::<T, *mut u8>(&made) };
        // ORDERING: Release pairs with the Acquire in `get`. Acquire on failure: the winner's object is used then.
        if self
            .pointer
            .compare_exchange(core::ptr::null_mut(), pointer, Ordering::Release, Ordering::Acquire)
            .is_ok()
        {
            core::mem::forget(made);
        }
        Ok(())
    }
}

impl<T: Handle> Default for Lazy<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// # Panics
///
/// If the object has to be made and there is no address space left; [`Lazy::get`] says so instead.
impl<T: Handle> Deref for Lazy<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match self.get() {
            Ok(made) => made,
            Err(error) => panic!("{error}"),
        }
    }
}

impl<T: Handle + fmt::Debug> fmt::Debug for Lazy<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lazy").field(&self.get()).finish()
    }
}

// `Word` is named by the documentation of `PerCpu`.
const _: fn() = || {
    fn handle<T: Handle>() {}
    handle::<PerCpu<Word<u64>>>();
};
