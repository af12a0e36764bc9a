// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The contract every backend keeps, in pseudo-code, and the words it is about.
//!
//! Each operation is one indivisible step. `memory` is the word at `ptr`; all arithmetic wraps at the word's width.
//!
//! ```text
//! load(ptr)               return memory
//! store(ptr, new)         memory = new
//! xchg(ptr, new)          previous = memory; memory = new; return previous
//! cmpxchg(ptr, old, new)  previous = memory
//!                         if previous == old: memory = new        (a failed compare writes nothing, orders nothing)
//!                         return previous                          (success is: the result equals `old`)
//! fetch_op(ptr, v)        previous = memory; memory = previous op v; return previous
//! ```
//!
//! "Indivisible" means two things. A *full* form ([`Ops`]) is indivisible for every processor and every handler. A
//! *local* form ([`LocalOps`]) is indivisible only for code that runs on the same processor: its interrupt handlers and
//! the threads that preempt it there; it orders nothing for others.

use crate::Ordering;
use crate::pair::Pair;

pub(crate) mod sealed {
    /// Nobody outside implements the traits of this crate; `InterruptControl` is the one open end.
    pub trait Sealed {}
}
use sealed::Sealed;

/// An unsigned machine integer that a backend operates on: `u8`, `u16`, `u32`, `u64`.
///
/// Sealed. Sizes other than 1, 2, 4 and 8 bytes do not implement it, so they do not compile:
///
/// ```
/// use fastpath_cmpxchg::Word;
/// assert_eq!(u16::MASK, 0xffff);
/// assert_eq!(u8::from_wide(0x17f), 0x7f);
/// ```
/// ```compile_fail,E0277
/// fn word<W: fastpath_cmpxchg::Word>() {}
/// word::<u128>();
/// ```
/// ```compile_fail,E0277
/// fn word<W: fastpath_cmpxchg::Word>() {}
/// word::<[u8; 3]>();
/// ```
pub trait Word: Copy + Eq + core::fmt::Debug + Send + Sync + Sealed + 'static {
    /// Exactly the bits of this width, and no other: 0xff, 0xffff, 0xffff_ffff or all 64.
    const MASK: u64;
    /// The low bits of `wide`.
    fn from_wide(wide: u64) -> Self;
    /// Zero-extended, never sign-extended.
    fn to_wide(self) -> u64;
    /// Wrapping sum.
    #[must_use]
    fn plus(self, other: Self) -> Self;
    /// The wrapping negation, so that `a.plus(b.negated())` is `a - b`.
    #[must_use]
    fn negated(self) -> Self;
    /// Bitwise and.
    #[must_use]
    fn and(self, other: Self) -> Self;
    /// Bitwise or.
    #[must_use]
    fn or(self, other: Self) -> Self;
    /// Bitwise exclusive or.
    #[must_use]
    fn xor(self, other: Self) -> Self;
}

macro_rules! words {
    ($($word:ty: $mask:literal),*) => {$(
        impl Sealed for $word {}
        impl Word for $word {
            const MASK: u64 = $mask;
            #[inline(always)]
            fn from_wide(wide: u64) -> Self {
                (wide & Self::MASK) as Self
            }
            #[inline(always)]
            fn to_wide(self) -> u64 {
                self as u64
            }
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn negated(self) -> Self {
                self.wrapping_neg()
            }
            #[inline(always)]
            fn and(self, other: Self) -> Self {
                self & other
            }
            #[inline(always)]
            fn or(self, other: Self) -> Self {
                self | other
            }
            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                self ^ other
            }
        }
        const _: () = assert!(<$word>::MASK == <$word>::MAX as u64, "the mask is exactly the width");
    )*};
}
words!(u8: 0xff, u16: 0xffff, u32: 0xffff_ffff, u64: 0xffff_ffff_ffff_ffff);

/// A way of making operations indivisible. Sealed; [`Native`](crate::Native) is the one this target uses.
///
/// ```
/// use fastpath_cmpxchg::{Backend, Native};
/// println!("atomics by {}", Native::NAME);
/// ```
pub trait Backend: Sealed + 'static {
    /// What reports and test records call it: `x86_64`, `generic`, ...
    const NAME: &'static str;
}

