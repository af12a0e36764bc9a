// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `Atomic<T>` under loom: the names and the orderings of the `core_atomic` backend, on loom's atomics.
//!
//! Raw words cannot be modelled, so under `--cfg loom` this type stands in for the one of `atomic.rs`: state machines
//! written against `Atomic` are explored without a shim of their own. It has no local forms: loom knows no processors.
//! A failed compare is Relaxed here too, which is what the model of K17 looks at. loom weakens `SeqCst` accesses to
//! `AcqRel`, and models neither load buffering nor 128-bit words.

use core::marker::PhantomData;

use crate::Ordering;
use crate::contract::{Word, load_order, store_order};
use crate::primitive::{Bits, Integer, Primitive};

/// A word that loom has an atomic for.
pub trait LoomWord: Word {
    /// That atomic.
    type Cell: core::fmt::Debug;
    #[doc(hidden)]
    fn cell(self) -> Self::Cell;
    #[doc(hidden)]
    fn load(cell: &Self::Cell, order: Ordering) -> Self;
    #[doc(hidden)]
    fn store(cell: &Self::Cell, new: Self, order: Ordering);
    #[doc(hidden)]
    fn swap(cell: &Self::Cell, new: Self, order: Ordering) -> Self;
    #[doc(hidden)]
    fn cmpxchg(cell: &Self::Cell, old: Self, new: Self, order: Ordering) -> Self;
    #[doc(hidden)]
    fn add(cell: &Self::Cell, value: Self, order: Ordering) -> Self;
    #[doc(hidden)]
    fn and(cell: &Self::Cell, value: Self, order: Ordering) -> Self;
    #[doc(hidden)]
    fn or(cell: &Self::Cell, value: Self, order: Ordering) -> Self;
    #[doc(hidden)]
    fn xor(cell: &Self::Cell, value: Self, order: Ordering) -> Self;
}

macro_rules! loom_words {
    ($($word:ty: $atomic:ident),*) => {$(
        impl LoomWord for $word {
            type Cell = loom::sync::atomic::$atomic;
            fn cell(self) -> Self::Cell {
                Self::Cell::new(self)
            }
            // ORDERING: the caller's, in each function.
            fn load(cell: &Self::Cell, order: Ordering) -> Self {
                cell.load(load_order(order))
            }
            fn store(cell: &Self::Cell, new: Self, order: Ordering) {
                cell.store(new, store_order(order));
            }
            fn swap(cell: &Self::Cell, new: Self, order: Ordering) -> Self {
                cell.swap(new, order)
            }
            fn cmpxchg(cell: &Self::Cell, old: Self, new: Self, order: Ordering) -> Self {
                // ORDERING: a failed compare publishes and receives nothing: Relaxed.
                match cell.compare_exchange(old, new, order, Ordering::Relaxed) {
                    Ok(previous) | Err(previous) => previous,
                }
            }
            fn add(cell: &Self::Cell, value: Self, order: Ordering) -> Self {
                cell.fetch_add(value, order)
            }
            fn and(cell: &Self::Cell, value: Self, order: Ordering) -> Self {
                cell.fetch_and(value, order)
            }
            fn or(cell: &Self::Cell, value: Self, order: Ordering) -> Self {
                cell.fetch_or(value, order)
            }
            fn xor(cell: &Self::Cell, value: Self, order: Ordering) -> Self {
                cell.fetch_xor(value, order)
            }
        }
    )*};
}
loom_words!(u8: AtomicU8, u16: AtomicU16, u32: AtomicU32, u64: AtomicU64);

/// The model of `Atomic<T>`. The methods do what those of the real one do.
#[derive(Debug)]
pub struct Atomic<T: Primitive>
where
    T::Word: LoomWord,
{
    cell: <T::Word as LoomWord>::Cell,
    value: PhantomData<T>,
}

// SAFETY: loom's cell is shared by its atomic operations; the value is a plain integer or pointer.
unsafe impl<T: Primitive> Sync for Atomic<T> where T::Word: LoomWord {}
// SAFETY: as above.
unsafe impl<T: Primitive> Send for Atomic<T> where T::Word: LoomWord {}

impl<T: Primitive> Atomic<T>
where
    T::Word: LoomWord,
{
    /// A word. Not `const`: loom registers it.
    pub fn new(value: T) -> Self {
        Self { cell: value.to_word().cell(), value: PhantomData }
    }

    /// The value.
    pub fn load(&self, order: Ordering) -> T {
        T::from_word(LoomWord::load(&self.cell, order))
    }

    /// Replaces the value.
    pub fn store(&self, new: T, order: Ordering) {
        LoomWord::store(&self.cell, new.to_word(), order);
    }

    /// Stores `new` and returns what was there.
    pub fn xchg(&self, new: T, order: Ordering) -> T {
        T::from_word(LoomWord::swap(&self.cell, new.to_word(), order))
    }

    /// Stores `new` if the value is `old`; returns what was there.
    pub fn cmpxchg(&self, old: T, new: T, order: Ordering) -> T {
        T::from_word(LoomWord::cmpxchg(&self.cell, old.to_word(), new.to_word(), order))
    }

    /// Stores `new` if the value is `*old`; if not, `*old` becomes the value found.
    pub fn try_cmpxchg(&self, old: &mut T, new: T, order: Ordering) -> bool {
        let expected = old.to_word();
        let previous = LoomWord::cmpxchg(&self.cell, expected, new.to_word(), order);
        if previous == expected {
            return true;
        }
        *old = T::from_word(previous);
        false
    }
}

impl<T: Integer> Atomic<T>
where
    T::Word: LoomWord,
{
    /// Adds, wrapping; returns what was there.
    pub fn fetch_add(&self, value: T, order: Ordering) -> T {
        T::from_word(LoomWord::add(&self.cell, value.to_word(), order))
    }

    /// Subtracts, wrapping; returns what was there.
    pub fn fetch_sub(&self, value: T, order: Ordering) -> T {
        T::from_word(LoomWord::add(&self.cell, value.to_word().negated(), order))
    }
}

impl<T: Bits> Atomic<T>
where
    T::Word: LoomWord,
{
    /// Bitwise and; returns what was there.
    pub fn fetch_and(&self, value: T, order: Ordering) -> T {
        T::from_word(LoomWord::and(&self.cell, value.to_word(), order))
    }

    /// Bitwise or; returns what was there.
    pub fn fetch_or(&self, value: T, order: Ordering) -> T {
        T::from_word(LoomWord::or(&self.cell, value.to_word(), order))
    }

    /// Bitwise exclusive or; returns what was there.
    pub fn fetch_xor(&self, value: T, order: Ordering) -> T {
        T::from_word(LoomWord::xor(&self.cell, value.to_word(), order))
    }
}
