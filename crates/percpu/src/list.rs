// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! [`List`]: an unbounded list of owned nodes per CPU.

use alloc::boxed::Box;
use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;

use fastpath_sys::Errno;
use fastpath_sys::rseq as kernel;

use crate::contract::STOPPED;
use crate::protocol::{self, SlotLock};
use crate::rseq::{self, Base, Outcome};
use crate::slots::Slot;
use crate::sync::{AtomicU64, Ordering};
use crate::thread::{self, Backend, Route, backend, fence, slots};
use crate::{OutOfMemory, PerCpu};

/// A value with room for the list's link: allocated once, then moved from list to list without further allocation.
#[repr(C)]
pub struct Node<T> {
    link: UnsafeCell<u64>,
    value: T,
}

impl<T> Node<T> {
    /// A node on the heap.
    pub fn new(value: T) -> Box<Self> {
        Box::new(Self { link: UnsafeCell::new(0), value })
    }

    /// The value.
    pub fn get(&self) -> &T {
        &self.value
    }

    /// The value, to be changed.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.value
    }

    /// The value alone.
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Node<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Node").field(&self.value).finish()
    }
}

#[repr(C)]
struct ListSlot {
    head: AtomicU64,
    lock: SlotLock,
}

// SAFETY: zero is an empty list with a free lock.
unsafe impl Slot for ListSlot {}

/// A list of owned nodes per CPU: push and pop at this CPU's head, without atomics and without the ABA problem.
///
/// ```
/// use fastpath_percpu::{List, Node};
///
/// let idle = List::<String>::new().unwrap();
/// idle.push(Node::new("a connection".to_owned()));
/// if let Some(node) = idle.pop() {
///     assert_eq!(node.get(), "a connection");
///     idle.push(node); // no allocation
/// }
/// ```
pub struct List<T: Send> {
    slots: PerCpu<ListSlot>,
    holds: PhantomData<Box<T>>,
}

// SAFETY: it passes `T: Send` values from thread to thread, never references to them.
unsafe impl<T: Send> Sync for List<T> {}

impl<T: Send> List<T> {
    /// Empty lists.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] when there is no address space left.
    pub fn new() -> Result<Self, OutOfMemory> {
        Ok(Self { slots: PerCpu::new()?, holds: PhantomData })
    }

    #[inline(always)]
    fn base(&self) -> Base {
        self.slots.at(0).cast()
    }

    /// Pushes on this CPU's list. While that is stopped, waits; with the locked backend, takes a list whose lock it gets.
    #[inline(always)]
    pub fn push(&self, node: Box<Node<T>>) {
        let node = Box::into_raw(node).cast::<u64>();
        // SAFETY: the slots of a live `PerCpu`; the link is the node's first word, and the node is ours alone.
        if unsafe { rseq::list_push::<ListSlot>(self.base(), node) } != Outcome::Done {
            self.push_slow(node);
        }
    }

    #[cold]
    #[inline(never)]
    fn push_slow(&self, node: *mut u64) {
        let mut shifted = 0;
        loop {
            match thread::route() {
                Route::Retry => {
                    // SAFETY: as in `push`.
                    if unsafe { rseq::list_push::<ListSlot>(self.base(), node) } == Outcome::Done {
                        return;
                    }
                    crate::sync::yield_now();
                }
                Route::Atomic(slot) => {
                    // The outsider slot has no neighbour of its kind in an rseq process.
                    let slot = if slot < slots() { (slot + shifted) % slots() } else { slot };
                    let pushed = self.with_lock(slot, |head| {
                        // SAFETY: the node is ours alone.
                        unsafe { node.write(*head) };
                        *head = node as u64;
                    });
                    if pushed.is_some() {
                        return;
                    }
                    shifted += 1;
                }
            }
        }
    }

    /// Pops from this CPU's list; `None` when it is empty, or stopped.
    #[inline(always)]
    pub fn pop(&self) -> Option<Box<Node<T>>> {
        // SAFETY: as in `push`; every address in the list is that of a node, and nodes leave only through here.
        let mut node = unsafe { rseq::list_pop::<ListSlot>(self.base()) };
        if node == 0 {
            node = self.pop_slow();
        }
        // SAFETY: it came from `Box::into_raw` in `push`, and left the list once.
        (node != 0).then(|| unsafe { Box::from_raw(node as *mut Node<T>) })
    }

