// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The counter's contract (K57 to K70, K72, K74), and K73 on all processors at once.

use crate::Machine;
use fastpath_cmpxchg::{Atomic, Ordering};
use fastpath_refcount::{RefCount, Warning, clear_warn_once, set_warn_hook};
use fastpath_testkit::refcount_suite as suite;

fastpath_testkit::refcount_backend!(Ours, fastpath_refcount);

/// How often each kind of warning was seen.
static SEEN: [Atomic<u32>; 6] = [const { Atomic::new(0) }; 6];

struct Seen;

impl suite::Warnings for Seen {
    fn clear() {
        // ORDERING: Relaxed everywhere: one processor.
        set_warn_hook(Some(|warning: &Warning| {
            SEEN[warning.event() as usize].fetch_add(1, Ordering::Relaxed);
        }));
        for seen in &SEEN {
            seen.store(0, Ordering::Relaxed);
        }
        clear_warn_once();
    }

    fn seen() -> [u32; 6] {
        core::array::from_fn(|kind| SEEN[kind].load(Ordering::Relaxed))
    }
}

/// The cases for one thread.
pub(crate) fn cases() -> [suite::Case; 16] {
    suite::cases::<Ours, Seen>()
}

static SHARED: RefCount = RefCount::new(1);

/// Every processor takes and drops references: the count is what it was.
pub(crate) fn balanced_everywhere<M: Machine>() {
    SHARED.set(1);
    M::everywhere(|| {
        for _ in 0..2000 {
            SHARED.inc();
            assert!(SHARED.inc_not_zero());
            assert!(!SHARED.dec_and_test(), "one reference is never dropped");
            SHARED.dec();
        }
    });
    assert_eq!(SHARED.read(), 1);
}
