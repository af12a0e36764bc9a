// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! A 64-bit word for processors that exchange 32 bits at most (ARMv7-M, RV32 with the A extension): a lock of its own beside
//! it, held with interrupts off for a few instructions.
//!
//! ```text
//! turn off interrupts; exchange the lock for 1 until it was 0     nobody of this processor, then of another, is inside
//! read, compare, write the word
//! lock = 0; interrupts as they were
//! ```
//!
//! Not against non-maskable handlers: whoever interrupts the holder waits for ever.
#![expect(unsafe_code, reason = "the word is reached under its lock only")]

use core::cell::UnsafeCell;
use core::marker::PhantomData;

use fastpath_cmpxchg::interrupt::{InterruptControl, Step};
use fastpath_cmpxchg::{Atomic, Ordering};

/// The word and its lock. The part of [`Atomic`]'s interface that slabs use.
pub(crate) struct Locked64<I> {
    lock: Atomic<u32>,
    value: UnsafeCell<u64>,
    interrupts: PhantomData<fn() -> I>,
}

// SAFETY: `value` is reached by `with` only, one caller at a time.
unsafe impl<I> Sync for Locked64<I> {}

impl<I> core::fmt::Debug for Locked64<I> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Locked64").finish_non_exhaustive()
    }
}

impl<I: InterruptControl> Locked64<I> {
    pub(crate) const fn new(value: u64) -> Self {
        Self { lock: Atomic::new(0), value: UnsafeCell::new(value), interrupts: PhantomData }
    }

    #[inline]
    fn with<R>(&self, with: impl FnOnce(&mut u64) -> R) -> R {
        let state = I::disable();
        // ORDERING: Acquire pairs with the Release below: this holder sees what the last one wrote. That is at least what any
        // caller asks for.
        while self.lock.xchg(1, Ordering::Acquire) != 0 {
            core::hint::spin_loop();
        }
        // SAFETY: the lock is held, and no handler of this processor runs until it is given back.
        let result = with(unsafe { &mut *self.value.get() });
        // ORDERING: Release pairs with the Acquire above.
        self.lock.store(0, Ordering::Release);
        // SAFETY: from the `disable` above, on this processor: nothing in between gives it up.
        unsafe { I::restore(state) };
        result
    }

    #[inline]
    pub(crate) fn load(&self, _order: Ordering) -> u64 {
        self.with(|value| *value)
    }

    #[inline]
    pub(crate) fn store(&self, new: u64, _order: Ordering) {
        self.with(|value| *value = new);
    }

    /// Writes `new` if `*old` is there and says whether; puts what is there into `*old` if not.
    #[inline]
    pub(crate) fn try_cmpxchg(&self, old: &mut u64, new: u64, _order: Ordering) -> bool {
        self.with(|value| {
            let there = *value;
            I::step(Step::Read);
            let same = core::mem::replace(old, there) == there;
            if same {
                *value = new;
            }
            same
        })
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    struct Threads;

    // SAFETY: threads of a test are interrupted by nobody who uses the word.
    unsafe impl InterruptControl for Threads {
        type State = ();
        const EXCLUDES_OTHER_PROCESSORS: bool = false;
        fn disable() {}
        unsafe fn restore((): ()) {}
        // Whoever loses the processor here shows what the lock is for.
        fn step(_step: Step) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn an_exchange_says_what_was_there() {
        let word = Locked64::<Threads>::new(7 << 40);
        let mut old = 1;
        assert!(!word.try_cmpxchg(&mut old, 2, Ordering::AcqRel));
        assert_eq!((old, word.load(Ordering::Relaxed)), (7 << 40, 7 << 40));
        assert!(word.try_cmpxchg(&mut old, 2, Ordering::AcqRel));
        assert_eq!((old, word.load(Ordering::Relaxed)), (7 << 40, 2));
        word.store(u64::MAX, Ordering::Release);
        assert_eq!(word.load(Ordering::Acquire), u64::MAX);
    }

    #[test]
    fn threads_lose_no_exchange_and_see_no_half() {
        // Both halves count alike.
        const ONE: u64 = 1 << 32 | 1;
        let word = Locked64::<Threads>::new(0);
        let together = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    together.wait();
                    let mut done = 0;
                    let mut old = word.load(Ordering::Relaxed);
                    while done < 1_500 {
                        assert_eq!(old >> 32, old & u64::from(u32::MAX), "two halves of different exchanges");
                        let new = old + ONE;
                        if word.try_cmpxchg(&mut old, new, Ordering::AcqRel) {
                            old = new;
                            done += 1;
                        }
                    }
                });
            }
        });
        assert_eq!(word.load(Ordering::Relaxed), 3_000 * ONE);
    }
}
