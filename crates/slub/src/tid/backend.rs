// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! How {list head, tid} of a slot change together: the trait and the three backends.
//!
//! | backend | the exchange | sound |
//! |---|---|---|
//! | [`Locked`] | double-word compare-and-exchange for all processors; the CPU number is only a hint | everywhere, also in user space |
//! | [`Local`] | the same without LOCK, on the own CPU, pinned for its duration | kernels |
//! | [`IrqOff`] | plain accesses with interrupts off | one processor, no NMI that allocates |
#![expect(unsafe_code, reason = "TidBackend is an unsafe trait: the front end hands out objects by its word")]

#[cfg(not(loom))]
pub use pairs::{IrqOff, Local, Locked, Pinning};

/// The pair of a slot and the operations on it.
///
/// # Safety
///
/// * `exchange` is one atomic step with respect to all other operations on the cell: it writes both words of `new` and
///   returns `true` exactly when both words of `old` were there. If it needs to run on `cpu` to be atomic, it does
///   nothing and returns `false` elsewhere.
/// * `tid` is at least an Acquire read and `head` at least a Relaxed one that is not moved before an earlier `tid`;
///   a successful `exchange` is at least Release (and Acquire where other CPUs reach the cell).
pub unsafe trait TidBackend: Sync {
    /// The cell.
    type Cell: Sync;

    /// A cell {NULL, 0}.
    #[cfg(not(loom))]
    const CELL: Self::Cell;

    /// A cell {NULL, 0} (loom's atomics have no constants).
    #[cfg(loom)]
    fn cell() -> Self::Cell;

    /// Whether a task can be moved to another CPU, or another can run on its CPU, between two steps.
    const PREEMPTIBLE: bool = true;

    /// Held during slow paths; keeps the task on its CPU where `exchange` depends on that.
    type Pin;

    /// The CPU this runs on; a hint where `exchange` works from anywhere.
    fn cpu(&self) -> usize;

    /// Keeps the task on its CPU.
    fn pin(&self) -> Self::Pin;

    /// Whether `exchange` on the cell of `cpu` can succeed from here, pinned.
    fn reaches(&self, cpu: usize) -> bool {
        cpu == self.cpu()
    }

    /// The tid.
    fn tid(&self, cell: &Self::Cell) -> usize;

    /// The list head.
    fn head(&self, cell: &Self::Cell) -> *mut u8;

    /// Replaces `old` by `new`.
    fn exchange(&self, cpu: usize, cell: &Self::Cell, old: (*mut u8, usize), new: (*mut u8, usize)) -> bool;
}

#[cfg(not(loom))]
mod pairs {
    use super::TidBackend;
    use crate::trylock::CurrentCpu;
    use core::ptr::with_exposed_provenance_mut;
    use fastpath_cmpxchg::backend::Generic;
    use fastpath_cmpxchg::interrupt::InterruptControl;
    use fastpath_cmpxchg::{
        Atomic, AtomicPair, DoubleOps, DoubleWord, DoubleWordLocal, LocalDoubleOps, Native, Ordering, Pair,
    };

    const fn pair((head, tid): (*mut u8, usize)) -> PairOf {
        PairOf { head, tid }
    }

    /// The words of a cell, before the head's address becomes an integer.
    struct PairOf {
        head: *mut u8,
        tid: usize,
    }

    impl PairOf {
        #[inline(always)]
        fn words(&self) -> Pair {
            Pair { first: self.head.expose_provenance(), second: self.tid }
        }
    }

    /// The tid word of a pair, read alone.
    #[inline(always)]
    fn tid_of<B>(cell: &AtomicPair<B>) -> usize {
        // SAFETY: the second word of a live pair, aligned; single words are read while pairs are exchanged, which every
        // target's double-word instruction allows.
        let word: &Atomic<usize> = unsafe { Atomic::from_ptr(&raw mut (*cell.as_ptr()).second) };
        // ORDERING: Acquire pairs with the Release half of the exchange that wrote it: what follows (slab, head, next) is
        // at least as new as this tid.
        word.load(Ordering::Acquire)
    }

    /// The head word of a pair, read alone.
    #[inline(always)]
    fn head_of<B>(cell: &AtomicPair<B>) -> *mut u8 {
        // SAFETY: the first word, as above.
        let word: &Atomic<usize> = unsafe { Atomic::from_ptr(&raw mut (*cell.as_ptr()).first) };
        // ORDERING: Relaxed: a stale head makes the exchange fail, because it goes with a stale tid.
        with_exposed_provenance_mut(word.load(Ordering::Relaxed))
    }

    /// Full double-word compare-and-exchange; the CPU number is a hint. Sound everywhere.
    #[derive(Debug)]
    pub struct Locked<C, B: DoubleOps = Native> {
        here: C,
        proof: DoubleWord<B>,
    }

    impl<C: CurrentCpu, B: DoubleOps> Locked<C, B> {
        /// `None` on a machine without the instruction.
        pub fn detect(here: C) -> Option<Self> {
            DoubleWord::detect().map(|proof| Self { here, proof })
        }

        /// For statics.
        ///
        /// # Safety
        ///
        /// [`DoubleWord::detect`] returns `Some` on this machine.
        pub const unsafe fn assume(here: C) -> Self {
            const { assert!(size_of::<DoubleWord<B>>() == 0) };
            // SAFETY: the proof is a zero-sized token whose statement the caller makes.
            Self { here, proof: unsafe { core::mem::zeroed() } }
        }
    }

