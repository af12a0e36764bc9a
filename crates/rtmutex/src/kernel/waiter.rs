// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The waiter: one task's place in one queue. It lives on the waiting task's stack, or where a proxy put it.

use core::fmt;
use core::marker::PhantomPinned;
use core::ptr;

use super::lock::LockBase;
use super::sched::Scheduler;
use super::sleep::Wake;
use super::task::Task;
use super::tree::Node;
use super::ww::Context;
use crate::sync::{Cell, const_unless_loom};

/// A place in a lock's queue.
///
/// Users see it only with proxy locking; everybody else gets one on the stack of the lock call.
///
/// # Invariants
///
/// * W1. `lock` is non-null exactly while the waiter is queued there, `task` then is the task that waits.
/// * W2. `lock`, `task`, `wake`, `context` change only while the waiter is not queued, or by removal under `wait_lock`.
/// * W3. `node` belongs to the lock's tree and is protected by its `wait_lock`; `pi_node` belongs to the owner's tree and
///   is protected by the owner's `pi_lock`. Each has a rank of its own.
/// * W4. A queued waiter is neither moved nor freed.
#[doc(alias = "rt_mutex_waiter")]
pub struct Waiter<S: Scheduler> {
    pub(crate) node: Node<Waiter<S>>,
    pub(crate) pi_node: Node<Waiter<S>>,
    pub(crate) task: Cell<Option<&'static Task<S>>>,
    pub(crate) lock: Cell<*const LockBase<S>>,
    pub(crate) wake: Cell<Wake>,
    pub(crate) context: Cell<*const Context<S>>,
    _pin: PhantomPinned,
}

// SAFETY: the cells are accessed under the locks that W1 to W3 name.
unsafe impl<S: Scheduler> Sync for Waiter<S> {}
// SAFETY: a waiter that is queued nowhere is plain data.
unsafe impl<S: Scheduler> Send for Waiter<S> {}

impl<S: Scheduler> Waiter<S> {
    const_unless_loom! {
        /// A waiter that is queued nowhere.
        pub fn new() -> Self {
            Self {
                node: Node::new(),
                pi_node: Node::new(),
                task: Cell::new(None),
                lock: Cell::new(ptr::null()),
                wake: Cell::new(Wake::Normal),
                context: Cell::new(ptr::null()),
                _pin: PhantomPinned,
            }
        }
    }

    /// The context's stamp, for the rank in the lock's tree.
    pub(crate) fn stamp(&self) -> Option<u32> {
        let context = self.context.get();
        // SAFETY: the context outlives the wait it was given to (contract of `WwMutex::lock`).
        if context.is_null() { None } else { Some(unsafe { (*context).stamp() }) }
    }
}

impl<S: Scheduler> Default for Waiter<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Scheduler> fmt::Debug for Waiter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").field("queued", &!self.lock.get().is_null()).finish_non_exhaustive()
    }
}
