// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `Atomic<T>`: the typed word. Kernel names, results are the value before the operation.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;

use crate::contract::{LocalOps, Ops};
use crate::primitive::{Bits, Integer, Primitive};
use crate::{Native, Ordering};

/// A word that operations change in one indivisible step: an integer of 1, 2, 4 or 8 bytes, a `bool` or a pointer.
///
/// It has the size and representation of `T`, and is aligned to its size. `B` is the backend, [`Native`] unless named.
/// Arithmetic wraps. Results are values from before the operation, and nobody has to use them.
///
/// An `order` is what the operation has when it writes. A failed compare is a relaxed load: it orders nothing. The
/// kernel's plain `cmpxchg` and `xchg` correspond to `SeqCst` (and are a little stronger still: they also order
/// surrounding plain accesses like a full fence).
///
/// # Example
///
/// ```
/// use fastpath_cmpxchg::{Atomic, Ordering};
///
/// static OWNER: Atomic<i32> = Atomic::new(-1);
/// assert_eq!(OWNER.cmpxchg(-1, 7, Ordering::Acquire), -1); // free: taken
/// assert_eq!(OWNER.cmpxchg(-1, 8, Ordering::Acquire), 7); // not free: unchanged
/// OWNER.store(-1, Ordering::Release);
/// ```
#[repr(C)]
pub struct Atomic<T: Primitive, B = Native> {
    align: [T::Align; 0],
    cell: UnsafeCell<T>,
    backend: PhantomData<B>,
}

// SAFETY: shared access to the cell goes through a backend's atomic operations only, or through `unsafe` functions whose
// callers guarantee the same; the values are plain integers and pointers that any thread may hold.
unsafe impl<T: Primitive, B> Sync for Atomic<T, B> {}
// SAFETY: as above; an exclusively owned integer or pointer value may move to another thread.
unsafe impl<T: Primitive, B> Send for Atomic<T, B> {}

impl<T: Primitive> Atomic<T> {
    /// A word on this target's own backend.
    ///
    /// ```
    /// static COUNT: fastpath_cmpxchg::Atomic<u64> = fastpath_cmpxchg::Atomic::new(0);
    /// ```
    pub const fn new(value: T) -> Self {
        Self::new_in(value)
    }
}

impl<T: Primitive, B> Atomic<T, B> {
    /// A word on the backend `B`.
    ///
    /// ```
    /// use fastpath_cmpxchg::{Atomic, backend::CoreAtomic};
    /// let word = Atomic::<u8, CoreAtomic>::new_in(3);
    /// assert_eq!(word.into_inner(), 3);
    /// ```
    pub const fn new_in(value: T) -> Self {
        Self { align: [], cell: UnsafeCell::new(value), backend: PhantomData }
    }

    /// The word at `ptr` as an atomic one.
    ///
    /// # Safety
    ///
    /// `ptr` is aligned to `size_of::<T>()`, valid for reads and writes for the lifetime `'a`, and accessed during it
    /// only by atomic operations of the backend `B`.
    ///
    /// ```
    /// use fastpath_cmpxchg::{Atomic, Ordering};
    /// let mut plain = 5_u32;
    /// // SAFETY: a local of its own alignment, used by nobody else meanwhile.
    /// let word: &Atomic<u32> = unsafe { Atomic::from_ptr(&raw mut plain) };
    /// word.fetch_add(1, Ordering::Relaxed);
    /// assert_eq!(plain, 6);
    /// ```
    pub const unsafe fn from_ptr<'a>(ptr: *mut T) -> &'a Self {
        // SAFETY: the layout is that of `T`, more strictly aligned, which the caller guarantees with the rest.
        unsafe { &*ptr.cast::<Self>() }
    }

    /// The address of the word, for the raw layer and for assembly.
    pub const fn as_ptr(&self) -> *mut T {
        self.cell.get()
    }

    /// The value, by exclusive access: no atomic operation needed.
    pub const fn get_mut(&mut self) -> &mut T {
        self.cell.get_mut()
    }

    /// The value of a word that nobody shares any more.
    pub fn into_inner(self) -> T {
        self.cell.into_inner()
    }

