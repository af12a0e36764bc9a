// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Event counters with the kernel's names, and the summary of a cache.

use crate::sync::{AtomicUsize, Ordering, const_fn};

/// What is counted. The names are the kernel's, in lower case, without underscores between the words here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "the names are the kernel's; `StatItem::name` gives the spelling of its files"
)]
#[doc(alias = "stat_item")]
pub enum StatItem {
    AllocFastpath,
    AllocSlowpath,
    FreeFastpath,
    FreeSlowpath,
    FreeRcuSheaf,
    FreeRcuSheafFail,
    FreeAddPartial,
    FreeRemovePartial,
    AllocSlab,
    FreeSlab,
    AllocNodeMismatch,
    OrderFallback,
    CmpxchgDoubleFail,
    SheafFlush,
    SheafRefill,
    SheafAlloc,
    SheafFree,
    BarnGet,
    BarnGetFail,
    BarnPut,
    BarnPutFail,
    SheafPrefillFast,
    SheafPrefillSlow,
    SheafPrefillOversize,
    SheafReturnFast,
    SheafReturnSlow,
    AllocFromPartial,
    AllocRefill,
    CpuslabFlush,
    DeactivateFull,
    DeactivateEmpty,
    DeactivateToHead,
    DeactivateToTail,
    FreeFrozen,
    CmpxchgDoubleCpuFail,
    CpuPartialAlloc,
    CpuPartialFree,
    CpuPartialNode,
    CpuPartialDrain,
    /// Not the kernel's: frees that waited for a lock to become free.
    FreeDeferred,
}

/// Number of counters.
pub(crate) const STAT_ITEMS: usize = StatItem::FreeDeferred as usize + 1;

const NAMES: [&str; STAT_ITEMS] = [
    "alloc_fastpath",
    "alloc_slowpath",
    "free_fastpath",
    "free_slowpath",
    "free_rcu_sheaf",
    "free_rcu_sheaf_fail",
    "free_add_partial",
    "free_remove_partial",
    "alloc_slab",
    "free_slab",
    "alloc_node_mismatch",
    "order_fallback",
    "cmpxchg_double_fail",
    "sheaf_flush",
    "sheaf_refill",
    "sheaf_alloc",
    "sheaf_free",
    "barn_get",
    "barn_get_fail",
    "barn_put",
    "barn_put_fail",
    "sheaf_prefill_fast",
    "sheaf_prefill_slow",
    "sheaf_prefill_oversize",
    "sheaf_return_fast",
    "sheaf_return_slow",
    "alloc_from_partial",
    "alloc_refill",
    "cpuslab_flush",
    "deactivate_full",
    "deactivate_empty",
    "deactivate_to_head",
    "deactivate_to_tail",
    "free_frozen",
    "cmpxchg_double_cpu_fail",
    "cpu_partial_alloc",
    "cpu_partial_free",
    "cpu_partial_node",
    "cpu_partial_drain",
    "free_deferred",
];

impl StatItem {
    /// The spelling of the kernel's files.
    ///
    /// ```
    /// assert_eq!(fastpath_slub::StatItem::BarnGetFail.name(), "barn_get_fail");
    /// ```
    pub const fn name(self) -> &'static str {
        NAMES[self as usize]
    }

    /// The counter whose file has this name.
    ///
    /// ```
    /// use fastpath_slub::StatItem;
    /// assert_eq!(StatItem::from_name("order_fallback"), Some(StatItem::OrderFallback));
    /// assert_eq!(StatItem::from_name("nothing"), None);
    /// ```
    pub fn from_name(name: &str) -> Option<Self> {
        ALL.into_iter().find(|item| item.name() == name)
    }

    /// All counters.
    pub const fn all() -> [Self; STAT_ITEMS] {
        ALL
    }
}

