// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! A fence that every machine has.

use crate::Ordering;

/// Orders the accesses before it and after it as [`core::sync::atomic::fence`] does. On machines of which the final binary
/// says that they have one processor (and on ARMv4T and ARMv5, which always have), only the compiler has to be kept in
/// order: that takes no instruction, where `core`'s fence is a call into a library that is not there.
///
/// # Panics
///
/// If `order` is `Relaxed`, except on those machines.
///
/// ```
/// use fastpath_cmpxchg::{Atomic, Ordering, fence};
/// let (data, ready) = (Atomic::new(0), Atomic::new(false));
/// data.store(7, Ordering::Relaxed);
/// // ORDERING: Release, for a reader whose Acquire fence follows a load that sees `true`.
/// fence(Ordering::Release);
/// ready.store(true, Ordering::Relaxed);
/// # assert!(ready.load(Ordering::Relaxed));
/// ```
#[doc(alias = "smp_mb")]
#[inline(always)]
pub fn fence(order: Ordering) {
    #[cfg(any(fastpath_arm = "pre_v6", fastpath_assume_single_core))]
    {
        let _ = order;
        // SAFETY: no instruction. No `nomem`: that it may touch memory is its purpose.
        unsafe { core::arch::asm!("", options(nostack, preserves_flags)) };
    }
    #[cfg(not(any(fastpath_arm = "pre_v6", fastpath_assume_single_core)))]
    core::sync::atomic::fence(order);
}
