// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `generic`: plain read, compare and write while interrupts are off. For processors without a compare-and-exchange, and
//! as the measuring stick for those that have one.
//!
//! # Soundness
//!
//! Invariant 1: between `disable` and `restore` nothing else of this processor runs, and both are compiler barriers (the
//! contract of [`InterruptControl`]), so read, compare and write are one step for it. Local forms need no more.
//! Invariant 2: the full forms compile only for a controller that excludes other processors too, so the step is one for
//! everybody, and the ordering is as strong as it gets: there is only one order of sections.
//! Both end where interrupts cannot be turned off: an NMI or a machine check that arrives between read and write and
//! changes the same word loses its change. Do not share words with such handlers.
//!
//! # Widths
//!
//! The raw forms take machine words, as the kernel's do. Memory is read zero-extended. `old` is reduced to the operand's
//! width before the comparison and `new` before the store, both with exactly the operand's mask. Both rules were broken
//! in shipped kernels: a sign-extended `old` never matched ("locking/atomic: cmpxchg: Make __generic_cmpxchg_local
//! compare against zero-extended 'old' value", Matt Evans), and the masks of "asm-generic: avoid
//! __generic_cmpxchg_local warnings" (Arnd Bergmann) had 40 bits for four bytes, which brought that back until a fix in
//! January 2024.

use core::marker::PhantomData;

use crate::Ordering;
use crate::contract::sealed::Sealed;
use crate::contract::{Backend, DoubleOps, LocalDoubleOps, LocalOps, Ops, Word};
use crate::interrupt::{InterruptControl, Step};
use crate::pair::Pair;

/// Operations with interrupts off, by the controller `I`.
///
/// The local forms work with any controller. The full forms compile only if `I` excludes other processors:
///
/// ```compile_fail,E0080
/// use fastpath_cmpxchg::{Atomic, Ordering, backend::Generic, interrupt::InterruptControl};
/// struct OneOfMany;
/// // SAFETY: an example that does not compile.
/// unsafe impl InterruptControl for OneOfMany {
///     type State = ();
///     const EXCLUDES_OTHER_PROCESSORS: bool = false;
///     fn disable() {}
///     unsafe fn restore((): ()) {}
/// }
/// let word = Atomic::<u32, Generic<OneOfMany>>::new_in(0);
/// word.fetch_add(1, Ordering::Relaxed); // other processors would not be kept away
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Generic<I>(PhantomData<I>);

impl<I: InterruptControl> Sealed for Generic<I> {}
impl<I: InterruptControl> Backend for Generic<I> {
    const NAME: &'static str = "generic";
}

