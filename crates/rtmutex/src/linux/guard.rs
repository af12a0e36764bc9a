// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Guards: the proof that the calling thread owns a lock.

#![expect(unsafe_code, reason = "a guard dereferences the data of the lock it owns")]

use core::fmt;
use core::marker::PhantomData;
use core::mem;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use std::thread;

use super::error::UnlockError;
use super::mutex::RtMutex;
use super::protocol::Refusal;
use super::raw::{CLOSED, POISONED, REMARKABLE, RawRtMutex, STRICT_RECOVERY};

/// What a guard remembers of an acquisition, in one word so that guards travel in registers: the id the lock was taken
/// under (in a forked child it is the parent's, as the word is), and in bit 31 whether the thread was unwinding then
/// (such a guard does not poison).
#[derive(Clone, Copy)]
pub(super) struct Ticket(u32);

/// The thread was unwinding when it took the lock.
const UNWINDING: u32 = 1 << 31;

impl Ticket {
    /// The calling thread has just acquired a lock under the id `me`.
    #[inline(always)]
    pub(super) fn new(me: u32) -> Self {
        Self(if thread::panicking() { me | UNWINDING } else { me })
    }

    #[inline(always)]
    const fn id(self) -> u32 {
        self.0 & !UNWINDING
    }

    /// Whether a panic has begun since.
    #[inline(always)]
    fn has_panicked(self) -> bool {
        self.0 & UNWINDING == 0 && thread::panicking()
    }

    #[inline(always)]
    fn release(self, raw: &RawRtMutex) -> Result<(), Refusal> {
        self.before_release(raw);
        raw.unlock(self.id())
    }

    /// Leaves on record what is out of the ordinary: a panic poisons, and an unrepaired strict lock closes.
    #[inline(always)]
    pub(super) fn before_release(self, raw: &RawRtMutex) {
        if self.has_panicked() || raw.flags() & REMARKABLE != 0 {
            self.leave_remark(raw);
        }
    }

    #[cold]
    fn leave_remark(self, raw: &RawRtMutex) {
        if self.has_panicked() {
            raw.set_flag(POISONED);
        } else if raw.options() & STRICT_RECOVERY != 0 && raw.flags() & POISONED != 0 {
            raw.set_flag(CLOSED);
        }
    }

    /// Releases when a guard goes. What the kernel refuses leaves nothing to undo; `unlock` on the guard reports it.
    #[inline(always)]
    pub(super) fn release_on_drop(self, raw: &RawRtMutex) {
        let _ = self.release(raw);
    }
}

/// Access to the data of a locked [`RtMutex`]; dropping it unlocks.
///
/// It is not `Send`: the kernel knows the owner by its thread id.
#[must_use = "the mutex unlocks as soon as the guard is dropped"]
pub struct RtMutexGuard<'a, T: ?Sized> {
    mutex: &'a RtMutex<T>,
    ticket: Ticket,
    not_send: PhantomData<*mut ()>,
}

// SAFETY: a shared guard gives `&T` and nothing else.
unsafe impl<T: ?Sized + Sync> Sync for RtMutexGuard<'_, T> {}

impl<'a, T: ?Sized> RtMutexGuard<'a, T> {
    /// # Safety
    ///
    /// The calling thread owns `mutex`, acquired under the id `me`, and no other guard for it exists.
    #[inline(always)]
    pub(super) unsafe fn new(mutex: &'a RtMutex<T>, me: u32) -> Self {
        Self { mutex, ticket: Ticket::new(me), not_send: PhantomData }
    }

    /// Gives up the guard but not the lock, for a condition variable, which is about to release it in its own way.
    pub(super) fn suspend(self) -> (&'a RtMutex<T>, u32) {
        self.ticket.before_release(self.mutex.raw());
        let parts = (self.mutex, self.ticket.id());
        mem::forget(self);
        parts
    }

    /// Declares the data repaired after [`LockError::OwnerDied`](super::LockError::OwnerDied).
    ///
    /// ```
    /// use fastpath_rtmutex::linux::{LockError, RtMutex, RtMutexGuard};
    ///
    /// let lock = RtMutex::new(vec![1, 2, 3]);
    /// std::thread::scope(|scope| {
    ///     // This thread ends without releasing.
    ///     scope.spawn(|| std::mem::forget(lock.lock().unwrap()));
    /// });
    /// match lock.lock() {
    ///     Err(LockError::OwnerDied(mut guard)) => {
    ///         guard.clear();
    ///         RtMutexGuard::make_consistent(&mut guard);
    ///     }
    ///     other => panic!("{other:?}"),
    /// }
    /// assert!(lock.lock().is_ok());
    /// ```
    #[doc(alias = "pthread_mutex_consistent")]
    pub fn make_consistent(this: &mut Self) {
        this.mutex.clear_poison();
    }

    /// Unlocks, and says whether the kernel agreed.
    ///
    /// # Errors
    ///
    /// [`UnlockError`] if the word no longer names this thread: somebody wrote over it.
    ///
    /// ```
    /// use fastpath_rtmutex::linux::{RtMutex, RtMutexGuard};
    /// let lock = RtMutex::new(0);
    /// RtMutexGuard::unlock(lock.lock().unwrap()).unwrap();
    /// ```
    pub fn unlock(this: Self) -> Result<(), UnlockError> {
        let result = this.ticket.release(this.mutex.raw());
        mem::forget(this);
        result.map_err(UnlockError::from_refusal)
    }