    /// The cell as the unsigned word the backends work on.
    #[inline(always)]
    const fn word(&self) -> *mut T::Word {
        self.cell.get().cast()
    }
}

impl<T: Primitive, B: Ops<T::Word>> Atomic<T, B> {
    /// The value. `order` is `Relaxed`, `Acquire` or `SeqCst`; others are strengthened to `SeqCst`.
    #[inline(always)]
    pub fn load(&self, order: Ordering) -> T {
        // ORDERING: the caller's.
        // SAFETY: our own word: valid, aligned, accessed atomically only (here and in every safe method below).
        T::from_word(unsafe { B::load(self.word(), order) })
    }

    /// Replaces the value. `order` is `Relaxed`, `Release` or `SeqCst`; others are strengthened to `SeqCst`.
    #[inline(always)]
    pub fn store(&self, new: T, order: Ordering) {
        // ORDERING: the caller's.
        // SAFETY: see `load`.
        unsafe { B::store(self.word(), new.to_word(), order) }
    }

    /// Stores `new` and returns what was there.
    ///
    /// ```
    /// use fastpath_cmpxchg::{Atomic, Ordering};
    /// let word = Atomic::<i16>::new(-5);
    /// assert_eq!(word.xchg(9, Ordering::SeqCst), -5);
    /// ```
    #[doc(alias = "swap")]
    #[doc(alias = "atomic_xchg")]
    #[inline(always)]
    pub fn xchg(&self, new: T, order: Ordering) -> T {
        // ORDERING: the caller's.
        // SAFETY: see `load`.
        T::from_word(unsafe { B::xchg(self.word(), new.to_word(), order) })
    }

    /// Stores `new` if the value is `old`. Returns what was there: it succeeded if that equals `old`.
    ///
    /// A failed compare writes nothing and orders nothing.
    #[doc(alias = "compare_exchange")]
    #[doc(alias = "atomic_cmpxchg")]
    #[inline(always)]
    pub fn cmpxchg(&self, old: T, new: T, order: Ordering) -> T {
        // ORDERING: the caller's if it writes, Relaxed otherwise.
        // SAFETY: see `load`.
        T::from_word(unsafe { B::cmpxchg(self.word(), old.to_word(), new.to_word(), order) })
    }

    /// Stores `new` if the value is `*old`; says whether it did. If not, `*old` becomes the value found, ready for the
    /// next attempt; if so, `*old` is untouched.
    ///
    /// ```
    /// use fastpath_cmpxchg::{Atomic, Ordering};
    /// let word = Atomic::<u32>::new(1);
    /// let mut old = 0;
    /// assert!(!word.try_cmpxchg(&mut old, 12, Ordering::Relaxed)); // `old` is 1 now
    /// assert!(word.try_cmpxchg(&mut old, 12, Ordering::Relaxed));
    /// assert_eq!((old, word.load(Ordering::Relaxed)), (1, 12));
    /// ```
    #[doc(alias = "atomic_try_cmpxchg")]
    #[inline(always)]
    pub fn try_cmpxchg(&self, old: &mut T, new: T, order: Ordering) -> bool {
        let expected = old.to_word();
        // ORDERING: the caller's if it writes, Relaxed otherwise.
        // SAFETY: see `load`.
        let previous = unsafe { B::cmpxchg(self.word(), expected, new.to_word(), order) };
        if previous == expected {
            return true;
        }
        *old = T::from_word(previous);
        false
    }
}

impl<T: Integer, B: Ops<T::Word>> Atomic<T, B> {
    /// Adds `value`, wrapping; returns what was there.
    ///
    /// ```
    /// use fastpath_cmpxchg::{Atomic, Ordering};
    /// let word = Atomic::<i32>::new(-1);
    /// assert_eq!(word.fetch_add(1, Ordering::Relaxed), -1);
    /// assert_eq!(word.fetch_sub(3, Ordering::Relaxed), 0);
    /// assert_eq!(word.load(Ordering::Relaxed), -3);
    /// ```
    #[doc(alias = "atomic_fetch_add")]
    #[inline(always)]
    pub fn fetch_add(&self, value: T, order: Ordering) -> T {
        // ORDERING: the caller's.
        // SAFETY: see `load`.
        T::from_word(unsafe { B::fetch_add(self.word(), value.to_word(), order) })
    }

