// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ready-made raw spinlocks and owner words.

use core::fmt;
use core::sync::atomic::Ordering;

use super::sched::{OwnerWord, RawSpin};
use crate::sync::{Count, Word};

/// No lock at all: for one processor, where interrupts off are enough.
#[derive(Debug, Default)]
pub struct NoLock;

// SAFETY: used with interrupts off on one processor (the scheduler's choice): nobody else runs until `unlock`.
unsafe impl RawSpin for NoLock {
    #[cfg(not(loom))]
    const UNLOCKED: Self = Self;
    #[cfg(loom)]
    fn unlocked() -> Self {
        Self
    }
    #[inline(always)]
    fn lock(&self) {}
    #[inline(always)]
    fn try_lock(&self) -> bool {
        true
    }
    #[inline(always)]
    unsafe fn unlock(&self) {}
}

/// A test-and-test-and-set spinlock, for several processors.
///
/// ```
/// use fastpath_rtmutex::kernel::{RawSpin, SpinOnWord};
/// let lock = SpinOnWord::UNLOCKED;
/// lock.lock();
/// assert!(!lock.try_lock());
/// // SAFETY: taken two lines above.
/// unsafe { lock.unlock() };
/// ```
pub struct SpinOnWord {
    word: Count,
}

// SAFETY: the word is 1 while held; only the holder stores 0, as its last access.
unsafe impl RawSpin for SpinOnWord {
    #[cfg(not(loom))]
    const UNLOCKED: Self = Self { word: Count::new(0) };
    #[cfg(loom)]
    fn unlocked() -> Self {
        Self { word: Count::new(0) }
    }
    #[inline]
    fn lock(&self) {
        while !self.try_lock() {
            // ORDERING: Relaxed: only a hint when to try again.
            while self.word.load(Ordering::Relaxed) != 0 {
                core::hint::spin_loop();
            }
        }
    }
    #[inline]
    fn try_lock(&self) -> bool {
        // ORDERING: Acquire pairs with the Release in `unlock`.
        self.word.cmpxchg(0, 1, Ordering::Acquire) == 0
    }
    #[inline]
    unsafe fn unlock(&self) {
        // ORDERING: Release pairs with the Acquire in `try_lock`.
        self.word.store(0, Ordering::Release);
    }
}

impl fmt::Debug for SpinOnWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SpinOnWord")
    }
}

/// An owner word on the target's own compare-and-exchange: one acquire and one release `cmpxchg` are the fast path.
pub struct Native<T> {
    word: Word<T>,
}

// SAFETY: the word holds a pointer to a task, which any thread may name; operations are atomic.
unsafe impl<T: Sync> Send for Native<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Native<T> {}

// SAFETY: `Word`'s operations are atomic and have the asked order.
unsafe impl<T: Sync> OwnerWord<T> for Native<T> {
    const FAST: bool = true;
    #[cfg(not(loom))]
    const NONE: Self = Self { word: Word::new() };
    #[cfg(loom)]
    fn none() -> Self {
        Self { word: Word::new() }
    }
    #[inline(always)]
    fn load(&self, order: Ordering) -> *const T {
        self.word.load(order)
    }
    #[inline(always)]
    fn store(&self, new: *const T, order: Ordering) {
        self.word.store(new, order);
    }
    #[inline(always)]
    fn xchg(&self, new: *const T, order: Ordering) -> *const T {
        self.word.xchg(new, order)
    }
    #[inline(always)]
    fn cmpxchg(&self, old: *const T, new: *const T, order: Ordering) -> *const T {
        self.word.cmpxchg(old, new, order)
    }
}

impl<T> fmt::Debug for Native<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Native")
    }
}

/// An owner word on a named backend of `fastpath-cmpxchg`: on the generic one, for processors that have no
/// compare-and-exchange, the fast path is a few plain accesses with interrupts off.
///
/// ```
/// use fastpath_cmpxchg::backend::Generic;
/// use fastpath_rtmutex::kernel::Emulated;
/// // type Owner = Emulated<Task<Self>, Generic<MyInterrupts>>;
/// fn size<T, I>() -> usize {
///     size_of::<Emulated<T, Generic<I>>>()
/// }
/// assert_eq!(size::<u64, ()>(), size_of::<usize>());
/// ```
#[cfg(not(loom))]
pub struct Emulated<T, B> {
    word: fastpath_cmpxchg::Atomic<*const T, B>,
}

#[cfg(not(loom))]
// SAFETY: `Atomic`'s operations on the backend are indivisible and have the asked order.
unsafe impl<T: Sync, B> OwnerWord<T> for Emulated<T, B>
where
    B: fastpath_cmpxchg::Ops<<*const T as fastpath_cmpxchg::Primitive>::Word>,
{
    const FAST: bool = true;
    const NONE: Self = Self { word: fastpath_cmpxchg::Atomic::new_in(core::ptr::null()) };
    #[inline(always)]
    fn load(&self, order: Ordering) -> *const T {
        self.word.load(order)
    }
    #[inline(always)]
    fn store(&self, new: *const T, order: Ordering) {
        self.word.store(new, order);
    }
    #[inline(always)]
    fn xchg(&self, new: *const T, order: Ordering) -> *const T {
        self.word.xchg(new, order)
    }
    #[inline(always)]
    fn cmpxchg(&self, old: *const T, new: *const T, order: Ordering) -> *const T {
        self.word.cmpxchg(old, new, order)
    }
}

#[cfg(not(loom))]
impl<T, B> fmt::Debug for Emulated<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Emulated")
    }
}

/// The word `W` without its fast path: every lock and unlock takes the slow one, as in a debug kernel, and as on the
/// kernels that did not trust an emulated compare-and-exchange with it.
#[derive(Debug)]
pub struct ForcedSlow<W>(W);

// SAFETY: the word's own guarantee.
unsafe impl<T, W: OwnerWord<T>> OwnerWord<T> for ForcedSlow<W> {
    const FAST: bool = false;
    #[cfg(not(loom))]
    const NONE: Self = Self(W::NONE);
    #[cfg(loom)]
    fn none() -> Self {
        Self(W::none())
    }
    #[inline(always)]
    fn load(&self, order: Ordering) -> *const T {
        self.0.load(order)
    }
    #[inline(always)]
    fn store(&self, new: *const T, order: Ordering) {
        self.0.store(new, order);
    }
    #[inline(always)]
    fn xchg(&self, new: *const T, order: Ordering) -> *const T {
        self.0.xchg(new, order)
    }
    #[inline(always)]
    fn cmpxchg(&self, old: *const T, new: *const T, order: Ordering) -> *const T {
        self.0.cmpxchg(old, new, order)
    }
}
