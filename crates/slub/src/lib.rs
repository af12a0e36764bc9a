// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The slab allocator with per-CPU fast paths, for any memory source and without an operating system.
#![no_std]
#![doc = include_str!("../README.md")]

pub mod attributes;
mod barn;
mod cache;
pub mod classes;
pub mod debug;
mod freeptr;
mod hardening;
mod host;
mod kmalloc;
mod lock;
#[cfg(any(
    all(test, not(loom)),
    all(target_os = "none", target_has_atomic = "ptr", not(target_has_atomic = "64"))
))]
mod locked;
#[cfg(not(loom))]
pub mod merge;
mod node;
mod pool;
pub mod region;
pub mod sheaf;
mod sizing;
mod slab;
mod slabs;
pub mod slots;
mod source;
mod spec;
mod stats;
mod sync;
pub mod tid;
mod trylock;
mod typed;
pub mod word;

pub use cache::{Cache, GraceHead, GracePeriod, PrefilledSheaf, RefillError};
pub use host::{Corruption, Event, Host, Step};
pub use kmalloc::Kmalloc;
pub use lock::{RawLock, SpinLock};
pub use pool::SheafPool;
pub use region::StaticRegion;
pub use sheaf::Sheaf;
pub use sizing::{Layout, Sizing, cpu_partial, min_partial, sheaf_capacity};
pub use slab::Slab;
pub use slabs::{Busy, Slabs};
pub use slots::{CpuSlots, Place, Refused, Side, When};
pub use source::{PageSource, Wait};
pub use spec::{CacheFlags, CacheSpec, FreePointer};
pub use stats::{SlabInfo, StatItem};
pub use tid::TidCache;
pub use tid::backend::TidBackend;
pub use trylock::{CurrentCpu, TryLockSlots};
pub use typed::{SlabBox, TypedCache};
