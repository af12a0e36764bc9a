// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What each processor has of its own, found by its per-CPU base register: `gs` on x86-64, `tpidr_el1` on AArch64, `tp` on
//! RISC-V. A machine with one processor needs no register.

use crate::Machine;
use core::cell::Cell;
use core::marker::PhantomData;
use fastpath_cmpxchg::Atomic;
use fastpath_slub::CurrentCpu;

/// The most processors a machine has.
pub const PROCESSORS: usize = 4;

/// One processor's area, a cache line of its own. All but `pending` changes on that processor with interrupts off.
#[derive(Debug)]
#[repr(C, align(64))]
#[cfg_attr(not(feature = "tasks"), allow(dead_code, reason = "the scheduler's"))]
pub struct PerCpu {
    /// Where this is: a processor whose base register only displaces addresses finds it with one load.
    this: *const PerCpu,
    pub(crate) number: usize,
    /// The task that runs.
    pub(crate) current: Cell<usize>,
    /// Sections with interrupts off, and with preemption off, that it is in.
    pub(crate) masked: Cell<u32>,
    pub(crate) pinned: Cell<u32>,
    /// How often a handler took the processor from a task.
    pub(crate) preemptions: Cell<u32>,
    /// Something happened that may change who should run here. Set from everywhere.
    pub(crate) pending: Atomic<bool>,
}

// SAFETY: the cells are used by their processor only, with interrupts off, or under the scheduler's lock.
unsafe impl Sync for PerCpu {}

impl PerCpu {
    const fn new(number: usize) -> Self {
        Self {
            // The address of an element of the static that is being made.
            this: (&raw const AREAS).cast::<Self>().wrapping_add(number),
            number,
            current: Cell::new(0),
            masked: Cell::new(0),
            pinned: Cell::new(0),
            preemptions: Cell::new(0),
            pending: Atomic::new(false),
        }
    }

    /// The area of a processor: what its base register is made from.
    pub fn of(number: usize) -> &'static Self {
        &AREAS[number]
    }

    /// Its number.
    pub fn number(&self) -> usize {
        self.number
    }
}

/// The areas, one after the other.
#[unsafe(export_name = "per_cpu_areas")]
pub static AREAS: [PerCpu; PROCESSORS] = [PerCpu::new(0), PerCpu::new(1), PerCpu::new(2), PerCpu::new(3)];

/// The number of this processor, for the slab allocator.
pub struct Here<M>(PhantomData<fn() -> M>);

impl<M> Here<M> {
    /// It has no state.
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<M> Default for Here<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Machine> CurrentCpu for Here<M> {
    #[inline(always)]
    fn cpu(&self) -> usize {
        M::per_cpu().number
    }
}

/// The front end's backend for a machine without an instruction of its own for it: the task stays on its processor for the
/// length of the exchange, which is that of the target, without what several processors would need.
#[cfg(feature = "tasks")]
pub type Pinned<M> = fastpath_slub::tid::backend::Local<Here<M>, crate::Preemption<M>>;

/// See [`Pinned`].
#[cfg(feature = "tasks")]
pub fn pinned<M: Machine>() -> Pinned<M> {
    Pinned::detect(Here::new(), crate::Preemption::new())
        .expect("every target has a local double-word exchange")
}
