// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The one place where this crate takes its atomics from: loom's under `cfg(loom)`, otherwise those of
//! `fastpath-cmpxchg`, whose names (`xchg`, `try_cmpxchg`) the loom half repeats.
#![allow(dead_code, reason = "one vocabulary for all modules; a configuration may use a part of it")]

pub(crate) use core::sync::atomic::Ordering;

/// Declares `const fn` items that are plain `fn` under loom, whose atomics have no constant constructor.
macro_rules! const_fn {
    ($(#[$meta:meta])* $vis:vis const fn $name:ident $($rest:tt)*) => {
        #[cfg(not(loom))]
        $(#[$meta])*
        $vis const fn $name $($rest)*
        #[cfg(loom)]
        $(#[$meta])*
        $vis fn $name $($rest)*
    };
    ($(#[$meta:meta])* $vis:vis const unsafe fn $name:ident $($rest:tt)*) => {
        #[cfg(not(loom))]
        $(#[$meta])*
        $vis const unsafe fn $name $($rest)*
        #[cfg(loom)]
        $(#[$meta])*
        $vis unsafe fn $name $($rest)*
    };
}
pub(crate) use const_fn;

/// One word each; processors without compare-and-exchange get them from interrupts off.
#[cfg(not(loom))]
mod imp {
    use fastpath_cmpxchg::Atomic;
    #[cfg(not(all(target_os = "none", target_has_atomic = "ptr", not(target_has_atomic = "64"))))]
    pub(crate) type AtomicU64 = Atomic<u64>;
    // A processor that exchanges 32 bits at most.
    #[cfg(all(target_os = "none", target_has_atomic = "ptr", not(target_has_atomic = "64")))]
    pub(crate) type AtomicU64 = crate::locked::Locked64<fastpath_cmpxchg::interrupt::Interrupts>;
    pub(crate) type AtomicU32 = Atomic<u32>;
    pub(crate) type AtomicUsize = Atomic<usize>;
    pub(crate) type AtomicPtr<T> = Atomic<*mut T>;
}
#[cfg(loom)]
mod imp {
    use super::Ordering;
    use loom::sync::atomic;

    macro_rules! atomic {
        ($name:ident $(<$param:ident>)?, $inner:ty, $value:ty) => {
            /// One atomic cell.
            #[derive(Debug)]
            #[repr(transparent)]
            pub(crate) struct $name $(<$param>)? ($inner);

            impl $(<$param>)? $name $(<$param>)? {
                pub(crate) fn new(value: $value) -> Self {
                    Self(<$inner>::new(value))
                }
                #[inline(always)]
                pub(crate) fn load(&self, order: Ordering) -> $value {
                    self.0.load(order)
                }
                #[inline(always)]
                pub(crate) fn store(&self, value: $value, order: Ordering) {
                    self.0.store(value, order);
                }
                /// Writes `value` and returns what was there.
                #[inline(always)]
                pub(crate) fn xchg(&self, value: $value, order: Ordering) -> $value {
                    self.0.swap(value, order)
                }
                /// Writes `new` if `*old` is there and says whether; puts what is there into `*old` if not.
                #[inline(always)]
                pub(crate) fn try_cmpxchg(&self, old: &mut $value, new: $value, order: Ordering) -> bool {
                    // ORDERING: a failed exchange orders nothing; every caller starts over from a value it validates by
                    // another exchange.
                    match self.0.compare_exchange(*old, new, order, Ordering::Relaxed) {
                        Ok(_) => true,
                        Err(seen) => {
                            *old = seen;
                            false
                        }
                    }
                }
            }
        };
    }

    atomic!(AtomicU64, atomic::AtomicU64, u64);
    atomic!(AtomicU32, atomic::AtomicU32, u32);
    atomic!(AtomicUsize, atomic::AtomicUsize, usize);
    atomic!(AtomicPtr<T>, atomic::AtomicPtr<T>, *mut T);

    impl AtomicUsize {
        #[inline(always)]
        pub(crate) fn fetch_add(&self, value: usize, order: Ordering) -> usize {
            self.0.fetch_add(value, order)
        }
        #[inline(always)]
        pub(crate) fn fetch_sub(&self, value: usize, order: Ordering) -> usize {
            self.0.fetch_sub(value, order)
        }
    }
}
pub(crate) use imp::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

#[cfg(not(loom))]
pub(crate) use fastpath_cmpxchg::fence;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::fence;

/// Tells the processor (or the model) that this is a waiting loop.
#[inline]
pub(crate) fn spin_loop() {
    #[cfg(not(loom))]
    core::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}

/// A number that may be changed at any time and orders nothing: a limit, a secret. The model leaves it alone, since each
/// access would multiply what it must explore.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Tunable(TunableCell);

#[cfg(not(loom))]
type TunableCell = AtomicUsize;
#[cfg(loom)]
type TunableCell = core::sync::atomic::AtomicUsize;

impl Tunable {
    pub(crate) const fn new(value: usize) -> Self {
        Self(TunableCell::new(value))
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> usize {
        // ORDERING: Relaxed: publishes nothing.
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, value: usize) {
        // ORDERING: Relaxed: publishes nothing.
        self.0.store(value, Ordering::Relaxed);
    }

    /// Replaces 0, once for all callers.
    pub(crate) fn set_once(&self, value: usize) {
        // ORDERING: Relaxed: whoever needs the value got what it belongs to from a later writer; a loser of the race reads
        // the winner's value from here on (coherence).
        #[cfg(not(loom))]
        let _ = self.0.try_cmpxchg(&mut 0, value, Ordering::Relaxed);
        #[cfg(loom)]
        let _ = self.0.compare_exchange(0, value, Ordering::Relaxed, Ordering::Relaxed);
    }
}
