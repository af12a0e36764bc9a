// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Compare-and-exchange and its family on every CPU, also on CPUs that have none.
#![no_std]

#[expect(unsafe_code, reason = "backends: raw words, assembly, plain accesses with interrupts off")]
#[macro_use]
mod arch;
#[cfg(not(loom))]
#[expect(unsafe_code, reason = "the typed word over the backends")]
mod atomic;
#[expect(unsafe_code, reason = "the unsafe contract of the backends")]
mod contract;
#[expect(unsafe_code, reason = "the interrupt flag")]
pub mod interrupt;
#[cfg(loom)]
#[expect(unsafe_code, reason = "loom's cells are shared")]
mod model;
#[expect(unsafe_code, reason = "the typed pair over the backends")]
mod pair;
mod primitive;
#[expect(unsafe_code, reason = "pointers and machine words, as the kernel has it")]
pub mod raw;

/// The backends by name. [`Native`] is the one this target uses.
pub mod backend {
    #[cfg(target_has_atomic = "ptr")]
    pub use crate::arch::CoreAtomic;
    pub use crate::arch::Generic;
}

pub use arch::Native;
#[cfg(not(loom))]
pub use atomic::Atomic;
pub use contract::{Backend, DoubleOps, LocalDoubleOps, LocalOps, Ops, Word};
/// `core`'s own orderings, which exist also on targets where `core` has no atomics.
pub use core::sync::atomic::Ordering;
#[cfg(loom)]
pub use model::{Atomic, LoomWord};
pub use pair::{AtomicPair, DoubleWord, DoubleWordLocal, Pair};
pub use primitive::{Bits, Integer, Primitive};