/// The full forms on words of type `W`: indivisible for all processors.
///
/// # Safety
///
/// An implementation does what the contract's pseudo-code says in one step, and gives at least the asked ordering when
/// the operation writes. A failed `cmpxchg` is a relaxed load.
///
/// The caller of each method guarantees that `ptr` is valid for reads and writes, is aligned to the size of `W`, and is
/// only accessed by atomic operations of this same backend as long as others may access it.
pub unsafe trait Ops<W: Word>: Backend {
    /// `memory`. `Release` and `AcqRel`, which a load cannot be, are strengthened to `SeqCst`.
    ///
    /// # Safety
    /// See [`Ops`]; reading is enough here.
    unsafe fn load(ptr: *const W, order: Ordering) -> W;

    /// `memory = new`. `Acquire` and `AcqRel`, which a store cannot be, are strengthened to `SeqCst`.
    ///
    /// # Safety
    /// See [`Ops`].
    unsafe fn store(ptr: *mut W, new: W, order: Ordering);

    /// Stores `new` and returns what was there.
    ///
    /// # Safety
    /// See [`Ops`].
    unsafe fn xchg(ptr: *mut W, new: W, order: Ordering) -> W;

    /// Stores `new` if the word is `old`; returns what was there.
    ///
    /// # Safety
    /// See [`Ops`].
    unsafe fn cmpxchg(ptr: *mut W, old: W, new: W, order: Ordering) -> W;

    /// The width-erased [`cmpxchg`](Self::cmpxchg): only the low bits of `old` and `new` count, whatever stands above
    /// them, and the result is zero-extended.
    ///
    /// # Safety
    /// See [`Ops`].
    #[inline(always)]
    unsafe fn cmpxchg_wide(ptr: *mut W, old: u64, new: u64, order: Ordering) -> u64 {
        // ORDERING: the caller's.
        // SAFETY: the caller's guarantee is the same.
        unsafe { Self::cmpxchg(ptr, W::from_wide(old), W::from_wide(new), order) }.to_wide()
    }

    /// Adds `value`, wrapping; returns what was there.
    ///
    /// # Safety
    /// See [`Ops`].
    #[inline(always)]
    unsafe fn fetch_add(ptr: *mut W, value: W, order: Ordering) -> W {
        // SAFETY: the caller's guarantee is the same.
        unsafe { fetch_by_cmpxchg::<Self, W>(ptr, order, |word| word.plus(value)) }
    }

    /// Bitwise and; returns what was there.
    ///
    /// # Safety
    /// See [`Ops`].
    #[inline(always)]
    unsafe fn fetch_and(ptr: *mut W, value: W, order: Ordering) -> W {
        // SAFETY: the caller's guarantee is the same.
        unsafe { fetch_by_cmpxchg::<Self, W>(ptr, order, |word| word.and(value)) }
    }

    /// Bitwise or; returns what was there.
    ///
    /// # Safety
    /// See [`Ops`].
    #[inline(always)]
    unsafe fn fetch_or(ptr: *mut W, value: W, order: Ordering) -> W {
        // SAFETY: the caller's guarantee is the same.
        unsafe { fetch_by_cmpxchg::<Self, W>(ptr, order, |word| word.or(value)) }
    }

    /// Bitwise exclusive or; returns what was there.
    ///
    /// # Safety
    /// See [`Ops`].
    #[inline(always)]
    unsafe fn fetch_xor(ptr: *mut W, value: W, order: Ordering) -> W {
        // SAFETY: the caller's guarantee is the same.
        unsafe { fetch_by_cmpxchg::<Self, W>(ptr, order, |word| word.xor(value)) }
    }
}

