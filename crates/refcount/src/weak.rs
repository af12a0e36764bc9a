// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The form of `Arc` that has weak references: two counters in front of the value.
//!
//! # Invariants
//!
//! 1. `strong` counts the handles; while it is not zero the value is alive. It never rises from zero.
//! 2. `weak` counts the [`Weak`]s, plus one for all handles together, dropped with the last of them; while it is not zero the
//!    memory is there.
//! 3. `weak` at zero while `strong` is not means "locked": [`Arc::get_mut`] took the one count of the handles to keep `downgrade` from
//!    making a `Weak` between its two looks. `downgrade` waits; nobody else can come, because there is no `Weak` to clone.
//! 4. A saturated `strong` keeps the value for ever. A saturated `weak` keeps only the memory for ever.
//!
//! The ordering is that of the counters. `upgrade` takes its count with Acquire, because a `Weak` may have come to the
//! thread without an order with what the value's owner did before it downgraded.
#![expect(unsafe_code, reason = "handles are raw pointers to counted blocks")]

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::NonNull;

use crate::RefCount;
#[cfg(feature = "alloc")]
use crate::allocator::Global;
use crate::allocator::{ArcAllocator, out_of_memory};
use crate::block::{self, Memory};
use crate::sync;

pub(crate) struct Counts {
    strong: RefCount,
    weak: RefCount,
}

type Block<T, A> = block::Block<Counts, T, A>;

/// As [`fastpath_refcount::Arc`](crate::Arc), and it can be [downgraded](Arc::downgrade) to a [`Weak`].
///
/// ```
/// use fastpath_refcount::weak::Arc;
///
/// let parent = Arc::new("parent");
/// let back = Arc::downgrade(&parent);
/// assert_eq!(back.upgrade().as_deref(), Some(&"parent"));
/// drop(parent);
/// assert!(back.upgrade().is_none());
/// ```
///
/// ```compile_fail,E0277
/// fn send<T: Send>(_: T) {}
/// send(fastpath_refcount::weak::Arc::new(core::cell::Cell::new(1)));
/// ```
pub struct Arc<
    T: ?Sized,
    #[cfg(feature = "alloc")] A: ArcAllocator = Global,
    #[cfg(not(feature = "alloc"))] A: ArcAllocator,
> {
    block: NonNull<Block<T, A>>,
    /// Owns the block: dropping a handle may drop a `T` and an `A`.
    owns: PhantomData<Block<T, A>>,
}

/// A reference that does not keep the value alive.
///
/// See [`Arc`] for an example.
///
/// ```compile_fail,E0277
/// fn send<T: Send>(_: T) {}
/// send(fastpath_refcount::weak::Arc::downgrade(&fastpath_refcount::weak::Arc::new(core::cell::Cell::new(1))));
/// ```
pub struct Weak<
    T: ?Sized,
    #[cfg(feature = "alloc")] A: ArcAllocator = Global,
    #[cfg(not(feature = "alloc"))] A: ArcAllocator,
> {
    /// `None`: of no block at all (`Weak::new`, `Weak::default`).
    block: Option<NonNull<Block<T, A>>>,
}

// SAFETY: as for `crate::Arc`.
unsafe impl<T: ?Sized + Send + Sync, A: ArcAllocator + Send + Sync> Send for Arc<T, A> {}
// SAFETY: as for `crate::Arc`.
unsafe impl<T: ?Sized + Send + Sync, A: ArcAllocator + Send + Sync> Sync for Arc<T, A> {}
// SAFETY: a `Weak` can become an `Arc` on the thread it was sent to, and drop the allocator there.
unsafe impl<T: ?Sized + Send + Sync, A: ArcAllocator + Send + Sync> Send for Weak<T, A> {}
// SAFETY: a shared `Weak` can be cloned and upgraded.
unsafe impl<T: ?Sized + Send + Sync, A: ArcAllocator + Send + Sync> Sync for Weak<T, A> {}

impl<T: ?Sized, A: ArcAllocator> Unpin for Arc<T, A> {}
impl<T: ?Sized + core::panic::RefUnwindSafe, A: ArcAllocator> core::panic::UnwindSafe for Arc<T, A> {}

#[cfg(feature = "alloc")]
impl<T> Arc<T> {
    /// A new block with `value`, one handle and no weak reference. See [`Arc`] for an example.
    #[inline]
    #[must_use]
    pub fn new(value: T) -> Self {
        Self::new_in(value, Global)
    }
}

