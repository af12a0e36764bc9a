// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! A slab layer as a whole: statistics, shrinking, destruction, forks.
#![expect(unsafe_code, reason = "walks lists under the list lock")]

use super::Slabs;
use crate::debug::{Calls, TrackKind};
use crate::host::{Corruption, Host};
use crate::node::Node;
use crate::slab::{PARTIAL, Slab, SlabList};
use crate::source::Wait;
use crate::spec::CacheFlags;
use crate::stats::{SlabInfo, StatItem};
use crate::sync::Ordering;
use core::ptr::NonNull;

/// Lists longer than this are estimated from both ends.
const MAX_SCANNED: usize = 10_000;
const BUCKETS: usize = 32;

/// A cache could not be destroyed: objects are still in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// Slabs that remain.
    pub slabs: usize,
    /// Objects in use in those that are not full (a full slab is on no list and is only counted).
    pub objects: usize,
}

impl core::fmt::Display for Busy {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} slabs remain, at least {} objects are still in use", self.slabs, self.objects)
    }
}

impl core::error::Error for Busy {}

impl<H: Host, const NODES: usize> Slabs<H, NODES> {
    /// The cache in numbers. Counts of several threads' doings are snapshots; exact at rest.
    ///
    /// At rest `active_objs + free_in_partial == num_objs`.
    pub fn info(&self) -> SlabInfo {
        let layout = self.layout();
        let mut info = SlabInfo {
            objsize: layout.size,
            objperslab: layout.objects,
            pagesperslab: 1 << layout.order,
            ..SlabInfo::default()
        };
        for of_node in (0..NODES).filter_map(|node| self.node_info(node)) {
            info.num_slabs += of_node.num_slabs;
            info.num_objs += of_node.num_objs;
            info.partial_slabs += of_node.partial_slabs;
            info.free_in_partial += of_node.free_in_partial;
            info.objects_in_partial += of_node.objects_in_partial;
        }
        info.active_slabs = info.num_slabs;
        info.active_objs = info.num_objs.saturating_sub(info.free_in_partial);
        info
    }

    /// The counts of one node.
    pub(crate) fn node_info(&self, index: usize) -> Option<SlabInfo> {
        let node = self.nodes.get(index)?;
        let mut info = SlabInfo {
            // ORDERING: Relaxed: a snapshot.
            num_slabs: node.nr_slabs.load(Ordering::Relaxed),
            // ORDERING: Relaxed: a snapshot.
            num_objs: node.total_objects.load(Ordering::Relaxed),
            ..SlabInfo::default()
        };
        if let Some(mut held) = self.lock_node(index, Wait::Yes) {
            let list = &held.lists().partial;
            info.partial_slabs = list.len();
            // SAFETY: under the list lock.
            (info.free_in_partial, info.objects_in_partial) = unsafe { free_in(list) };
        }
        info.active_objs = info.num_objs.saturating_sub(info.free_in_partial);
        Some(info)
    }

    /// Counts who allocated the objects in use, or who freed the free ones.
    pub(crate) fn count_calls(&self, kind: TrackKind, calls: &mut Calls) {
        self.for_each_listed(|slab| {
            // SAFETY: a live slab of this cache, under its list lock.
            unsafe {
                let slab = slab.as_ref();
                self.each_object(slab, |object, free| {
                    let wanted = free == (kind == TrackKind::Free);
                    let track = NonNull::new(object).filter(|_| wanted).and_then(|it| self.track(it, kind));
                    if let Some(track) = track.filter(|track| !track.is_empty()) {
                        let size = self.layout().object_size;
                        let request = if free { size } else { self.request(object).unwrap_or(size) };
                        calls.add(&track, size.saturating_sub(request));
                    }
                });
            }
        });
    }

    /// The room behind an object that a debugging or reader may rely on: the object alone where a red zone or poison
    /// follows it, up to the metadata where the object must keep its contents, the whole stride otherwise.
    #[doc(alias = "slab_ksize")]
    pub fn ksize(&self) -> usize {
        let (flags, layout) = (self.flags(), self.layout());
        if flags.intersects(CacheFlags::RED_ZONE.with(CacheFlags::POISON)) {
            layout.object_size
        } else if flags.intersects(CacheFlags::TYPESAFE_BY_RCU.with(CacheFlags::STORE_USER)) {
            layout.inuse
        } else {
            layout.size
        }
    }

    /// The value of a counter, summed over the nodes.
    pub fn stat(&self, item: StatItem) -> usize {
        self.nodes.iter().map(|node| node.stats.get(item)).fold(0, usize::wrapping_add)
    }