    /// A guard for a part of the data.
    ///
    /// ```
    /// use fastpath_rtmutex::linux::{RtMutex, RtMutexGuard};
    /// let lock = RtMutex::new((1, "one"));
    /// let name = RtMutexGuard::map(lock.lock().unwrap(), |pair| &mut pair.1);
    /// assert_eq!(*name, "one");
    /// ```
    pub fn map<U: ?Sized, F>(mut this: Self, f: F) -> MappedRtMutexGuard<'a, U>
    where
        F: FnOnce(&mut T) -> &mut U,
    {
        let value = NonNull::from(f(&mut *this));
        this.into_mapped(value)
    }

    /// The same ownership with another view.
    fn into_mapped<U: ?Sized>(self, value: NonNull<U>) -> MappedRtMutexGuard<'a, U> {
        let (raw, ticket) = (self.mutex.raw(), self.ticket);
        mem::forget(self);
        MappedRtMutexGuard { raw, ticket, value, variance: PhantomData }
    }

    /// A guard for a part of the data that may not exist.
    ///
    /// # Errors
    ///
    /// The guard itself if `f` says that there is no such part.
    ///
    /// ```
    /// use fastpath_rtmutex::linux::{RtMutex, RtMutexGuard};
    /// let lock = RtMutex::new(vec![1, 2, 3]);
    /// let third = RtMutexGuard::filter_map(lock.lock().unwrap(), |list| list.get_mut(2));
    /// assert_eq!(*third.unwrap(), 3);
    /// ```
    pub fn filter_map<U: ?Sized, F>(mut this: Self, f: F) -> Result<MappedRtMutexGuard<'a, U>, Self>
    where
        F: FnOnce(&mut T) -> Option<&mut U>,
    {
        match f(&mut *this).map(NonNull::from) {
            Some(value) => Ok(this.into_mapped(value)),
            None => Err(this),
        }
    }
}

impl<T: ?Sized> Drop for RtMutexGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.ticket.release_on_drop(self.mutex.raw());
    }
}

impl<T: ?Sized> Deref for RtMutexGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard owns the lock, so nobody else reaches the data, and it is borrowed as long as the guard is.
        unsafe { &*self.mutex.data_ptr() }
    }
}

impl<T: ?Sized> DerefMut for RtMutexGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and the guard is borrowed exclusively.
        unsafe { &mut *self.mutex.data_ptr() }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RtMutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for RtMutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Access to a part of the data of a locked [`RtMutex`], made by [`RtMutexGuard::map`]; dropping it unlocks.
///
/// It cannot wait on a condition variable: whoever gets the lock meanwhile could remove the part it points to.
#[must_use = "the mutex unlocks as soon as the guard is dropped"]
pub struct MappedRtMutexGuard<'a, U: ?Sized> {
    raw: &'a RawRtMutex,
    ticket: Ticket,
    value: NonNull<U>,
    /// Invariant in `U`, as a mutable reference is, and not `Send`.
    variance: PhantomData<(&'a mut U, *mut ())>,
}

// SAFETY: a shared guard gives `&U` and nothing else.
unsafe impl<U: ?Sized + Sync> Sync for MappedRtMutexGuard<'_, U> {}

impl<'a, U: ?Sized> MappedRtMutexGuard<'a, U> {
    /// A guard for a part of this part.
    pub fn map<V: ?Sized, F>(mut this: Self, f: F) -> MappedRtMutexGuard<'a, V>
    where
        F: FnOnce(&mut U) -> &mut V,
    {
        let value = NonNull::from(f(&mut *this));
        this.into_mapped(value)
    }

    /// The same ownership with another view.
    fn into_mapped<V: ?Sized>(self, value: NonNull<V>) -> MappedRtMutexGuard<'a, V> {
        let (raw, ticket) = (self.raw, self.ticket);
        mem::forget(self);
        MappedRtMutexGuard { raw, ticket, value, variance: PhantomData }
    }

    /// A guard for a part of this part that may not exist.
    ///
    /// # Errors
    ///
    /// The guard itself if `f` says that there is no such part.
    pub fn filter_map<V: ?Sized, F>(mut this: Self, f: F) -> Result<MappedRtMutexGuard<'a, V>, Self>
    where
        F: FnOnce(&mut U) -> Option<&mut V>,
    {
        match f(&mut *this).map(NonNull::from) {
            Some(value) => Ok(this.into_mapped(value)),
            None => Err(this),
        }
    }
}

impl<U: ?Sized> Drop for MappedRtMutexGuard<'_, U> {
    #[inline(always)]
    fn drop(&mut self) {
        self.ticket.release_on_drop(self.raw);
    }
}

impl<U: ?Sized> Deref for MappedRtMutexGuard<'_, U> {
    type Target = U;

    fn deref(&self) -> &U {
        // SAFETY: the pointer came from the data of the lock this guard owns, which nobody else reaches meanwhile.
        unsafe { self.value.as_ref() }
    }
}

impl<U: ?Sized> DerefMut for MappedRtMutexGuard<'_, U> {
    fn deref_mut(&mut self) -> &mut U {
        // SAFETY: as in `deref`, and the guard is borrowed exclusively.
        unsafe { self.value.as_mut() }
    }
}

impl<U: ?Sized + fmt::Debug> fmt::Debug for MappedRtMutexGuard<'_, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<U: ?Sized + fmt::Display> fmt::Display for MappedRtMutexGuard<'_, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