impl<T, A: ArcAllocator> Arc<T, A> {
    /// [`new`](Arc::new) with memory from `allocator`.
    ///
    /// # Panics
    ///
    /// If the allocator has no memory; with the feature `alloc`, as the global allocator does (`handle_alloc_error`).
    ///
    /// ```
    /// use fastpath_refcount::{Global, weak::Arc};
    /// assert_eq!(*Arc::new_in(5, Global), 5);
    /// ```
    #[inline]
    #[must_use]
    pub fn new_in(value: T, allocator: A) -> Self {
        let counts = Counts { strong: RefCount::new(1), weak: RefCount::new(1) };
        match block::with_value(value, counts, allocator) {
            Ok(block) => Self { block, owns: PhantomData },
            Err(_) => out_of_memory(core::alloc::Layout::new::<Block<T, A>>()),
        }
    }

    /// The value, if this is the only handle. Weak references do not matter: they can no longer be upgraded then.
    ///
    /// # Errors
    ///
    /// The handle, if there are others, or if the count is saturated.
    ///
    /// ```
    /// use fastpath_refcount::weak::Arc;
    /// assert_eq!(Arc::try_unwrap(Arc::new(5)), Ok(5));
    /// ```
    pub fn try_unwrap(this: Self) -> Result<T, Self> {
        if !this.counts().strong.dec_if_one() {
            return Err(this);
        }
        let this = ManuallyDrop::new(this);
        // The count of all handles together, dropped when the value is out.
        let _rest = Weak { block: Some(this.block) };
        // SAFETY: the count went from one to zero by this handle: the value is ours alone, and is not dropped in place.
        Ok(unsafe { (&raw const (*this.block.as_ptr()).data).read() })
    }
}

impl<T: ?Sized, A: ArcAllocator> Arc<T, A> {
    fn counts(&self) -> &Counts {
        // SAFETY: the block is there while this handle is (Invariant 2).
        unsafe { &(*self.block.as_ptr()).counts }
    }

    /// A reference that does not keep the value alive. See [`Arc`] for an example.
    #[must_use = "a `Weak` that is dropped at once does nothing"]
    pub fn downgrade(this: &Self) -> Weak<T, A> {
        // Zero means locked by a `get_mut` of another handle (Invariant 3), which is about to find that it is not alone.
        // ORDERING: Acquire in `inc_not_zero_acquire` pairs with the `set_release` that unlocks.
        while !this.counts().weak.inc_not_zero_acquire() {
            sync::spin_loop();
        }
        Weak { block: Some(this.block) }
    }

    /// `&mut` to the value, if this is the only handle and there is no weak reference.
    ///
    /// ```
    /// use fastpath_refcount::weak::Arc;
    /// let mut number = Arc::new(5);
    /// *Arc::get_mut(&mut number).unwrap() = 6;
    /// let _weak = Arc::downgrade(&number);
    /// assert!(Arc::get_mut(&mut number).is_none());
    /// ```
    pub fn get_mut(this: &mut Self) -> Option<&mut T> {
        // Lock `weak`: it works only if no `Weak` exists, and then none can appear (Invariant 3).
        if !this.counts().weak.dec_if_one() {
            return None;
        }
        let unique = this.counts().strong.is_one_acquire();
        this.counts().weak.set_release(1);
        // SAFETY: one handle, borrowed mutably, and no `Weak` that could become another.
        unique.then(|| unsafe { &mut (*this.block.as_ptr()).data })
    }

    /// The number of handles at some moment, as a hint; above [`MAX`](crate::MAX) the value is leaked.
    ///
    /// ```
    /// use fastpath_refcount::weak::Arc;
    /// let number = Arc::new(5);
    /// let _weak = Arc::downgrade(&number);
    /// assert_eq!((Arc::strong_count(&number), Arc::weak_count(&number)), (1, 1));
    /// ```
    #[must_use]
    pub fn strong_count(this: &Self) -> u32 {
        this.counts().strong.read()
    }

    /// The number of weak references at some moment, as a hint. See [`strong_count`](Self::strong_count).
    #[must_use]
    pub fn weak_count(this: &Self) -> u32 {
        this.counts().weak.read().saturating_sub(1)
    }

    /// Whether both are handles of one block.
    ///
    /// ```
    /// use fastpath_refcount::weak::Arc;
    /// let one = Arc::new(5);
    /// assert!(Arc::ptr_eq(&one, &Arc::clone(&one)));
    /// ```
    #[must_use]
    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        core::ptr::addr_eq(this.block.as_ptr(), other.block.as_ptr())
    }

    /// Drops the value, and the count that all handles had together.
    ///
    /// # Safety
    ///
    /// `strong` is zero, brought there by this handle, which is not used again.
    #[inline(never)]
    unsafe fn free(&mut self) {
        // Dropped last, also if the value's destructor panics.
        let _rest = Weak { block: Some(self.block) };
        // SAFETY: nobody else reaches the value any more: upgrades fail at zero.
        unsafe { (&raw mut (*self.block.as_ptr()).data).drop_in_place() };
    }
}

