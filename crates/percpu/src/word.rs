// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! One word of a slot, and the integer types it can have.

use core::cell::UnsafeCell;
use core::fmt;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::rseq::{self, Base, Outcome, Stride};

mod sealed {
    pub trait Sealed {}
}

/// An integer or pointer that the `this_cpu_*` operations work on: 1, 2, 4 or 8 bytes.
///
/// Other sizes have no implementation, so they do not compile:
///
/// ```compile_fail
/// fn slot() -> fastpath_percpu::Word<u128> { todo!() }
/// ```
///
/// # Safety
///
/// Sealed: implemented here for all types it can be sound for.
pub unsafe trait Integer: Copy + Send + Sync + 'static + sealed::Sealed {
    /// The bits, zero-extended.
    #[doc(hidden)]
    fn bits(self) -> u64;
    /// The value with these low bits.
    #[doc(hidden)]
    fn from_bits(bits: u64) -> Self;
    /// Zero without the sign: the negation in two's complement.
    #[doc(hidden)]
    #[must_use]
    fn negated(self) -> Self {
        Self::from_bits(self.bits().wrapping_neg())
    }
}

macro_rules! integer {
    ($($signed:ty, $unsigned:ty;)*) => {$(
        impl sealed::Sealed for $signed {}
        impl sealed::Sealed for $unsigned {}
        // SAFETY: an integer of 1, 2, 4 or 8 bytes; every bit pattern is a value.
        unsafe impl Integer for $signed {
            #[inline(always)]
            fn bits(self) -> u64 {
                self.cast_unsigned() as u64
            }
            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                bits as Self
            }
        }
        // SAFETY: as above.
        unsafe impl Integer for $unsigned {
            #[inline(always)]
            fn bits(self) -> u64 {
                self as u64
            }
            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                bits as Self
            }
        }
    )*};
}
integer! { i8, u8; i16, u16; i32, u32; i64, u64; isize, usize; }

/// A word in a slot: an integer that critical sections and full atomics change, and anybody may read.
///
/// Zero at first. It has no method that writes: writing is what [`PerCpu`](crate::PerCpu)'s operations are for, because only
/// they know which way of writing is sound at this moment.
#[repr(transparent)]
pub struct Word<I: Integer>(UnsafeCell<I>);

// SAFETY: all accesses are atomic: sections and full atomics write, `load` reads relaxed.
unsafe impl<I: Integer> Sync for Word<I> {}

impl<I: Integer> Word<I> {
    /// Reads the word, from any thread: a value it has or had.
    ///
    /// ```
    /// use fastpath_percpu::{PerCpu, Word};
    /// let hits = PerCpu::<Word<u32>>::new().unwrap();
    /// hits.this_cpu_add(3);
    /// assert_eq!(hits.iter().map(|(_, slot)| slot.load()).sum::<u32>(), 3);
    /// ```
    #[inline(always)]
    pub fn load(&self) -> I {
        // ORDERING: Relaxed: a value alone; `fence` orders if the caller needs more.
        let bits = match size_of::<I>() {
            1 => u64::from(self.as_atomic::<AtomicU8>().load(Ordering::Relaxed)),
            2 => u64::from(self.as_atomic::<AtomicU16>().load(Ordering::Relaxed)),
            4 => u64::from(self.as_atomic::<AtomicU32>().load(Ordering::Relaxed)),
            _ => self.as_atomic::<AtomicU64>().load(Ordering::Relaxed),
        };
        I::from_bits(bits)
    }

    /// Stores while no section and no other atomic writes the word: the caller's protocol excludes them.
    pub(crate) fn store_exclusively(&self, value: I) {
        // ORDERING: Relaxed: the caller's protocol publishes it.
        match size_of::<I>() {
            1 => self.as_atomic::<AtomicU8>().store(value.bits() as u8, Ordering::Relaxed),
            2 => self.as_atomic::<AtomicU16>().store(value.bits() as u16, Ordering::Relaxed),
            4 => self.as_atomic::<AtomicU32>().store(value.bits() as u32, Ordering::Relaxed),
            _ => self.as_atomic::<AtomicU64>().store(value.bits(), Ordering::Relaxed),
        }
    }

    /// The word as an atomic of its size.
    #[inline(always)]
    fn as_atomic<A>(&self) -> &A {
        assert!(size_of::<A>() == size_of::<I>() && align_of::<A>() <= align_of::<I>());
        // SAFETY: an atomic integer has the layout of the integer; all other accesses are atomic too.
        unsafe { &*self.0.get().cast::<A>() }
    }

    pub(crate) fn as_base(&self) -> Base {
        self.0.get().cast()
    }
}

impl<I: Integer + fmt::Debug> fmt::Debug for Word<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Word").field(&self.load()).finish()
    }
}