/// The local forms on words of type `W`: indivisible for the code of one processor only.
///
/// # Safety
///
/// An implementation does what the contract's pseudo-code says so that no handler and no other thread of the same
/// processor sees or makes a change between its read and its write.
///
/// The caller of each method guarantees what [`Ops`] asks of the pointer, and moreover **the same-processor rule**: from
/// the moment the processor whose data this is was chosen until the operation is over, the caller cannot move to another
/// processor, and no other processor writes the word. A user-space thread that may migrate can never guarantee that.
pub unsafe trait LocalOps<W: Word>: Backend {
    /// Stores `new` and returns what was there.
    ///
    /// # Safety
    /// See [`LocalOps`].
    #[inline(always)]
    unsafe fn xchg_local(ptr: *mut W, new: W) -> W {
        // SAFETY: the caller's guarantee is the same.
        unsafe { fetch_by_cmpxchg_local::<Self, W>(ptr, |_| new) }
    }

    /// Stores `new` if the word is `old`; returns what was there.
    ///
    /// # Safety
    /// See [`LocalOps`].
    unsafe fn cmpxchg_local(ptr: *mut W, old: W, new: W) -> W;

    /// The width-erased [`cmpxchg_local`](Self::cmpxchg_local): see [`Ops::cmpxchg_wide`].
    ///
    /// # Safety
    /// See [`LocalOps`].
    #[inline(always)]
    unsafe fn cmpxchg_local_wide(ptr: *mut W, old: u64, new: u64) -> u64 {
        // SAFETY: the caller's guarantee is the same.
        unsafe { Self::cmpxchg_local(ptr, W::from_wide(old), W::from_wide(new)) }.to_wide()
    }

    /// `memory`, in one piece: what the first round of a local loop starts from.
    ///
    /// # Safety
    /// See [`LocalOps`].
    #[inline(always)]
    unsafe fn load_local(ptr: *mut W) -> W {
        // An exchange of zero for zero changes nothing and reads the word in one piece, whatever its width.
        // SAFETY: the caller's guarantee is the same.
        unsafe { Self::cmpxchg_local(ptr, W::from_wide(0), W::from_wide(0)) }
    }

    /// Adds `value`, wrapping; returns what was there.
    ///
    /// # Safety
    /// See [`LocalOps`].
    #[inline(always)]
    unsafe fn fetch_add_local(ptr: *mut W, value: W) -> W {
        // SAFETY: the caller's guarantee is the same.
        unsafe { fetch_by_cmpxchg_local::<Self, W>(ptr, |word| word.plus(value)) }
    }

    /// Bitwise and; returns what was there.
    ///
    /// # Safety
    /// See [`LocalOps`].
    #[inline(always)]
    unsafe fn fetch_and_local(ptr: *mut W, value: W) -> W {
        // SAFETY: the caller's guarantee is the same.
        unsafe { fetch_by_cmpxchg_local::<Self, W>(ptr, |word| word.and(value)) }
    }

    /// Bitwise or; returns what was there.
    ///
    /// # Safety
    /// See [`LocalOps`].
    #[inline(always)]
    unsafe fn fetch_or_local(ptr: *mut W, value: W) -> W {
        // SAFETY: the caller's guarantee is the same.
        unsafe { fetch_by_cmpxchg_local::<Self, W>(ptr, |word| word.or(value)) }
    }

    /// Bitwise exclusive or; returns what was there.
    ///
    /// # Safety
    /// See [`LocalOps`].
    #[inline(always)]
    unsafe fn fetch_xor_local(ptr: *mut W, value: W) -> W {
        // SAFETY: the caller's guarantee is the same.
        unsafe { fetch_by_cmpxchg_local::<Self, W>(ptr, |word| word.xor(value)) }
    }

    /// Adds `value` where nobody needs the previous value: one instruction on x86.
    ///
    /// # Safety
    /// See [`LocalOps`].
    #[inline(always)]
    unsafe fn add_local(ptr: *mut W, value: W) {
        // SAFETY: the caller's guarantee is the same.
        unsafe { Self::fetch_add_local(ptr, value) };
    }

    /// Bitwise and without a result.
    ///
    /// # Safety
    /// See [`LocalOps`].
    #[inline(always)]
    unsafe fn and_local(ptr: *mut W, value: W) {
        // SAFETY: the caller's guarantee is the same.
        unsafe { Self::fetch_and_local(ptr, value) };
    }

