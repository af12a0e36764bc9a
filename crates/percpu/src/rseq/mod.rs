// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The critical sections: the crate's one architecture table.
//!
//! Every module of the table has the same functions, each a single section named by its steps; [`crate::contract`]
//! says what each does. `AVAILABLE` says whether they exist: where not, the process uses the locked backend from its
//! start, and the functions here are never called.

use core::sync::atomic::{AtomicU64, Ordering};

#[cfg(fastpath_inject)]
pub mod inject;

pub use crate::contract::Outcome;

/// The address of a word in slot 0.
pub type Base = *mut u64;

/// How far apart the slots of an object lie. A type, because sections have it as an immediate operand.
pub trait Stride {
    /// log2 of the distance in bytes.
    const SHIFT: u32;
}

cfg_select! {
    any(miri, loom) => {
        mod unsupported;
        pub use unsupported::*;
    }
    all(target_arch = "x86_64", target_pointer_width = "64") => {
        mod x86_64;
        pub use x86_64::*;
        /// Are there sections for this target?
        pub const AVAILABLE: bool = true;
    }
    all(target_arch = "aarch64", target_endian = "little", not(fastpath_inject)) => {
        mod aarch64;
        pub use aarch64::*;
    }
    _ => {
        // riscv64 and the rest: no tested sections, so none at all. `Backend::Locked` and `fastpath info` say so.
        mod unsupported;
        pub use unsupported::*;
    }
}

/// Aborted sections, counted by the abort handlers.
pub(crate) static ABORTS: AtomicU64 = AtomicU64::new(0);

/// How many sections of this object the kernel has aborted since the start of the process.
///
/// Counts preemptions, migrations, signals and fences that came inside a section; each was then done again.
///
/// ```
/// let before = fastpath_percpu::aborts();
/// assert!(fastpath_percpu::aborts() >= before);
/// ```
pub fn aborts() -> u64 {
    // ORDERING: Relaxed: a statistic.
    ABORTS.load(Ordering::Relaxed)
}