    /// Subtracts `value`, wrapping; returns what was there.
    #[doc(alias = "atomic_fetch_sub")]
    #[inline(always)]
    pub fn fetch_sub(&self, value: T, order: Ordering) -> T {
        use crate::contract::Word;
        // ORDERING: the caller's.
        // SAFETY: see `load`.
        T::from_word(unsafe { B::fetch_add(self.word(), value.to_word().negated(), order) })
    }
}

impl<T: Bits, B: Ops<T::Word>> Atomic<T, B> {
    /// Bitwise and; returns what was there.
    ///
    /// ```
    /// use fastpath_cmpxchg::{Atomic, Ordering};
    /// let flags = Atomic::<u8>::new(0b1100);
    /// assert_eq!(flags.fetch_and(0b0110, Ordering::Relaxed), 0b1100);
    /// assert_eq!(flags.fetch_or(0b0001, Ordering::Relaxed), 0b0100);
    /// assert_eq!(flags.fetch_xor(0b1111, Ordering::Relaxed), 0b0101);
    /// assert_eq!(flags.load(Ordering::Relaxed), 0b1010);
    /// ```
    #[doc(alias = "atomic_fetch_and")]
    #[inline(always)]
    pub fn fetch_and(&self, value: T, order: Ordering) -> T {
        // ORDERING: the caller's.
        // SAFETY: see `load`.
        T::from_word(unsafe { B::fetch_and(self.word(), value.to_word(), order) })
    }

    /// Bitwise or; returns what was there.
    #[doc(alias = "atomic_fetch_or")]
    #[inline(always)]
    pub fn fetch_or(&self, value: T, order: Ordering) -> T {
        // ORDERING: the caller's.
        // SAFETY: see `load`.
        T::from_word(unsafe { B::fetch_or(self.word(), value.to_word(), order) })
    }

    /// Bitwise exclusive or; returns what was there.
    #[doc(alias = "atomic_fetch_xor")]
    #[inline(always)]
    pub fn fetch_xor(&self, value: T, order: Ordering) -> T {
        // ORDERING: the caller's.
        // SAFETY: see `load`.
        T::from_word(unsafe { B::fetch_xor(self.word(), value.to_word(), order) })
    }
}

/// The local forms.
///
/// # The same-processor rule
///
/// Each asks of its caller that, from choosing this word as "this processor's" until the operation is over, the code
/// cannot move to another processor (preemption off, or a processor of its own), and that no other processor writes
/// the word, not even with full forms. Handlers and threads of the same processor may use it freely.
///
/// **A user-space thread that may migrate can never guarantee that**: it can be moved between reading its processor
/// number and the store, and then two processors write without a lock. Use restartable sequences (`fastpath-percpu`) or
/// the full forms there.
impl<T: Primitive, B: LocalOps<T::Word>> Atomic<T, B> {
    /// Stores `new` and returns what was there; indivisible on this processor only.
    ///
    /// # Safety
    /// The same-processor rule above.
    ///
    /// ```
    /// let word = fastpath_cmpxchg::Atomic::<u16>::new(1);
    /// // SAFETY: nobody else has this word.
    /// assert_eq!(unsafe { word.xchg_local(2) }, 1);
    /// ```
    #[inline(always)]
    pub unsafe fn xchg_local(&self, new: T) -> T {
        // SAFETY: our own word, and the caller keeps the same-processor rule (here and in every local form below).
        T::from_word(unsafe { B::xchg_local(self.word(), new.to_word()) })
    }

    /// Stores `new` if the value is `old`; returns what was there. Indivisible on this processor only.
    ///
    /// # Safety
    /// The same-processor rule above.
    ///
    /// ```
    /// let word = fastpath_cmpxchg::Atomic::<i64>::new(-1);
    /// // SAFETY: nobody else has this word.
    /// assert_eq!(unsafe { word.cmpxchg_local(-1, -2) }, -1);
    /// ```
    #[doc(alias = "cmpxchg64_local")]
    #[doc(alias = "this_cpu_cmpxchg")]
    #[inline(always)]
    pub unsafe fn cmpxchg_local(&self, old: T, new: T) -> T {
        // SAFETY: see `xchg_local`.
        T::from_word(unsafe { B::cmpxchg_local(self.word(), old.to_word(), new.to_word()) })
    }