    /// Bitwise or without a result.
    ///
    /// # Safety
    /// See [`LocalOps`].
    #[inline(always)]
    unsafe fn or_local(ptr: *mut W, value: W) {
        // SAFETY: the caller's guarantee is the same.
        unsafe { Self::fetch_or_local(ptr, value) };
    }

    /// Bitwise exclusive or without a result.
    ///
    /// # Safety
    /// See [`LocalOps`].
    #[inline(always)]
    unsafe fn xor_local(ptr: *mut W, value: W) {
        // SAFETY: the caller's guarantee is the same.
        unsafe { Self::fetch_xor_local(ptr, value) };
    }
}

/// The full double-word form: two adjacent machine words compared and replaced as one.
///
/// # Safety
///
/// As for [`Ops`], on a [`Pair`]. `available` is true only where the form works.
pub unsafe trait DoubleOps: Backend {
    /// Whether this processor has the instruction. Asks the processor itself where the target does not promise it.
    fn available() -> bool;
    /// Replaces both halves by `new` if both are as in `old`; returns both halves as they were, read as one.
    ///
    /// # Safety
    /// See [`Ops`]; moreover `available` has returned true on this machine.
    unsafe fn cmpxchg_double(ptr: *mut Pair, old: Pair, new: Pair, order: Ordering) -> Pair;
}

/// The local double-word form.
///
/// # Safety
///
/// As for [`LocalOps`], on a [`Pair`]. `available_local` is true only where the form works.
pub unsafe trait LocalDoubleOps: Backend {
    /// Whether this processor has the instruction.
    fn available_local() -> bool;
    /// Replaces both halves by `new` if both are as in `old`; returns both halves as they were.
    ///
    /// # Safety
    /// See [`LocalOps`]; moreover `available_local` has returned true on this machine.
    unsafe fn cmpxchg_double_local(ptr: *mut Pair, old: Pair, new: Pair) -> Pair;
}

/// Any read-modify-write from a full compare-and-exchange.
///
/// # Safety
/// See [`Ops`].
#[inline(always)]
unsafe fn fetch_by_cmpxchg<B: Ops<W> + ?Sized, W: Word>(
    ptr: *mut W,
    order: Ordering,
    f: impl Fn(W) -> W,
) -> W {
    // ORDERING: Relaxed, the first guess: the exchange decides whether it still holds, and orders.
    // SAFETY: the caller's guarantee is the same.
    let mut expected = unsafe { B::load(ptr, Ordering::Relaxed) };
    loop {
        // SAFETY: as above.
        let previous = unsafe { B::cmpxchg(ptr, expected, f(expected), order) };
        if previous == expected {
            return previous;
        }
        expected = previous;
    }
}

/// Any local read-modify-write from a local compare-and-exchange.
///
/// # Safety
/// See [`LocalOps`].
#[inline(always)]
unsafe fn fetch_by_cmpxchg_local<B: LocalOps<W> + ?Sized, W: Word>(ptr: *mut W, f: impl Fn(W) -> W) -> W {
    // SAFETY: the caller's guarantee is the same.
    let mut expected = unsafe { B::load_local(ptr) };
    loop {
        // SAFETY: as above.
        let previous = unsafe { B::cmpxchg_local(ptr, expected, f(expected)) };
        if previous == expected {
            return previous;
        }
        expected = previous;
    }
}

/// The order a load can have for a wanted order: what it cannot be becomes `SeqCst`, never weaker, never a panic.
#[cfg(target_has_atomic = "ptr")]
#[inline(always)]
pub(crate) const fn load_order(order: Ordering) -> Ordering {
    match order {
        Ordering::Relaxed | Ordering::Acquire => order,
        _ => Ordering::SeqCst,
    }
}

/// The order a store can have for a wanted order: what it cannot be becomes `SeqCst`, never weaker, never a panic.
#[cfg(target_has_atomic = "ptr")]
#[inline(always)]
pub(crate) const fn store_order(order: Ordering) -> Ordering {
    match order {
        Ordering::Relaxed | Ordering::Release => order,
        _ => Ordering::SeqCst,
    }
}
