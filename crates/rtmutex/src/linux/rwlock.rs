// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! [`RtRwLock`]: many readers or one writer, and whoever waits for the writer boosts it.
//!
//! # The state
//!
//! `gate` is a priority-inheriting lock that a writer owns from before it waits for readers until after it has written.
//! `state` counts readers, and bit 31 says that a writer has the gate.
//!
//! | WRITER | readers | meaning |
//! |---|---|---|
//! | 0 | n | n readers; another may enter by one swap |
//! | 1 | n > 0 | a writer owns the gate and sleeps until the last of n readers leaves; new readers wait at the gate |
//! | 1 | 0 | a writer writes, or is about to |
//!
//! A reader that finds WRITER queues at the gate among all other waiters, in order of priority, boosting the writer;
//! when it gets the gate there is no writer, so it counts itself in and gives the gate back at once.
//!
//! # Invariants
//!
//! 1. WRITER is set and cleared only by the owner of the gate. Found set by a new owner of the gate, it is left from a
//!    writer that died.
//! 2. A reader counts itself in only by a swap that finds WRITER clear, or owning the gate.
//! 3. The writer writes only after it has seen WRITER with no readers.
//!
//! # Ordering
//!
//! A reader leaves with Release, and the writer looks with Acquire until it sees no reader: it sees all they did. The
//! writer clears WRITER with Release, and a reader enters with Acquire: it sees what was written. Writers among
//! themselves are ordered by the gate.

#![expect(
    unsafe_code,
    reason = "the data is reachable only through guards, which prove that the lock is held"
)]

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::backend::{self, Deadline};
use super::error::{LockError, LockResult, TryLockError, TryLockResult};
use super::guard::Ticket;
use super::protocol::Refusal;
use super::raw::{POISONED, REMARKABLE, RawRtMutex};

/// A writer owns the gate.
const WRITER: u32 = 1 << 31;
/// The readers' bits.
const READERS: u32 = WRITER - 1;
/// How many readers there may be. Far below what the bits hold, so that racing increments cannot reach WRITER.
const MOST_READERS: u32 = 1 << 30;

/// A reader/writer lock with priority inheritance to the writer.
///
/// Whoever waits, reader or writer, boosts the writer that owns the lock or is next. A writer that waits for readers
/// does not boost *them*: nobody knows who they are. So keep read sections short where a strong writer exists, or use
/// [`RtMutex`](super::RtMutex). Once a writer waits, new readers wait behind it.
///
/// # Differences from `std::sync::RwLock`
///
/// As for [`RtMutex`](super::RtMutex). Asking for the lock while holding it for writing is an error; asking to write
/// while holding it for reading is not noticed and waits for ever, as there. A reader that ends without releasing is
/// not noticed either.
///
/// ```
/// use fastpath_rtmutex::linux::RtRwLock;
///
/// let lock = RtRwLock::new(vec![1]);
/// {
///     let one = lock.read().unwrap();
///     let two = lock.read().unwrap();
///     assert_eq!(one[0], two[0]);
/// }
/// lock.write().unwrap().push(2);
/// assert_eq!(lock.read().unwrap().len(), 2);
/// ```
pub struct RtRwLock<T: ?Sized> {
    gate: RawRtMutex,
    state: AtomicU32,
    data: UnsafeCell<T>,
}

// SAFETY: the lock hands out `&T` to several threads (`T: Sync`) or `&mut T` to one (`T: Send`).
unsafe impl<T: ?Sized + Send + Sync> Sync for RtRwLock<T> {}

// SAFETY: a lock that can be moved is not borrowed, so no guard exists and moving it moves the data.
unsafe impl<T: ?Sized + Send> Send for RtRwLock<T> {}

impl<T: ?Sized> core::panic::UnwindSafe for RtRwLock<T> {}
impl<T: ?Sized> core::panic::RefUnwindSafe for RtRwLock<T> {}

impl<T> RtRwLock<T> {
    /// A free lock.
    pub const fn new(value: T) -> Self {
        Self::with_options(0, value)
    }

    pub(super) const fn with_options(options: u8, value: T) -> Self {
        Self {
            gate: RawRtMutex::with_options(options),
            state: AtomicU32::new(0),
            data: UnsafeCell::new(value),
        }
    }