    /// [`try_cmpxchg`](Self::try_cmpxchg), indivisible on this processor only.
    ///
    /// # Safety
    /// The same-processor rule above.
    #[inline(always)]
    pub unsafe fn try_cmpxchg_local(&self, old: &mut T, new: T) -> bool {
        let expected = old.to_word();
        // SAFETY: see `xchg_local`.
        let previous = unsafe { B::cmpxchg_local(self.word(), expected, new.to_word()) };
        if previous == expected {
            return true;
        }
        *old = T::from_word(previous);
        false
    }
}

/// Local arithmetic. Every function is under the same-processor rule of the local forms.
impl<T: Integer, B: LocalOps<T::Word>> Atomic<T, B> {
    /// Adds `value`, wrapping; returns what was there.
    ///
    /// # Safety
    /// The same-processor rule of the local forms.
    #[inline(always)]
    pub unsafe fn fetch_add_local(&self, value: T) -> T {
        // SAFETY: see `xchg_local`.
        T::from_word(unsafe { B::fetch_add_local(self.word(), value.to_word()) })
    }

    /// Adds `value` and returns the sum.
    ///
    /// # Safety
    /// The same-processor rule of the local forms.
    ///
    /// ```
    /// let word = fastpath_cmpxchg::Atomic::<u8>::new(250);
    /// // SAFETY: nobody else has this word.
    /// unsafe {
    ///     assert_eq!(word.add_return_local(10), 4);
    ///     assert_eq!(word.sub_return_local(5), 255);
    ///     assert_eq!(word.inc_return_local(), 0);
    ///     assert_eq!(word.dec_return_local(), 255);
    /// }
    /// ```
    #[doc(alias = "local_add_return")]
    #[doc(alias = "this_cpu_add_return")]
    #[inline(always)]
    pub unsafe fn add_return_local(&self, value: T) -> T {
        // SAFETY: see `xchg_local`.
        unsafe { self.fetch_add_local(value) }.wrapping_plus(value)
    }

    /// Subtracts `value` and returns the difference.
    ///
    /// # Safety
    /// The same-processor rule of the local forms.
    #[doc(alias = "local_sub_return")]
    #[inline(always)]
    pub unsafe fn sub_return_local(&self, value: T) -> T {
        use crate::contract::Word;
        // SAFETY: see `xchg_local`.
        unsafe { self.add_return_local(T::from_word(value.to_word().negated())) }
    }

    /// Adds one and returns the sum.
    ///
    /// # Safety
    /// The same-processor rule of the local forms.
    #[inline(always)]
    pub unsafe fn inc_return_local(&self) -> T {
        // SAFETY: see `xchg_local`.
        unsafe { self.add_return_local(T::ONE) }
    }

    /// Subtracts one and returns the difference.
    ///
    /// # Safety
    /// The same-processor rule of the local forms.
    #[inline(always)]
    pub unsafe fn dec_return_local(&self) -> T {
        // SAFETY: see `xchg_local`.
        unsafe { self.sub_return_local(T::ONE) }
    }

    /// Adds `value`: the form without a result is one unlocked instruction on x86.
    ///
    /// # Safety
    /// The same-processor rule of the local forms.
    ///
    /// ```
    /// let word = fastpath_cmpxchg::Atomic::<u32>::new(5);
    /// // SAFETY: nobody else has this word.
    /// unsafe {
    ///     word.add_local(10);
    ///     word.sub_local(1);
    ///     word.inc_local();
    ///     word.dec_local();
    /// }
    /// assert_eq!(word.into_inner(), 14);
    /// ```
    #[doc(alias = "local_add")]
    #[inline(always)]
    pub unsafe fn add_local(&self, value: T) {
        // SAFETY: see `xchg_local`.
        unsafe { B::add_local(self.word(), value.to_word()) }
    }

