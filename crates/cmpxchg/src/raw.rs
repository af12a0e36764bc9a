// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The width-erased layer, with the kernel's names: machine words in, machine words out.
//!
//! `old` and `new` are machine words of which only the operand's low bits count, whatever is above them: sign bits,
//! rubbish, a constant meant for a wider operand. Results are zero-extended, never sign-extended. The operand's size is
//! that of the pointee, as in the kernel; anything but 1, 2, 4 bytes, and 8 where a machine word has 8, does not compile:
//!
//! ```compile_fail,E0277
//! let mut bytes = [0_u8; 3];
//! // SAFETY: does not compile.
//! unsafe { fastpath_cmpxchg::raw::arch_cmpxchg(&raw mut bytes, 0, 1) };
//! ```
//! ```compile_fail,E0277
//! let mut wide = 0_u128;
//! // SAFETY: does not compile.
//! unsafe { fastpath_cmpxchg::raw::arch_xchg(&raw mut wide, 0) };
//! ```
//!
//! `arch_*` is this target's own backend, `generic_*` the one that turns interrupts off, and the functions without a
//! prefix take the backend as a parameter. `arch_xchg`, `arch_cmpxchg` and `arch_try_cmpxchg` are fully ordered, as in
//! the kernel; the suffixes `_acquire`, `_release` and `_relaxed` weaken them. Nobody has to use a result.
//!
//! # Example
//!
//! ```
//! use fastpath_cmpxchg::raw::arch_cmpxchg;
//! let mut counter: u32 = 0xffff_ffff; // a C `int` of -1
//! // SAFETY: nobody else uses `counter`.
//! let was = unsafe { arch_cmpxchg(&raw mut counter, -1_isize as usize, -2_isize as usize) };
//! assert_eq!((was, counter), (0xffff_ffff, 0xffff_fffe));
//! ```

use crate::arch::Generic;
use crate::contract::{DoubleOps, LocalDoubleOps, LocalOps, Ops, Word};
use crate::interrupt::InterruptControl;
use crate::pair::Pair;
use crate::{Native, Ordering};

/// A word not wider than a machine word: what the width-erased functions take. Sealed.
pub trait MachineWord: Word {}
impl MachineWord for u8 {}
impl MachineWord for u16 {}
impl MachineWord for u32 {}
#[cfg(target_pointer_width = "64")]
impl MachineWord for u64 {}

/// Stores the low bits of `new`; returns what was there, zero-extended.
///
/// # Safety
/// See [`Ops`].
#[inline(always)]
pub unsafe fn xchg<B: Ops<W>, W: MachineWord>(ptr: *mut W, new: usize, order: Ordering) -> usize {
    // ORDERING: the caller's.
    // SAFETY: the caller's guarantee is the same.
    unsafe { B::xchg(ptr, W::from_wide(new as u64), order) }.to_wide() as usize
}

/// Stores the low bits of `new` if the word equals the low bits of `old`; returns what was there, zero-extended.
///
/// # Safety
/// See [`Ops`].
#[inline(always)]
pub unsafe fn cmpxchg<B: Ops<W>, W: MachineWord>(
    ptr: *mut W,
    old: usize,
    new: usize,
    order: Ordering,
) -> usize {
    // ORDERING: the caller's.
    // SAFETY: the caller's guarantee is the same.
    unsafe { B::cmpxchg_wide(ptr, old as u64, new as u64, order) as usize }
}

/// [`cmpxchg`] that says whether it stored; if not, `*old` becomes what was there.
///
/// # Safety
/// See [`Ops`].
#[inline(always)]
pub unsafe fn try_cmpxchg<B: Ops<W>, W: MachineWord>(
    ptr: *mut W,
    old: &mut usize,
    new: usize,
    order: Ordering,
) -> bool {
    // ORDERING: the caller's.
    // SAFETY: the caller's guarantee is the same.
    let previous = unsafe { cmpxchg::<B, W>(ptr, *old, new, order) };
    let done = previous == W::from_wide(*old as u64).to_wide() as usize;
    if !done {
        *old = previous;
    }
    done
}

/// The local [`xchg`].
///
/// # Safety
/// See [`LocalOps`].
#[inline(always)]
pub unsafe fn xchg_local<B: LocalOps<W>, W: MachineWord>(ptr: *mut W, new: usize) -> usize {
    // SAFETY: the caller's guarantee is the same.
    unsafe { B::xchg_local(ptr, W::from_wide(new as u64)) }.to_wide() as usize
}

