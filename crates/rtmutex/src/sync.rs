// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The crate's one door to atomics: loom's types under `cfg(loom)`, the words of `fastpath-cmpxchg` otherwise.
//!
//! `Cell` goes through here too: under loom every plain field of the algorithm is checked for data races.

pub(crate) use imp::{Cell, Count, Word, fence};

/// Constructors are `const`, except under loom, whose objects register themselves at run time.
macro_rules! const_unless_loom {
    ($(#[$meta:meta])* $vis:vis fn $name:ident ($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty $body:block) => {
        #[cfg(not(loom))]
        $(#[$meta])* $vis const fn $name($($arg: $ty),*) -> $ret $body
        #[cfg(loom)]
        $(#[$meta])* $vis fn $name($($arg: $ty),*) -> $ret $body
    };
}
pub(crate) use const_unless_loom;

#[cfg(not(loom))]
mod imp {
    pub(crate) use core::cell::Cell;
    pub(crate) use fastpath_cmpxchg::fence;
    use fastpath_cmpxchg::{Atomic, Ordering};

    /// A pointer that several threads change.
    pub(crate) struct Word<T>(Atomic<*const T>);

    impl<T> Word<T> {
        pub(crate) const fn new() -> Self {
            Self(Atomic::new(core::ptr::null()))
        }
        #[inline(always)]
        pub(crate) fn load(&self, order: Ordering) -> *const T {
            self.0.load(order)
        }
        #[inline(always)]
        pub(crate) fn store(&self, new: *const T, order: Ordering) {
            self.0.store(new, order);
        }
        #[inline(always)]
        pub(crate) fn xchg(&self, new: *const T, order: Ordering) -> *const T {
            self.0.xchg(new, order)
        }
        /// Returns what was there; a failed compare orders nothing.
        #[inline(always)]
        pub(crate) fn cmpxchg(&self, old: *const T, new: *const T, order: Ordering) -> *const T {
            self.0.cmpxchg(old, new, order)
        }
    }

    /// A counter that several threads change; wraps.
    pub(crate) struct Count(Atomic<u32>);

    impl Count {
        pub(crate) const fn new(value: u32) -> Self {
            Self(Atomic::new(value))
        }
        #[inline(always)]
        pub(crate) fn load(&self, order: Ordering) -> u32 {
            self.0.load(order)
        }
        #[inline(always)]
        pub(crate) fn store(&self, new: u32, order: Ordering) {
            self.0.store(new, order);
        }
        #[inline(always)]
        pub(crate) fn cmpxchg(&self, old: u32, new: u32, order: Ordering) -> u32 {
            self.0.cmpxchg(old, new, order)
        }
        /// Returns what was there.
        #[inline(always)]
        pub(crate) fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
            self.0.fetch_add(value, order)
        }
    }
}

#[cfg(loom)]
mod imp {
    pub(crate) use loom::cell::Cell;
    pub(crate) use loom::sync::atomic::fence;
    use loom::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

    /// A pointer that several threads change.
    pub(crate) struct Word<T>(AtomicPtr<T>);

    impl<T> Word<T> {
        pub(crate) fn new() -> Self {
            Self(AtomicPtr::new(core::ptr::null_mut()))
        }
        pub(crate) fn load(&self, order: Ordering) -> *const T {
            self.0.load(order)
        }
        pub(crate) fn store(&self, new: *const T, order: Ordering) {
            self.0.store(new.cast_mut(), order);
        }
        pub(crate) fn xchg(&self, new: *const T, order: Ordering) -> *const T {
            self.0.swap(new.cast_mut(), order)
        }
        pub(crate) fn cmpxchg(&self, old: *const T, new: *const T, order: Ordering) -> *const T {
            match self.0.compare_exchange(old.cast_mut(), new.cast_mut(), order, Ordering::Relaxed) {
                Ok(was) | Err(was) => was,
            }
        }
    }

    /// A counter that several threads change; wraps.
    pub(crate) struct Count(AtomicU32);

    impl Count {
        pub(crate) fn new(value: u32) -> Self {
            Self(AtomicU32::new(value))
        }
        pub(crate) fn load(&self, order: Ordering) -> u32 {
            self.0.load(order)
        }
        pub(crate) fn store(&self, new: u32, order: Ordering) {
            self.0.store(new, order);
        }
        pub(crate) fn cmpxchg(&self, old: u32, new: u32, order: Ordering) -> u32 {
            match self.0.compare_exchange(old, new, order, Ordering::Relaxed) {
                Ok(was) | Err(was) => was,
            }
        }
        pub(crate) fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
            self.0.fetch_add(value, order)
        }
    }
}
