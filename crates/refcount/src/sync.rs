// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The one place that knows which atomics the counters are made of: `fastpath-cmpxchg`'s, which are loom's under `--cfg loom`,
//! and on processors without compare-and-exchange plain words with interrupts disabled.

use fastpath_cmpxchg::Atomic;

pub(crate) use fastpath_cmpxchg::Ordering;

/// A counter's word.
pub(crate) type AtomicU32 = Atomic<u32>;

#[cfg(not(loom))]
pub(crate) use fastpath_cmpxchg::fence;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::fence;

/// Words in statics. loom has none, and does not look at what they are for: who is told of a misuse.
pub(crate) mod statics {
    #[cfg(loom)]
    pub(crate) use core::sync::atomic::{AtomicPtr, AtomicU32};

    #[cfg(not(loom))]
    pub(crate) type AtomicU32 = fastpath_cmpxchg::Atomic<u32>;
    #[cfg(not(loom))]
    pub(crate) type AtomicPtr<T> = fastpath_cmpxchg::Atomic<*mut T>;
}

/// Waits a little for another thread. loom must be told that this one cannot go on.
pub(crate) fn spin_loop() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    core::hint::spin_loop();
}