/// The local [`cmpxchg`].
///
/// # Safety
/// See [`LocalOps`].
#[inline(always)]
pub unsafe fn cmpxchg_local<B: LocalOps<W>, W: MachineWord>(ptr: *mut W, old: usize, new: usize) -> usize {
    // SAFETY: the caller's guarantee is the same.
    unsafe { B::cmpxchg_local_wide(ptr, old as u64, new as u64) as usize }
}

/// The local [`try_cmpxchg`].
///
/// # Safety
/// See [`LocalOps`].
#[inline(always)]
pub unsafe fn try_cmpxchg_local<B: LocalOps<W>, W: MachineWord>(
    ptr: *mut W,
    old: &mut usize,
    new: usize,
) -> bool {
    // SAFETY: the caller's guarantee is the same.
    let previous = unsafe { cmpxchg_local::<B, W>(ptr, *old, new) };
    let done = previous == W::from_wide(*old as u64).to_wide() as usize;
    if !done {
        *old = previous;
    }
    done
}

macro_rules! arch_full {
    ($($suffix:literal $xchg:ident $cmpxchg:ident $try_cmpxchg:ident $cmpxchg64:ident $order:ident;)*) => {$(
        #[doc = concat!("[`xchg`] on this target's backend, ", $suffix, ".")]
        ///
        /// # Safety
        /// See [`Ops`].
        #[inline(always)]
        pub unsafe fn $xchg<W: MachineWord>(ptr: *mut W, new: usize) -> usize
        where
            Native: Ops<W>,
        {
            // ORDERING: what the name says; the partner is the caller's.
            // SAFETY: the caller's guarantee is the same.
            unsafe { xchg::<Native, W>(ptr, new, Ordering::$order) }
        }

        #[doc = concat!("[`cmpxchg`] on this target's backend, ", $suffix, " if it stores.")]
        ///
        /// # Safety
        /// See [`Ops`].
        #[inline(always)]
        pub unsafe fn $cmpxchg<W: MachineWord>(ptr: *mut W, old: usize, new: usize) -> usize
        where
            Native: Ops<W>,
        {
            // ORDERING: what the name says; the partner is the caller's.
            // SAFETY: the caller's guarantee is the same.
            unsafe { cmpxchg::<Native, W>(ptr, old, new, Ordering::$order) }
        }

        #[doc = concat!("[`try_cmpxchg`] on this target's backend, ", $suffix, " if it stores.")]
        ///
        /// # Safety
        /// See [`Ops`].
        #[inline(always)]
        pub unsafe fn $try_cmpxchg<W: MachineWord>(ptr: *mut W, old: &mut usize, new: usize) -> bool
        where
            Native: Ops<W>,
        {
            // ORDERING: what the name says; the partner is the caller's.
            // SAFETY: the caller's guarantee is the same.
            unsafe { try_cmpxchg::<Native, W>(ptr, old, new, Ordering::$order) }
        }

        if_full_u64! {
        #[doc = concat!("Eight bytes on any target that has them, ", $suffix, " if it stores.")]
        ///
        /// # Safety
        /// See [`Ops`].
        #[inline(always)]
        pub unsafe fn $cmpxchg64(ptr: *mut u64, old: u64, new: u64) -> u64 {
            // ORDERING: what the name says; the partner is the caller's.
            // SAFETY: the caller's guarantee is the same.
            unsafe { <Native as Ops<u64>>::cmpxchg(ptr, old, new, Ordering::$order) }
        }
        }
    )*};
}
arch_full! {
    "fully ordered" arch_xchg arch_cmpxchg arch_try_cmpxchg arch_cmpxchg64 SeqCst;
    "acquire" arch_xchg_acquire arch_cmpxchg_acquire arch_try_cmpxchg_acquire arch_cmpxchg64_acquire Acquire;
    "release" arch_xchg_release arch_cmpxchg_release arch_try_cmpxchg_release arch_cmpxchg64_release Release;
    "unordered" arch_xchg_relaxed arch_cmpxchg_relaxed arch_try_cmpxchg_relaxed arch_cmpxchg64_relaxed Relaxed;
}

/// [`xchg_local`] on this target's backend.
///
/// # Safety
/// See [`LocalOps`].
#[inline(always)]
pub unsafe fn arch_xchg_local<W: MachineWord>(ptr: *mut W, new: usize) -> usize
where
    Native: LocalOps<W>,
{
    // SAFETY: the caller's guarantee is the same.
    unsafe { xchg_local::<Native, W>(ptr, new) }
}

/// [`cmpxchg_local`] on this target's backend.
///
/// # Safety
/// See [`LocalOps`].
#[inline(always)]
pub unsafe fn arch_cmpxchg_local<W: MachineWord>(ptr: *mut W, old: usize, new: usize) -> usize
where
    Native: LocalOps<W>,
{
    // SAFETY: the caller's guarantee is the same.
    unsafe { cmpxchg_local::<Native, W>(ptr, old, new) }
}

