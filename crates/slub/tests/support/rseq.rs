// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The sheaf front end's slots on restartable sequences: the sections of `fastpath-percpu`.
#![allow(
    unreachable_pub,
    dead_code,
    missing_debug_implementations,
    missing_docs,
    reason = "private to the tests"
)]

use core::ptr::NonNull;
use fastpath_percpu::sheaf::{self, Access, Block, Slot};
use fastpath_slub::sheaf::missing;
use fastpath_slub::{CpuSlots, Place, Refused, Sheaf, Side, When};
use fastpath_sys::rseq::{Libc, libc};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Per-CPU blocks for the sections. Never freed.
pub struct RseqSlots {
    access: Access,
    blocks: Vec<*mut Block>,
}

// SAFETY: blocks change only inside sections of their own CPU, or at rest (`take`).
unsafe impl Sync for RseqSlots {}
// SAFETY: as above.
unsafe impl Send for RseqSlots {}

fn sheaf_of(top: *mut *mut u8) -> Sheaf {
    // SAFETY: slots hold tops of sheaves or the guard's, whose last word is such a block of zeros.
    unsafe { Sheaf::from_top(NonNull::new_unchecked(top)) }
}

impl RseqSlots {
    /// `None` where the C library does not register threads or the sections do not exist.
    pub fn new() -> Option<Self> {
        let Libc::Registers { offset, .. } = libc() else { return None };
        if !sheaf::SUPPORTED {
            return None;
        }
        let cpus = fastpath_sys::sched::possible_cpus();
        let blocks: Vec<*mut Block> = (0..cpus)
            .map(|_| {
                // SAFETY: a copy of the guard: every slot without a sheaf.
                let block = unsafe { Box::new(core::ptr::read(sheaf::guard_block())) };
                Box::into_raw(block)
            })
            .collect();
        let mut table = vec![sheaf::guard_block(); 2];
        table.extend(&blocks);
        let table = Vec::leak(table);
        Some(Self { access: Access { rseq_offset: offset, table: table[2..].as_ptr() }, blocks })
    }

    fn block(&self) -> Option<*mut Block> {
        // SAFETY: the offset is the C library's.
        let cpu = unsafe { sheaf::cpu_id(self.access.rseq_offset) };
        usize::try_from(cpu).ok().map(|cpu| self.blocks[cpu])
    }

    /// A look at a slot that others may be changing: `exchange` compares again.
    fn look(block: *mut Block, slot: usize) -> Slot {
        // SAFETY: blocks live for ever; words are read as atomics.
        unsafe {
            let slot = &raw mut (*block).slots[slot];
            let word = |place: *mut *mut *mut u8| AtomicPtr::from_ptr(place).load(Ordering::Relaxed);
            Slot { main: word(&raw mut (*slot).main), spare: word(&raw mut (*slot).spare) }
        }
    }

    fn commit(&self, slot: usize, block: *mut Block, old: Slot, new: Slot) -> bool {
        // SAFETY: a real block; callers pass tops that they own or that `old` holds.
        unsafe { sheaf::exchange(self.access, slot * 2, block, old, &new) }
    }
}

// SAFETY: each operation is one section, or one exchange that commits only if nothing changed since the look.
unsafe impl CpuSlots for RseqSlots {
    fn pop(&self, slot: usize) -> Option<NonNull<u8>> {
        // SAFETY: `new` made the table; blocks hold tops of live sheaves.
        NonNull::new(unsafe { sheaf::pop::<true>(self.access, slot * 2) })
    }

    unsafe fn push(&self, slot: usize, object: NonNull<u8>) -> bool {
        // SAFETY: as in `pop`; the caller gives the object up.
        unsafe { sheaf::push::<true>(self.access, slot * 2, object.as_ptr()) }
    }

    fn swap(&self, slot: usize, side: Side) -> Result<(), Refused> {
        let block = self.block().ok_or(Refused::Busy)?;
        let old = Self::look(block, slot);
        let (main, spare) = (sheaf_of(old.main), sheaf_of(old.spare));
        let helps = match side {
            Side::Alloc => main.is_empty() && !spare.is_empty(),
            Side::Free => main.is_full() && !spare.is_full(),
        };
        if helps && self.commit(slot, block, old, Slot { main: old.spare, spare: old.main }) {
            Ok(())
        } else {
            Err(Refused::Changed)
        }
    }

    unsafe fn exchange(&self, slot: usize, place: Place, when: When, new: Sheaf) -> Result<Sheaf, Refused> {
        let block = self.block().ok_or(Refused::Busy)?;
        let old = Self::look(block, slot);
        let at = sheaf_of(if place == Place::Main { old.main } else { old.spare });
        let fits = match when {
            When::Empty => at.is_empty(),
            When::Full => at.is_full(),
            When::Missing => at.is_missing(),
        };
        let both = match place {
            Place::Main => Slot { main: new.top(), spare: old.spare },
            Place::Spare => Slot { main: old.main, spare: new.top() },
        };
        if fits && self.commit(slot, block, old, both) { Ok(at) } else { Err(Refused::Changed) }
    }

    /// Other CPUs' slots are taken at rest only: tests call it when no other thread uses the cache.
    fn take(&self, slot: usize, cpu: Option<usize>) -> Result<(Sheaf, Sheaf), Refused> {
        let none = Slot { main: missing().top(), spare: missing().top() };
        if let Some(cpu) = cpu {
            let block: *mut Block = self.blocks[cpu];
            // SAFETY: at rest, see above.
            let old = unsafe { core::ptr::replace(&raw mut (*block).slots[slot], none) };
            return Ok((sheaf_of(old.main), sheaf_of(old.spare)));
        }
        loop {
            let block = self.block().ok_or(Refused::Busy)?;
            let old = Self::look(block, slot);
            if self.commit(slot, block, old, none) {
                return Ok((sheaf_of(old.main), sheaf_of(old.spare)));
            }
        }
    }

    fn cpus(&self) -> usize {
        self.blocks.len()
    }

    fn fill(&self, slot: usize, capacity: usize) -> usize {
        self.blocks
            .iter()
            .map(|&block| {
                let pair = Self::look(block, slot);
                sheaf_of(pair.main).len(capacity) + sheaf_of(pair.spare).len(capacity)
            })
            .sum()
    }
}
