// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! [`PerCpu`]: one slot per CPU, and the `this_cpu_*` operations on its words.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;

use crate::rseq::Stride;
use crate::this_cpu::ThisCpu;
use crate::thread::{self, backend, slots};
use crate::word::{Integer, Word};
use crate::{Backend, Ids, OutOfMemory, region};

/// What a slot can hold.
///
/// # Safety
///
/// All bytes zero must be a valid value that needs no `drop`, and everything that is changed through `&self` must be
/// changed by this crate's operations or by atomics.
///
/// ```
/// use fastpath_percpu::{PerCpu, Slot, Word};
///
/// struct Traffic {
///     packets: Word<u64>,
///     bytes: Word<u64>,
/// }
/// // SAFETY: two words: zero is valid, and only this crate's operations change them.
/// unsafe impl Slot for Traffic {}
///
/// let traffic = PerCpu::<Traffic>::new().unwrap();
/// traffic.word(|slot| &slot.packets).add(1);
/// traffic.word(|slot| &slot.bytes).add(1500);
/// assert_eq!(traffic.iter().map(|(_, slot)| slot.bytes.load()).sum::<u64>(), 1500);
/// ```
pub unsafe trait Slot: Sync + Sized + 'static {}

impl<T: Slot> Stride for T {
    const SHIFT: u32 = region::shift_for(size_of::<T>());
}

// SAFETY: a word: zero is 0, and it has no method that writes.
unsafe impl<I: Integer> Slot for Word<I> {}
// SAFETY: words, as above.
unsafe impl<I: Integer, const N: usize> Slot for [Word<I>; N] {}

/// One slot of `T` per possible CPU (or per concurrency id), and one for threads that cannot run sections.
///
/// Slots are zero at first, lazily backed by memory, each on the node of the CPU that first writes it. With concurrency ids ([`Ids::MmCid`])
/// a slot has no fixed CPU and no node.
///
/// ```
/// use fastpath_percpu::{PerCpu, Word};
///
/// let hits = PerCpu::<Word<u64>>::new().unwrap();
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| (0..1000).for_each(|_| hits.this_cpu_inc()));
///     }
/// });
/// // Which CPU counted what is anybody's guess; the sum is not.
/// assert_eq!(hits.iter().map(|(_, slot)| slot.load()).sum::<u64>(), 4000);
/// ```
#[doc(alias = "alloc_percpu")]
#[repr(transparent)]
pub struct PerCpu<T: Slot> {
    base: NonNull<T>,
    owns: PhantomData<T>,
}

// SAFETY: it owns its slots; `T: Sync`, and no `T` is ever moved or dropped.
unsafe impl<T: Slot> Send for PerCpu<T> {}
// SAFETY: shared use gives only `&T`, which `T: Sync` allows, and this crate's operations.
unsafe impl<T: Slot> Sync for PerCpu<T> {}

impl<T: Slot> PerCpu<T> {
    /// Slots for every CPU, all zero.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] when there is no address space left.
    pub fn new() -> Result<Self, OutOfMemory> {
        backend();
        let base = region::allocate(size_of::<T>(), align_of::<T>())?.cast();
        Ok(Self { base, owns: PhantomData })
    }

    /// The address of slot `slot`.
    #[inline(always)]
    pub(crate) fn at(&self, slot: u32) -> *mut T {
        debug_assert!(slot <= slots());
        // SAFETY: `slot` is at most the outsider's, so this stays inside the region.
        unsafe { self.base.byte_add((slot as usize) << T::SHIFT).as_ptr() }
    }

    /// Slot `slot`; the last one, numbered [`slots()`](crate::slots), is the outsiders'.
    ///
    /// # Panics
    ///
    /// If there is no such slot.
    pub fn per_slot(&self, slot: u32) -> &T {
        assert!(slot <= slots(), "slot {slot} of {}", slots());
        // SAFETY: a valid `T` (zero at first, by `Slot`'s contract) that lives as long as `self`.
        unsafe { &*self.at(slot) }
    }

    /// The slot of CPU `cpu`; `None` if there is no such CPU or slots are numbered by concurrency ids.
    ///
    /// With the locked backend it is the slot that threads on `cpu` prefer.
    #[doc(alias = "per_cpu_ptr")]
    pub fn per_cpu(&self, cpu: u32) -> Option<&T> {
        match backend() {
            Backend::Rseq { ids: Ids::MmCid, .. } => None,
            _ => (cpu < slots()).then(|| self.per_slot(cpu)),
        }
    }

    /// The slot the calling thread is on at this moment: a hint, as the thread may migrate at any time.
    #[doc(alias = "raw_cpu_ptr")]
    pub fn near(&self) -> &T {
        self.per_slot(thread::current_slot())
    }

    /// All slots with their numbers, the outsiders' last.
    #[doc(alias = "for_each_possible_cpu")]
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..=slots()).map(|slot| (slot, self.per_slot(slot)))
    }

    /// The word that `field` picks from a slot, for the `this_cpu_*` operations on it.
    ///
    /// # Panics
    ///
    /// If `field` gives a word outside the slot it was given.
    #[inline(always)]
    pub fn word<I: Integer>(&self, field: impl FnOnce(&T) -> &Word<I>) -> ThisCpu<'_, I, T> {
        // SAFETY: slot 0 is a valid `T`.
        let first = unsafe { self.base.as_ref() };
        let word = field(first).as_base();
        let offset = word.addr().wrapping_sub(self.base.addr().get());
        assert!(offset <= size_of::<T>() - size_of::<I>(), "the word is not part of the slot");
        ThisCpu { base: word, owner: PhantomData }
    }
}

impl<T: Slot> Drop for PerCpu<T> {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with the same layout; `&mut self` says that all users have finished.
        unsafe { region::free(self.base.cast(), size_of::<T>(), align_of::<T>()) };
    }
}

impl<T: Slot + fmt::Debug> fmt::Debug for PerCpu<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
