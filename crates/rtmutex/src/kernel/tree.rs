// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! An intrusive, balanced, sorted tree with its first element at hand: nothing is allocated, nodes live in waiters.
//!
//! An AVL tree: the heights of a node's two subtrees differ by at most one, so a tree of n nodes is at most
//! 1.44 log2(n + 2) high. Insertion and removal touch O(log n) nodes in the worst case, `first` is one load. Equal ranks
//! stay in order of insertion.
//!
//! # Invariants
//!
//! 1. In-order traversal yields ranks in order; a node goes behind the nodes of equal rank that were there before.
//! 2. `height` is 1 + the larger of the children's, 0 means "in no tree"; children differ by at most one.
//! 3. `child.parent` is the node whose `left` or `right` is the child; the root's parent is null.
//! 4. `first` is the leftmost node's item, or null.
//!
//! All fields but `first` are plain cells: whoever reads or writes them holds the lock that protects the tree. `first`
//! is an atomic pointer because a spinning waiter compares it without that lock (it never dereferences it).

use core::ptr;
use core::sync::atomic::Ordering;

use super::key::{Key, Rank};
use crate::sync::{Cell, Word, const_unless_loom};

/// The link of one waiter in one tree, with that tree's own copy of the waiter's rank.
pub(crate) struct Node<T> {
    left: Cell<*const Node<T>>,
    right: Cell<*const Node<T>>,
    parent: Cell<*const Node<T>>,
    height: Cell<u8>,
    rank: Cell<Rank>,
    item: Cell<*const T>,
}

impl<T> Node<T> {
    const_unless_loom! {
        pub(crate) fn new() -> Self {
            Self {
                left: Cell::new(ptr::null()),
                right: Cell::new(ptr::null()),
                parent: Cell::new(ptr::null()),
                height: Cell::new(0),
                rank: Cell::new(Rank::plain(Key::NORMAL)),
                item: Cell::new(ptr::null()),
            }
        }
    }

    /// Is it in a tree?
    pub(crate) fn is_linked(&self) -> bool {
        self.height.get() != 0
    }

    /// The rank it was last inserted with.
    pub(crate) fn rank(&self) -> Rank {
        self.rank.get()
    }
}

/// The tree. See the module's invariants.
pub(crate) struct Tree<T> {
    root: Cell<*const Node<T>>,
    first: Word<T>,
}

impl<T> Tree<T> {
    const_unless_loom! {
        pub(crate) fn new() -> Self {
            Self { root: Cell::new(ptr::null()), first: Word::new() }
        }
    }

    /// The item in front, or null. May be called without the lock if the result is only compared.
    #[inline]
    pub(crate) fn first(&self) -> *const T {
        // ORDERING: Relaxed: with the lock held nothing else is needed; without it the value is only compared.
        self.first.load(Ordering::Relaxed)
    }

    /// Puts `node`, which stands for `item`, behind all nodes that are not after it.
    ///
    /// # Safety
    ///
    /// The caller holds the tree's lock; `node` is in no tree, and stays where it is until it is removed.
    pub(crate) unsafe fn insert(&self, node: &Node<T>, rank: Rank, item: *const T) {
        debug_assert!(!node.is_linked(), "a node is in one tree at a time");
        node.left.set(ptr::null());
        node.right.set(ptr::null());
        node.height.set(1);
        node.rank.set(rank);
        node.item.set(item);
        let mut parent = ptr::null();
        let mut leftmost = true;
        let mut slot = &self.root;
        while !slot.get().is_null() {
            parent = slot.get();
            // SAFETY: linked nodes are alive (contract of `insert`), and the caller holds the lock.
            let at = unsafe { &*parent };
            slot = if rank.before(at.rank.get()) {
                &at.left
            } else {
                leftmost = false;
                &at.right
            };
        }
        node.parent.set(parent);
        slot.set(node);
        if leftmost {
            // ORDERING: Relaxed, see `first`.
            self.first.store(item, Ordering::Relaxed);
        }
        // SAFETY: `parent` is null or linked.
        unsafe { self.rebalance(parent) };
    }