/// What to do with a word, for both backends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    Write,
    Add,
    And,
    Or,
}

/// Runs the section for a change without a result.
///
/// # Safety
///
/// As [`rseq::add_64`], with `I`'s size.
#[inline(always)]
pub(crate) unsafe fn change<I: Integer, S: Stride>(base: Base, change: Change, value: I) -> Outcome {
    let bits = value.bits();
    // Constant operands choose at compile time; others pay a predictable branch for the faster increment.
    if matches!(change, Change::Add) && bits == 1 {
        // SAFETY: as below.
        return unsafe {
            match size_of::<I>() {
                1 => rseq::inc_8::<S>(base),
                2 => rseq::inc_16::<S>(base),
                4 => rseq::inc_32::<S>(base),
                _ => rseq::inc_64::<S>(base),
            }
        };
    }
    if matches!(change, Change::Add) && bits == I::from_bits(u64::MAX).bits() {
        // SAFETY: as below.
        return unsafe {
            match size_of::<I>() {
                1 => rseq::dec_8::<S>(base),
                2 => rseq::dec_16::<S>(base),
                4 => rseq::dec_32::<S>(base),
                _ => rseq::dec_64::<S>(base),
            }
        };
    }
    // SAFETY: the caller's contract; the section's width is that of `I`.
    unsafe {
        match (size_of::<I>(), change) {
            (1, Change::Write) => rseq::write_8::<S>(base, bits),
            (1, Change::Add) => rseq::add_8::<S>(base, bits),
            (1, Change::And) => rseq::and_8::<S>(base, bits),
            (1, Change::Or) => rseq::or_8::<S>(base, bits),
            (2, Change::Write) => rseq::write_16::<S>(base, bits),
            (2, Change::Add) => rseq::add_16::<S>(base, bits),
            (2, Change::And) => rseq::and_16::<S>(base, bits),
            (2, Change::Or) => rseq::or_16::<S>(base, bits),
            (4, Change::Write) => rseq::write_32::<S>(base, bits),
            (4, Change::Add) => rseq::add_32::<S>(base, bits),
            (4, Change::And) => rseq::and_32::<S>(base, bits),
            (4, Change::Or) => rseq::or_32::<S>(base, bits),
            (_, Change::Write) => rseq::write_64::<S>(base, bits),
            (_, Change::Add) => rseq::add_64::<S>(base, bits),
            (_, Change::And) => rseq::and_64::<S>(base, bits),
            (_, Change::Or) => rseq::or_64::<S>(base, bits),
        }
    }
}

/// Runs the section `old = word; word = old + value`.
///
/// # Safety
///
/// As [`change`].
#[inline(always)]
pub(crate) unsafe fn xadd<I: Integer, S: Stride>(base: Base, value: I) -> (Outcome, I) {
    let bits = value.bits();
    // SAFETY: as in `change`.
    let (outcome, old) = unsafe {
        match size_of::<I>() {
            1 => rseq::xadd_8::<S>(base, bits),
            2 => rseq::xadd_16::<S>(base, bits),
            4 => rseq::xadd_32::<S>(base, bits),
            _ => rseq::xadd_64::<S>(base, bits),
        }
    };
    (outcome, I::from_bits(old))
}

/// Runs the section `old = word; word = value`.
///
/// # Safety
///
/// As [`change`].
#[inline(always)]
pub(crate) unsafe fn xchg<I: Integer, S: Stride>(base: Base, value: I) -> (Outcome, I) {
    let bits = value.bits();
    // SAFETY: as in `change`.
    let (outcome, old) = unsafe {
        match size_of::<I>() {
            1 => rseq::xchg_8::<S>(base, bits),
            2 => rseq::xchg_16::<S>(base, bits),
            4 => rseq::xchg_32::<S>(base, bits),
            _ => rseq::xchg_64::<S>(base, bits),
        }
    };
    (outcome, I::from_bits(old))
}

/// Runs the section `old = word; if old == expected { word = new }`.
///
/// # Safety
///
/// As [`change`].
#[inline(always)]
pub(crate) unsafe fn cmpxchg<I: Integer, S: Stride>(base: Base, expected: I, new: I) -> (Outcome, I) {
    let (expected, new) = (expected.bits(), new.bits());
    // SAFETY: as in `change`.
    let (outcome, old) = unsafe {
        match size_of::<I>() {
            1 => rseq::cmpxchg_8::<S>(base, expected, new),
            2 => rseq::cmpxchg_16::<S>(base, expected, new),
            4 => rseq::cmpxchg_32::<S>(base, expected, new),
            _ => rseq::cmpxchg_64::<S>(base, expected, new),
        }
    };
    (outcome, I::from_bits(old))
}