/// Keeps the compiler from moving memory accesses across. The processor sees its own accesses in program order.
///
/// Not `compiler_fence`: on ARMv5 that is a call of `__sync_synchronize`.
#[inline(always)]
fn barrier() {
    // SAFETY: no instruction. No `nomem`: that it may touch memory is its purpose.
    #[cfg(not(miri))]
    unsafe {
        core::arch::asm!("", options(nostack, preserves_flags));
    }
    #[cfg(miri)]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// One step: reads the place, lets `change` decide, writes if it says so. Returns what was read.
///
/// # Safety
///
/// `ptr` is valid for reads and writes and aligned, and the same-processor rule of [`LocalOps`] holds.
#[inline(always)]
unsafe fn section<I: InterruptControl, V: Copy>(ptr: *mut V, change: impl FnOnce(V) -> Option<V>) -> V {
    I::step(Step::Before);
    let state = I::disable();
    I::step(Step::Disabled);
    // SAFETY: valid and aligned (caller); nobody writes meanwhile (Invariant 1). Volatile: one access, not hoisted.
    let previous = unsafe { ptr.read_volatile() };
    I::step(Step::Read);
    if let Some(new) = change(previous) {
        // SAFETY: as for the read.
        unsafe { ptr.write_volatile(new) };
    }
    I::step(Step::Written);
    // SAFETY: `state` is of the `disable` above, and sections do not overlap.
    unsafe { I::restore(state) };
    I::step(Step::After);
    previous
}

/// Stores `new & mask` and returns what was there, zero-extended.
///
/// # Safety
/// See [`section`].
#[inline(always)]
pub(crate) unsafe fn exchange<I: InterruptControl, W: Word>(ptr: *mut W, new: u64) -> u64 {
    // SAFETY: the caller's guarantee is the same.
    unsafe { section::<I, W>(ptr, |_| Some(W::from_wide(new))) }.to_wide()
}

/// Stores `new & mask` if the word, zero-extended, is `old & mask`. Returns what was there, zero-extended.
///
/// # Safety
/// See [`section`].
#[inline(always)]
pub(crate) unsafe fn compare_exchange<I: InterruptControl, W: Word>(ptr: *mut W, old: u64, new: u64) -> u64 {
    let old = old & W::MASK;
    // SAFETY: the caller's guarantee is the same.
    unsafe { section::<I, W>(ptr, |word| (word.to_wide() == old).then(|| W::from_wide(new))) }.to_wide()
}

impl<I: InterruptControl> Generic<I> {
    /// Refuses, at compile time, the full forms of a controller that keeps only this processor's code away.
    const FULL_FORMS_ARE_SOUND: () = assert!(
        I::EXCLUDES_OTHER_PROCESSORS,
        "full atomic forms by interrupts-off need a single processor: if the target has only one, the final binary says so with `--cfg fastpath_assume_single_core`"
    );
}

// SAFETY: Invariant 2. Words up to a machine word are loaded and stored by one instruction, wider ones in a section.
unsafe impl<I: InterruptControl, W: Word> Ops<W> for Generic<I> {
    #[inline(always)]
    unsafe fn load(ptr: *const W, _order: Ordering) -> W {
        // ORDERING: one processor: the access only has to stay where it is written.
        barrier();
        let value = if size_of::<W>() <= size_of::<usize>() {
            // SAFETY: valid and aligned (caller).
            unsafe { ptr.read_volatile() }
        } else {
            // SAFETY: as above; nothing is written.
            unsafe { section::<I, W>(ptr.cast_mut(), |_| None) }
        };
        barrier();
        value
    }
    #[inline(always)]
    unsafe fn store(ptr: *mut W, new: W, _order: Ordering) {
        // ORDERING: as in `load`.
        barrier();
        if size_of::<W>() <= size_of::<usize>() {
            // SAFETY: valid and aligned (caller).
            unsafe { ptr.write_volatile(new) };
        } else {
            // SAFETY: as above.
            unsafe { section::<I, W>(ptr, |_| Some(new)) };
        }
        barrier();
    }
    #[inline(always)]
    unsafe fn xchg(ptr: *mut W, new: W, _order: Ordering) -> W {
        const { Self::FULL_FORMS_ARE_SOUND };
        // SAFETY: the caller's guarantee; the same-processor rule holds because there is one (the line above).
        W::from_wide(unsafe { exchange::<I, W>(ptr, new.to_wide()) })
    }
    #[inline(always)]
    unsafe fn cmpxchg(ptr: *mut W, old: W, new: W, _order: Ordering) -> W {
        const { Self::FULL_FORMS_ARE_SOUND };
        // SAFETY: as in `xchg`.
        W::from_wide(unsafe { compare_exchange::<I, W>(ptr, old.to_wide(), new.to_wide()) })
    }
    #[inline(always)]
    unsafe fn cmpxchg_wide(ptr: *mut W, old: u64, new: u64, _order: Ordering) -> u64 {
        const { Self::FULL_FORMS_ARE_SOUND };
        // SAFETY: as in `xchg`.
        unsafe { compare_exchange::<I, W>(ptr, old, new) }
    }
    #[inline(always)]
    unsafe fn fetch_add(ptr: *mut W, value: W, _order: Ordering) -> W {
        const { Self::FULL_FORMS_ARE_SOUND };
        // SAFETY: as in `xchg`.
        unsafe { section::<I, W>(ptr, |word| Some(word.plus(value))) }
    }
    #[inline(always)]
    unsafe fn fetch_and(ptr: *mut W, value: W, _order: Ordering) -> W {
        const { Self::FULL_FORMS_ARE_SOUND };
        // SAFETY: as in `xchg`.
        unsafe { section::<I, W>(ptr, |word| Some(word.and(value))) }
    }
    #[inline(always)]
    unsafe fn fetch_or(ptr: *mut W, value: W, _order: Ordering) -> W {
        const { Self::FULL_FORMS_ARE_SOUND };
        // SAFETY: as in `xchg`.
        unsafe { section::<I, W>(ptr, |word| Some(word.or(value))) }
    }
    #[inline(always)]
    unsafe fn fetch_xor(ptr: *mut W, value: W, _order: Ordering) -> W {
        const { Self::FULL_FORMS_ARE_SOUND };
        // SAFETY: as in `xchg`.
        unsafe { section::<I, W>(ptr, |word| Some(word.xor(value))) }
    }
}

// SAFETY: Invariant 1.
unsafe impl<I: InterruptControl, W: Word> LocalOps<W> for Generic<I> {
    #[inline(always)]
    unsafe fn load_local(ptr: *mut W) -> W {
        // ORDERING: Relaxed: a local form orders nothing for other processors.
        // SAFETY: the caller's guarantee.
        unsafe { <Self as Ops<W>>::load(ptr, Ordering::Relaxed) }
    }
    #[inline(always)]
    unsafe fn xchg_local(ptr: *mut W, new: W) -> W {
        // SAFETY: the caller's guarantee, here and below.
        W::from_wide(unsafe { exchange::<I, W>(ptr, new.to_wide()) })
    }
    #[inline(always)]
    unsafe fn cmpxchg_local(ptr: *mut W, old: W, new: W) -> W {
        // SAFETY: see `xchg_local`.
        W::from_wide(unsafe { compare_exchange::<I, W>(ptr, old.to_wide(), new.to_wide()) })
    }
    #[inline(always)]
    unsafe fn cmpxchg_local_wide(ptr: *mut W, old: u64, new: u64) -> u64 {
        // SAFETY: see `xchg_local`.
        unsafe { compare_exchange::<I, W>(ptr, old, new) }
    }
    #[inline(always)]
    unsafe fn fetch_add_local(ptr: *mut W, value: W) -> W {
        // SAFETY: see `xchg_local`.
        unsafe { section::<I, W>(ptr, |word| Some(word.plus(value))) }
    }
    #[inline(always)]
    unsafe fn fetch_and_local(ptr: *mut W, value: W) -> W {
        // SAFETY: see `xchg_local`.
        unsafe { section::<I, W>(ptr, |word| Some(word.and(value))) }
    }
    #[inline(always)]
    unsafe fn fetch_or_local(ptr: *mut W, value: W) -> W {
        // SAFETY: see `xchg_local`.
        unsafe { section::<I, W>(ptr, |word| Some(word.or(value))) }
    }
    #[inline(always)]
    unsafe fn fetch_xor_local(ptr: *mut W, value: W) -> W {
        // SAFETY: see `xchg_local`.
        unsafe { section::<I, W>(ptr, |word| Some(word.xor(value))) }
    }
}

// SAFETY: Invariant 2; both halves are read, compared and written in one section.
unsafe impl<I: InterruptControl> DoubleOps for Generic<I> {
    #[inline(always)]
    fn available() -> bool {
        true
    }
    #[inline(always)]
    unsafe fn cmpxchg_double(ptr: *mut Pair, old: Pair, new: Pair, _order: Ordering) -> Pair {
        const { Self::FULL_FORMS_ARE_SOUND };
        // SAFETY: the caller's guarantee; one processor (the line above).
        unsafe { section::<I, Pair>(ptr, |pair| (pair == old).then_some(new)) }
    }
}

// SAFETY: Invariant 1; both halves are read, compared and written in one section.
unsafe impl<I: InterruptControl> LocalDoubleOps for Generic<I> {
    #[inline(always)]
    fn available_local() -> bool {
        true
    }
    #[inline(always)]
    unsafe fn cmpxchg_double_local(ptr: *mut Pair, old: Pair, new: Pair) -> Pair {
        // SAFETY: the caller's guarantee.
        unsafe { section::<I, Pair>(ptr, |pair| (pair == old).then_some(new)) }
    }
}
