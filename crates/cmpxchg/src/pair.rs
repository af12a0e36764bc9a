// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two machine words changed as one: `cmpxchg_double` and its local form.

use core::cell::UnsafeCell;
use core::marker::PhantomData;

use crate::contract::{DoubleOps, LocalDoubleOps};
use crate::{Native, Ordering};

/// Two adjacent machine words, aligned to both together as the instructions demand.
///
/// ```
/// use fastpath_cmpxchg::Pair;
/// let pair = Pair { first: 1, second: 2 };
/// assert_eq!(align_of_val(&pair), 2 * size_of::<usize>());
/// ```
#[cfg_attr(target_pointer_width = "64", repr(C, align(16)))]
#[cfg_attr(target_pointer_width = "32", repr(C, align(8)))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pair {
    /// The word at the lower address.
    pub first: usize,
    /// The word at the higher address.
    pub second: usize,
}

const _: () = assert!(size_of::<Pair>() == 2 * size_of::<usize>() && align_of::<Pair>() == size_of::<Pair>());

/// The proof that this machine has the double-word instruction: made once by [`detect`](Self::detect), costs nothing.
///
/// ```
/// use fastpath_cmpxchg::DoubleWord;
/// match DoubleWord::<fastpath_cmpxchg::Native>::detect() {
///     Some(_) => println!("wide compare-and-exchange"),
///     None => println!("one word at a time"),
/// }
/// ```
#[derive(Debug)]
pub struct DoubleWord<B = Native>(PhantomData<B>);

impl<B> Clone for DoubleWord<B> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<B> Copy for DoubleWord<B> {}

impl<B: DoubleOps> DoubleWord<B> {
    /// Asks the target, and where it does not promise the instruction, the processor (slow: keep the answer).
    #[doc(alias = "system_has_cmpxchg_double")]
    pub fn detect() -> Option<Self> {
        B::available().then_some(Self(PhantomData))
    }
}

/// The same proof for the local form, which exists on more machines.
///
/// ```
/// use fastpath_cmpxchg::{AtomicPair, DoubleWordLocal, Pair};
/// let pair = AtomicPair::new(Pair { first: 1, second: 2 });
/// if let Some(local) = DoubleWordLocal::detect() {
///     // SAFETY: nobody else has this pair.
///     let was = unsafe { pair.cmpxchg_double_local(local, Pair { first: 1, second: 2 }, Pair { first: 3, second: 4 }) };
///     assert_eq!(was, Pair { first: 1, second: 2 });
/// }
/// ```
#[derive(Debug)]
pub struct DoubleWordLocal<B = Native>(PhantomData<B>);

impl<B> Clone for DoubleWordLocal<B> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<B> Copy for DoubleWordLocal<B> {}

impl<B: LocalDoubleOps> DoubleWordLocal<B> {
    /// See [`DoubleWord::detect`].
    pub fn detect() -> Option<Self> {
        B::available_local().then_some(Self(PhantomData))
    }
}

/// Two machine words that are compared and replaced as one.
///
/// The alignment is part of the type; [`from_ptr`](Self::from_ptr) refuses an address that does not have it, on every
/// backend, also where the instruction would not mind.
///
/// ```
/// use fastpath_cmpxchg::{AtomicPair, DoubleWord, Ordering, Pair};
/// static HEAD: AtomicPair = AtomicPair::new(Pair { first: 0, second: 0 });
/// if let Some(wide) = DoubleWord::detect() {
///     let old = HEAD.cmpxchg_double(wide, Pair { first: 0, second: 0 }, Pair { first: 0x1000, second: 1 }, Ordering::AcqRel);
///     assert_eq!(old, Pair::default());
/// }
/// ```
/// ```compile_fail,E0277
/// // Three words are not two.
/// let _ = fastpath_cmpxchg::Atomic::<[usize; 3]>::new([0; 3]);
/// ```
#[repr(transparent)]
#[derive(Debug)]
pub struct AtomicPair<B = Native> {
    cell: UnsafeCell<Pair>,
    backend: PhantomData<B>,
}

// SAFETY: shared access goes through a backend's atomic operations, or through `unsafe` functions whose callers
// guarantee the same; the halves are plain integers.
unsafe impl<B> Sync for AtomicPair<B> {}
// SAFETY: as above.
unsafe impl<B> Send for AtomicPair<B> {}

impl AtomicPair {
    /// A pair on this target's own backend.
    pub const fn new(value: Pair) -> Self {
        Self::new_in(value)
    }
}

impl<B> AtomicPair<B> {
    /// A pair on the backend `B`.
    pub const fn new_in(value: Pair) -> Self {
        Self { cell: UnsafeCell::new(value), backend: PhantomData }
    }