    // SAFETY: one double-word exchange for all processors.
    unsafe impl<C: CurrentCpu, B: DoubleOps> TidBackend for Locked<C, B>
    where
        AtomicPair<B>: Sync,
        DoubleWord<B>: Sync,
    {
        type Cell = AtomicPair<B>;
        #[expect(clippy::declare_interior_mutable_const, reason = "each use makes a new cell")]
        const CELL: Self::Cell = AtomicPair::new_in(Pair { first: 0, second: 0 });
        type Pin = ();

        #[inline(always)]
        fn cpu(&self) -> usize {
            self.here.cpu()
        }
        fn pin(&self) {}
        fn reaches(&self, _cpu: usize) -> bool {
            true
        }
        #[inline(always)]
        fn tid(&self, cell: &Self::Cell) -> usize {
            tid_of(cell)
        }
        #[inline(always)]
        fn head(&self, cell: &Self::Cell) -> *mut u8 {
            head_of(cell)
        }
        #[inline(always)]
        fn exchange(
            &self,
            _: usize,
            cell: &Self::Cell,
            old: (*mut u8, usize),
            new: (*mut u8, usize),
        ) -> bool {
            // ORDERING: AcqRel: Release publishes the links of what is pushed, Acquire takes over what is popped; the
            // partner is the other's exchange of the same cell.
            cell.try_cmpxchg_double(self.proof, &mut pair(old).words(), pair(new).words(), Ordering::AcqRel)
        }
    }

    /// How a task stays on its CPU: preemption off, or nothing where tasks never move.
    ///
    /// # Safety
    ///
    /// While a guard lives, the task runs on one CPU, and no other task runs there. Interrupts may.
    pub unsafe trait Pinning: Sync {
        /// Ends the pinned time when dropped.
        type Guard;
        /// Starts it.
        fn pin(&self) -> Self::Guard;
    }

    /// Double-word exchange without LOCK, on the own CPU only: pinned for the length of one instruction, so that the
    /// fast path runs with preemption on, as the kernel's does.
    #[derive(Debug)]
    pub struct Local<C, P, B: LocalDoubleOps = Native> {
        here: C,
        pinning: P,
        proof: DoubleWordLocal<B>,
    }

    impl<C: CurrentCpu, P: Pinning, B: LocalDoubleOps> Local<C, P, B> {
        /// `None` on a machine without the instruction.
        pub fn detect(here: C, pinning: P) -> Option<Self> {
            DoubleWordLocal::detect().map(|proof| Self { here, pinning, proof })
        }

        /// For statics.
        ///
        /// # Safety
        ///
        /// [`DoubleWordLocal::detect`] returns `Some` on this machine.
        pub const unsafe fn assume(here: C, pinning: P) -> Self {
            const { assert!(size_of::<DoubleWordLocal<B>>() == 0) };
            // SAFETY: the proof is a zero-sized token whose statement the caller makes.
            Self { here, pinning, proof: unsafe { core::mem::zeroed() } }
        }
    }

    // SAFETY: the exchange runs pinned, on `cpu` or not at all: what could come in between on this CPU is an interrupt,
    // against which one instruction is atomic, and no other CPU ever writes the cell.
    unsafe impl<C: CurrentCpu, P: Pinning, B: LocalDoubleOps> TidBackend for Local<C, P, B>
    where
        AtomicPair<B>: Sync,
        DoubleWordLocal<B>: Sync,
    {
        type Cell = AtomicPair<B>;
        #[expect(clippy::declare_interior_mutable_const, reason = "each use makes a new cell")]
        const CELL: Self::Cell = AtomicPair::new_in(Pair { first: 0, second: 0 });
        type Pin = P::Guard;

        #[inline(always)]
        fn cpu(&self) -> usize {
            self.here.cpu()
        }
        fn pin(&self) -> P::Guard {
            self.pinning.pin()
        }
        #[inline(always)]
        fn tid(&self, cell: &Self::Cell) -> usize {
            tid_of(cell)
        }
        #[inline(always)]
        fn head(&self, cell: &Self::Cell) -> *mut u8 {
            head_of(cell)
        }
        #[inline(always)]
        fn exchange(
            &self,
            cpu: usize,
            cell: &Self::Cell,
            old: (*mut u8, usize),
            new: (*mut u8, usize),
        ) -> bool {
            let _pin = self.pinning.pin();
            // SAFETY: pinned to `cpu`: only this CPU changes the cell.
            self.here.cpu() == cpu
                && unsafe {
                    cell.try_cmpxchg_double_local(self.proof, &mut pair(old).words(), pair(new).words())
                }
        }
    }

    /// Plain accesses with interrupts off by the controller `I`, for processors without a double-word exchange. One
    /// processor (or a controller that excludes the others); not against NMIs.
    pub type IrqOff<C, I> = Locked<C, Generic<I>>;

    impl<C: CurrentCpu, I: InterruptControl> IrqOff<C, I> {
        /// The backend: always there.
        pub const fn new(here: C) -> Self {
            // SAFETY: `Generic` works everywhere.
            unsafe { Self::assume(here) }
        }
    }
}