    /// Subtracts `value`.
    ///
    /// # Safety
    /// The same-processor rule of the local forms.
    #[doc(alias = "local_sub")]
    #[inline(always)]
    pub unsafe fn sub_local(&self, value: T) {
        use crate::contract::Word;
        // SAFETY: see `xchg_local`.
        unsafe { B::add_local(self.word(), value.to_word().negated()) }
    }

    /// Adds one.
    ///
    /// # Safety
    /// The same-processor rule of the local forms.
    #[doc(alias = "local_inc")]
    #[inline(always)]
    pub unsafe fn inc_local(&self) {
        // SAFETY: see `xchg_local`.
        unsafe { self.add_local(T::ONE) }
    }

    /// Subtracts one.
    ///
    /// # Safety
    /// The same-processor rule of the local forms.
    #[doc(alias = "local_dec")]
    #[inline(always)]
    pub unsafe fn dec_local(&self) {
        // SAFETY: see `xchg_local`.
        unsafe { self.sub_local(T::ONE) }
    }
}

/// Local bitwise operations. Every function is under the same-processor rule of the local forms.
impl<T: Bits, B: LocalOps<T::Word>> Atomic<T, B> {
    /// Bitwise and; returns what was there.
    ///
    /// # Safety
    /// The same-processor rule of the local forms.
    #[inline(always)]
    pub unsafe fn fetch_and_local(&self, value: T) -> T {
        // SAFETY: see `xchg_local`.
        T::from_word(unsafe { B::fetch_and_local(self.word(), value.to_word()) })
    }

    /// Bitwise or; returns what was there.
    ///
    /// # Safety
    /// The same-processor rule of the local forms.
    #[inline(always)]
    pub unsafe fn fetch_or_local(&self, value: T) -> T {
        // SAFETY: see `xchg_local`.
        T::from_word(unsafe { B::fetch_or_local(self.word(), value.to_word()) })
    }

    /// Bitwise exclusive or; returns what was there.
    ///
    /// # Safety
    /// The same-processor rule of the local forms.
    #[inline(always)]
    pub unsafe fn fetch_xor_local(&self, value: T) -> T {
        // SAFETY: see `xchg_local`.
        T::from_word(unsafe { B::fetch_xor_local(self.word(), value.to_word()) })
    }

    /// Bitwise and: the forms without a result are one unlocked instruction on x86.
    ///
    /// # Safety
    /// The same-processor rule of the local forms.
    ///
    /// ```
    /// let flags = fastpath_cmpxchg::Atomic::<u32>::new(0b1100);
    /// // SAFETY: nobody else has this word.
    /// unsafe {
    ///     flags.and_local(0b0110);
    ///     flags.or_local(0b0001);
    ///     flags.xor_local(0b1111);
    /// }
    /// assert_eq!(flags.into_inner(), 0b1010);
    /// ```
    #[inline(always)]
    pub unsafe fn and_local(&self, value: T) {
        // SAFETY: see `xchg_local`.
        unsafe { B::and_local(self.word(), value.to_word()) }
    }

    /// Bitwise or.
    ///
    /// # Safety
    /// The same-processor rule of the local forms.
    #[inline(always)]
    pub unsafe fn or_local(&self, value: T) {
        // SAFETY: see `xchg_local`.
        unsafe { B::or_local(self.word(), value.to_word()) }
    }

    /// Bitwise exclusive or.
    ///
    /// # Safety
    /// The same-processor rule of the local forms.
    #[inline(always)]
    pub unsafe fn xor_local(&self, value: T) {
        // SAFETY: see `xchg_local`.
        unsafe { B::xor_local(self.word(), value.to_word()) }
    }
}

impl<T: Primitive + Default> Default for Atomic<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Primitive> From<T> for Atomic<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: Primitive + fmt::Debug, B: Ops<T::Word>> fmt::Debug for Atomic<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // ORDERING: Relaxed: a printout publishes and receives nothing.
        fmt::Debug::fmt(&self.load(Ordering::Relaxed), f)
    }
}

const _: () = assert!(size_of::<Atomic<u8>>() == 1 && align_of::<Atomic<u16>>() == 2);
const _: () = assert!(size_of::<Atomic<i64>>() == 8 && align_of::<Atomic<i64>>() == 8);
