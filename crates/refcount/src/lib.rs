// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

#![doc = include_str!("../README.md")]
#![no_std]

#[cfg(feature = "std")]
extern crate std;

mod counter;
mod event;
mod lock;
mod sync;

pub use counter::{MAX, RefCount, SATURATED};
pub use event::{Event, Hook, Warning, clear_warn_once, set_warn_hook};
