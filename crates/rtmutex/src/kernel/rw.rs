// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The reader/writer lock: a counter of readers, and a mutex for the writers.
//!
//! # States of the counter
//!
//! R is bit 31, W is bit 30.
//!
//! | counter | meaning |
//! |---|---|
//! | R | idle |
//! | R + n | n readers, no writer in sight; more may come by the fast path |
//! | n | n readers, a writer has the mutex and waits for them; more may still come, the slow way |
//! | 0 | no reader; the writer is about to take it |
//! | W | held for writing |
//!
//! # Invariants
//!
//! 1. R is taken away and put back by the owner of the mutex only. W is set and cleared under `wait_lock`, by that owner.
//! 2. Readers and W never are there together: a reader adds itself by `cmpxchg` while R is there, or under `wait_lock` while
//!    W is not; W is stored under `wait_lock` when the counter is 0.
//! 3. The counter is R whenever nobody uses the lock: each way out of `write` puts R back.
//! 4. The last reader that leaves while R is away wakes the mutex's owner, under `wait_lock`. Only it can be the one that
//!    waits; if it was on its way out, the wake-up is a spurious one.
//! 5. Each way out of `write` leaves the task's sleep state as it was found.
//!
//! A reader that finds W takes the mutex, counts itself, and gives the mutex back: so it waits by urgency among writers and
//! boosts the writer. Readers are not boosted: there may be any number, and nobody knows them. A writer can be kept waiting
//! by ever new readers, as in the kernel.
//!
//! # Ordering
//!
//! * writer → reader: `write_unlock` adds with Release; the reader's `cmpxchg` (fast) acquires, or it takes `wait_lock`
//!   (slow), which was released after it.
//! * reader → writer: `read_unlock` is fully ordered; the writer reads 0 with Acquire before it stores W.
//! * writer → writer: the mutex.

use core::fmt;
use core::sync::atomic::Ordering;

use super::block::{How, LockError, wake_for};
use super::lock::{Flavour, Held, LockBase};
use super::mutex::Wait;
use super::sched::{Detect, Point, Scheduler};
use super::sleep::TaskState;
use crate::sync::{Count, const_unless_loom};

/// No writer in sight.
#[doc(alias = "READER_BIAS")]
const READERS: u32 = 1 << 31;
/// Held for writing.
#[doc(alias = "WRITER_BIAS")]
const WRITER: u32 = 1 << 30;

/// The part both reader/writer locks share.
#[doc(alias = "rwbase_rt")]
pub struct RwBase<S: Scheduler> {
    readers: Count,
    mutex: LockBase<S>,
    flavour: Flavour,
}

impl<S: Scheduler> RwBase<S> {
    const_unless_loom! {
        fn with_flavour(flavour: Flavour) -> Self {
            Self { readers: Count::new(READERS), mutex: LockBase::new(), flavour }
        }
    }

    pub(crate) fn base(&self) -> &LockBase<S> {
        &self.mutex
    }

    /// The counter as it is: see the module's table. `0x8000_0000` is idle.
    pub fn count(&self) -> u32 {
        // ORDERING: Relaxed: a snapshot.
        self.readers.load(Ordering::Relaxed)
    }

    fn fast_read(&self) -> bool {
        // ORDERING: Relaxed: a guess that the exchange checks.
        let mut count = self.readers.load(Ordering::Relaxed);
        while count & READERS != 0 {
            // ORDERING: Acquire pairs with the Release in `leave_write`.
            let was = self.readers.cmpxchg(count, count + 1, Ordering::Acquire);
            if was == count {
                return true;
            }
            count = was;
        }
        false
    }

    #[cold]
    #[doc(alias = "__rwbase_read_lock")]
    fn slow_read(&self, how: &How<'_, S>) -> Result<(), LockError> {
        S::at(Point::RwSlow);
        let mut held = self.mutex.enter();
        // ORDERING: Relaxed, both: W changes under `wait_lock` only, which also orders us after the last writer.
        if self.readers.load(Ordering::Relaxed) != WRITER {
            self.readers.fetch_add(1, Ordering::Relaxed);
            held.release();
            return Ok(());
        }
        // The mutex is taken without letting go of `wait_lock` first: a second writer cannot slip in between.
        let result = self.mutex.slow_lock_held(&mut held, how);
        if result.is_ok() {
            // ORDERING: Relaxed, as above. The last owner of the mutex put R back before it gave the mutex away.
            self.readers.fetch_add(1, Ordering::Relaxed);
        }
        held.release();
        if result.is_ok() {
            // SAFETY: taken above.
            unsafe { self.unlock_mutex() };
        }
        result
    }

    /// # Safety
    /// The calling task is one of the readers.
    unsafe fn leave_read(&self) {
        // ORDERING: AcqRel: Release pairs with the writer's Acquire of 0; Acquire, so that who wakes the writer saw all
        // other readers go.
        if self.readers.fetch_add(u32::MAX, Ordering::AcqRel) == 1 {
            self.wake_writer();
        }
    }