    /// The data.
    ///
    /// # Errors
    ///
    /// [`LockError::OwnerDied`] with the data if a writer died or panicked and nobody repaired it.
    pub fn into_inner(self) -> LockResult<T> {
        let poisoned = self.is_poisoned();
        let value = self.data.into_inner();
        if poisoned { Err(LockError::OwnerDied(value)) } else { Ok(value) }
    }
}

impl<T: ?Sized> RtRwLock<T> {
    /// Waits until the caller may read.
    ///
    /// # Errors
    ///
    /// [`LockError::OwnerDied`] comes with the guard; [`LockError::Deadlock`] (the caller holds it for writing),
    /// [`LockError::TooManyReaders`], [`LockError::ForeignOwner`] and [`LockError::System`] without.
    #[inline]
    #[doc(alias = "rwbase_read_lock")]
    pub fn read(&self) -> LockResult<RtRwLockReadGuard<'_, T>> {
        if self.enter() { self.admit_reader() } else { self.read_contended(None) }
    }

    /// Waits until the caller may read, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`RtRwLock::read`], and [`LockError::TimedOut`].
    pub fn try_read_for(&self, timeout: Duration) -> LockResult<RtRwLockReadGuard<'_, T>> {
        let deadline = Instant::now().checked_add(timeout).map(Deadline::Monotonic);
        if self.enter() { self.admit_reader() } else { self.read_contended(deadline) }
    }

    /// Reads if that needs no waiting.
    ///
    /// # Errors
    ///
    /// [`TryLockError::WouldBlock`] if a writer has the lock or waits for it; else as [`RtRwLock::read`].
    pub fn try_read(&self) -> TryLockResult<RtRwLockReadGuard<'_, T>> {
        loop {
            if self.enter() {
                return self.admit_reader().map_err(TryLockError::Poisoned);
            }
            // ORDERING: Relaxed, only the swap in `enter` makes anything of it.
            let seen = self.state.load(Ordering::Relaxed);
            if seen & WRITER != 0 {
                return Err(TryLockError::WouldBlock);
            }
            if seen & READERS >= MOST_READERS {
                return Err(TryLockError::Poisoned(LockError::TooManyReaders));
            }
        }
    }

    /// Waits until the caller may write.
    ///
    /// # Errors
    ///
    /// [`LockError::OwnerDied`] comes with the guard; [`LockError::Deadlock`] (the caller holds it for writing),
    /// [`LockError::ForeignOwner`] and [`LockError::System`] without.
    #[doc(alias = "rwbase_write_lock")]
    pub fn write(&self) -> LockResult<RtRwLockWriteGuard<'_, T>> {
        let me = self.gate.lock().map_err(LockError::from_refusal)?;
        self.write_through_gate(me, None)
    }

    /// Waits until the caller may write, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`RtRwLock::write`], and [`LockError::TimedOut`].
    ///
    /// ```
    /// use fastpath_rtmutex::linux::{LockError, RtRwLock};
    /// use std::time::Duration;
    /// let lock = RtRwLock::new(0);
    /// let reading = lock.read().unwrap();
    /// assert!(matches!(lock.try_write_for(Duration::from_millis(1)), Err(LockError::TimedOut)));
    /// drop(reading);
    /// assert!(lock.try_write_for(Duration::from_millis(1)).is_ok());
    /// ```
    pub fn try_write_for(&self, timeout: Duration) -> LockResult<RtRwLockWriteGuard<'_, T>> {
        let Some(at) = Instant::now().checked_add(timeout) else { return self.write() };
        let deadline = Deadline::Monotonic(at);
        let me = self.gate.lock_until(deadline).map_err(LockError::from_refusal)?;
        self.write_through_gate(me, Some(deadline))
    }

    /// Writes if that needs no waiting.
    ///
    /// # Errors
    ///
    /// [`TryLockError::WouldBlock`] if anybody has the lock; else as [`RtRwLock::write`].
    pub fn try_write(&self) -> TryLockResult<RtRwLockWriteGuard<'_, T>> {
        let me = match self.gate.try_lock() {
            Ok(me) => me,
            Err(Refusal::Again) => return Err(TryLockError::WouldBlock),
            Err(refusal) => return Err(TryLockError::Poisoned(LockError::from_refusal(refusal))),
        };
        // ORDERING: Acquire pairs with the readers' Release in `leave`: no reader is left, and we see what they did.
        let alone = |state: u32| (state & READERS == 0).then_some(WRITER);
        if self.state.fetch_update(Ordering::Acquire, Ordering::Relaxed, alone).is_err() {
            // WRITER is not ours to leave behind if a dead writer left it: nobody writes while we own the gate.
            // ORDERING: Relaxed, nothing was written.
            self.state.fetch_and(!WRITER, Ordering::Relaxed);
            // A release that the kernel refuses leaves nothing to undo.
            let _ = self.gate.unlock(me);
            return Err(TryLockError::WouldBlock);
        }
        self.admit_writer(me).map_err(TryLockError::Poisoned)
    }

    /// Counts a reader in if no writer is about.
    #[inline(always)]
    fn enter(&self) -> bool {
        // ORDERING: Relaxed, only the swap makes anything of it.
        let seen = self.state.load(Ordering::Relaxed);
        if seen >= MOST_READERS {
            return false;
        }
        // ORDERING: Acquire pairs with the writer's Release in `reopen`.
        self.state.compare_exchange(seen, seen + 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    #[inline(never)]
    fn read_contended(&self, deadline: Option<Deadline>) -> LockResult<RtRwLockReadGuard<'_, T>> {
        // ORDERING: Relaxed, only the swap in `enter` makes anything of it.
        while self.state.load(Ordering::Relaxed) < MOST_READERS {
            if self.enter() {
                return self.admit_reader();
            }
        }
        let gate = match deadline {
            Some(deadline) => self.gate.lock_until(deadline),
            None => self.gate.lock(),
        };
        let me = gate.map_err(LockError::from_refusal)?;
        // We own the gate, so a WRITER that is set is a dead writer's (Invariant 1).
        // ORDERING: Acquire pairs with `reopen`; a dead writer's data is ordered by the kernel's grant of the gate.
        let join = |state: u32| (state & READERS < MOST_READERS).then_some((state & !WRITER) + 1);
        let joined = self.state.fetch_update(Ordering::Acquire, Ordering::Relaxed, join).is_ok();
        // A release that the kernel refuses leaves nothing to undo.
        let _ = self.gate.unlock(me);
        if joined { self.admit_reader() } else { Err(LockError::TooManyReaders) }
    }

    /// The caller owns the gate under the id `me`: keeps new readers out and waits until the old ones have left.
    fn write_through_gate(
        &self,
        me: u32,
        deadline: Option<Deadline>,
    ) -> LockResult<RtRwLockWriteGuard<'_, T>> {
        // ORDERING: Acquire pairs with the readers' Release in `leave`, here and below.
        let mut seen = self.state.fetch_or(WRITER, Ordering::Acquire) | WRITER;
        while seen & READERS != 0 {
            if backend::wait(&self.state, seen, deadline) {
                self.reopen();
                // A release that the kernel refuses leaves nothing to undo.
                let _ = self.gate.unlock(me);
                return Err(LockError::TimedOut);
            }
            // ORDERING: Acquire, as above.
            seen = self.state.load(Ordering::Acquire);
        }
        self.admit_writer(me)
    }

    /// Lets readers in again. The caller owns the gate.
    fn reopen(&self) {
        // ORDERING: Release pairs with the Acquire with which a reader enters: it sees what was written.
        self.state.fetch_and(!WRITER, Ordering::Release);
    }

    /// Counts a reader out, and wakes the writer if it was the last one it waits for.
    #[inline]
    fn leave(&self) {
        // ORDERING: Release pairs with the writer's Acquire in `write_through_gate`: it sees that we are done.
        if self.state.fetch_sub(1, Ordering::Release) == WRITER | 1 {
            backend::wake_one(&self.state);
        }
    }

    #[inline(always)]
    fn admit_reader(&self) -> LockResult<RtRwLockReadGuard<'_, T>> {
        let guard = RtRwLockReadGuard { lock: self, not_send: PhantomData };
        if self.is_poisoned() { Err(LockError::OwnerDied(guard)) } else { Ok(guard) }
    }

    fn admit_writer(&self, me: u32) -> LockResult<RtRwLockWriteGuard<'_, T>> {
        let guard = RtRwLockWriteGuard { lock: self, ticket: Ticket::new(me), not_send: PhantomData };
        if self.is_poisoned() { Err(LockError::OwnerDied(guard)) } else { Ok(guard) }
    }

    /// Whether a writer died or panicked and nobody has repaired the data yet.
    pub fn is_poisoned(&self) -> bool {
        self.gate.flags() & REMARKABLE != 0
    }

    /// Declares the data repaired.
    pub fn clear_poison(&self) {
        self.gate.clear_flag(POISONED);
    }

    /// The data, without locking: the exclusive borrow proves that nobody else has it.
    ///
    /// # Errors
    ///
    /// [`LockError::OwnerDied`] with the data if a writer died or panicked and nobody repaired it.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        let poisoned = self.is_poisoned();
        let value = self.data.get_mut();
        if poisoned { Err(LockError::OwnerDied(value)) } else { Ok(value) }
    }
}

