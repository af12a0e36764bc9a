// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The contract on `core::sync::atomic`: what the compiler makes of it is `lock cmpxchg`, LL/SC loops, LSE or LR/SC.
//!
//! The full forms of every processor that has a compare-and-exchange come from here, by [`full_by_core`]: the compiler
//! knows the target's features (LSE, outlined atomics, masked LR/SC for bytes on RISC-V) better than a second copy in
//! assembly would, and `ci/lanes/21-golden-asm.sh` watches what it emits. The local forms are relaxed full ones, which
//! is the best that LL/SC machines have; x86 replaces them by instructions without LOCK.

use crate::contract::Backend;
use crate::contract::sealed::Sealed;

/// The contract on `core`'s atomics, on any target that has them.
///
/// ```
/// use fastpath_cmpxchg::{Atomic, Ordering, backend::CoreAtomic};
/// let word = Atomic::<u32, CoreAtomic>::new_in(1);
/// assert_eq!(word.cmpxchg(1, 2, Ordering::AcqRel), 1);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct CoreAtomic;

impl Sealed for CoreAtomic {}
impl Backend for CoreAtomic {
    const NAME: &'static str = "core_atomic";
}
full_by_core!(CoreAtomic);
local_by_relaxed!(CoreAtomic);
no_full_double!(CoreAtomic);
no_local_double!(CoreAtomic);