    #[cold]
    #[doc(alias = "__rwbase_read_unlock")]
    fn wake_writer(&self) {
        S::read_lock();
        let held = self.mutex.enter();
        let owner = self.mutex.owner_ptr();
        S::preempt_disable();
        held.release();
        if !owner.is_null() {
            // SAFETY: seen owning the mutex inside the read section. It need not be the writer any more that waited for
            // us: a reader that owns the mutex for a moment gives it back without `wait_lock`.
            unsafe { &*owner }.wake(wake_for(self.flavour));
        }
        S::preempt_enable();
        S::read_unlock();
    }

    /// Tries to go from 0 to W. Under `wait_lock`.
    fn take_write(&self) -> bool {
        // ORDERING: Acquire pairs with the Release in `leave_read`.
        if self.readers.load(Ordering::Acquire) != 0 {
            return false;
        }
        // ORDERING: Relaxed: read under `wait_lock`, or by readers that only look for R.
        self.readers.store(WRITER, Ordering::Relaxed);
        true
    }

    fn write(&self, how: &How<'_, S>) -> Result<(), LockError> {
        let me = S::current();
        if !self.mutex.fast_lock(me) {
            self.mutex.slow_lock(how)?;
        }
        // No reader comes by the fast path from here on.
        // ORDERING: Relaxed: what the last reader did is acquired in `take_write`.
        self.readers.fetch_add(READERS, Ordering::Relaxed);
        let mut held = self.mutex.enter();
        if self.take_write() {
            held.release();
            return Ok(());
        }
        S::at(Point::RwSlow);
        self.enter_state(how);
        let result = loop {
            if self.take_write() {
                break Ok(());
            }
            if how.deadline.is_some_and(|deadline| S::now() >= deadline) {
                break Err(LockError::TimedOut);
            }
            if how.state.ended_by(S::signal(me)) {
                break Err(LockError::Interrupted);
            }
            held.without(|| {
                S::at(Point::BeforeSleep);
                me.schedule(how.deadline);
                S::at(Point::Awake);
            });
            me.set_state(how.state);
        };
        match self.flavour {
            Flavour::Mutex => me.set_state(TaskState::Running),
            Flavour::Spin => me.leave_lock_wait(),
        }
        match result {
            Ok(()) => held.release(),
            // SAFETY: the mutex is ours.
            Err(_) => unsafe { self.leave_write(held, 0) },
        }
        result
    }

    fn enter_state(&self, how: &How<'_, S>) {
        match self.flavour {
            Flavour::Mutex => S::current().set_state(how.state),
            Flavour::Spin => S::current().enter_lock_wait(),
        }
    }

    /// Puts R back, and `kept` in place of what the counter has of the writer: W − `from` stays.
    ///
    /// # Safety
    /// The calling task owns the mutex.
    #[doc(alias = "__rwbase_write_unlock")]
    unsafe fn leave_write(&self, held: Held<'_, S>, from: u32) {
        // ORDERING: Release pairs with the Acquire in `fast_read`.
        self.readers.fetch_add(READERS.wrapping_sub(from), Ordering::Release);
        held.release();
        // SAFETY: the caller's.
        unsafe { self.unlock_mutex() };
    }

    fn try_write(&self) -> bool {
        if !self.mutex.fast_lock(S::current()) && !self.mutex.slow_try_lock(self.flavour) {
            return false;
        }
        let held = self.mutex.enter();
        // ORDERING: Relaxed, as in `write`.
        self.readers.fetch_add(READERS, Ordering::Relaxed);
        if self.take_write() {
            held.release();
            return true;
        }
        // SAFETY: the mutex is ours.
        unsafe { self.leave_write(held, 0) };
        false
    }

    /// # Safety
    /// The calling task owns the mutex.
    unsafe fn unlock_mutex(&self) {
        if !self.mutex.fast_unlock(S::current()) {
            // SAFETY: the caller's.
            unsafe { self.mutex.slow_unlock() };
        }
    }
}

impl<S: Scheduler> fmt::Debug for RwBase<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwBase")
            .field("count", &self.count())
            .field("mutex", &self.mutex)
            .finish_non_exhaustive()
    }
}

/// A reader/writer lock whose waits may be ended by signals and deadlines.
///
/// Readers do not inherit priorities; the writer inherits from readers and writers that wait for it.
#[doc(alias = "rw_semaphore")]
pub struct RwSemaphore<S: Scheduler> {
    base: RwBase<S>,
}

impl<S: Scheduler> RwSemaphore<S> {
    const_unless_loom! {
        /// An idle lock.
        pub fn new() -> Self {
            Self { base: RwBase::with_flavour(Flavour::Mutex) }
        }
    }

