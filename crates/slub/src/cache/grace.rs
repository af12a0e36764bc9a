// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Frees that wait for readers: a sheaf collects objects and goes to the grace period as a whole.
#![expect(unsafe_code, reason = "moves raw objects and sheaves")]

use super::Cache;
use crate::host::Host;
use crate::sheaf::{SHEAF_FULL, Sheaf};
use crate::slabs::Slabs;
use crate::source::Wait;
use crate::stats::StatItem;
use core::ptr::NonNull;

/// The head of something that waits for a grace period. It lies in the sheaf itself: nothing is allocated.
#[doc(alias = "rcu_head")]
#[derive(Debug)]
#[repr(C)]
pub struct GraceHead {
    /// For the implementation's own list.
    pub next: *mut GraceHead,
    function: unsafe fn(NonNull<GraceHead>),
    cache: *const (),
}

impl GraceHead {
    /// Where the cache's address lies.
    #[cfg(not(loom))]
    pub(crate) const CACHE: usize = core::mem::offset_of!(Self, cache);

    pub(crate) const fn new(function: unsafe fn(NonNull<Self>), cache: *const ()) -> Self {
        Self { next: core::ptr::null_mut(), function, cache }
    }

    /// The cache it was made for.
    #[cfg(not(loom))]
    pub(crate) const fn cache(&self) -> *const () {
        self.cache
    }

    /// To be called once, after the grace period.
    ///
    /// # Safety
    ///
    /// `head` was handed to [`GracePeriod::defer`], every reader that was active at that time has finished, and this is
    /// the only call for it.
    pub unsafe fn run(head: NonNull<Self>) {
        // SAFETY: the head is intact until this call (contract of `defer`).
        unsafe {
            let function = head.as_ref().function;
            function(head);
        }
    }
}

/// How the surroundings tell that no reader can hold an object any more (RCU, epochs, hazard eras, ...).
///
/// # Safety
///
/// [`GraceHead::run`] is called for a head only when all readers that were active at its `defer` have finished, and the
/// effects of their reads are ordered before it.
pub unsafe trait GracePeriod: Sync {
    /// Takes `head` and calls [`GraceHead::run`] for it once, later. Never calls it before `defer` has returned: the
    /// caller holds a lock.
    ///
    /// # Safety
    ///
    /// `head` is not touched by anyone else until it runs.
    #[doc(alias = "call_rcu")]
    unsafe fn defer(&self, head: NonNull<GraceHead>);

    /// Waits until every head handed over before has run.
    #[doc(alias = "rcu_barrier")]
    fn barrier(&self);
}

impl<H: Host, const NODES: usize> Cache<H, NODES> {
    /// Frees an object once all present readers have finished.
    ///
    /// Objects collect in a sheaf per node; it is handed to `grace` when it is full, under the lock that guards it, so
    /// that a [`deferred_barrier`](Self::deferred_barrier) cannot miss it. Without memory for a sheaf (or in a cache
    /// without sheaves) the call waits for the grace period itself.
    ///
    /// # Safety
    ///
    /// As for [`free`](Self::free), except that readers under the protection of `grace` may still look at the object.
    /// All calls on one cache use the same `grace`. The cache outlives what is deferred: call `deferred_barrier` first.
    #[doc(alias = "kfree_rcu")]
    #[doc(alias = "__kfree_rcu_sheaf")]
    pub unsafe fn free_deferred<G: GracePeriod>(&self, object: NonNull<u8>, grace: &G) {
        let node = self.slabs.local_node();
        let shared = &self.slabs.nodes[node];
        let context = self.slabs.host.context();
        let mut spare = None;
        if shared.barn.present && !self.without_sheaves() {
            loop {
                let pushed = shared.barn.locked(context, Wait::Yes, |stock| {
                    let sheaf = match (&mut stock.rcu, spare.take()) {
                        (Some(sheaf), left) => {
                            spare = left;
                            sheaf
                        }
                        (none, Some(fresh)) => none.insert(fresh),
                        (None, None) => return false,
                    };
                    // SAFETY: the sheaf belongs to the barn, whose lock we hold; it is never full here.
                    let pushed = unsafe { sheaf.push(object) };
                    if sheaf.is_full() {
                        let full = *sheaf;
                        stock.rcu = None;
                        // Before the lock is given back, or a barrier could come in between.
                        self.submit(full, grace);
                    }
                    pushed
                });
                match pushed {
                    Some(true) => {
                        Slabs::<H, NODES>::tally(&shared.stats, StatItem::FreeRcuSheaf, 1);
                        if let Some(unused) = spare {
                            self.put_empty(unused, Wait::Yes);
                        }
                        return;
                    }
                    Some(false) => {
                        spare = self.empty_sheaf(node, Wait::Yes);
                        if spare.is_none() {
                            break;
                        }
                    }
                    None => break,
                }
            }
        }
        if let Some(unused) = spare {
            self.put_empty(unused, Wait::Yes);
        }
        Slabs::<H, NODES>::tally(&shared.stats, StatItem::FreeRcuSheafFail, 1);
        grace.barrier();
        // SAFETY: no reader is left.
        unsafe { self.free(object) };
    }

