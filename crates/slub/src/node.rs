// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the slabs of one memory node share.
#![expect(unsafe_code, reason = "lists are guarded by the list lock")]

use crate::barn::Barn;
use crate::lock::RawLock;
use crate::slab::{Slab, SlabList};
use crate::stats::Stats;
use crate::sync::{AtomicPtr, AtomicUsize, Ordering, const_fn};
use core::cell::UnsafeCell;

/// Lists under the list lock.
#[derive(Debug)]
pub(crate) struct Lists {
    /// Slabs with something to allocate, best first.
    pub(crate) partial: SlabList,
    /// Full slabs, only tracked for caches that store users.
    pub(crate) full: SlabList,
}

/// One memory node of a cache.
#[doc(alias = "kmem_cache_node")]
#[derive(Debug)]
pub(crate) struct Node<L> {
    lock: L,
    lists: UnsafeCell<Lists>,
    /// Length of the partial list, readable without the lock.
    nr_partial: AtomicUsize,
    pub(crate) nr_slabs: AtomicUsize,
    pub(crate) total_objects: AtomicUsize,
    /// Frozen slabs that a context without the list lock made or emptied; the next holder of the lock lists them.
    pub(crate) pending: AtomicPtr<Slab>,
    pub(crate) barn: Barn<L>,
    pub(crate) stats: Stats,
}

// SAFETY: `lists` is reached only through `Held`, which exists under the lock; the rest is atomic.
unsafe impl<L: RawLock> Sync for Node<L> {}
// SAFETY: the raw pointers of the lists name descriptors that outlive the node and are bound to no thread.
unsafe impl<L: RawLock + Send> Send for Node<L> {}

/// The list lock, held.
pub(crate) struct Held<'a, L: RawLock> {
    node: &'a Node<L>,
}

impl<L: RawLock> Node<L> {
    const_fn! {
        pub(crate) const fn new(lock: L, barn: Barn<L>) -> Self {
            Self {
                lock,
                lists: UnsafeCell::new(Lists { partial: SlabList::new(), full: SlabList::new() }),
                nr_partial: AtomicUsize::new(0),
                nr_slabs: AtomicUsize::new(0),
                total_objects: AtomicUsize::new(0),
                pending: AtomicPtr::new(core::ptr::null_mut()),
                barn,
                stats: Stats::new(),
            }
        }
    }

    /// Both locks.
    pub(crate) fn locks(&self) -> [&L; 2] {
        [&self.lock, self.barn.lock_word()]
    }

    /// Waits for the list lock; `None` if `context` holds it itself.
    #[inline]
    pub(crate) fn lock(&self, context: usize) -> Option<Held<'_, L>> {
        // Not `then_some`: it would make a `Held`, and drop it, where the lock was not taken.
        self.lock.lock(context).then(|| Held { node: self })
    }

    /// Takes the list lock if it is free.
    #[inline]
    pub(crate) fn try_lock(&self, context: usize) -> Option<Held<'_, L>> {
        self.lock.try_lock(context).then(|| Held { node: self })
    }

    /// Length of the partial list; a hint without the lock.
    #[inline]
    pub(crate) fn nr_partial(&self) -> usize {
        // ORDERING: Relaxed: a hint; decisions are made under the lock.
        self.nr_partial.load(Ordering::Relaxed)
    }

    /// Gives a lock back that was kept by forgetting its `Held` (around a fork).
    ///
    /// # Safety
    ///
    /// The lock is held and no `Held` exists.
    pub(crate) unsafe fn unlock_forgotten(&self) {
        // SAFETY: held (caller).
        unsafe { self.lock.unlock() }
    }
}

impl<L: RawLock> Held<'_, L> {
    #[inline]
    pub(crate) fn lists(&mut self) -> &mut Lists {
        // SAFETY: the lock is held for as long as `self` lives, and `&mut self` makes the borrow unique.
        unsafe { &mut *self.node.lists.get() }
    }

    /// To be called after each change of the partial list.
    #[inline]
    pub(crate) fn publish_len(&mut self) {
        let len = self.lists().partial.len();
        // ORDERING: Relaxed: a hint for readers without the lock.
        self.node.nr_partial.store(len, Ordering::Relaxed);
    }
}

impl<L: RawLock> Drop for Held<'_, L> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: a `Held` exists only while the lock is held.
        unsafe { self.node.lock.unlock() }
    }
}
