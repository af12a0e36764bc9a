// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Locks of the slow paths, aware of their owner.
#![expect(unsafe_code, reason = "RawLock is an unsafe trait: the slab layer relies on mutual exclusion")]

use crate::sync::{AtomicUsize, Ordering, const_fn, spin_loop};

/// A lock that knows who holds it.
///
/// The slab layer calls `lock` with [`Host::context`](crate::Host::context), the identity of the running thread. A
/// signal handler that interrupted the holder has the same identity: it is told so instead of waiting for ever, and the
/// allocator then takes its lock-free way.
///
/// # Safety
///
/// Between a successful `lock` or `try_lock` and the matching `unlock` no other call of either succeeds, and `unlock`
/// happens before the next successful `lock` (acquire and release).
pub unsafe trait RawLock: Sync {
    /// An unlocked lock.
    #[cfg(not(loom))]
    const UNLOCKED: Self;

    /// An unlocked lock (loom's atomics have no constants).
    #[cfg(loom)]
    fn unlocked() -> Self;

    /// Waits for the lock. `false`, at once and without the lock, if `context` itself holds it.
    #[must_use]
    fn lock(&self, context: usize) -> bool;

    /// Takes the lock if it is free. Never waits.
    #[must_use]
    fn try_lock(&self, context: usize) -> bool;

    /// Gives the lock back.
    ///
    /// # Safety
    ///
    /// The caller holds it.
    unsafe fn unlock(&self);
}

/// A spinning [`RawLock`] for kernels and tests: one word, the owner's context or 0.
///
/// A kernel whose interrupt handlers allocate disables interrupts around it, or passes a context that is the CPU
/// number plus one: a handler on the same CPU is then told that its own CPU holds the lock.
///
/// ```
/// use fastpath_slub::{RawLock, SpinLock};
/// static LOCK: SpinLock = SpinLock::UNLOCKED;
/// assert!(LOCK.lock(7));
/// assert!(!LOCK.lock(7), "the holder is told, it does not wait for itself");
/// assert!(!LOCK.try_lock(8));
/// // SAFETY: locked above.
/// unsafe { LOCK.unlock() };
/// ```
#[derive(Debug)]
pub struct SpinLock {
    owner: AtomicUsize,
}

impl SpinLock {
    const_fn! {
        /// An unlocked lock.
        pub const fn new() -> Self {
            Self { owner: AtomicUsize::new(0) }
        }
    }
}

impl Default for SpinLock {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: `owner` goes from 0 to a context only by one compare-and-exchange and back only in `unlock`.
unsafe impl RawLock for SpinLock {
    #[cfg(not(loom))]
    const UNLOCKED: Self = Self::new();

    #[cfg(loom)]
    fn unlocked() -> Self {
        Self::new()
    }

    #[inline]
    fn lock(&self, context: usize) -> bool {
        loop {
            let mut owner = 0;
            // ORDERING: Acquire pairs with the Release in `unlock`: this owner sees the last one's writes.
            if self.owner.try_cmpxchg(&mut owner, context, Ordering::Acquire) {
                return true;
            }
            // Only this context itself can have written its own identity.
            if owner == context {
                return false;
            }
            spin_loop();
        }
    }

    #[inline]
    fn try_lock(&self, context: usize) -> bool {
        debug_assert_ne!(context, 0);
        // ORDERING: Acquire pairs with the Release in `unlock`: this owner sees the last one's writes.
        self.owner.try_cmpxchg(&mut 0, context, Ordering::Acquire)
    }

    #[inline]
    unsafe fn unlock(&self) {
        // ORDERING: Release pairs with the Acquire in `try_lock`.
        self.owner.store(0, Ordering::Release);
    }
}