    /// Hands over what is collected so far and waits until everything deferred before is free.
    #[doc(alias = "kvfree_rcu_barrier")]
    pub fn deferred_barrier<G: GracePeriod>(&self, grace: &G) {
        let context = self.slabs.host.context();
        for node in &self.slabs.nodes {
            node.barn.locked(context, Wait::Yes, |stock| {
                if let Some(sheaf) = stock.rcu.take() {
                    self.submit(sheaf, grace);
                }
            });
        }
        grace.barrier();
    }

    /// Hands a sheaf to the grace period. Its objects are moved up to the last word, above a NULL: the head leaves no
    /// place for the fill level.
    fn submit<G: GracePeriod>(&self, mut sheaf: Sheaf, grace: &G) {
        let capacity = self.slabs.config().capacity;
        let len = sheaf.len(capacity);
        let words = sheaf.block().cast::<*mut u8>();
        let head = sheaf.words().cast::<GraceHead>();
        // SAFETY: in hand, ours: words 0..64 of the block; the head takes the first three, below every sentinel.
        unsafe {
            let from = sheaf.objects(capacity).as_ptr();
            core::ptr::copy(from, words.add(SHEAF_FULL + 1 - len).as_ptr(), len);
            words.add(SHEAF_FULL - len).write(core::ptr::null_mut());
            head.write(GraceHead::new(Self::after_grace, core::ptr::from_ref(self).cast()));
            grace.defer(head);
        }
    }

    /// # Safety
    ///
    /// `head` lies in a sheaf that `submit` of this very type handed over; its grace period is over.
    unsafe fn after_grace(head: NonNull<GraceHead>) {
        // SAFETY: `submit` put a cache of this type there, and it lives (contract of `free_deferred`). The head is the
        // start of the block, the top its last word.
        let (cache, mut sheaf) = unsafe {
            (&*head.as_ref().cache.cast::<Self>(), Sheaf::from_top(head.cast::<*mut u8>().add(SHEAF_FULL)))
        };
        let capacity = cache.slabs.config().capacity;
        // SAFETY: in hand, ours; counts down to the NULL that `submit` wrote.
        unsafe {
            let mut len = 0;
            while !(*sheaf.top().sub(len)).is_null() {
                len += 1;
            }
            if len == capacity {
                cache.put_full(sheaf, Wait::Yes);
                return;
            }
            let objects = core::slice::from_raw_parts_mut(sheaf.top().sub(len).add(1), len);
            cache.slabs.free_batch(objects, Wait::Yes);
            sheaf = Sheaf::lay_out(sheaf.block(), capacity);
        }
        cache.put_empty(sheaf, Wait::Yes);
    }
}
