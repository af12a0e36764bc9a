// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Debug options of caches: the `slab_debug` grammar says which cache gets which.
//!
//! The flags themselves ([`CacheFlags`](crate::CacheFlags)) are part of a cache's description. Of the debug flags only
//! their routing is in place: a cache with one of them has no sheaves and takes every operation through the slab layer.

mod grammar;

pub use grammar::{DEFAULT, Letters, SlabDebug, flag_of_letter};