use StatItem as S;
const ALL: [StatItem; STAT_ITEMS] = [
    S::AllocFastpath,
    S::AllocSlowpath,
    S::FreeFastpath,
    S::FreeSlowpath,
    S::FreeRcuSheaf,
    S::FreeRcuSheafFail,
    S::FreeAddPartial,
    S::FreeRemovePartial,
    S::AllocSlab,
    S::FreeSlab,
    S::AllocNodeMismatch,
    S::OrderFallback,
    S::CmpxchgDoubleFail,
    S::SheafFlush,
    S::SheafRefill,
    S::SheafAlloc,
    S::SheafFree,
    S::BarnGet,
    S::BarnGetFail,
    S::BarnPut,
    S::BarnPutFail,
    S::SheafPrefillFast,
    S::SheafPrefillSlow,
    S::SheafPrefillOversize,
    S::SheafReturnFast,
    S::SheafReturnSlow,
    S::AllocFromPartial,
    S::AllocRefill,
    S::CpuslabFlush,
    S::DeactivateFull,
    S::DeactivateEmpty,
    S::DeactivateToHead,
    S::DeactivateToTail,
    S::FreeFrozen,
    S::CmpxchgDoubleCpuFail,
    S::CpuPartialAlloc,
    S::CpuPartialFree,
    S::CpuPartialNode,
    S::CpuPartialDrain,
    S::FreeDeferred,
];

/// The counters of a node.
#[derive(Debug)]
pub(crate) struct Stats {
    counters: [AtomicUsize; STAT_ITEMS],
}

impl Stats {
    const_fn! {
        pub(crate) const fn new() -> Self {
            #[cfg(not(loom))]
            return Self { counters: [const { AtomicUsize::new(0) }; STAT_ITEMS] };
            #[cfg(loom)]
            return Self { counters: core::array::from_fn(|_| AtomicUsize::new(0)) };
        }
    }

    /// Counts `n` events, from anywhere.
    #[inline]
    pub(crate) fn add(&self, item: StatItem, n: usize) {
        // ORDERING: Relaxed: a count publishes nothing.
        #[cfg(not(loom))]
        self.counters[item as usize].fetch_add(n, Ordering::Relaxed);
        // The model checks protocols, not statistics: each access would multiply what it must explore.
        #[cfg(loom)]
        let _ = (item, n, Ordering::Relaxed);
    }

    /// Counts `n` events of an item that is only ever counted under one and the same lock, which the caller holds: no
    /// locked instruction.
    #[inline]
    pub(crate) fn add_locked(&self, item: StatItem, n: usize) {
        // ORDERING: Relaxed: the lock orders the writers, readers want a snapshot only.
        #[cfg(not(loom))]
        {
            let counter = &self.counters[item as usize];
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
        }
        #[cfg(loom)]
        let _ = (item, n);
    }

    pub(crate) fn get(&self, item: StatItem) -> usize {
        // ORDERING: Relaxed: a snapshot.
        self.counters[item as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn reset(&self, item: StatItem) {
        // ORDERING: Relaxed, as above; a concurrent count may survive or be lost, as in the kernel.
        self.counters[item as usize].store(0, Ordering::Relaxed);
    }
}

/// The line of `/proc/slabinfo`, and what the attribute files of a cache show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(alias = "slabinfo")]
pub struct SlabInfo {
    /// Objects that are not free in their slab: in users' hands or in sheaves.
    pub active_objs: usize,
    /// Objects that all slabs hold.
    pub num_objs: usize,
    /// Bytes from object to object.
    pub objsize: usize,
    /// Objects per slab.
    #[doc(alias = "objs_per_slab")]
    pub objperslab: usize,
    /// Pages per slab.
    pub pagesperslab: usize,
    /// Slabs in existence.
    pub active_slabs: usize,
    /// The same number.
    pub num_slabs: usize,
    /// Slabs on partial lists.
    #[doc(alias = "partial")]
    pub partial_slabs: usize,
    /// Objects free in partial slabs; estimated if the list is longer than 10,000 slabs.
    pub free_in_partial: usize,
    /// Objects that partial slabs hold, in use or free.
    pub objects_in_partial: usize,
    /// Objects that lie in the sheaves of CPUs and barns, not in users' hands.
    pub in_sheaves: usize,
    /// Of them, those in barns.
    pub in_barns: usize,
}
