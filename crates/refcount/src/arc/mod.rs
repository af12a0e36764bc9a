// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `Arc`: a shared pointer on a counter that saturates.
//!
//! # Invariants
//!
//! 1. A block is alive while its counter is not zero; each handle accounts for one count, unless the counter is saturated.
//! 2. A saturated block is never freed and its value never dropped or moved out.
//! 3. `&mut` to the value exists only while the count is one and the only handle is borrowed mutably, or in a [`UniqueArc`].
//!
//! The ordering is that of the counter: each drop releases, the last one acquires.
#![expect(unsafe_code, reason = "handles are raw pointers to counted blocks")]

mod borrow;
mod compare;
mod convert;
mod header;
mod unique;

#[cfg(feature = "serde")]
mod serde;
#[cfg(feature = "slub")]
pub(crate) mod slub;
#[cfg(feature = "std")]
mod std_traits;
#[cfg(all(test, feature = "std", not(loom)))]
mod tests;
#[cfg(feature = "unsize")]
mod unsize;

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::pin::Pin;
use core::ptr::NonNull;

pub use borrow::ArcBorrow;
pub use header::HeaderSlice;
pub use unique::UniqueArc;

use crate::RefCount;
#[cfg(feature = "alloc")]
use crate::allocator::Global;
use crate::allocator::{ArcAllocator, out_of_memory};
use crate::block::{self, Memory};

/// What a handle points to.
type Block<T, A> = block::Block<RefCount, T, A>;

/// A thread-safe shared pointer, as `std::sync::Arc`, whose count cannot be overflowed into a use-after-free.
///
/// * Too many clones (or forgotten ones) saturate the count: the value is leaked, with one warning for the whole program (see
///   [`set_warn_hook`](crate::set_warn_hook)). `std`'s aborts the process instead.
/// * Too few, by unsound code: a drop that finds the count already misused saturates it. A value is never freed twice by this type.
/// * No weak references: one word of count in front of the value instead of two, and the last drop touches one counter.
///   [`weak::Arc`](crate::weak::Arc) is the form that has them.
/// * Any allocator ([`ArcAllocator`]), with handles of one word.
///
/// As in `std`, functions that would hide methods of `T` are called as `Arc::name(&this)`. `#[derive]`-like traits, conversions and
/// formatting are those of `std::sync::Arc`.
///
/// ```
/// use fastpath_refcount::Arc;
///
/// let mut text = Arc::new(String::from("shared"));
/// let reader = Arc::clone(&text);
/// std::thread::spawn(move || assert_eq!(reader.len(), 6)).join().unwrap();
///
/// Arc::make_mut(&mut text).push_str(" no more");
/// assert_eq!(Arc::try_unwrap(text).unwrap(), "shared no more");
/// ```
///
/// A trait object, on stable Rust, from a box or (with the feature `unsize`) in place:
///
/// ```
/// use core::fmt::Display;
/// use fastpath_refcount::Arc;
///
/// let shown: Arc<dyn Display> = Arc::from(Box::new(5) as Box<dyn Display>);
/// assert_eq!(shown.to_string(), "5");
/// ```
///
/// What may not cross threads alone may not in an `Arc` either:
///
/// ```compile_fail,E0277
/// fn send<T: Send>(_: T) {}
/// send(fastpath_refcount::Arc::new(core::cell::Cell::new(1))); // Cell is not Sync
/// ```
///
/// ```compile_fail,E0277
/// fn share<T: Sync>(_: T) {}
/// share(fastpath_refcount::Arc::new(std::rc::Rc::new(1))); // Rc is neither Send nor Sync
/// ```
///
/// ```compile_fail,E0277
/// fn share<T: Sync>(_: &T) {}
/// // A MutexGuard is Sync, but must not be dropped by another thread.
/// let mutex = std::sync::Mutex::new(1);
/// share(&fastpath_refcount::Arc::new(mutex.lock().unwrap()));
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

// SAFETY: another thread can use the value through its handle (`T: Sync`) and may be the one that drops it (`T: Send`); the same for
// the allocator, which `Arc::allocator` shares and the last handle drops.
unsafe impl<T: ?Sized + Send + Sync, A: ArcAllocator + Send + Sync> Send for Arc<T, A> {}
// SAFETY: a shared handle can be cloned, so sharing one is as good as sending one.
unsafe impl<T: ?Sized + Send + Sync, A: ArcAllocator + Send + Sync> Sync for Arc<T, A> {}