#[cfg(feature = "alloc")]
impl<T: ?Sized> From<alloc::boxed::Box<T>> for Arc<T> {
    /// Moves the value into a block, whatever its size.
    fn from(value: alloc::boxed::Box<T>) -> Self {
        let counts = Counts { strong: RefCount::new(1), weak: RefCount::new(1) };
        Self { block: block::from_box(value, counts), owns: PhantomData }
    }
}

impl<T: ?Sized, A: ArcAllocator> Deref for Arc<T, A> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the value is alive while this handle is, and nobody has `&mut` to it.
        unsafe { &(*self.block.as_ptr()).data }
    }
}

impl<T: ?Sized, A: ArcAllocator> Clone for Arc<T, A> {
    #[inline]
    fn clone(&self) -> Self {
        self.counts().strong.inc();
        Self { block: self.block, owns: PhantomData }
    }
}

impl<T: ?Sized, A: ArcAllocator> Drop for Arc<T, A> {
    #[inline]
    fn drop(&mut self) {
        if self.counts().strong.dec_and_test() {
            // SAFETY: true means that the last count went by this handle.
            unsafe { self.free() };
        }
    }
}

#[cfg(feature = "alloc")]
impl<T> Weak<T> {
    /// A reference to nothing: it cannot be upgraded.
    ///
    /// ```
    /// use fastpath_refcount::weak::Weak;
    /// assert!(Weak::<i32>::new().upgrade().is_none());
    /// ```
    #[must_use]
    pub const fn new() -> Self {
        Self { block: None }
    }
}

impl<T: ?Sized, A: ArcAllocator> Weak<T, A> {
    fn counts(&self) -> Option<&Counts> {
        // SAFETY: the memory is there while this reference is (Invariant 2). Only the counters are borrowed: the value may be gone.
        self.block.map(|block| unsafe { &(*block.as_ptr()).counts })
    }

    /// A handle, if the value is still alive. See [`Arc`] for an example.
    #[inline]
    #[must_use]
    pub fn upgrade(&self) -> Option<Arc<T, A>> {
        let block = self.block?;
        // ORDERING: Acquire pairs with the Release of drops by others, as `std`'s upgrade: the module's head says why.
        self.counts()?.strong.inc_not_zero_acquire().then(|| Arc { block, owns: PhantomData })
    }

    /// The number of handles at some moment, as a hint.
    ///
    /// ```
    /// use fastpath_refcount::weak::Arc;
    /// let number = Arc::new(5);
    /// assert_eq!(Arc::downgrade(&number).strong_count(), 1);
    /// ```
    #[must_use]
    pub fn strong_count(&self) -> u32 {
        self.counts().map_or(0, |counts| counts.strong.read())
    }

    /// Whether both refer to one block, or both to none.
    ///
    /// ```
    /// use fastpath_refcount::weak::Arc;
    /// let weak = Arc::downgrade(&Arc::new(5));
    /// assert!(weak.ptr_eq(&weak.clone()));
    /// ```
    #[must_use]
    pub fn ptr_eq(&self, other: &Self) -> bool {
        match (self.block, other.block) {
            (Some(one), Some(other)) => core::ptr::addr_eq(one.as_ptr(), other.as_ptr()),
            (None, None) => true,
            _ => false,
        }
    }
}

impl<T: ?Sized, A: ArcAllocator> Clone for Weak<T, A> {
    #[inline]
    fn clone(&self) -> Self {
        if let Some(counts) = self.counts() {
            counts.weak.inc();
        }
        Self { block: self.block }
    }
}

impl<T: ?Sized, A: ArcAllocator> Drop for Weak<T, A> {
    #[inline]
    fn drop(&mut self) {
        let Some(block) = self.block else { return };
        if self.counts().is_some_and(|counts| counts.weak.dec_and_test()) {
            // SAFETY: no handle (they had one count together) and no other weak reference is left; the value has been dropped or moved
            // out, and only its size is read.
            drop(unsafe { Memory::reclaim(block) });
        }
    }
}

impl<T, A: ArcAllocator> Default for Weak<T, A> {
    /// A reference to nothing.
    fn default() -> Self {
        Self { block: None }
    }
}

impl<T: ?Sized, A: ArcAllocator> core::fmt::Debug for Weak<T, A> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("(Weak)")
    }
}

/// Sets the counters of a block, for tests of the limits.
#[cfg(all(test, feature = "std", not(loom)))]
pub(crate) mod tests_access {
    pub(crate) fn counts<T>(handle: &super::Arc<T>, strong: u32, weak: u32) {
        handle.counts().strong.set(strong);
        handle.counts().weak.set(weak);
    }
}
