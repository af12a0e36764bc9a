// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! [`SpinLock`]: a lock per CPU, taken without a locked instruction.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU64, Ordering};

use fastpath_sys::Errno;

use crate::rseq::{self, Outcome};
use crate::slots::Slot;
use crate::sync::yield_now;
use crate::thread::{self, Backend, Route, backend, fence, slots};
use crate::{OutOfMemory, PerCpu};

/// Taken by a thread on its own slot.
const LOCAL: u64 = 1;

#[repr(C)]
struct LockSlot<T> {
    /// 0 free; [`LOCAL`]; else the token of the thread that took it from elsewhere (with bit 1, so never [`LOCAL`]).
    word: AtomicU64,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by the lock's owner alone.
unsafe impl<T: Send> Sync for LockSlot<T> {}
// SAFETY: zero is a free lock around a zero value, which `T: Slot` allows.
unsafe impl<T: Slot + Send> Slot for LockSlot<T> {}

/// A value per CPU behind a lock per CPU.
///
/// The lock of this CPU is taken with plain instructions (a section) and nobody else's cache is disturbed. The guard
/// may then migrate with its thread: it keeps the slot it took. Locks of other slots can be taken too, which costs a
/// fence.
///
/// Threads on the same CPU wait for each other by yielding. A signal handler must only use
/// [`try_lock_this_cpu`](Self::try_lock_this_cpu).
///
/// ```
/// use fastpath_percpu::{Slot, SpinLock};
///
/// struct Statistics {
///     count: u64,
///     longest: u64,
/// }
/// // SAFETY: plain integers, changed only through the lock.
/// unsafe impl Slot for Statistics {}
///
/// let statistics = SpinLock::<Statistics>::new().unwrap();
/// let mut mine = statistics.lock_this_cpu();
/// mine.count += 1;
/// mine.longest = mine.longest.max(17);
/// drop(mine);
/// let total: u64 = (0..=fastpath_percpu::slots()).map(|slot| statistics.lock(slot).unwrap().count).sum();
/// assert_eq!(total, 1);
/// ```
pub struct SpinLock<T: Slot + Send>(PerCpu<LockSlot<T>>);

impl<T: Slot + Send> SpinLock<T> {
    /// Free locks around zero values.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] when there is no address space left.
    pub fn new() -> Result<Self, OutOfMemory> {
        PerCpu::new().map(Self)
    }

    fn guard(&self, slot: u32) -> Guard<'_, T> {
        Guard { slot: self.0.per_slot(slot), number: slot, not_send: PhantomData }
    }

    /// Takes this CPU's lock if it is free.
    pub fn try_lock_this_cpu(&self) -> Option<Guard<'_, T>> {
        loop {
            let Some(slot) = fastpath_sys::rseq::slot_id() else {
                match thread::route() {
                    Route::Retry => continue,
                    Route::Atomic(slot) => return self.try_lock_atomically(slot),
                }
            };
            let word = self.0.per_slot(slot).word.as_ptr();
            // SAFETY: the lock word of that slot: sections on the slot, full atomics followed by a fence, and owners'
            // releases write it.
            match unsafe { rseq::compare_store(slot, word, 0, LOCAL) } {
                Outcome::Done => return Some(self.guard(slot)),
                Outcome::Mismatch => return None,
                Outcome::Moved | Outcome::NotRegistered => {}
            }
        }
    }

    #[cold]
    fn try_lock_atomically(&self, slot: u32) -> Option<Guard<'_, T>> {
        let word = &self.0.per_slot(slot).word;
        // ORDERING: Acquire pairs with the Release of the guard's drop.
        word.compare_exchange(0, LOCAL, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(self.guard(slot))
    }

    /// Takes this CPU's lock, waiting for whoever has it.
    pub fn lock_this_cpu(&self) -> Guard<'_, T> {
        loop {
            if let Some(guard) = self.try_lock_this_cpu() {
                return guard;
            }
            // Whoever has it runs on this CPU, or not at all while we do.
            yield_now();
        }
    }

    /// Takes the lock of slot `slot`, from any thread.
    ///
    /// A section on that slot may have seen the lock free before we took it and still store over our token; the fence
    /// ends such sections, and if the token survived it is ours. The token is different for each thread: two threads
    /// that took it in turn cannot mistake each other's.
    ///
    /// # Errors
    ///
    /// The [`fence`]'s.
    ///
    /// # Panics
    ///
    /// If there is no such slot.
    pub fn lock(&self, slot: u32) -> Result<Guard<'_, T>, Errno> {
        let word = &self.0.per_slot(slot).word;
        let by_sections = backend() != Backend::Locked && slot < slots();
        let token = thread::token() | 2;
        loop {
            // ORDERING: Acquire pairs with the Release of the guard's drop.
            if word.compare_exchange(0, token, Ordering::Acquire, Ordering::Relaxed).is_err() {
                yield_now();
                continue;
            }
            if !by_sections {
                return Ok(self.guard(slot));
            }
            let fenced = fence(Some(slot));
            // ORDERING: Acquire: our own store, or a section's that came over it.
            if word.load(Ordering::Acquire) == token {
                if let Err(errno) = fenced {
                    // ORDERING: Release: as the guard's drop. A section may have come over the token: its lock stays.
                    let _ = word.compare_exchange(token, 0, Ordering::Release, Ordering::Relaxed);
                    return Err(errno);
                }
                return Ok(self.guard(slot));
            }
            fenced?;
        }
    }
}

impl<T: Slot + Send> fmt::Debug for SpinLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpinLock").finish_non_exhaustive()
    }
}

/// The lock of one slot, held. Freed when dropped.
pub struct Guard<'a, T> {
    slot: &'a LockSlot<T>,
    number: u32,
    /// The token of a lock taken from elsewhere is its thread's.
    not_send: PhantomData<*const ()>,
}

impl<T> Guard<'_, T> {
    /// The slot whose lock this is.
    pub fn slot(&self) -> u32 {
        self.number
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the lock is held by this guard alone.
        unsafe { &*self.slot.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held by this guard alone.
        unsafe { &mut *self.slot.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        // ORDERING: Release pairs with the next owner's Acquire (the section's load, or the exchange).
        self.slot.word.store(0, Ordering::Release);
    }
}

impl<T: fmt::Debug> fmt::Debug for Guard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("slot", &self.number).field("value", &**self).finish()
    }
}