impl<T: ?Sized, A: ArcAllocator> Unpin for Arc<T, A> {}
impl<T: ?Sized + core::panic::RefUnwindSafe, A: ArcAllocator> core::panic::UnwindSafe for Arc<T, A> {}

#[cfg(feature = "alloc")]
impl<T> Arc<T> {
    /// A new block with `value` and one reference, from the global allocator.
    ///
    /// ```
    /// assert_eq!(*fastpath_refcount::Arc::new(5), 5);
    /// ```
    #[inline]
    #[must_use]
    pub fn new(value: T) -> Self {
        Self::new_in(value, Global)
    }

    /// [`new`](Self::new), or `Err` with the value if there is no memory.
    ///
    /// # Errors
    ///
    /// The value, if the allocator has no memory.
    ///
    /// ```
    /// assert_eq!(*fastpath_refcount::Arc::try_new(5).unwrap(), 5);
    /// ```
    #[inline]
    pub fn try_new(value: T) -> Result<Self, T> {
        Self::try_new_in(value, Global).map_err(|(value, _)| value)
    }

    /// [`new`](Self::new), pinned: the value stays where it is until it is dropped.
    ///
    /// ```
    /// assert_eq!(*fastpath_refcount::Arc::pin(5), 5);
    /// ```
    #[inline]
    #[must_use]
    pub fn pin(value: T) -> Pin<Self> {
        Self::into_pin(Self::new(value))
    }
}

impl<T, A: ArcAllocator> Arc<T, A> {
    /// A new block with `value` and one reference, from `allocator`.
    ///
    /// # Panics
    ///
    /// If the allocator has no memory; with the feature `alloc`, as the global allocator does (`handle_alloc_error`).
    ///
    /// See [`ArcAllocator`] for an example.
    #[inline]
    #[must_use]
    pub fn new_in(value: T, allocator: A) -> Self {
        match Self::try_new_in(value, allocator) {
            Ok(this) => this,
            Err(_) => out_of_memory(core::alloc::Layout::new::<Block<T, A>>()),
        }
    }

    /// [`new_in`](Self::new_in), or `Err` if there is no memory.
    ///
    /// # Errors
    ///
    /// The value and the allocator, if that has no memory.
    ///
    /// ```
    /// use fastpath_refcount::{Arc, Global};
    /// assert_eq!(*Arc::try_new_in(5, Global).unwrap(), 5);
    /// ```
    #[inline]
    pub fn try_new_in(value: T, allocator: A) -> Result<Self, (T, A)> {
        // SAFETY: a new block with one count is what a handle is made of.
        block::with_value(value, RefCount::new(1), allocator).map(|block| unsafe { Self::from_block(block) })
    }

    /// Size and alignment of what is asked of the allocator for one value: count, allocator, value.
    ///
    /// ```
    /// use fastpath_refcount::{Arc, Global};
    /// assert_eq!(Arc::<u32, Global>::block_layout().size(), 8);
    /// ```
    #[must_use]
    pub const fn block_layout() -> core::alloc::Layout {
        core::alloc::Layout::new::<Block<T, A>>()
    }

    /// The value, if this is the only handle.
    ///
    /// # Errors
    ///
    /// The handle, if there are others, or if the count is saturated.
    ///
    /// ```
    /// use fastpath_refcount::Arc;
    /// let one = Arc::new(5);
    /// let two = Arc::clone(&one);
    /// let one = Arc::try_unwrap(one).unwrap_err();
    /// drop(two);
    /// assert_eq!(Arc::try_unwrap(one), Ok(5));
    /// ```
    #[inline]
    pub fn try_unwrap(this: Self) -> Result<T, Self> {
        if this.counter().dec_if_one() {
            // SAFETY: the count went from one to zero by this handle, which is not dropped: the block is ours alone.
            Ok(unsafe { ManuallyDrop::new(this).take() })
        } else {
            Err(this)
        }
    }