    #[cold]
    #[inline(never)]
    fn pop_slow(&self) -> u64 {
        if kernel::cpu_id() >= 0 {
            return 0;
        }
        match thread::route() {
            // SAFETY: as in `pop`.
            Route::Retry => unsafe { rseq::list_pop::<ListSlot>(self.base()) },
            Route::Atomic(slot) => self
                .with_lock(slot, |head| {
                    let first = *head;
                    if first != 0 {
                        // SAFETY: a node of the list, which we hold the lock of.
                        *head = unsafe { (first as *const u64).read() };
                    }
                    first
                })
                .unwrap_or(0),
        }
    }

    /// Takes all nodes of this CPU's list, the last pushed first.
    pub fn pop_all(&self) -> Chain<T> {
        // SAFETY: as in `pop`.
        let mut first = unsafe { rseq::list_pop_all::<ListSlot>(self.base()) };
        if first == 0 && kernel::cpu_id() < 0 {
            first = match thread::route() {
                // SAFETY: as in `pop`.
                Route::Retry => unsafe { rseq::list_pop_all::<ListSlot>(self.base()) },
                Route::Atomic(slot) => self.with_lock(slot, core::mem::take).unwrap_or(0),
            };
        }
        Chain { first, holds: PhantomData }
    }

    /// Takes all nodes of slot `slot`, from any thread: stops it for a moment. Not for signal handlers.
    ///
    /// # Errors
    ///
    /// The [`fence`]'s.
    ///
    /// # Panics
    ///
    /// If there is no such slot.
    #[doc(alias = "drain")]
    pub fn pop_all_of(&self, slot: u32) -> Result<Chain<T>, Errno> {
        let list = self.slots.per_slot(slot);
        list.lock.lock(thread::token());
        let taken = if backend() != Backend::Locked && slot < slots() {
            let taken = protocol::stop(&list.head, STOPPED, || fence(Some(slot)));
            if taken.is_ok() {
                protocol::resume(&list.head, 0);
            }
            taken
        } else {
            // ORDERING: Relaxed: the lock orders.
            Ok(list.head.swap(0, Ordering::Relaxed))
        };
        list.lock.unlock();
        taken.map(|first| Chain { first, holds: PhantomData })
    }

    /// Takes all nodes of all slots, one slot after the other, into `sink`: how many. Others go on meanwhile.
    ///
    /// # Errors
    ///
    /// The [`fence`]'s.
    pub fn drain(&self, mut sink: impl FnMut(Box<Node<T>>)) -> Result<usize, Errno> {
        let mut drained = 0;
        for slot in 0..=slots() {
            // ORDERING: Relaxed: a hint that saves a fence.
            if self.slots.per_slot(slot).head.load(Ordering::Relaxed) == 0 {
                continue;
            }
            for node in self.pop_all_of(slot)? {
                sink(node);
                drained += 1;
            }
        }
        Ok(drained)
    }

    /// Runs `body` on the head of a slot of full atomics, under its lock.
    fn with_lock<R>(&self, slot: u32, body: impl FnOnce(&mut u64) -> R) -> Option<R> {
        let list = self.slots.per_slot(slot);
        list.lock.with(thread::token(), || {
            // ORDERING: Relaxed: the lock orders.
            let mut head = list.head.load(Ordering::Relaxed);
            let result = body(&mut head);
            // ORDERING: Relaxed: the lock orders.
            list.head.store(head, Ordering::Relaxed);
            result
        })
    }
}

impl<T: Send> Drop for List<T> {
    fn drop(&mut self) {
        for (_, list) in self.slots.iter() {
            // ORDERING: Relaxed: `&mut self`: all users have finished before.
            drop(Chain::<T> { first: list.head.load(Ordering::Relaxed), holds: PhantomData });
        }
    }
}

impl<T: Send> fmt::Debug for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("List").finish_non_exhaustive()
    }
}

/// Nodes that left a list together. An iterator; what is left is dropped with it.
pub struct Chain<T> {
    first: u64,
    holds: PhantomData<Box<T>>,
}

// SAFETY: it owns its nodes.
unsafe impl<T: Send> Send for Chain<T> {}

impl<T> Iterator for Chain<T> {
    type Item = Box<Node<T>>;

    fn next(&mut self) -> Option<Box<Node<T>>> {
        if self.first == 0 {
            return None;
        }
        // SAFETY: from `Box::into_raw`, linked by its first word, and owned by this chain alone.
        let node = unsafe { Box::from_raw(self.first as *mut Node<T>) };
        // SAFETY: as above.
        self.first = unsafe { *node.link.get() };
        Some(node)
    }
}

impl<T> Drop for Chain<T> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

impl<T> fmt::Debug for Chain<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain").field("empty", &(self.first == 0)).finish()
    }
}
