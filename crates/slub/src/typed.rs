// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Caches of values of one Rust type.
#![expect(unsafe_code, reason = "puts values into raw objects")]

use crate::cache::Cache;
use crate::host::Host;
use crate::sizing::Sizing;
use crate::spec::CacheSpec;
use crate::sync::const_fn;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

/// A [`Cache`] of values of type `T`.
///
/// ```
/// # use fastpath_slub::{Host, SheafPool, Sizing, SpinLock, StaticRegion, TryLockSlots, TypedCache};
/// # fn cpu() -> usize { 0 }
/// # #[derive(Clone, Copy)] struct Kernel;
/// # static MEMORY: StaticRegion<64> = StaticRegion::new();
/// # static SLOTS: TryLockSlots<fn() -> usize, 1, 1> = TryLockSlots::new(cpu);
/// # static SHEAVES: SheafPool<Kernel> = SheafPool::new(Kernel, 100, &Sizing::kernel(1));
/// # impl Host for Kernel {
/// #     type Source = StaticRegion<64>; type Slots = TryLockSlots<fn() -> usize, 1, 1>; type Lock = SpinLock;
/// #     fn source(&self) -> &Self::Source { &MEMORY }
/// #     fn slots(&self) -> &Self::Slots { &SLOTS }
/// #     fn sheaves(&self) -> &SheafPool<Self> { &SHEAVES }
/// #     fn context(&self) -> usize { 1 }
/// # }
/// struct Inode { number: u64 }
/// static INODES: TypedCache<Inode, Kernel> = TypedCache::new(Kernel, "inode", 0, 1, &Sizing::kernel(1));
/// let mut inode = INODES.alloc(Inode { number: 7 }).ok().expect("memory");
/// inode.number += 1;
/// assert_eq!(inode.number, 8);
/// drop(inode); // back to its cache
/// assert!(INODES.cache().destroy().is_ok());
/// ```
#[derive(Debug)]
pub struct TypedCache<T, H: Host> {
    cache: Cache<H>,
    values: PhantomData<fn(T) -> T>,
}

impl<T, H: Host> TypedCache<T, H> {
    const_fn! {
        /// A cache without slabs for `T`, on the slot `slot`, with `class` in its descriptors.
        pub const fn new(host: H, name: &'static str, slot: usize, class: u16, sizing: &Sizing) -> Self {
            let size = if size_of::<T>() == 0 { 1 } else { size_of::<T>() };
            let spec = CacheSpec::new(name, size).align(align_of::<T>()).slot(slot).class(class);
            Self { cache: Cache::new(host, spec, sizing), values: PhantomData }
        }
    }

    /// The untyped cache.
    pub fn cache(&self) -> &Cache<H> {
        &self.cache
    }

    /// A box with `value`.
    ///
    /// # Errors
    ///
    /// Without memory the value comes back.
    pub fn alloc(&self, value: T) -> Result<SlabBox<'_, T, H>, T> {
        let Some(object) = self.cache.alloc() else { return Err(value) };
        let object = object.cast::<T>();
        // SAFETY: an object of this cache has the size and alignment of `T` and is ours.
        unsafe { object.write(value) };
        Ok(SlabBox { object, cache: self })
    }
}

/// An owned value in an object of a [`TypedCache`]; dropping it gives the object back.
pub struct SlabBox<'c, T, H: Host> {
    object: NonNull<T>,
    cache: &'c TypedCache<T, H>,
}

// SAFETY: a box owns its value, and caches are shared between threads.
unsafe impl<T: Send, H: Host> Send for SlabBox<'_, T, H> {}
// SAFETY: a shared box gives shared access to its value only.
unsafe impl<T: Sync, H: Host> Sync for SlabBox<'_, T, H> {}

impl<T: core::fmt::Debug, H: Host> core::fmt::Debug for SlabBox<'_, T, H> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        (**self).fmt(f)
    }
}

impl<T, H: Host> SlabBox<'_, T, H> {
    /// Takes the value out; the object goes back.
    pub fn into_inner(self) -> T {
        let this = core::mem::ManuallyDrop::new(self);
        // SAFETY: the value is read once, and the object is given up without dropping the value.
        unsafe {
            let value = this.object.read();
            this.cache.cache.free(this.object.cast());
            value
        }
    }
}

impl<T, H: Host> Deref for SlabBox<'_, T, H> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the box owns an initialised object.
        unsafe { self.object.as_ref() }
    }
}

impl<T, H: Host> DerefMut for SlabBox<'_, T, H> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { self.object.as_mut() }
    }
}

impl<T, H: Host> Drop for SlabBox<'_, T, H> {
    fn drop(&mut self) {
        // SAFETY: the box owns the object; nobody uses it afterwards.
        unsafe {
            self.object.drop_in_place();
            self.cache.cache.free(self.object.cast());
        }
    }
}