    /// The value, if this was the last handle: of several threads that call this on clones, exactly one gets it.
    ///
    /// ```
    /// use fastpath_refcount::Arc;
    /// let one = Arc::new(5);
    /// let two = Arc::clone(&one);
    /// assert_eq!(Arc::into_inner(one), None);
    /// assert_eq!(Arc::into_inner(two), Some(5));
    /// ```
    #[inline]
    #[must_use = "use `drop` to drop a handle"]
    pub fn into_inner(this: Self) -> Option<T> {
        let this = ManuallyDrop::new(this);
        // SAFETY: true means that the last count went by this handle, which is not dropped again.
        this.counter().dec_and_test().then(|| unsafe { this.take() })
    }

    /// Moves the value out of the block and frees it.
    ///
    /// # Safety
    ///
    /// The count is zero, brought there by this handle, which is neither used nor dropped again.
    unsafe fn take(&self) -> T {
        // SAFETY: by the contract the block is ours alone. The value is moved out, never dropped in place.
        unsafe {
            let _memory = Memory::reclaim(self.block);
            (&raw const (*self.block.as_ptr()).data).read()
        }
    }
}

impl<T: Clone, A: ArcAllocator + Clone> Arc<T, A> {
    /// `&mut` to the value, after making it this handle's own: cloned into a new block if there are other handles.
    ///
    /// ```
    /// use fastpath_refcount::Arc;
    /// let mut mine = Arc::new(5);
    /// let other = Arc::clone(&mine);
    /// *Arc::make_mut(&mut mine) += 1;
    /// assert_eq!((*mine, *other), (6, 5));
    /// ```
    #[inline]
    pub fn make_mut(this: &mut Self) -> &mut T {
        if !Self::is_unique(this) {
            *this = Self::new_in(T::clone(this), Self::allocator(this).clone());
        }
        // SAFETY: the only handle of its block, borrowed mutably (Invariant 3).
        unsafe { &mut (*this.block.as_ptr()).data }
    }

    /// The value: moved out if this is the only handle, cloned if not.
    ///
    /// ```
    /// use fastpath_refcount::Arc;
    /// let one = Arc::new(String::from("x"));
    /// let two = Arc::clone(&one);
    /// assert_eq!(Arc::unwrap_or_clone(one), "x");
    /// assert_eq!(Arc::unwrap_or_clone(two), "x");
    /// ```
    #[inline]
    #[must_use = "use `drop` to drop a handle"]
    pub fn unwrap_or_clone(this: Self) -> T {
        Self::try_unwrap(this).unwrap_or_else(|this| T::clone(&this))
    }
}

impl<T: ?Sized, A: ArcAllocator> Arc<T, A> {
    /// A handle for a count of `block` that nobody else accounts for.
    ///
    /// # Safety
    ///
    /// The block is alive and one of its counts is this handle's.
    unsafe fn from_block(block: NonNull<Block<T, A>>) -> Self {
        Self { block, owns: PhantomData }
    }

    fn counter(&self) -> &RefCount {
        // SAFETY: the block is alive while this handle is (Invariant 1). Only the counter is borrowed, not the value.
        unsafe { &(*self.block.as_ptr()).counts }
    }

    /// The allocator that the block came from.
    ///
    /// ```
    /// use fastpath_refcount::{Arc, Global};
    /// assert_eq!(*Arc::allocator(&Arc::new(5)), Global);
    /// ```
    #[must_use]
    pub fn allocator(this: &Self) -> &A {
        // SAFETY: the block is alive while this handle is, and nobody changes the allocator in it.
        unsafe { &(*this.block.as_ptr()).allocator }
    }

    /// The number of handles at some moment, as a hint; above [`MAX`](crate::MAX) the value is leaked.
    ///
    /// ```
    /// use fastpath_refcount::Arc;
    /// let one = Arc::new(5);
    /// let _two = Arc::clone(&one);
    /// assert_eq!(Arc::strong_count(&one), 2);
    /// ```
    #[must_use]
    pub fn strong_count(this: &Self) -> u32 {
        this.counter().read()
    }

    /// Whether the count was lost, so that the value is never dropped.
    ///
    /// ```
    /// use fastpath_refcount::Arc;
    /// assert!(!Arc::is_saturated(&Arc::new(5)));
    /// ```
    #[must_use]
    pub fn is_saturated(this: &Self) -> bool {
        this.counter().is_saturated()
    }

    /// Whether this is the only handle. Acquire: all that was done through the others has happened then.
    ///
    /// ```
    /// use fastpath_refcount::Arc;
    /// assert!(Arc::is_unique(&Arc::new(5)));
    /// ```
    #[inline]
    #[must_use]
    pub fn is_unique(this: &Self) -> bool {
        this.counter().is_one_acquire()
    }