/// [`try_cmpxchg_local`] on this target's backend.
///
/// # Safety
/// See [`LocalOps`].
#[inline(always)]
pub unsafe fn arch_try_cmpxchg_local<W: MachineWord>(ptr: *mut W, old: &mut usize, new: usize) -> bool
where
    Native: LocalOps<W>,
{
    // SAFETY: the caller's guarantee is the same.
    unsafe { try_cmpxchg_local::<Native, W>(ptr, old, new) }
}

if_local_u64! {
/// Eight bytes, also on 32-bit targets: no size to choose, nothing to truncate.
///
/// # Safety
/// See [`LocalOps`].
#[inline(always)]
pub unsafe fn arch_cmpxchg64_local(ptr: *mut u64, old: u64, new: u64) -> u64 {
    // SAFETY: the caller's guarantee is the same.
    unsafe { <Native as LocalOps<u64>>::cmpxchg_local(ptr, old, new) }
}
}

/// Two adjacent machine words, fully ordered: stores both new ones and returns true if both old ones match.
///
/// # Safety
/// See [`DoubleOps`]: `available` has returned true, and `ptr` is as [`Ops`] says. Its type demands the alignment.
#[inline(always)]
pub unsafe fn arch_cmpxchg_double(
    ptr: *mut Pair,
    old1: usize,
    old2: usize,
    new1: usize,
    new2: usize,
) -> bool {
    let (old, new) = (Pair { first: old1, second: old2 }, Pair { first: new1, second: new2 });
    // ORDERING: fully ordered, as in the kernel; the partner is the caller's.
    // SAFETY: the caller's guarantee is the same.
    unsafe { <Native as DoubleOps>::cmpxchg_double(ptr, old, new, Ordering::SeqCst) == old }
}

/// The local [`arch_cmpxchg_double`].
///
/// # Safety
/// See [`LocalDoubleOps`]: `available_local` has returned true. The type of `ptr` demands the alignment.
#[inline(always)]
pub unsafe fn arch_cmpxchg_double_local(
    ptr: *mut Pair,
    old1: usize,
    old2: usize,
    new1: usize,
    new2: usize,
) -> bool {
    let (old, new) = (Pair { first: old1, second: old2 }, Pair { first: new1, second: new2 });
    // SAFETY: the caller's guarantee is the same.
    unsafe { <Native as LocalDoubleOps>::cmpxchg_double_local(ptr, old, new) == old }
}

/// [`xchg`] with interrupts off, by the controller `I`.
///
/// # Safety
/// See [`LocalOps`]: it is indivisible on this processor only, unless `I` excludes the others.
#[inline(always)]
pub unsafe fn generic_xchg<I: InterruptControl, W: MachineWord>(ptr: *mut W, new: usize) -> usize {
    // SAFETY: the caller's guarantee is the same.
    unsafe { xchg_local::<Generic<I>, W>(ptr, new) }
}

/// [`cmpxchg_local`] with interrupts off, by the controller `I`.
///
/// # Safety
/// See [`LocalOps`].
#[doc(alias = "__generic_cmpxchg_local")]
#[inline(always)]
pub unsafe fn generic_cmpxchg_local<I: InterruptControl, W: MachineWord>(
    ptr: *mut W,
    old: usize,
    new: usize,
) -> usize {
    // SAFETY: the caller's guarantee is the same.
    unsafe { cmpxchg_local::<Generic<I>, W>(ptr, old, new) }
}

/// Eight bytes with interrupts off, also on 32-bit targets.
///
/// # Safety
/// See [`LocalOps`].
#[doc(alias = "__generic_cmpxchg64_local")]
#[inline(always)]
pub unsafe fn generic_cmpxchg64_local<I: InterruptControl>(ptr: *mut u64, old: u64, new: u64) -> u64 {
    // SAFETY: the caller's guarantee is the same.
    unsafe { <Generic<I> as LocalOps<u64>>::cmpxchg_local(ptr, old, new) }
}

/// Two adjacent machine words with interrupts off.
///
/// # Safety
/// See [`LocalDoubleOps`].
#[inline(always)]
pub unsafe fn generic_cmpxchg_double_local<I: InterruptControl>(
    ptr: *mut Pair,
    old1: usize,
    old2: usize,
    new1: usize,
    new2: usize,
) -> bool {
    let (old, new) = (Pair { first: old1, second: old2 }, Pair { first: new1, second: new2 });
    // SAFETY: the caller's guarantee is the same.
    unsafe { <Generic<I> as LocalDoubleOps>::cmpxchg_double_local(ptr, old, new) == old }
}
