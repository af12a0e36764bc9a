// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The lock of the slow path. It knows its owner, so that a signal handler that interrupted the owner is told so
//! instead of waiting for itself.
//!
//! The word: 0 is free; otherwise the owner's thread pointer, bit 0 set, and bit 1 set if somebody may sleep.
//!
//! # No wait goes down
//!
//! Locks have a [`Rank`], and a thread waits only for a lock that ranks above all it holds. Straight code does so by its
//! shape. A signal handler that interrupted a holder does not: it would wait for a cache while its thread holds the
//! pages, and the owner of that cache's lock may be waiting for the pages. So whoever has to wait looks first whether its thread holds a
//! lock of this rank or above, and is then refused like a handler that meets its own thread's lock.

use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::os;
use fastpath_sys::rseq::thread_pointer;

const LOCKED: u64 = 1;
const SLEEPERS: u64 = 2;

/// The order in which locks are taken. A CPU's lock is only ever tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Rank {
    /// Blocks of CPUs. Zero: a lock in zeroed memory.
    Cpu = 0,
    Cache = 1,
    Pages = 2,
    Records = 3,
    Vacant = 4,
    Meta = 5,
}

/// Whether the thread that `mine` names holds a lock of `rank` or above.
#[cold]
fn holds_from(rank: Rank, mine: u64) -> bool {
    (rank <= Rank::Cache && crate::caches::held_by(mine))
        || (rank <= Rank::Pages && crate::pages::held_by(mine))
        || (rank <= Rank::Records && crate::big::held_by(mine))
        || (rank <= Rank::Vacant && crate::source::held_by(mine))
        || crate::meta::held_by(mine)
}

/// This thread's name in the words of its locks.
#[inline(always)]
pub(crate) fn my_word() -> u64 {
    thread_pointer().addr() as u64 | LOCKED
}

/// A lock around a `T`.
#[derive(Debug)]
pub(crate) struct Lock<T> {
    word: AtomicU64,
    rank: Rank,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands out one `&mut T` at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The right to the value; gives the lock back when dropped.
pub(crate) struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Lock<T> {
    pub(crate) const fn new(rank: Rank, value: T) -> Self {
        Self { word: AtomicU64::new(0), rank, value: UnsafeCell::new(value) }
    }

    /// Takes the lock; `None` if a signal handler must not wait for it: its thread holds it already, or another one that
    /// ranks no lower.
    #[inline]
    pub(crate) fn lock(&self) -> Option<Guard<'_, T>> {
        self.lock_word().then(|| Guard { lock: self })
    }

    /// [`lock`](Self::lock) without a guard: paired with [`unlock_raw`](Self::unlock_raw).
    #[inline]
    pub(crate) fn lock_word(&self) -> bool {
        let mine = my_word();
        // ORDERING: Acquire pairs with the Release in `unlock_raw`.
        self.word.compare_exchange(0, mine, Acquire, Relaxed).is_ok()
            || (!holds_from(self.rank, mine) && self.lock_contended(mine))
    }

    /// Whether the thread that `mine` (from inside this module) names holds it.
    pub(crate) fn is_held_by(&self, mine: u64) -> bool {
        // ORDERING: Relaxed: a thread reads its own name only if it wrote it itself.
        self.word.load(Relaxed) & !SLEEPERS == mine
    }

    /// Takes the lock only if it is free.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.try_lock_word().then(|| Guard { lock: self })
    }

    /// [`try_lock`](Self::try_lock) without a guard.
    #[inline]
    pub(crate) fn try_lock_word(&self) -> bool {
        // ORDERING: Acquire pairs with the Release in `unlock_raw`: we see what the last owner wrote.
        self.word.compare_exchange(0, my_word(), Acquire, Relaxed).is_ok()
    }

    /// Waits for the lock whatever this thread holds, for `fork`: paired with [`Self::unlock_raw`].
    pub(crate) fn lock_raw(&self) -> bool {
        let mine = my_word();
        // ORDERING: Acquire pairs with the Release in `unlock_raw`.
        if self.word.compare_exchange(0, mine, Acquire, Relaxed).is_ok() {
            return true;
        }
        self.lock_contended(mine)
    }

    #[cold]
    fn lock_contended(&self, mine: u64) -> bool {
        let mut spins = 0;
        let mut mark = 0;
        loop {
            // ORDERING: Relaxed: only decides what to try next.
            let seen = self.word.load(Relaxed);
            if seen == 0 {
                // ORDERING: Acquire pairs with the Release in `unlock_raw`. After a sleep the sleepers' bit is set
                // again, because others may still sleep.
                if self.word.compare_exchange(0, mine | mark, Acquire, Relaxed).is_ok() {
                    return true;
                }
                continue;
            }
            if seen & !SLEEPERS == mine {
                return false;
            }
            if spins < 64 {
                spins += 1;
                core::hint::spin_loop();
                continue;
            }
            if spins < 68 {
                spins += 1;
                os::yield_now();
                continue;
            }
            // ORDERING: Relaxed: the bit asks the owner for a wake-up and publishes nothing.
            if seen & SLEEPERS == 0
                && self.word.compare_exchange(seen, seen | SLEEPERS, Relaxed, Relaxed).is_err()
            {
                continue;
            }
            mark = SLEEPERS;
            os::wait_on(&self.word, (seen | SLEEPERS) as u32);
        }
    }

    /// Gives the lock back.
    pub(crate) fn unlock_raw(&self) {
        // ORDERING: Release pairs with the Acquire of the next owner.
        let seen = self.word.swap(0, Release);
        if seen & SLEEPERS != 0 {
            os::wake_one(&self.word);
        }
    }
}

impl<T> core::ops::Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so this thread holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> core::ops::DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard exists, so this thread holds the lock, and the guard is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.unlock_raw();
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn the_owner_is_told_so_and_keeps_the_lock() {
        let lock = Lock::new(Rank::Meta, 1);
        let guard = lock.lock().unwrap();
        assert!(lock.lock().is_none(), "the owner itself");
        assert!(lock.try_lock().is_none());
        // Neither refusal may have given the lock back.
        std::thread::scope(|scope| {
            assert!(scope.spawn(|| lock.try_lock().is_none()).join().unwrap());
        });
        drop(guard);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn threads_exclude_each_other_and_all_wake_up() {
        let lock = Lock::new(Rank::Meta, 0u64);
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    for _ in 0..5000 {
                        let mut value = lock.lock().unwrap();
                        let seen = *value;
                        if seen.is_multiple_of(64) {
                            std::thread::yield_now();
                        }
                        *value = seen + 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock().unwrap(), 30_000);
    }
}
