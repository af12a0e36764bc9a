// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The three kinds of reference counter that the families `refcount` and `open-close` compare.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use fastpath_example_file_table::Count;
use fastpath_refcount::RefCount;

/// A counter that starts with one reference.
pub(super) trait Counter: Sync {
    /// Column name.
    const NAME: &'static str;
    /// A counter with one reference.
    fn new() -> Self;
    /// One more. What the loop is to use of it: the old value where nothing else looks at it.
    fn get(&self) -> u32;
    /// One less; true for the last one.
    fn put(&self) -> bool;
}

/// Plain atomics, unchecked, with their results used.
pub(super) struct Plain(AtomicU32);

impl Counter for Plain {
    const NAME: &'static str = "plain";

    fn new() -> Self {
        Self(AtomicU32::new(1))
    }

    #[inline(always)]
    fn get(&self) -> u32 {
        // ORDERING: Relaxed, as every form of taking a reference here.
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    #[inline(always)]
    fn put(&self) -> bool {
        // ORDERING: Release pairs with the fence below, as every form of dropping one.
        let last = self.0.fetch_sub(1, Ordering::Release) == 1;
        if last {
            // ORDERING: Acquire pairs with the Release of the other drops.
            fence(Ordering::Acquire);
        }
        last
    }
}

/// The kernel's checked counter before 2019: a compare loop for every operation, saturating at the largest value.
pub(super) struct CompareLoop(AtomicU32);

impl Counter for CompareLoop {
    const NAME: &'static str = "compare";

    fn new() -> Self {
        Self(AtomicU32::new(1))
    }

    #[inline(always)]
    fn get(&self) -> u32 {
        let mut old = self.0.load(Ordering::Relaxed);
        loop {
            if old == 0 || old == u32::MAX {
                misused(&self.0);
                return 0;
            }
            // ORDERING: Relaxed, as above.
            match self.0.compare_exchange_weak(old, old + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return 0,
                Err(now) => old = now,
            }
        }
    }

    #[inline(always)]
    fn put(&self) -> bool {
        let mut old = self.0.load(Ordering::Relaxed);
        loop {
            if old == u32::MAX {
                return false;
            }
            if old == 0 {
                misused(&self.0);
                return false;
            }
            // ORDERING: Release, as above.
            match self.0.compare_exchange_weak(old, old - 1, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => old = now,
            }
        }
        if old == 1 {
            // ORDERING: Acquire, as above.
            fence(Ordering::Acquire);
        }
        old == 1
    }
}

/// The same counters under the objects of the in-process file table.
macro_rules! counts {
    ($($counter:ty),*) => {$(
        impl Count for $counter {
            fn one() -> Self {
                <Self as Counter>::new()
            }

            #[inline(always)]
            fn get(&self) {
                let _ = Counter::get(self);
            }

            #[inline(always)]
            fn put(&self) -> bool {
                Counter::put(self)
            }
        }
    )*};
}

counts!(Plain, CompareLoop);

/// One reference taken and dropped again, `n` times; the results are used without going through memory.
#[inline(always)]
pub(super) fn pairs<C: Counter>(counter: &C, n: u64) {
    let mut sum = 0;
    for _ in 0..n {
        let counter = black_box(counter);
        sum ^= counter.get();
        if counter.put() {
            freed();
        }
    }
    black_box(sum);
}

/// What follows the last reference: never reached by loops that keep one.
#[cold]
#[inline(never)]
extern "C" fn freed() {
    black_box(());
}

/// Where the compare loop would warn.
#[cold]
#[inline(never)]
extern "C" fn misused(counter: &AtomicU32) {
    black_box(counter);
}

/// Ours: one fetch, judged afterwards.
impl Counter for RefCount {
    const NAME: &'static str = "refcount";

    fn new() -> Self {
        Self::new(1)
    }

    #[inline(always)]
    fn get(&self) -> u32 {
        self.inc();
        0
    }

    #[inline(always)]
    fn put(&self) -> bool {
        self.dec_and_test()
    }
}
