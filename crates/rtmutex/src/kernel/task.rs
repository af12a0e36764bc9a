// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The task's side: its own urgency, what it inherits, and what it waits for.
//!
//! # Invariants (P1 to P4)
//!
//! * P1. `pi_waiters` holds exactly the top waiter of each lock the task owns, each with a copy of its rank of its own,
//!   made when it was inserted (one copy shared by both trees would be changed under one lock and read under the other).
//! * P2. `effective` is the more urgent of `base` and the first of `pi_waiters`. It is recomputed whenever either changes;
//!   there is no saved "priority before the boost" that could be restored wrongly, and no counter of held locks.
//! * P3. `blocked_on` is the waiter by which the task is queued, or null. A task is queued at most once.
//! * P4. All fields change under `pi_lock` only. `pi_waiters` and `blocked_on` change under the lock's `wait_lock` as well.

use core::fmt;
use core::ptr;

use super::key::{Key, Rank};
use super::lock::LockBase;
use super::sched::{RawSpin, Scheduler};
use super::sleep::Sleep;
use super::tree::Tree;
use super::waiter::Waiter;
use crate::sync::Cell;

/// What the locks know of a task. A kernel keeps one in each task control block, where it must stay.
///
/// The algorithm handles `&'static Task`: see the second point of [`Scheduler`]'s contract for how long a task lives.
#[doc(alias = "task_struct")]
pub struct Task<S: Scheduler> {
    pub(crate) pi_lock: S::RawLock,
    base: Cell<Key>,
    effective: Cell<Key>,
    pub(crate) pi_waiters: Tree<Waiter<S>>,
    pub(crate) blocked_on: Cell<*const Waiter<S>>,
    pub(crate) sleep: Sleep,
    data: S::Data,
}

// SAFETY: the cells are accessed under `pi_lock` only (P4); the pointers in them name waiters and tasks, which the
// protocol of the locks keeps alive while they are reachable.
unsafe impl<S: Scheduler> Sync for Task<S> {}
// SAFETY: as above. A task that is in no tree and on no lock is plain data.
unsafe impl<S: Scheduler> Send for Task<S> {}

impl<S: Scheduler> Task<S> {
    #[cfg(not(loom))]
    /// A task of its own urgency `base`.
    pub const fn new(base: Key, data: S::Data) -> Self {
        const { assert!(align_of::<Self>() >= 2, "bit 0 of the address is the waiters bit") };
        Self {
            pi_lock: S::RawLock::UNLOCKED,
            base: Cell::new(base),
            effective: Cell::new(base),
            pi_waiters: Tree::new(),
            blocked_on: Cell::new(ptr::null()),
            sleep: Sleep::new(),
            data,
        }
    }

    #[cfg(loom)]
    /// A task of its own urgency `base`.
    pub fn new(base: Key, data: S::Data) -> Self {
        Self {
            pi_lock: S::RawLock::unlocked(),
            base: Cell::new(base),
            effective: Cell::new(base),
            pi_waiters: Tree::new(),
            blocked_on: Cell::new(ptr::null()),
            sleep: Sleep::new(),
            data,
        }
    }

    /// What the scheduler keeps here.
    #[inline(always)]
    pub fn data(&self) -> &S::Data {
        &self.data
    }

    /// The urgency the task has by itself.
    pub fn base(&self) -> Key {
        self.locked(|| self.base.get())
    }

    /// The urgency the task runs at: its own, or that of the most urgent task it holds up.
    #[doc(alias = "rt_mutex_get_effective_prio")]
    pub fn effective(&self) -> Key {
        self.locked(|| self.effective.get())
    }

    /// Is the task queued on a lock?
    pub fn is_blocked(&self) -> bool {
        self.locked(|| !self.blocked_on.get().is_null())
    }

    /// Changes the task's own urgency, whatever it is doing: a boost it has stays, and if it waits for a lock it moves in
    /// the queue and its owner (and that one's owner, and so on) is adjusted.
    #[doc(alias = "rt_mutex_adjust_pi")]
    pub fn set_base(&'static self, base: Key) {
        let next = self.locked(|| {
            self.base.set(base);
            self.recompute();
            self.blocked_lock()
        });
        if !next.is_null() {
            S::get_task(self);
            super::chain::adjust_after_change(self, next);
        }
    }

    /// The task's own urgency, with `pi_lock` held.
    pub(crate) fn base_unlocked(&self) -> Key {
        self.base.get()
    }

    /// The effective urgency, with `pi_lock` held.
    pub(crate) fn key(&self) -> Key {
        self.effective.get()
    }

    /// The lock the task is queued on, or null; with `pi_lock` held. Only to be compared after that.
    pub(crate) fn blocked_lock(&self) -> *const LockBase<S> {
        let waiter = self.blocked_on.get();
        // SAFETY: a waiter that `blocked_on` names is alive: it is unset under `pi_lock` before the waiter goes (P3, P4).
        if waiter.is_null() { ptr::null() } else { unsafe { (*waiter).lock.get() } }
    }

    /// P2, with `pi_lock` held.
    #[doc(alias = "rt_mutex_adjust_prio")]
    pub(crate) fn recompute(&'static self) {
        let mut key = self.base.get();
        let top = self.pi_waiters.first();
        if !top.is_null() {
            // SAFETY: a waiter in `pi_waiters` is queued on a lock of ours, and is removed here before it goes (P1).
            key = key.most_urgent(unsafe { (*top).pi_node.rank().key });
        }
        if key != self.effective.get() {
            self.effective.set(key);
            S::priority_changed(self, key);
        }
    }

    /// `waiter` became the top waiter of a lock the task owns: inherit from it. Both locks held.
    ///
    /// # Safety
    /// `waiter` is queued on a lock whose `wait_lock` the caller holds, and in no task's `pi_waiters`; `pi_lock` is held.
    pub(crate) unsafe fn pi_insert(&self, waiter: *const Waiter<S>) {
        // SAFETY: queued, so alive, under the `wait_lock` the caller holds; `pi_lock` protects the tree.
        unsafe {
            let rank = Rank::plain((*waiter).node.rank().key);
            self.pi_waiters.insert(&(*waiter).pi_node, rank, waiter);
        }
    }

    /// `waiter` is no longer the top waiter of a lock the task owns. Does nothing if it was not recorded here.
    ///
    /// # Safety
    /// As for [`pi_insert`](Self::pi_insert), except that `waiter` may be in this task's `pi_waiters`.
    pub(crate) unsafe fn pi_remove(&self, waiter: *const Waiter<S>) {
        // SAFETY: alive as above. A linked `pi_node` of a waiter of our lock can only be in our tree (P1).
        unsafe {
            if (*waiter).pi_node.is_linked() {
                self.pi_waiters.remove(&(*waiter).pi_node);
            }
        }
    }

    /// Runs `f` under `pi_lock`, interrupts off.
    pub(crate) fn locked<R>(&self, f: impl FnOnce() -> R) -> R {
        let irq = S::irq_save();
        self.pi_lock.lock();
        let result = f();
        // SAFETY: taken above.
        unsafe { self.pi_lock.unlock() };
        S::irq_restore(irq);
        result
    }
}

impl<S: Scheduler> fmt::Debug for Task<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("address", &ptr::from_ref(self)).finish_non_exhaustive()
    }
}