    /// The two words at `ptr` as a pair; `None` if the address is not aligned to both together.
    ///
    /// # Safety
    ///
    /// If it is, `ptr` is valid for reads and writes of two words for the lifetime `'a`, and accessed during it only by
    /// atomic operations of the backend `B`.
    ///
    /// ```
    /// use fastpath_cmpxchg::{AtomicPair, Pair};
    /// let mut pairs = [Pair::default(); 2];
    /// let ptr = pairs.as_mut_ptr().cast::<usize>();
    /// // SAFETY: inside `pairs`, which nobody else uses.
    /// unsafe {
    ///     assert!(AtomicPair::<fastpath_cmpxchg::Native>::from_ptr(ptr).is_some());
    ///     assert!(AtomicPair::<fastpath_cmpxchg::Native>::from_ptr(ptr.add(1)).is_none());
    /// }
    /// ```
    pub unsafe fn from_ptr<'a>(ptr: *mut usize) -> Option<&'a Self> {
        #[expect(clippy::cast_ptr_alignment, reason = "tested in the next line")]
        let pair = ptr.cast::<Self>();
        // SAFETY: aligned (tested), valid (caller); same layout as two words.
        pair.is_aligned().then(|| unsafe { &*pair })
    }

    /// The address of the pair, for the raw layer and for assembly.
    pub const fn as_ptr(&self) -> *mut Pair {
        self.cell.get()
    }

    /// Both halves, by exclusive access.
    pub const fn get_mut(&mut self) -> &mut Pair {
        self.cell.get_mut()
    }

    /// Both halves of a pair that nobody shares any more.
    pub fn into_inner(self) -> Pair {
        self.cell.into_inner()
    }
}

impl<B: DoubleOps> AtomicPair<B> {
    /// Replaces both halves by `new` if both are as in `old`; returns both as they were, read as one.
    #[inline(always)]
    pub fn cmpxchg_double(&self, _proof: DoubleWord<B>, old: Pair, new: Pair, order: Ordering) -> Pair {
        // ORDERING: the caller's if it writes, Relaxed otherwise.
        // SAFETY: our own pair: valid, aligned by its type, accessed atomically only; `_proof` says it is available.
        unsafe { B::cmpxchg_double(self.cell.get(), old, new, order) }
    }

    /// Replaces both halves by `new` if both are as in `*old`; says whether it did, and if not puts both as they were
    /// into `*old`.
    #[inline(always)]
    pub fn try_cmpxchg_double(
        &self,
        proof: DoubleWord<B>,
        old: &mut Pair,
        new: Pair,
        order: Ordering,
    ) -> bool {
        let previous = self.cmpxchg_double(proof, *old, new, order);
        let done = previous == *old;
        if !done {
            *old = previous;
        }
        done
    }

    /// Both halves read as one. A compare of zero with zero: it may take the cache line for writing.
    #[inline(always)]
    pub fn load(&self, proof: DoubleWord<B>) -> Pair {
        // ORDERING: SeqCst: whoever needs both halves at one moment orders by them.
        self.cmpxchg_double(proof, Pair::default(), Pair::default(), Ordering::SeqCst)
    }
}

impl<B: LocalDoubleOps> AtomicPair<B> {
    /// Replaces both halves by `new` if both are as in `old`; returns both as they were. Indivisible on this processor
    /// only.
    ///
    /// # Safety
    ///
    /// The same-processor rule of the local forms of [`Atomic`](crate::Atomic).
    #[doc(alias = "this_cpu_cmpxchg_double")]
    #[inline(always)]
    pub unsafe fn cmpxchg_double_local(&self, _proof: DoubleWordLocal<B>, old: Pair, new: Pair) -> Pair {
        // SAFETY: our own pair, the caller keeps the same-processor rule, and `_proof` says it is available.
        unsafe { B::cmpxchg_double_local(self.cell.get(), old, new) }
    }

    /// As [`try_cmpxchg_double`](Self::try_cmpxchg_double), indivisible on this processor only.
    ///
    /// # Safety
    ///
    /// The same-processor rule of the local forms of [`Atomic`](crate::Atomic).
    #[inline(always)]
    pub unsafe fn try_cmpxchg_double_local(
        &self,
        proof: DoubleWordLocal<B>,
        old: &mut Pair,
        new: Pair,
    ) -> bool {
        // SAFETY: the caller's guarantee.
        let previous = unsafe { self.cmpxchg_double_local(proof, *old, new) };
        let done = previous == *old;
        if !done {
            *old = previous;
        }
        done
    }
}
