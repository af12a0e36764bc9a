// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Compare-and-exchange and its family on every CPU, also on CPUs that have none.
//!
//! The kernel's atomic vocabulary for `no_std` code: [`Atomic<T>`](Atomic) with `xchg`, `cmpxchg`, `try_cmpxchg` and the
//! `fetch_*` family; their *local* forms, which are indivisible only on the processor that runs them and therefore need
//! no bus lock; [`AtomicPair`] for two words at once; and the width-erased layer [`raw`] with the kernel's `arch_*` and
//! `generic_*` names.
//!
//! | you have | you get |
//! |---|---|
//! | x86, AArch64, ARM v6 and later, RISC-V with A | the processor's instructions ([`Native`]) |
//! | ARM v4T, v5 (no exclusive access) | [`backend::Generic`]: interrupts off around a plain read, compare and write |
//! | Cortex-M0, RISC-V without A | the same, once the final binary says `--cfg fastpath_assume_single_core` |
//! | your own way to turn interrupts off | implement [`interrupt::InterruptControl`], or enable the feature `critical-section` |
//!
//! # Example
//!
//! ```
//! use fastpath_cmpxchg::{Atomic, Ordering};
//!
//! // A lock word as the kernel has it: 0 free, else the owner.
//! static OWNER: Atomic<usize> = Atomic::new(0);
//!
//! fn try_lock(me: usize) -> bool {
//!     OWNER.cmpxchg(0, me, Ordering::Acquire) == 0
//! }
//! assert!(try_lock(7));
//! assert!(!try_lock(8));
//! OWNER.store(0, Ordering::Release);
//! ```
//!
//! # Local forms are not for user space
//!
//! A local form is sound only as long as the code cannot move to another processor and no other processor writes the
//! word. A kernel with preemption off can promise that; a user-space thread cannot, because it may migrate between
//! reading its processor number and the store. All local forms are `unsafe` for that reason. In Linux programs use
//! `fastpath-percpu`, whose restartable sequences the kernel restarts on migration.
//!
//! # Non-maskable interrupts and machine checks
//!
//! `generic` keeps ordinary interrupts away, nothing more: an NMI, a machine check or (while only IRQ is masked) an ARM
//! FIQ that changes the same word between read and write loses its change. Do not share words with such handlers; the
//! one-instruction local forms of x86 may be shared. See [`interrupt`].
//!
//! # Widths
//!
//! Only the operand's low bits of `old` and `new` count, memory is read zero-extended, signed values become unsigned
//! words of their own width first. These rules look pedantic; both were broken in shipped kernels, where negative
//! counters then never compared equal. Sizes other than 1, 2, 4 and 8 bytes do not compile.
//!
//! # Orderings
//!
//! The order given is that of an operation that writes. A failed compare writes nothing and orders nothing. Local forms
//! order nothing for other processors. Under `--cfg loom`, [`Atomic`] is loom's, so that code on top can be explored.
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
pub use arch::fence::fence;
#[cfg(not(loom))]
pub use atomic::Atomic;
pub use contract::{Backend, DoubleOps, LocalDoubleOps, LocalOps, Ops, Word};
/// `core`'s own orderings, which exist also on targets where `core` has no atomics.
pub use core::sync::atomic::Ordering;
#[cfg(loom)]
pub use model::{Atomic, LoomWord};
pub use pair::{AtomicPair, DoubleWord, DoubleWordLocal, Pair};
pub use primitive::{Bits, Integer, Primitive};