    /// The value of a counter on one node.
    pub fn node_stat(&self, node: usize, item: StatItem) -> usize {
        self.nodes.get(node).map_or(0, |node| node.stats.get(item))
    }

    /// Sets a counter to 0 on all nodes.
    pub fn reset_stat(&self, item: StatItem) {
        self.nodes.iter().for_each(|node| node.stats.reset(item));
    }

    /// Sets how many empty slabs each node keeps.
    ///
    /// # Safety
    ///
    /// Nobody else uses the cache during the call.
    pub unsafe fn set_min_partial(&self, count: usize) {
        // SAFETY: exclusive (caller). Slabs may exist: the number is not part of their shape.
        unsafe { self.reconfigure(|config| config.min_partial = count) };
    }

    /// From now on free pointers are stored obfuscated with `secret`, which nobody should guess. Caches made with
    /// [`CacheFlags::HARDENED`] need no call: their secret comes from [`Host::random`](crate::Host::random) with their first
    /// slab.
    ///
    /// # Safety
    ///
    /// Nobody else uses the cache during the call, and it has no slabs.
    pub unsafe fn harden(&self, secret: usize) {
        // SAFETY: as the caller promises.
        unsafe {
            self.reconfigure(|config| config.hardened = true);
        }
        self.secret.set(secret);
    }

    /// Calls `visit` with the addresses of slabs on partial lists and their state, front first; for tests and reports.
    pub fn for_each_partial(&self, mut visit: impl FnMut(usize, NonNull<Slab>)) {
        for node in 0..NODES {
            let Some(mut held) = self.lock_node(node, Wait::Yes) else { continue };
            let mut at = held.lists().partial.first();
            while let Some(slab) = NonNull::new(at) {
                visit(node, slab);
                // SAFETY: under the list lock.
                at = unsafe { *slab.as_ref().next.get() };
            }
        }
    }

    /// Calls `visit` with the slabs on partial lists and, where they are tracked (`U`), the full ones, under the list lock.
    pub(crate) fn for_each_listed(&self, mut visit: impl FnMut(NonNull<Slab>)) {
        for node in 0..NODES {
            let Some(mut held) = self.lock_node(node, Wait::Yes) else { continue };
            for first in [held.lists().partial.first(), held.lists().full.first()] {
                let mut at = first;
                while let Some(slab) = NonNull::new(at) {
                    // SAFETY: under the list lock.
                    at = unsafe { *slab.as_ref().next.get() };
                    visit(slab);
                }
            }
        }
    }

    /// Gives all empty slabs back and sorts the partial lists, fullest first. `true` if slabs remain.
    #[doc(alias = "__kmem_cache_do_shrink")]
    pub fn shrink_slabs(&self) -> bool {
        self.flush_deferred();
        let mut remain = false;
        for (index, node) in self.nodes.iter().enumerate() {
            let Some(mut held) = self.lock_node(index, Wait::Yes) else { continue };
            let mut discard = self.list_pending(&mut held, index);
            let mut buckets = [const { SlabList::new() }; BUCKETS];
            let lists = held.lists();
            let (mut kept, mut condemned) = (SlabList::new(), SlabList::new());
            // SAFETY: under the list lock; each slab is moved from one list to another.
            unsafe {
                while let Some(slab) = NonNull::new(lists.partial.first()) {
                    let descriptor = slab.as_ref();
                    lists.partial.remove(slab);
                    let word = descriptor.word();
                    let free = descriptor.capacity() - word.inuse();
                    if word.inuse() == 0 {
                        // Nobody holds an object of it, and nobody takes one without this lock.
                        descriptor.set_flags(descriptor.flags() & !PARTIAL);
                        condemned.push_back(slab);
                    } else if free <= BUCKETS {
                        buckets[free.max(1) - 1].push_back(slab);
                    } else {
                        kept.push_back(slab);
                    }
                }
                for bucket in &mut buckets {
                    move_all(bucket, &mut lists.partial);
                }
                move_all(&mut kept, &mut lists.partial);
                while let Some(slab) = NonNull::new(condemned.first()) {
                    condemned.remove(slab);
                    self.condemn(&mut held, slab, &mut discard);
                }
            }
            held.publish_len();
            drop(held);
            self.discard_chain(&mut discard, index, Wait::Yes);
            // ORDERING: Relaxed: a snapshot.
            remain |= node.nr_slabs.load(Ordering::Relaxed) != 0;
        }
        remain
    }