    /// The counter and the mutex inside.
    pub fn base(&self) -> &RwBase<S> {
        &self.base
    }

    /// Becomes a reader.
    ///
    /// # Errors
    ///
    /// As for [`RawMutex::lock_with`](super::RawMutex::lock_with).
    #[doc(alias = "down_read")]
    pub fn read(&self, wait: Wait) -> Result<(), LockError> {
        if self.base.fast_read() { Ok(()) } else { self.base.slow_read(&wait.how()) }
    }

    /// Becomes a reader if no writer is in sight.
    #[doc(alias = "down_read_trylock")]
    pub fn try_read(&self) -> bool {
        self.base.fast_read()
    }

    /// Ends being a reader.
    ///
    /// # Safety
    ///
    /// The calling task is one.
    #[doc(alias = "up_read")]
    pub unsafe fn read_unlock(&self) {
        // SAFETY: the caller's.
        unsafe { self.base.leave_read() };
    }

    /// Becomes the writer.
    ///
    /// # Errors
    ///
    /// As for [`RawMutex::lock_with`](super::RawMutex::lock_with); the lock is then as if this had not been tried.
    #[doc(alias = "down_write")]
    pub fn write(&self, wait: Wait) -> Result<(), LockError> {
        self.base.write(&wait.how())
    }

    /// Becomes the writer if nobody is in the lock.
    #[doc(alias = "down_write_trylock")]
    pub fn try_write(&self) -> bool {
        self.base.try_write()
    }

    /// Ends being the writer.
    ///
    /// # Safety
    ///
    /// The calling task is.
    #[doc(alias = "up_write")]
    pub unsafe fn write_unlock(&self) {
        let held = self.base.mutex.enter();
        // SAFETY: the caller's.
        unsafe { self.base.leave_write(held, WRITER) };
    }

    /// Turns the writer into a reader, and lets other readers in.
    ///
    /// # Safety
    ///
    /// The calling task is the writer.
    #[doc(alias = "downgrade_write")]
    pub unsafe fn downgrade(&self) {
        let held = self.base.mutex.enter();
        // SAFETY: the caller's.
        unsafe { self.base.leave_write(held, WRITER - 1) };
    }
}

impl<S: Scheduler> Default for RwSemaphore<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Scheduler> fmt::Debug for RwSemaphore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwSemaphore").field("base", &self.base).finish()
    }
}

/// The reader/writer form of [`SpinLock`](super::SpinLock): it may be taken in the middle of another wait.
#[doc(alias = "rwlock_t")]
pub struct RwLock<S: Scheduler> {
    base: RwBase<S>,
}

impl<S: Scheduler> RwLock<S> {
    const_unless_loom! {
        /// An idle lock.
        pub fn new() -> Self {
            Self { base: RwBase::with_flavour(Flavour::Spin) }
        }
    }

    /// The counter and the mutex inside.
    pub fn base(&self) -> &RwBase<S> {
        &self.base
    }

    fn endless() -> How<'static, S> {
        How {
            state: TaskState::LockWait,
            deadline: None,
            detect: Detect::Min,
            flavour: Flavour::Spin,
            ww: None,
        }
    }

    /// Becomes a reader. A deadlock is reported, and the task sleeps for ever.
    #[doc(alias = "rt_read_lock")]
    pub fn read(&self) {
        if !self.base.fast_read() && self.base.slow_read(&Self::endless()).is_err() {
            LockBase::<S>::sleep_for_ever();
        }
    }

    /// Becomes a reader if no writer is in sight.
    #[doc(alias = "rt_read_trylock")]
    pub fn try_read(&self) -> bool {
        self.base.fast_read()
    }

    /// Ends being a reader.
    ///
    /// # Safety
    ///
    /// The calling task is one.
    #[doc(alias = "rt_read_unlock")]
    pub unsafe fn read_unlock(&self) {
        // SAFETY: the caller's.
        unsafe { self.base.leave_read() };
    }

    /// Becomes the writer. A deadlock is reported, and the task sleeps for ever.
    #[doc(alias = "rt_write_lock")]
    pub fn write(&self) {
        if self.base.write(&Self::endless()).is_err() {
            LockBase::<S>::sleep_for_ever();
        }
    }

    /// Becomes the writer if nobody is in the lock.
    #[doc(alias = "rt_write_trylock")]
    pub fn try_write(&self) -> bool {
        self.base.try_write()
    }

    /// Ends being the writer.
    ///
    /// # Safety
    ///
    /// The calling task is.
    #[doc(alias = "rt_write_unlock")]
    pub unsafe fn write_unlock(&self) {
        let held = self.base.mutex.enter();
        // SAFETY: the caller's.
        unsafe { self.base.leave_write(held, WRITER) };
    }
}

impl<S: Scheduler> Default for RwLock<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Scheduler> fmt::Debug for RwLock<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock").field("base", &self.base).finish()
    }
}
