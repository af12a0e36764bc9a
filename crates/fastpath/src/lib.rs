// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The Linux kernel's per-CPU fast paths for ordinary Linux programs and for small kernels: the parts of fastpath under
//! one roof.
//!
//! | feature | module | what it is |
//! |---|---|---|
//! | `cmpxchg` | `cmpxchg` | compare-and-exchange and its family on every CPU, also on CPUs that have none |
//! | `percpu` | `percpu` | per-CPU counters, lists, stacks and slots in user space, on restartable sequences |
//! | `slub` | `slub` | the slab layer: no OS, needs only a source of pages and per-CPU slots |
//! | `refcount` | `refcount` | a reference count that saturates and leaks instead of being freed too early |
//! | `rtmutex` | `rtmutex` | a mutex with priority inheritance |
//! | `alloc` | `alloc` | the allocator of a Rust program: one `#[global_allocator]` line |
//! | `cli` (default) | | the `fastpath` command with all of the above |
//!
//! The default features build the command. A program that uses the library names the parts it wants, and then compiles
//! none of the command's dependencies:
//!
//! ```toml
//! [dependencies]
//! fastpath = { version = "0.1", default-features = false, features = ["percpu", "refcount"] }
//! ```
//!
//! Each part is also a crate of its own (`fastpath-percpu` and so on) with the same content.
#![no_std]

#[cfg(feature = "alloc")]
#[doc(inline)]
pub use fastpath_alloc as alloc;
#[cfg(feature = "cmpxchg")]
#[doc(inline)]
pub use fastpath_cmpxchg as cmpxchg;
#[cfg(feature = "percpu")]
#[doc(inline)]
pub use fastpath_percpu as percpu;
#[cfg(feature = "refcount")]
#[doc(inline)]
pub use fastpath_refcount as refcount;
#[cfg(feature = "rtmutex")]
#[doc(inline)]
pub use fastpath_rtmutex as rtmutex;
#[cfg(feature = "slub")]
#[doc(inline)]
pub use fastpath_slub as slub;

/// The examples of the front page, as tests.
#[cfg(all(doctest, feature = "cli"))]
#[doc = include_str!("../README.md")]
pub struct FrontPage;
