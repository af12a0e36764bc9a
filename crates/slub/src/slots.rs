// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a per-CPU backend must be able to do: whole operations, never words.
//!
//! # Contract
//!
//! A slot is a pair {main, spare} of sheaves, one pair per CPU and class. In pseudo-code, each operation is one atomic
//! step with respect to everything else that runs on the slot's CPU, including migration, preemption and signals:
//!
//! ```text
//! pop:             o = *main.top;  if o == NULL fail;  main.top -= 1;  return o
//! push(o):         if full(main) fail;  main.top[1] = o;  main.top += 1
//! swap(Alloc):     if !empty(main) or empty(spare) fail;  (main, spare) = (spare, main)
//! swap(Free):      if !full(main)  or full(spare)  fail;  (main, spare) = (spare, main)
//! exchange(p,c,s): if !c(p) fail;  old = p;  p = s;  return old            p = main or spare
//! take:            old = (main, spare);  (main, spare) = (missing, missing);  return old
//! empty(s) = (*s.top == NULL);  full(s) = (s.top is the last word of its block);  missing(s) = both
//! ```
//!
//! A backend that cannot run the operation now (thread not registered, slot not made yet, lock of the slot held by the
//! context it interrupted) answers [`Refused::Busy`]; the caller then works on the slabs directly.
#![expect(unsafe_code, reason = "CpuSlots is an unsafe trait: sheaves change hands through it")]

use crate::sheaf::Sheaf;
use core::ptr::NonNull;

/// On whose behalf: decides which fill level matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The main sheaf was found empty.
    Alloc,
    /// The main sheaf was found full.
    Free,
}

/// One of the two sheaves of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Where pop and push work.
    Main,
    /// The other one.
    Spare,
}

/// The state a place must be in for an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// A pop would fail (no sheaf at all counts).
    Empty,
    /// A push would fail (no sheaf at all counts).
    Full,
    /// There is no sheaf.
    Missing,
}

/// Why an operation did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The slot is not in the state asked for: look again.
    Changed,
    /// The slot cannot be used from here and now: work without it.
    Busy,
}

/// Per-CPU pairs of sheaves; see the [module](self) for the contract of each operation.
///
/// # Safety
///
/// Each operation is one atomic step as described there: an object or sheaf handed in is either entirely taken over or
/// entirely refused, and what is handed out belongs to the caller alone.
pub unsafe trait CpuSlots: Sync {
    /// Takes an object from the main sheaf of `slot`.
    fn pop(&self, slot: usize) -> Option<NonNull<u8>>;

    /// Puts an object on the main sheaf of `slot`. `false`: not done.
    ///
    /// # Safety
    ///
    /// The caller owns `object`, and it belongs to the cache that uses `slot`.
    #[must_use]
    unsafe fn push(&self, slot: usize, object: NonNull<u8>) -> bool;

    /// Exchanges main and spare if that helps `side`.
    ///
    /// # Errors
    ///
    /// [`Refused::Changed`] if it would not help, [`Refused::Busy`] if the slot cannot be used.
    fn swap(&self, slot: usize, side: Side) -> Result<(), Refused>;

    /// Puts `sheaf` in the place of another one, which is returned.
    ///
    /// # Safety
    ///
    /// The caller owns `sheaf`, and its objects belong to the cache that uses `slot`.
    ///
    /// # Errors
    ///
    /// As for [`swap`](Self::swap): `sheaf` still belongs to the caller.
    unsafe fn exchange(&self, slot: usize, place: Place, when: When, sheaf: Sheaf) -> Result<Sheaf, Refused>;

    /// Empties the slot of the CPU `cpu` (of this CPU with `None`) and returns main and spare; either may be missing.
    /// For another CPU's slot the backend needs a way to stop that CPU's operations; one that has none answers `Busy`.
    ///
    /// # Errors
    ///
    /// [`Refused::Busy`] if the slot cannot be reached.
    fn take(&self, slot: usize, cpu: Option<usize>) -> Result<(Sheaf, Sheaf), Refused>;

    /// Makes this CPU's slots usable if they only wait to be created. `false`: they stay unusable.
    fn prepare(&self) -> bool {
        false
    }

    /// Number of CPUs that [`take`](Self::take) accepts.
    fn cpus(&self) -> usize;

    /// Objects in the slots of `slot` over all CPUs, for statistics: a racy sum.
    fn fill(&self, _slot: usize, _capacity: usize) -> usize {
        0
    }

    /// The memory node of this CPU.
    #[inline]
    fn node(&self) -> usize {
        0
    }
}
