// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Where the state machines of this crate get their atomics: loom's under `--cfg loom`, else `core`'s.

#[cfg(loom)]
pub(crate) use loom::{
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    thread::yield_now,
};

#[cfg(not(loom))]
pub(crate) use {
    core::sync::atomic::{AtomicI64, AtomicU64, Ordering},
    fastpath_sys::sched::yield_now,
};
