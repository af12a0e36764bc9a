// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The `this_cpu_*` operations: one word of this CPU's slot, changed as if by one instruction.

use core::fmt;
use core::marker::PhantomData;

use crate::PerCpu;
use crate::fallback;
use crate::rseq::{Base, Outcome, Stride};
use crate::slots::Slot;
use crate::thread::{self, Route};
use crate::word::{self, Change, Integer, Word};

/// One word of every slot, from [`PerCpu::word`]; its methods change that of the CPU the thread is on.
///
/// * Every operation is atomic with respect to all others on the word: threads, signal handlers, preemption.
///   The slot is that of the CPU at the moment of the change; where the thread is afterwards is another matter.
/// * Arithmetic wraps, as for the kernel's per-CPU integers. The operand has the word's type: `sub` negates it there,
///   so no sign is lost on the way to a wider word.
/// * Nothing is ordered: the word publishes only itself. Sum the slots for a total; use [`fence`](crate::fence) or
///   [`Counter::sum_fenced`](crate::Counter::sum_fenced) for more.
pub struct ThisCpu<'a, I: Integer, S: Stride> {
    pub(crate) base: Base,
    pub(crate) owner: Owner<'a, I, S>,
}

/// Borrows the slots; `S` is only their distance.
pub(crate) type Owner<'a, I, S> = PhantomData<(&'a Word<I>, fn(S))>;

impl<I: Integer, S: Stride> Clone for ThisCpu<'_, I, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I: Integer, S: Stride> Copy for ThisCpu<'_, I, S> {}

impl<I: Integer, S: Stride> fmt::Debug for ThisCpu<'_, I, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThisCpu").finish_non_exhaustive()
    }
}

impl<I: Integer, S: Stride> ThisCpu<'_, I, S> {
    /// The word in slot `slot`.
    fn at(self, slot: u32) -> Base {
        self.base.wrapping_byte_add((slot as usize) << S::SHIFT)
    }

    #[inline(always)]
    fn change(self, change: Change, value: I) {
        // SAFETY: the word of a live `PerCpu` (the lifetime), which has a slot for every number the kernel can give.
        if unsafe { word::change::<I, S>(self.base, change, value) } != Outcome::Done {
            self.change_slow(change, value);
        }
    }

    #[cold]
    #[inline(never)]
    fn change_slow(self, change: Change, value: I) {
        loop {
            match thread::route() {
                // SAFETY: slots that routes name belong to full atomics (Invariant 1 of `thread`).
                Route::Atomic(slot) => return unsafe { fallback::change(self.at(slot), change, value) },
                Route::Retry => {}
            }
            // SAFETY: as in `change`.
            if unsafe { word::change::<I, S>(self.base, change, value) } == Outcome::Done {
                return;
            }
        }
    }

    /// Runs `section` until it ends on a slot, or `atomic` on the slot for threads that have none.
    #[inline(always)]
    fn with_result(self, section: impl Fn(Base) -> (Outcome, I), atomic: impl Fn(Base) -> I) -> I {
        loop {
            let (outcome, old) = section(self.base);
            if outcome != Outcome::NotRegistered {
                return old;
            }
            if let Route::Atomic(slot) = thread::route() {
                return atomic(self.at(slot));
            }
        }
    }

    /// The word of the CPU the thread is on, or was on a moment ago.
    #[doc(alias = "this_cpu_read")]
    pub fn read(self) -> I {
        let word = self.at(thread::current_slot()).cast::<Word<I>>();
        // SAFETY: the word of a slot, alive by the lifetime.
        unsafe { (*word).load() }
    }

    /// `word = value`.
    #[inline(always)]
    #[doc(alias = "this_cpu_write")]
    pub fn write(self, value: I) {
        self.change(Change::Write, value);
    }

    /// `word += value`, wrapping.
    #[inline(always)]
    #[doc(alias = "this_cpu_add")]
    pub fn add(self, value: I) {
        self.change(Change::Add, value);
    }

    /// `word -= value`, wrapping.
    #[inline(always)]
    #[doc(alias = "this_cpu_sub")]
    pub fn sub(self, value: I) {
        self.change(Change::Add, value.negated());
    }

    /// `word += 1`, wrapping.
    #[inline(always)]
    #[doc(alias = "this_cpu_inc")]
    pub fn inc(self) {
        self.change(Change::Add, I::from_bits(1));
    }

    /// `word -= 1`, wrapping.
    #[inline(always)]
    #[doc(alias = "this_cpu_dec")]
    pub fn dec(self) {
        self.change(Change::Add, I::from_bits(1).negated());
    }

    /// `word &= value`.
    #[inline(always)]
    #[doc(alias = "this_cpu_and")]
    pub fn and(self, value: I) {
        self.change(Change::And, value);
    }

    /// `word |= value`.
    #[inline(always)]
    #[doc(alias = "this_cpu_or")]
    pub fn or(self, value: I) {
        self.change(Change::Or, value);
    }

    /// `word += value`, wrapping; gives the new value.
    #[inline(always)]
    #[doc(alias = "this_cpu_add_return")]
    pub fn add_return(self, value: I) -> I {
        let old = self.with_result(
            // SAFETY: as in `change`.
            |base| unsafe { word::xadd::<I, S>(base, value) },
            // SAFETY: as in `change_slow`.
            |word| unsafe { fallback::xadd(word, value) },
        );
        I::from_bits(old.bits().wrapping_add(value.bits()))
    }

    /// `word -= value`, wrapping; gives the new value.
    #[inline(always)]
    #[doc(alias = "this_cpu_sub_return")]
    pub fn sub_return(self, value: I) -> I {
        self.add_return(value.negated())
    }

    /// `word = value`; gives the old value.
    #[inline(always)]
    #[doc(alias = "this_cpu_xchg")]
    pub fn xchg(self, value: I) -> I {
        self.with_result(
            // SAFETY: as in `change`.
            |base| unsafe { word::xchg::<I, S>(base, value) },
            // SAFETY: as in `change_slow`.
            |word| unsafe { fallback::xchg(word, value) },
        )
    }

    /// `if word == expected { word = new }`; gives the value before: it worked if that is `expected`.
    #[inline(always)]
    #[doc(alias = "this_cpu_cmpxchg")]
    pub fn cmpxchg(self, expected: I, new: I) -> I {
        self.with_result(
            // SAFETY: as in `change`.
            |base| unsafe { word::cmpxchg::<I, S>(base, expected, new) },
            // SAFETY: as in `change_slow`.
            |word| unsafe { fallback::cmpxchg(word, expected, new) },
        )
    }

    /// `if word == *expected { word = new }`; on failure puts the word's value in `expected` and gives false.
    ///
    /// The thread may have migrated between two calls: a failure can also mean another CPU's word.
    #[inline(always)]
    #[doc(alias = "this_cpu_try_cmpxchg")]
    pub fn try_cmpxchg(self, expected: &mut I, new: I) -> bool {
        let old = self.cmpxchg(*expected, new);
        let done = old.bits() == expected.bits();
        *expected = old;
        done
    }
}