impl<T: Default> Default for RtRwLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> From<T> for RtRwLock<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RtRwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("RtRwLock");
        match self.try_read() {
            Ok(guard) | Err(TryLockError::Poisoned(LockError::OwnerDied(guard))) => {
                out.field("data", &&*guard)
            }
            Err(_) => out.field("data", &format_args!("<locked>")),
        };
        out.field("poisoned", &self.is_poisoned()).finish_non_exhaustive()
    }
}

/// Shared access to the data of an [`RtRwLock`]; dropping it releases.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct RtRwLockReadGuard<'a, T: ?Sized> {
    lock: &'a RtRwLock<T>,
    not_send: PhantomData<*mut ()>,
}

// SAFETY: a shared guard gives `&T` and nothing else.
unsafe impl<T: ?Sized + Sync> Sync for RtRwLockReadGuard<'_, T> {}

impl<T: ?Sized> Drop for RtRwLockReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.leave();
    }
}

impl<T: ?Sized> Deref for RtRwLockReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is counted among the readers, so no writer reaches the data (Invariants 2 and 3).
        unsafe { &*self.lock.data.get() }
    }
}

/// Exclusive access to the data of an [`RtRwLock`]; dropping it releases.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct RtRwLockWriteGuard<'a, T: ?Sized> {
    lock: &'a RtRwLock<T>,
    ticket: Ticket,
    not_send: PhantomData<*mut ()>,
}

