// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! K11 on all processors of the machine at once.

use crate::Machine;
use fastpath_cmpxchg::{Atomic, Ordering};
use fastpath_testkit::cmpxchg_suite as suite;

const COUNT: u32 = 20_000;
static WORD: Atomic<i32> = Atomic::new(0);

/// Every increment of every processor counts, also while the value crosses from -1 to 0.
pub(crate) fn k11<M: Machine>() {
    WORD.store(-(COUNT as i32), Ordering::SeqCst);
    M::everywhere(|| suite::increments(&WORD, COUNT));
    let others = M::processors() as i32 - 1;
    assert_eq!(WORD.load(Ordering::SeqCst), others * COUNT as i32);
}