macro_rules! forward {
    ($($(#[$doc:meta])* $name:ident, $method:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        /// The kernel's operations on a slot that is one word; [`ThisCpu`] says what they promise.
        impl<I: Integer> PerCpu<Word<I>> {
            $(
                $(#[$doc])*
                #[inline(always)]
                pub fn $name(&self, $($argument: $type),*) $(-> $result)? {
                    self.word(|word| word).$method($($argument),*)
                }
            )*
        }
    };
}

forward! {
    /// The word of the CPU the thread is on, or was on a moment ago.
    this_cpu_read, read() -> I;
    /// `word = value`.
    this_cpu_write, write(value: I);
    /// `word += value`, wrapping.
    this_cpu_add, add(value: I);
    /// `word -= value`, wrapping.
    ///
    /// ```
    /// use fastpath_percpu::{PerCpu, Word};
    /// let slots = PerCpu::<Word<u8>>::new().unwrap();
    /// slots.this_cpu_sub(1);
    /// assert_eq!(slots.iter().map(|(_, slot)| slot.load()).max(), Some(255));
    /// ```
    this_cpu_sub, sub(value: I);
    /// `word += 1`, wrapping.
    this_cpu_inc, inc();
    /// `word -= 1`, wrapping.
    this_cpu_dec, dec();
    /// `word &= value`.
    this_cpu_and, and(value: I);
    /// `word |= value`.
    this_cpu_or, or(value: I);
    /// `word += value`, wrapping; gives the new value.
    this_cpu_add_return, add_return(value: I) -> I;
    /// `word -= value`, wrapping; gives the new value.
    this_cpu_sub_return, sub_return(value: I) -> I;
    /// `word = value`; gives the old value.
    this_cpu_xchg, xchg(value: I) -> I;
    /// `if word == expected { word = new }`; gives the value before.
    this_cpu_cmpxchg, cmpxchg(expected: I, new: I) -> I;
    /// `if word == *expected { word = new }`; on failure puts the word's value in `expected` and gives false.
    ///
    /// ```
    /// use fastpath_percpu::{PerCpu, Word};
    /// let slots = PerCpu::<Word<u32>>::new().unwrap();
    /// let mut seen = slots.this_cpu_read();
    /// loop {
    ///     let wanted = seen | 4;
    ///     if slots.this_cpu_try_cmpxchg(&mut seen, wanted) {
    ///         break;
    ///     }
    /// }
    /// ```
    this_cpu_try_cmpxchg, try_cmpxchg(expected: &mut I, new: I) -> bool;
}

const _: () = {
    // `Slot` is what gives a word its stride.
    const fn slot<T: Slot>() {}
    slot::<Word<u8>>();
};