    /// Gives everything back if no object is in use; reports the objects that are ([`Corruption::LeakedObject`]) and
    /// leaves the cache as it is otherwise.
    ///
    /// # Errors
    ///
    /// [`Busy`] with what remains.
    #[doc(alias = "__kmem_cache_shutdown")]
    pub fn destroy_slabs(&self) -> Result<(), Busy> {
        if !self.shrink_slabs() {
            if self.flags().contains(CacheFlags::TYPESAFE_BY_RCU)
                && let Some(grace) = self.host.grace_period()
            {
                // The last slabs wait for their readers; the cache must outlive them.
                grace.barrier();
            }
            return Ok(());
        }
        let mut busy = Busy { slabs: 0, objects: 0 };
        for node in &self.nodes {
            // ORDERING: Relaxed: a snapshot.
            busy.slabs += node.nr_slabs.load(Ordering::Relaxed);
        }
        self.for_each_listed(|slab| {
            // SAFETY: a live slab of this cache, under its list lock.
            busy.objects += unsafe { self.report_leaks(slab) };
        });
        Err(busy)
    }

    /// Reports each object in use of a slab and returns how many there are.
    ///
    /// # Safety
    ///
    /// Under the list lock of the slab's node.
    unsafe fn report_leaks(&self, slab: NonNull<Slab>) -> usize {
        // SAFETY: a live slab (caller).
        let slab = unsafe { slab.as_ref() };
        let mut reported = 0;
        // SAFETY: under the list lock (caller).
        unsafe {
            self.each_object(slab, |object, free| {
                if !free {
                    reported += 1;
                    if self.config().debug {
                        self.finding(
                            slab,
                            object,
                            Corruption::LeakedObject,
                            "Objects remaining",
                            "Cache kept",
                        );
                    } else {
                        self.host.corrupted(Corruption::LeakedObject, self.name(), object);
                    }
                }
            });
        }
        reported
    }

    /// The locks of the layer, list and barn, node by node: for hosts that must know whether a thread holds one.
    pub fn locks(&self) -> impl Iterator<Item = &H::Lock> {
        self.nodes.iter().flat_map(Node::locks)
    }

    /// Takes every lock of the layer, in the fixed order node by node, list before barn: call it before a fork, after the
    /// front end's own locks and before the source's. `false`, with no lock taken, if this context holds one of them
    /// already (a fork from a signal handler): the child must then not use the cache.
    pub fn fork_prepare(&self) -> bool {
        let context = self.host.context();
        for (index, node) in self.nodes.iter().enumerate() {
            let list = node.lock(context);
            let both = list.is_some() && node.barn.lock_for_fork(context);
            if both {
                core::mem::forget(list);
            } else {
                drop(list);
                // SAFETY: both locks of the nodes before are held since above.
                unsafe { self.unlock_nodes(index) };
                return false;
            }
        }
        true
    }

    /// Gives both locks of the first `count` nodes back.
    ///
    /// # Safety
    ///
    /// They are held, and no guard exists.
    unsafe fn unlock_nodes(&self, count: usize) {
        for node in self.nodes[..count].iter().rev() {
            // SAFETY: held (caller).
            unsafe {
                node.barn.unlock_after_fork();
                Node::unlock_forgotten(node);
            }
        }
    }

    /// Gives every lock back, in the parent and in the child.
    ///
    /// # Safety
    ///
    /// Once, after a [`fork_prepare`](Self::fork_prepare) that returned `true`, by the thread that called it (or its only
    /// descendant in the child).
    pub unsafe fn fork_done(&self) {
        // SAFETY: all are held since `fork_prepare` (caller).
        unsafe { self.unlock_nodes(NODES) };
    }

