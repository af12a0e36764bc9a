// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Per-CPU slots under one try-lock each: for processes without restartable sequences, for kernels, for tests.
//!
//! The kernel's own rule for its sheaves: an operation that finds the lock of the slot taken (by the context that it
//! interrupted, or by a thread that holds the same CPU's number as a hint) does not wait; its caller works on the slabs.
#![expect(unsafe_code, reason = "slots are guarded by their own try-lock")]

use crate::sheaf::{Sheaf, missing};
use crate::slots::{CpuSlots, Place, Refused, Side, When};
use crate::sync::{AtomicU32, Ordering};
use core::cell::UnsafeCell;
use core::ptr::NonNull;

/// Where are we? A hint: another thread may act under the same answer at the same time.
pub trait CurrentCpu: Sync {
    /// The number of the CPU this runs on.
    fn cpu(&self) -> usize;

    /// Its memory node.
    fn node(&self) -> usize {
        0
    }
}

impl CurrentCpu for fn() -> usize {
    fn cpu(&self) -> usize {
        self()
    }
}

/// One slot.
#[derive(Debug)]
#[repr(C, align(32))]
struct Slot {
    lock: AtomicU32,
    pair: UnsafeCell<[Sheaf; 2]>,
}

/// Slots `0..SLOTS` for CPUs `0..CPUS` (numbers beyond are folded in), each under a try-lock: two locked operations and
/// a few plain ones per alloc-free pair.
///
/// ```
/// use fastpath_slub::{CpuSlots, TryLockSlots};
/// static SLOTS: TryLockSlots<fn() -> usize, 4, 8> = TryLockSlots::new(|| 0);
/// assert!(SLOTS.pop(3).is_none(), "no sheaf yet");
/// ```
pub struct TryLockSlots<C: CurrentCpu, const CPUS: usize, const SLOTS: usize> {
    here: C,
    slots: [[Slot; SLOTS]; CPUS],
}

// SAFETY: `pair` is reached only between a successful `lock` and its `unlock`.
unsafe impl<C: CurrentCpu, const CPUS: usize, const SLOTS: usize> Sync for TryLockSlots<C, CPUS, SLOTS> {}

impl<C: CurrentCpu, const CPUS: usize, const SLOTS: usize> core::fmt::Debug for TryLockSlots<C, CPUS, SLOTS> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("TryLockSlots").field("cpus", &CPUS).field("slots", &SLOTS).finish_non_exhaustive()
    }
}

impl<C: CurrentCpu, const CPUS: usize, const SLOTS: usize> TryLockSlots<C, CPUS, SLOTS> {
    /// Slots without sheaves.
    #[cfg(not(loom))]
    pub const fn new(here: C) -> Self {
        let slots = [const {
            [const { Slot { lock: AtomicU32::new(0), pair: UnsafeCell::new([missing(), missing()]) } }; SLOTS]
        }; CPUS];
        Self { here, slots }
    }

    /// Slots without sheaves.
    #[cfg(loom)]
    pub fn new(here: C) -> Self {
        let slot = || Slot { lock: AtomicU32::new(0), pair: UnsafeCell::new([missing(), missing()]) };
        Self { here, slots: core::array::from_fn(|_| core::array::from_fn(|_| slot())) }
    }

    /// Runs `with` on a slot if its lock is free.
    #[inline]
    fn locked<R>(
        &self,
        slot: usize,
        cpu: Option<usize>,
        with: impl FnOnce(&mut [Sheaf; 2]) -> R,
    ) -> Option<R> {
        let slot = &self.slots[cpu.unwrap_or_else(|| self.here.cpu()) % CPUS][slot];
        // ORDERING: Acquire pairs with the Release below: the sheaves are as the last operation left them.
        if !slot.lock.try_cmpxchg(&mut 0, 1, Ordering::Acquire) {
            return None;
        }
        // SAFETY: the lock makes the borrow unique; it ends before the unlock.
        let result = with(unsafe { &mut *slot.pair.get() });
        // ORDERING: Release pairs with the Acquire above.
        slot.lock.store(0, Ordering::Release);
        Some(result)
    }

    /// Runs `with` while the lock of this CPU's `slot` is held: what an interrupt in the middle of an operation sees.
    /// `false`, without running it, if the lock is taken.
    pub fn while_locked(&self, slot: usize, with: impl FnOnce()) -> bool {
        self.locked(slot, None, |_| with()).is_some()
    }
}

// SAFETY: each operation is done entirely under the slot's lock, or refused.
unsafe impl<C: CurrentCpu, const CPUS: usize, const SLOTS: usize> CpuSlots for TryLockSlots<C, CPUS, SLOTS> {
    #[inline]
    fn pop(&self, slot: usize) -> Option<NonNull<u8>> {
        // SAFETY: the slot owns its sheaves, and the lock gives us the slot.
        self.locked(slot, None, |pair| unsafe { pair[0].pop() }).flatten()
    }

    #[inline]
    unsafe fn push(&self, slot: usize, object: NonNull<u8>) -> bool {
        // SAFETY: as in `pop`; a missing sheaf is full, so nothing is written to it.
        self.locked(slot, None, |pair| unsafe { pair[0].push(object) }).unwrap_or(false)
    }

    fn swap(&self, slot: usize, side: Side) -> Result<(), Refused> {
        self.locked(slot, None, |pair| {
            let helps = match side {
                Side::Alloc => pair[0].is_empty() && !pair[1].is_empty(),
                Side::Free => pair[0].is_full() && !pair[1].is_full(),
            };
            if helps {
                pair.swap(0, 1);
                Ok(())
            } else {
                Err(Refused::Changed)
            }
        })
        .unwrap_or(Err(Refused::Busy))
    }

    unsafe fn exchange(&self, slot: usize, place: Place, when: When, sheaf: Sheaf) -> Result<Sheaf, Refused> {
        self.locked(slot, None, |pair| {
            let at = match place {
                Place::Main => &mut pair[0],
                Place::Spare => &mut pair[1],
            };
            let fits = match when {
                When::Empty => at.is_empty(),
                When::Full => at.is_full(),
                When::Missing => at.is_missing(),
            };
            if fits { Ok(core::mem::replace(at, sheaf)) } else { Err(Refused::Changed) }
        })
        .unwrap_or(Err(Refused::Busy))
    }

    fn take(&self, slot: usize, cpu: Option<usize>) -> Result<(Sheaf, Sheaf), Refused> {
        self.locked(slot, cpu, |pair| {
            let [main, spare] = core::mem::replace(pair, [missing(), missing()]);
            (main, spare)
        })
        .ok_or(Refused::Busy)
    }

    /// The slots are always there: a refusal means that the lock is taken, and waiting is not an option.
    fn prepare(&self) -> bool {
        false
    }

    fn cpus(&self) -> usize {
        CPUS
    }

    fn fill(&self, slot: usize, capacity: usize) -> usize {
        (0..CPUS)
            .filter_map(|cpu| {
                self.locked(slot, Some(cpu), |pair| pair[0].len(capacity) + pair[1].len(capacity))
            })
            .sum()
    }

    #[inline]
    fn node(&self) -> usize {
        self.here.node()
    }
}
