// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The priority-inheriting mutex, for Linux threads and for kernels.
//!
//! * [`kernel`] is the algorithm itself, without any operating system: for a kernel, firmware or model that has a
//!   scheduler of its own. It is always compiled, `no_std`, and allocates nothing.
//! * `linux` (feature `linux`, on by default) is the mutex for Linux threads, on the PI futex.
#![no_std]

pub mod kernel;

#[cfg(all(feature = "linux", target_os = "linux"))]
extern crate std;

#[cfg(all(feature = "linux", target_os = "linux"))]
pub mod linux;

mod sync;
