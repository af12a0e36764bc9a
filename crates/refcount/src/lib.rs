// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

#![doc = include_str!("../README.md")]
#![no_std]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod allocator;
mod arc;
mod block;
mod counter;
mod event;
mod lock;
mod sync;
pub mod weak;

/// Which of the counters of this workspace to use when.
#[doc = include_str!("../docs/choosing.md")]
pub mod choosing {}

pub use allocator::{ArcAllocator, Global};
#[cfg(feature = "slub")]
pub use arc::slub::CacheAllocator;
pub use arc::{Arc, ArcBorrow, HeaderSlice, UniqueArc};
pub use counter::{MAX, RefCount, SATURATED};
pub use event::{Event, Hook, Warning, clear_warn_once, set_warn_hook};