    /// `&mut` to the value, if this is the only handle.
    ///
    /// ```
    /// use fastpath_refcount::Arc;
    /// let mut number = Arc::new(5);
    /// *Arc::get_mut(&mut number).unwrap() = 6;
    /// let _other = Arc::clone(&number);
    /// assert!(Arc::get_mut(&mut number).is_none());
    /// ```
    #[inline]
    pub fn get_mut(this: &mut Self) -> Option<&mut T> {
        // SAFETY: the only handle of its block, borrowed mutably (Invariant 3).
        Self::is_unique(this).then(|| unsafe { &mut (*this.block.as_ptr()).data })
    }

    /// The handle as a [`UniqueArc`], if it is the only one.
    ///
    /// # Errors
    ///
    /// The handle, if there are others.
    ///
    /// ```
    /// use fastpath_refcount::Arc;
    /// let mut unique = Arc::try_unique(Arc::new(5)).unwrap();
    /// *unique += 1;
    /// assert_eq!(*unique.shareable(), 6);
    /// ```
    #[inline]
    pub fn try_unique(this: Self) -> Result<UniqueArc<T, A>, Self> {
        // SAFETY: the only handle, which is moved in.
        if Self::is_unique(&this) { Ok(unsafe { UniqueArc::from_arc(this) }) } else { Err(this) }
    }

    /// Whether both are handles of one block.
    ///
    /// ```
    /// use fastpath_refcount::Arc;
    /// let one = Arc::new(5);
    /// assert!(Arc::ptr_eq(&one, &Arc::clone(&one)));
    /// assert!(!Arc::ptr_eq(&one, &Arc::new(5)));
    /// ```
    #[inline]
    #[must_use]
    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        core::ptr::addr_eq(this.block.as_ptr(), other.block.as_ptr())
    }

    /// The address of the value, valid while there are handles.
    ///
    /// ```
    /// use fastpath_refcount::Arc;
    /// let number = Arc::new(5);
    /// assert!(core::ptr::eq(Arc::as_ptr(&number), &*number));
    /// ```
    #[inline]
    #[must_use]
    pub fn as_ptr(this: &Self) -> *const T {
        // Not through a reference to the value: what comes back in `from_raw` must reach the counter too.
        // SAFETY: the block is alive while this handle is.
        unsafe { &raw const (*this.block.as_ptr()).data }
    }

    /// The handle as a pointer to the value. Its count is kept: give it back with [`from_raw`](Self::from_raw).
    ///
    /// ```
    /// use fastpath_refcount::Arc;
    /// let raw = Arc::into_raw(Arc::new(5));
    /// // SAFETY: `raw` is from `into_raw` of the same type, once.
    /// assert_eq!(*unsafe { Arc::from_raw(raw) }, 5);
    /// ```
    #[inline]
    #[must_use = "the value is leaked if the pointer is not turned back into a handle"]
    pub fn into_raw(this: Self) -> *const T {
        Self::as_ptr(&ManuallyDrop::new(this))
    }

    /// [`from_raw`](Arc::from_raw) for a block from any allocator, which is found in the block.
    ///
    /// # Safety
    ///
    /// As for [`from_raw`](Arc::from_raw); the block's allocator is an `A`.
    ///
    /// ```
    /// use fastpath_refcount::{Arc, Global};
    /// let raw = Arc::into_raw(Arc::new_in(5, Global));
    /// // SAFETY: `raw` is from `into_raw` of the same type, once.
    /// assert_eq!(*unsafe { Arc::<i32, Global>::from_raw_in(raw) }, 5);
    /// ```
    #[inline]
    #[must_use]
    pub unsafe fn from_raw_in(value: *const T) -> Self {
        // SAFETY: the block is alive, so the value can be looked at for its alignment; it lies at that offset in its block.
        unsafe {
            let offset = block::data_offset::<RefCount, A>(align_of_val(&*value));
            let block = value.byte_sub(offset) as *mut Block<T, A>;
            Self::from_block(NonNull::new_unchecked(block))
        }
    }

    /// The handle, pinned: the value stays where it is until it is dropped.
    ///
    /// ```
    /// use fastpath_refcount::Arc;
    /// assert_eq!(*Arc::into_pin(Arc::new(5)), 5);
    /// ```
    #[inline]
    #[must_use]
    pub fn into_pin(this: Self) -> Pin<Self> {
        // SAFETY: a block never moves, and `get_mut` of a pinned handle is out of reach: `Pin` gives no `&mut Self`.
        unsafe { Pin::new_unchecked(this) }
    }

    /// The handle as a copyable borrow of one word.
    ///
    /// ```
    /// use fastpath_refcount::Arc;
    /// let number = Arc::new(5);
    /// let kept = Arc::borrow_arc(&number).clone_arc();
    /// assert_eq!(Arc::strong_count(&kept), 2);
    /// ```
    #[inline]
    #[must_use]
    pub fn borrow_arc(this: &Self) -> ArcBorrow<'_, T, A> {
        ArcBorrow::of(this)
    }

    /// Drops the value and frees the block.
    ///
    /// # Safety
    ///
    /// The count is zero, brought there by this handle, which is not used again.
    #[inline(never)]
    unsafe fn free(&mut self) {
        // SAFETY: by the contract the block is ours alone. `_memory` frees it also if the value's destructor panics.
        unsafe {
            let _memory = Memory::reclaim(self.block);
            (&raw mut (*self.block.as_ptr()).data).drop_in_place();
        }
    }
}