    /// Takes `node` out.
    ///
    /// # Safety
    ///
    /// The caller holds the tree's lock; `node` is in this tree.
    pub(crate) unsafe fn remove(&self, node: &Node<T>) {
        debug_assert!(node.is_linked(), "only a linked node can be removed");
        let at: *const Node<T> = node;
        let (left, right, parent) = (node.left.get(), node.right.get(), node.parent.get());
        // SAFETY: everything reached from here is linked in this tree, so alive, and the caller holds the lock.
        unsafe {
            if self.first() == node.item.get() {
                let next = Self::successor(at);
                let item = if next.is_null() { ptr::null() } else { (*next).item.get() };
                // ORDERING: Relaxed, see `first`.
                self.first.store(item, Ordering::Relaxed);
            }
            let unbalanced = if left.is_null() || right.is_null() {
                let child = if left.is_null() { right } else { left };
                self.replace_child(parent, at, child);
                parent
            } else {
                // The successor takes the node's place: it is the leftmost node on the right, so it has no left child.
                let heir = Self::leftmost(right);
                let mut unbalanced = heir;
                if heir != right {
                    unbalanced = (*heir).parent.get();
                    self.replace_child(unbalanced, heir, (*heir).right.get());
                    (*heir).right.set(right);
                    (*right).parent.set(heir);
                }
                (*heir).left.set(left);
                (*left).parent.set(heir);
                self.replace_child(parent, at, heir);
                unbalanced
            };
            self.rebalance(unbalanced);
        }
        node.height.set(0);
    }

    /// The item behind `node`, or null.
    ///
    /// # Safety
    ///
    /// The caller holds the tree's lock; `node` is in this tree.
    pub(crate) unsafe fn next(node: &Node<T>) -> *const T {
        // SAFETY: as above.
        unsafe {
            let next = Self::successor(node);
            if next.is_null() { ptr::null() } else { (*next).item.get() }
        }
    }

    /// # Safety
    /// `node` is linked; the lock is held.
    unsafe fn successor(node: *const Node<T>) -> *const Node<T> {
        // SAFETY: links lead to linked nodes only.
        unsafe {
            if !(*node).right.get().is_null() {
                return Self::leftmost((*node).right.get());
            }
            let (mut child, mut up) = (node, (*node).parent.get());
            while !up.is_null() && (*up).right.get() == child {
                (child, up) = (up, (*up).parent.get());
            }
            up
        }
    }

    /// # Safety
    /// `node` is linked; the lock is held.
    unsafe fn leftmost(mut node: *const Node<T>) -> *const Node<T> {
        // SAFETY: links lead to linked nodes only.
        unsafe {
            while !(*node).left.get().is_null() {
                node = (*node).left.get();
            }
        }
        node
    }

    /// Makes `new` the child of `parent` (the root if null) where `old` was.
    ///
    /// # Safety
    /// All are null or linked; the lock is held.
    unsafe fn replace_child(&self, parent: *const Node<T>, old: *const Node<T>, new: *const Node<T>) {
        // SAFETY: linked nodes are alive.
        unsafe {
            if parent.is_null() {
                self.root.set(new);
            } else if (*parent).left.get() == old {
                (*parent).left.set(new);
            } else {
                (*parent).right.set(new);
            }
            if !new.is_null() {
                (*new).parent.set(parent);
            }
        }
    }

    /// # Safety
    /// `node` is null or linked; the lock is held.
    unsafe fn height(node: *const Node<T>) -> u8 {
        // SAFETY: linked nodes are alive.
        if node.is_null() { 0 } else { unsafe { (*node).height.get() } }
    }

    /// # Safety
    /// `node` is linked; the lock is held.
    unsafe fn update(node: *const Node<T>) {
        // SAFETY: linked nodes are alive.
        unsafe {
            let below = Self::height((*node).left.get()).max(Self::height((*node).right.get()));
            (*node).height.set(below + 1);
        }
    }

    /// Restores Invariant 2 from `node` up to the root.
    ///
    /// # Safety
    /// `node` is null or linked; the lock is held.
    unsafe fn rebalance(&self, mut node: *const Node<T>) {
        // SAFETY: linked nodes are alive; a rotation keeps the order and the set of nodes.
        unsafe {
            while !node.is_null() {
                let (left, right) = ((*node).left.get(), (*node).right.get());
                let (l, r) = (Self::height(left), Self::height(right));
                let top = if l > r + 1 {
                    if Self::height((*left).left.get()) < Self::height((*left).right.get()) {
                        self.rotate_left(left);
                    }
                    self.rotate_right(node)
                } else if r > l + 1 {
                    if Self::height((*right).right.get()) < Self::height((*right).left.get()) {
                        self.rotate_right(right);
                    }
                    self.rotate_left(node)
                } else {
                    Self::update(node);
                    node
                };
                node = (*top).parent.get();
            }
        }
    }

    /// The right child moves up into `node`'s place. Returns it.
    ///
    /// # Safety
    /// `node` and its right child are linked; the lock is held.
    unsafe fn rotate_left(&self, node: *const Node<T>) -> *const Node<T> {
        // SAFETY: linked nodes are alive.
        unsafe {
            let up = (*node).right.get();
            let middle = (*up).left.get();
            self.replace_child((*node).parent.get(), node, up);
            (*up).left.set(node);
            (*node).parent.set(up);
            (*node).right.set(middle);
            if !middle.is_null() {
                (*middle).parent.set(node);
            }
            Self::update(node);
            Self::update(up);
            up
        }
    }

