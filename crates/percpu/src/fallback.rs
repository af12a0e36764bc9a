// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The locked forms: the same operations with full atomics, on slots that only full atomics write.
//!
//! Only full (LOCKed) forms are sound here, never the single-instruction forms without LOCK: a user thread can migrate
//! between reading its CPU number and the store.

use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::rseq::Base;
use crate::word::{Change, Integer};

/// Runs `$body` with `$atomic` bound to the word as an atomic of `$I`'s size and `$to` converting bits to its value.
macro_rules! by_size {
    ($I:ty, $word:expr, |$atomic:ident, $value:ident| $body:expr) => {{
        let word: Base = $word;
        // SAFETY: the caller's contract: a live, aligned word of that size that only full atomics write.
        unsafe {
            match size_of::<$I>() {
                1 => {
                    type $value = u8;
                    let $atomic = &*word.cast::<AtomicU8>();
                    u64::from($body)
                }
                2 => {
                    type $value = u16;
                    let $atomic = &*word.cast::<AtomicU16>();
                    u64::from($body)
                }
                4 => {
                    type $value = u32;
                    let $atomic = &*word.cast::<AtomicU32>();
                    u64::from($body)
                }
                _ => {
                    type $value = u64;
                    let $atomic = &*word.cast::<AtomicU64>();
                    u64::from($body)
                }
            }
        }
    }};
}

/// A change without a result.
///
/// # Safety
///
/// `word` is a live, aligned word of `I`'s size that only full atomics write.
pub(crate) unsafe fn change<I: Integer>(word: Base, change: Change, value: I) {
    let bits = value.bits();
    // ORDERING: Relaxed: like the sections, the word publishes nothing but itself.
    let _ = match change {
        Change::Write => by_size!(I, word, |atomic, V| atomic.swap(bits as V, Ordering::Relaxed)),
        Change::Add => by_size!(I, word, |atomic, V| atomic.fetch_add(bits as V, Ordering::Relaxed)),
        Change::And => by_size!(I, word, |atomic, V| atomic.fetch_and(bits as V, Ordering::Relaxed)),
        Change::Or => by_size!(I, word, |atomic, V| atomic.fetch_or(bits as V, Ordering::Relaxed)),
    };
}

/// `old = word; word = old + value`, giving `old`.
///
/// # Safety
///
/// As [`change`].
pub(crate) unsafe fn xadd<I: Integer>(word: Base, value: I) -> I {
    let bits = value.bits();
    // ORDERING: Relaxed: as in `change`.
    I::from_bits(by_size!(I, word, |atomic, V| atomic.fetch_add(bits as V, Ordering::Relaxed)))
}

/// `old = word; word = value`, giving `old`.
///
/// # Safety
///
/// As [`change`].
pub(crate) unsafe fn xchg<I: Integer>(word: Base, value: I) -> I {
    let bits = value.bits();
    // ORDERING: Relaxed: as in `change`.
    I::from_bits(by_size!(I, word, |atomic, V| atomic.swap(bits as V, Ordering::Relaxed)))
}

/// `old = word; if old == expected { word = new }`, giving `old`.
///
/// # Safety
///
/// As [`change`].
pub(crate) unsafe fn cmpxchg<I: Integer>(word: Base, expected: I, new: I) -> I {
    let (expected, new) = (expected.bits(), new.bits());
    // ORDERING: Relaxed: as in `change`.
    I::from_bits(by_size!(I, word, |atomic, V| {
        match atomic.compare_exchange(expected as V, new as V, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(old) | Err(old) => old,
        }
    }))
}
