// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The per-CPU slab allocator as a Rust global allocator.
//!
//! ```
//! #[global_allocator]
//! static HEAP: fastpath_alloc::FastPath = fastpath_alloc::FastPath;
//!
//! let words: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
//! assert_eq!(words[999], "999");
//! ```
#![no_std]
#![allow(
    clippy::cast_ptr_alignment,
    reason = "the heap's memory is aligned as it must be, whatever its bytes are called"
)]

#[cfg(feature = "allocator-api2")]
#[expect(unsafe_code, reason = "implements Allocator")]
mod api2;
#[cfg_attr(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    expect(unsafe_code, reason = "registers are read by assembly")
)]
mod arch;
#[expect(unsafe_code, reason = "raw memory")]
mod big;
#[expect(unsafe_code, reason = "raw memory")]
mod caches;
#[expect(unsafe_code, reason = "an unchecked index on the fast path")]
mod classes;
#[expect(unsafe_code, reason = "raw memory and restartable sequences")]
mod cpu;
#[expect(unsafe_code, reason = "raw memory")]
mod debug;
#[expect(unsafe_code, reason = "calls the C library by address")]
pub mod errno;
mod fence;
#[expect(unsafe_code, reason = "calls the C library by address")]
mod fork;
#[expect(unsafe_code, reason = "implements GlobalAlloc")]
mod global;
#[expect(unsafe_code, reason = "raw memory and restartable sequences")]
mod heap;
mod huge;
mod limit;
pub mod live;
#[expect(unsafe_code, reason = "hands out references under a lock")]
mod lock;
mod meta;
#[expect(unsafe_code, reason = "system calls on memory")]
mod os;
#[expect(unsafe_code, reason = "raw memory")]
mod pagemap;
#[expect(unsafe_code, reason = "raw memory")]
mod pages;
#[expect(unsafe_code, reason = "raw memory, and calls the C library by address")]
pub mod profile;
mod reap;
#[expect(unsafe_code, reason = "writes to standard error")]
mod report;
#[expect(unsafe_code, reason = "reads the C library's environment")]
mod settings;
pub mod shared_stats;
#[expect(unsafe_code, reason = "raw memory")]
mod source;
#[expect(unsafe_code, reason = "counts in a shared mapping")]
mod stats;
#[expect(unsafe_code, reason = "caches in raw memory")]
mod tid;

pub mod text;

#[expect(unsafe_code, reason = "the raw entry points of the C library's names")]
pub mod raw;

/// What the exported `malloc` and `free` of `fastpath-malloc` are made of. Not for anybody else.
#[doc(hidden)]
pub mod fast {
    pub use crate::classes::CLASS2_OF_SIZE;
    pub use crate::cpu::{RSEQ_OFFSET, RSEQ_SIZE, TABLE};
    pub use crate::heap::{
        COUNTED, LIMIT, free_full, free_slow, freed_twice, malloc_closed, malloc_empty, malloc_slow,
    };
    pub use crate::pagemap::{FAST_ROOT, ROOT};
    pub use crate::profile::{COUNTDOWNS, Countdown};
    pub use fastpath_percpu::sheaf::SHEAF_BYTES;
}

pub use global::FastPath;
pub use stats::{Stats, stats};

/// Gives free memory back to the system, out of the CPUs' sheaves too; whether there was any.
///
/// ```
/// drop(vec![0u8; 1 << 20]);
/// fastpath_alloc::trim();
/// ```
pub fn trim() -> bool {
    heap::trim()
}