// SAFETY: a shared guard gives `&T` and nothing else.
unsafe impl<T: ?Sized + Sync> Sync for RtRwLockWriteGuard<'_, T> {}

impl<'a, T: ?Sized> RtRwLockWriteGuard<'a, T> {
    /// Declares the data repaired after [`LockError::OwnerDied`].
    pub fn make_consistent(this: &mut Self) {
        this.lock.clear_poison();
    }

    /// Goes on as a reader, without letting another writer in between.
    ///
    /// ```
    /// use fastpath_rtmutex::linux::{RtRwLock, RtRwLockWriteGuard};
    /// let lock = RtRwLock::new(1);
    /// let mut writing = lock.write().unwrap();
    /// *writing = 2;
    /// let reading = RtRwLockWriteGuard::downgrade(writing);
    /// assert_eq!((*reading, *lock.read().unwrap()), (2, 2));
    /// ```
    pub fn downgrade(this: Self) -> RtRwLockReadGuard<'a, T> {
        let reader = RtRwLockReadGuard { lock: this.lock, not_send: PhantomData };
        // ORDERING: Relaxed, the Release in `reopen` publishes what was written.
        this.lock.state.fetch_add(1, Ordering::Relaxed);
        // Clears WRITER and leaves our count.
        drop(this);
        reader
    }
}

impl<T: ?Sized> Drop for RtRwLockWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // A panic must be on record before the first reader can enter.
        self.ticket.before_release(&self.lock.gate);
        self.lock.reopen();
        self.ticket.release_on_drop(&self.lock.gate);
    }
}

impl<T: ?Sized> Deref for RtRwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard owns the gate and has seen no reader left, so nobody else reaches the data (Invariant 3).
        unsafe { &*self.lock.data.get() }
    }
}

impl<T: ?Sized> DerefMut for RtRwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and the guard is borrowed exclusively.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RtRwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RtRwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
