// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The crate's one selection table: which backend is [`Native`] on which target.

#[macro_use]
mod by_core;

#[cfg(target_has_atomic = "ptr")]
mod core_atomic;
#[cfg(target_has_atomic = "ptr")]
pub use core_atomic::CoreAtomic;
#[cfg(target_has_atomic = "ptr")]
pub use core_atomic::CoreAtomic as Native;