// The forms that take a raw pointer are for the global allocator, so that `Arc::from_raw(raw)` needs no types; `from_raw_in` is for all.
#[cfg(feature = "alloc")]
impl<T: ?Sized> Arc<T> {
    /// The handle that [`into_raw`](Self::into_raw) was called on.
    ///
    /// # Safety
    ///
    /// `value` came from `into_raw` (or `as_ptr`) of an `Arc<T>` (an unsized `T` may have been sized then), its block is alive, and one of its counts is not accounted for by any other handle.
    ///
    /// See [`into_raw`](Self::into_raw) for an example.
    #[inline]
    #[must_use]
    pub unsafe fn from_raw(value: *const T) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::from_raw_in(value) }
    }

    /// Takes one more count through a pointer of [`into_raw`](Self::into_raw).
    ///
    /// # Safety
    ///
    /// `value` is as for [`from_raw`](Self::from_raw), except that its counts may all be accounted for.
    ///
    /// ```
    /// use fastpath_refcount::Arc;
    /// let raw = Arc::into_raw(Arc::new(5));
    /// // SAFETY: the pointer is from `into_raw`, and each `from_raw` has a count of its own.
    /// unsafe {
    ///     Arc::increment_strong_count(raw);
    ///     assert_eq!(Arc::strong_count(&Arc::from_raw(raw)), 2);
    ///     Arc::decrement_strong_count(raw);
    /// }
    /// ```
    #[inline]
    pub unsafe fn increment_strong_count(value: *const T) {
        // SAFETY: the caller's promise; the handle is not dropped, so it accounts for nothing.
        let this = ManuallyDrop::new(unsafe { Self::from_raw(value) });
        this.counter().inc();
    }

    /// Drops one count through a pointer of [`into_raw`](Self::into_raw).
    ///
    /// # Safety
    ///
    /// As for [`from_raw`](Self::from_raw).
    ///
    /// See [`increment_strong_count`](Self::increment_strong_count) for an example.
    #[inline]
    pub unsafe fn decrement_strong_count(value: *const T) {
        // SAFETY: the caller's promise.
        drop(unsafe { Self::from_raw(value) });
    }
}

impl<T: ?Sized, A: ArcAllocator> Deref for Arc<T, A> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the block is alive while this handle is, and nobody has `&mut` to its value (Invariant 3).
        unsafe { &(*self.block.as_ptr()).data }
    }
}

impl<T: ?Sized, A: ArcAllocator> Clone for Arc<T, A> {
    /// One more handle: one relaxed increment. When the count overflows, the value is leaked.
    #[inline]
    fn clone(&self) -> Self {
        self.counter().inc();
        // SAFETY: the count just taken is the new handle's; a saturated block lives for ever.
        unsafe { Self::from_block(self.block) }
    }
}

impl<T: ?Sized, A: ArcAllocator> Drop for Arc<T, A> {
    #[inline]
    fn drop(&mut self) {
        // After false the block may be gone already: it is not touched again.
        if self.counter().dec_and_test() {
            // SAFETY: true means that the last count went by this handle.
            unsafe { self.free() };
        }
    }
}
