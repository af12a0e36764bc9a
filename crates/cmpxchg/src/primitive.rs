// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What may be in an `Atomic`: integers of 1, 2, 4 and 8 bytes, `bool`, and pointers, each mapped to an unsigned word.
//!
//! Signed values become unsigned words of their own width *before* they reach a backend. That order is the whole point:
//! a signed value widened first would be sign-extended, and a compare with a zero-extended memory word would then fail
//! for every negative number.

use crate::contract::{Word, sealed::Sealed};

/// A type that fits one atomic word. Sealed.
///
/// ```compile_fail,E0277
/// // Not a machine word: three bytes.
/// let _ = fastpath_cmpxchg::Atomic::<[u8; 3]>::new([0; 3]);
/// ```
/// ```compile_fail,E0277
/// // Not a machine word: sixteen bytes. `AtomicPair` is for those.
/// let _ = fastpath_cmpxchg::Atomic::<u128>::new(0);
/// ```
pub trait Primitive: Copy + Sealed {
    /// The unsigned word of the same size.
    type Word: Word;
    /// A type with the alignment that the word needs, which on 32-bit targets can exceed that of `Self`.
    #[doc(hidden)]
    type Align;
    /// The same bits as an unsigned word. Pointers expose their provenance.
    fn to_word(self) -> Self::Word;
    /// Back from a word that [`to_word`](Self::to_word) or arithmetic on such words made.
    fn from_word(word: Self::Word) -> Self;
}

/// Integers: what can be added and subtracted.
pub trait Integer: Bits {
    /// One.
    const ONE: Self;
    /// Wrapping sum.
    #[must_use]
    fn wrapping_plus(self, other: Self) -> Self;
}

/// Integers and `bool`: what has bitwise operations.
pub trait Bits: Primitive {}

/// Alignments by size.
#[derive(Debug)]
#[repr(align(1))]
pub struct Align1;
/// Two bytes.
#[derive(Debug)]
#[repr(align(2))]
pub struct Align2;
/// Four bytes.
#[derive(Debug)]
#[repr(align(4))]
pub struct Align4;
/// Eight bytes.
#[derive(Debug)]
#[repr(align(8))]
pub struct Align8;

#[cfg(target_pointer_width = "64")]
type WordOfPointer = u64;
#[cfg(target_pointer_width = "64")]
type AlignOfPointer = Align8;
#[cfg(target_pointer_width = "32")]
type WordOfPointer = u32;
#[cfg(target_pointer_width = "32")]
type AlignOfPointer = Align4;
#[cfg(not(any(target_pointer_width = "64", target_pointer_width = "32")))]
compile_error!("fastpath-cmpxchg supports targets with 32-bit and 64-bit pointers");

macro_rules! integers {
    ($($ty:ty => $word:ty, $align:ty;)*) => {$(
        impl Primitive for $ty {
            type Word = $word;
            type Align = $align;
            #[inline(always)]
            fn to_word(self) -> $word {
                self as $word
            }
            #[inline(always)]
            fn from_word(word: $word) -> Self {
                word as Self
            }
        }
        impl Bits for $ty {}
        impl Integer for $ty {
            const ONE: Self = 1;
            #[inline(always)]
            fn wrapping_plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
        }
        const _: () = assert!(size_of::<$ty>() == size_of::<$word>() && size_of::<$ty>() == align_of::<$align>());
    )*};
}
integers! {
    u8 => u8, Align1;
    i8 => u8, Align1;
    u16 => u16, Align2;
    i16 => u16, Align2;
    u32 => u32, Align4;
    i32 => u32, Align4;
    u64 => u64, Align8;
    i64 => u64, Align8;
    usize => WordOfPointer, AlignOfPointer;
    isize => WordOfPointer, AlignOfPointer;
}
impl Sealed for i8 {}
impl Sealed for i16 {}
impl Sealed for i32 {}
impl Sealed for i64 {}
impl Sealed for usize {}
impl Sealed for isize {}

impl Sealed for bool {}
impl Primitive for bool {
    type Word = u8;
    type Align = Align1;
    #[inline(always)]
    fn to_word(self) -> u8 {
        self as u8
    }
    #[inline(always)]
    fn from_word(word: u8) -> bool {
        word != 0
    }
}
impl Bits for bool {}

impl<U> Sealed for *mut U {}
impl<U> Primitive for *mut U {
    type Word = WordOfPointer;
    type Align = AlignOfPointer;
    #[inline(always)]
    fn to_word(self) -> WordOfPointer {
        self.expose_provenance() as WordOfPointer
    }
    #[inline(always)]
    fn from_word(word: WordOfPointer) -> Self {
        core::ptr::with_exposed_provenance_mut(word as usize)
    }
}

impl<U> Sealed for *const U {}
impl<U> Primitive for *const U {
    type Word = WordOfPointer;
    type Align = AlignOfPointer;
    #[inline(always)]
    fn to_word(self) -> WordOfPointer {
        self.expose_provenance() as WordOfPointer
    }
    #[inline(always)]
    fn from_word(word: WordOfPointer) -> Self {
        core::ptr::with_exposed_provenance(word as usize)
    }
}
