// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Contract suites and test records shared by every crate, the host, loom and the QEMU images.
//!
//! * With the feature `std` (the default): [`case`] records that a numbered case of `docs/CASES.md` really ran, on
//!   which backend; [`skip`] records that a test could not run here and why. The lane `cases` prints the matrix
//!   case × backend from these records and fails on a gap without a stated reason; the lane `host` compares the skips
//!   with `ci/allowed-skips.txt`.
//! * The `*_suite` modules are `no_std` suites, generic over the backend under test: the same functions run under
//!   `cargo test` and inside the bare-metal images.
#![cfg_attr(not(feature = "std"), no_std)]

#[cfg(not(loom))]
#[expect(unsafe_code, reason = "raw words and local forms under test")]
pub mod cmpxchg_suite;
#[cfg(feature = "std")]
mod record;
pub mod refcount_suite;
pub mod rtmutex_suite;
pub mod slub_suite;

#[cfg(feature = "std")]
pub use record::{case, explored, skip};