    /// The left child moves up into `node`'s place. Returns it.
    ///
    /// # Safety
    /// `node` and its left child are linked; the lock is held.
    unsafe fn rotate_right(&self, node: *const Node<T>) -> *const Node<T> {
        // SAFETY: linked nodes are alive.
        unsafe {
            let up = (*node).left.get();
            let middle = (*up).right.get();
            self.replace_child((*node).parent.get(), node, up);
            (*up).right.set(node);
            (*node).parent.set(up);
            (*node).left.set(middle);
            if !middle.is_null() {
                (*middle).parent.set(node);
            }
            Self::update(node);
            Self::update(up);
            up
        }
    }

    /// Checks all invariants and calls `each` in order. For tests and debuggers.
    ///
    /// # Safety
    ///
    /// The caller holds the tree's lock, or nobody else runs.
    pub(crate) unsafe fn check(&self, each: &mut dyn FnMut(*const T, Rank)) {
        // SAFETY: links lead to linked nodes only.
        unsafe {
            let root = self.root.get();
            let mut previous: *const Node<T> = ptr::null();
            let first = if root.is_null() { ptr::null() } else { Self::leftmost(root) };
            let item = if first.is_null() { ptr::null() } else { (*first).item.get() };
            assert!(item == self.first(), "Invariant 4: first is the leftmost");
            assert!(root.is_null() || (*root).parent.get().is_null(), "Invariant 3: the root has no parent");
            let mut at = first;
            while !at.is_null() {
                let node = &*at;
                let (left, right) = (node.left.get(), node.right.get());
                let (l, r) = (Self::height(left), Self::height(right));
                assert!(l.abs_diff(r) <= 1 && node.height.get() == l.max(r) + 1, "Invariant 2: balanced");
                for child in [left, right] {
                    assert!(child.is_null() || (*child).parent.get() == at, "Invariant 3: parents");
                }
                if !previous.is_null() {
                    assert!(!node.rank.get().before((*previous).rank.get()), "Invariant 1: sorted");
                }
                each(node.item.get(), node.rank.get());
                previous = at;
                at = Self::successor(at);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use super::*;
    use std::boxed::Box;
    use std::vec::Vec;

    /// A small generator of our own: the same trace on every run.
    fn random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    #[test]
    fn random_traces_agree_with_a_stable_sorted_vector() {
        for seed in 1..=40_u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let tree = Tree::<u32>::new();
            let items: Vec<u32> = (0..48).collect();
            let nodes: Vec<Box<Node<u32>>> = (0..48).map(|_| Box::new(Node::new())).collect();
            let mut model: Vec<(u8, usize)> = Vec::new();
            for _ in 0..400 {
                let i = (random(&mut state) % 48) as usize;
                if let Some(at) = model.iter().position(|&(_, n)| n == i) {
                    model.remove(at);
                    // SAFETY: one thread; the node is in the tree, as the model says.
                    unsafe { tree.remove(&nodes[i]) };
                } else {
                    let prio = (random(&mut state) % 8) as u8;
                    let at = model.iter().position(|&(p, _)| p > prio).unwrap_or(model.len());
                    model.insert(at, (prio, i));
                    // SAFETY: one thread; the boxes outlive the tree.
                    unsafe { tree.insert(&nodes[i], Rank::plain(Key::realtime(prio)), &raw const items[i]) };
                }
                let mut seen = Vec::new();
                // SAFETY: one thread.
                unsafe { tree.check(&mut |item, _| seen.push(*item as usize)) };
                let wanted: Vec<usize> = model.iter().map(|&(_, n)| n).collect();
                assert_eq!(seen, wanted, "seed {seed}");
                for pair in wanted.windows(2) {
                    // SAFETY: one thread; linked, as the model says.
                    assert_eq!(unsafe { *Tree::next(&nodes[pair[0]]) } as usize, pair[1]);
                }
            }
        }
    }

    #[test]
    fn a_thousand_ascending_nodes_stay_balanced() {
        let tree = Tree::<u32>::new();
        let item = 0;
        let nodes: Vec<Box<Node<u32>>> = (0..1000).map(|_| Box::new(Node::new())).collect();
        for (i, node) in nodes.iter().enumerate() {
            // SAFETY: one thread; the boxes outlive the tree.
            unsafe { tree.insert(node, Rank::plain(Key::deadline(i as u64)), &raw const item) };
        }
        // SAFETY: one thread; the root is linked.
        assert!(unsafe { Tree::height(tree.root.get()) } <= 14, "1.44 log2(1002) is 14.3");
    }
}