    /// Checks the invariants of the module documentation at rest. With debug flags also every object of the slabs on
    /// partial lists, and of the full ones with `U`: zones, poison, padding, free lists; what is found is reported and
    /// put right. Returns objects in use on the partial lists.
    ///
    /// # Errors
    ///
    /// What is violated.
    pub fn validate(&self) -> Result<usize, &'static str> {
        let mut error = None;
        if self.config().debug {
            self.for_each_listed(|slab| {
                // SAFETY: a live slab of this cache, under its list lock; slabs on lists are not frozen.
                if !unsafe { self.check_whole(slab.as_ref()) } {
                    error = Some("a check of the debug flags failed");
                }
            });
        }
        let mut inuse = 0;
        let mut listed = [0usize; NODES];
        let mut empties = 0;
        self.for_each_partial(|node, slab| {
            listed[node] += 1;
            // SAFETY: a live slab, under its list lock.
            let slab = unsafe { slab.as_ref() };
            let word = slab.word();
            inuse += word.inuse();
            empties += usize::from(word.inuse() == 0);
            if word.frozen() {
                error = Some("a frozen slab is on a partial list");
            }
            if word.full(slab.capacity()) {
                error = Some("a full slab is on a partial list");
            }
            if word.inuse() > word.objects() || word.objects() > slab.capacity() {
                error = Some("inuse <= objects <= capacity does not hold");
            }
            let mut length = 0;
            let mut object = slab.head(word);
            while !object.is_null() && length <= word.objects() {
                if !slab.is_object(object, word) {
                    error = Some("a free list leads out of its slab");
                    break;
                }
                length += 1;
                // SAFETY: an object on the free list.
                object = unsafe { self.next(slab, object) };
            }
            if length != word.free() {
                error = Some("the length of a free list is not objects - inuse");
            }
        });
        for (index, node) in self.nodes.iter().enumerate() {
            if node.nr_partial() != listed[index] {
                error = Some("nr_partial is not the length of the list");
            }
            // ORDERING: Relaxed: at rest.
            let slabs = node.nr_slabs.load(Ordering::Relaxed);
            if slabs < listed[index] {
                error = Some("more slabs are listed than exist");
            }
            // ORDERING: Relaxed: at rest.
            if slabs == listed[index] && node.total_objects.load(Ordering::Relaxed) == 0 && slabs != 0 {
                error = Some("slabs without objects");
            }
        }
        error.map_or(Ok(inuse), Err)
    }
}

/// Free objects of the slabs of a list and all of them, estimated from 5,000 at each end if it is very long.
///
/// # Safety
///
/// Under the list lock.
unsafe fn free_in(list: &SlabList) -> (usize, usize) {
    let free = |at: *mut Slab| {
        // SAFETY: a member of the list.
        let slab = unsafe { &*at };
        slab.capacity().saturating_sub(slab.word().inuse())
    };
    let (mut sum, mut seen, mut total) = (0usize, 0usize, 0usize);
    let limit = if list.len() > MAX_SCANNED { MAX_SCANNED / 2 } else { list.len() };
    let mut at = list.first();
    while !at.is_null() && seen < limit {
        sum += free(at);
        // SAFETY: a member of the list.
        unsafe {
            total += (*at).capacity();
            at = *(*at).next.get();
        }
        seen += 1;
    }
    if list.len() > MAX_SCANNED {
        let mut at = list.last();
        while !at.is_null() && seen < MAX_SCANNED {
            sum += free(at);
            // SAFETY: a member of the list.
            unsafe {
                total += (*at).capacity();
                at = *(*at).prev.get();
            }
            seen += 1;
        }
        let scale = |value: usize| (value as u64 * list.len() as u64 / seen as u64) as usize;
        return (scale(sum).min(scale(total)), scale(total));
    }
    (sum, total)
}

/// Appends all of `from` to `to`.
///
/// # Safety
///
/// Under the list lock.
unsafe fn move_all(from: &mut SlabList, to: &mut SlabList) {
    while let Some(slab) = NonNull::new(from.first()) {
        // SAFETY: it is first of `from`, and then on no list.
        unsafe {
            from.remove(slab);
            to.push_back(slab);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use super::*;
    use crate::slab::{Run, Shape};
    use crate::word::SlabWord;
    use std::vec::Vec;

    #[test]
    fn a_very_long_list_is_estimated_within_its_bounds() {
        let shape = Shape { size: 64, reciprocal: 0, class: 1, capacity: 10 };
        let slabs: Vec<Slab> = (0..12_000).map(|_| Slab::new()).collect();
        let mut list = SlabList::new();
        let mut exact = 0;
        for (index, slab) in slabs.iter().enumerate() {
            let inuse = 1 + index % 9;
            // SAFETY: nobody else has the descriptor; the list is ours.
            unsafe {
                slab.make(core::ptr::null(), shape, Run { node: 0, order: 0 }, 0);
                let mut word = slab.word();
                assert!(slab.try_change(&mut word, SlabWord::new().cut(10).take(crate::word::NONE, inuse)));
                list.push_back(NonNull::from(slab));
                // All that is scanned is exact.
                if index + 1 == MAX_SCANNED {
                    assert_eq!(free_in(&list).0, exact + 10 - inuse);
                }
            }
            exact += 10 - inuse;
        }
        // SAFETY: the list is ours.
        let estimate = unsafe { free_in(&list).0 };
        assert!(estimate <= 12_000 * 10);
        assert!(estimate.abs_diff(exact) * 100 < exact, "{estimate} for {exact}");
    }
}
