// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The per-CPU base in `gs`, and the double-word exchange relative to it: one instruction finds the processor's own word and
//! changes it, without LOCK and without preemption off.
//!
//! The base is the distance of a processor's data from the first one's: 64 bytes a processor. So whatever lies in an array of
//! cache lines, one a processor, is reached by the address of the first line, relative to `gs`: the areas, and the slots of
//! every cache of the slab allocator.

use crate::Pc;
use core::arch::asm;
use fastpath_cmpxchg::{Atomic, AtomicPair, Ordering};
use fastpath_slub::tid::backend::TidBackend;
use fastpath_slub::tid::slot_size;
use kernel_harness::{AREAS, PROCESSORS, PerCpu, Pinned, PreemptionOff};

/// The processors' numbers in their APICs.
static APICS: [Atomic<u32>; PROCESSORS] = [const { Atomic::new(0) }; PROCESSORS];

/// Sets this processor's base.
pub fn set_base(number: usize) {
    let base = number * size_of::<PerCpu>();
    // SAFETY: the model-specific register of the base of `gs`, which nothing used before.
    unsafe {
        asm!("wrmsr", in("ecx") 0xc000_0101_u32, in("eax") base as u32, in("edx") 0, options(nostack, preserves_flags));
    }
    // ORDERING: Relaxed: read after `everywhere`, which orders.
    APICS[number].store(crate::apic::own_number(), Ordering::Relaxed);
}

/// A processor's number in its APIC.
pub fn apic_of(number: usize) -> u32 {
    // ORDERING: Relaxed: see `set_base`.
    APICS[number].load(Ordering::Relaxed)
}

/// This processor's area: one load.
#[inline(always)]
pub fn area() -> &'static PerCpu {
    let area: *const PerCpu;
    // SAFETY: the first word of an area is its address; the base leads from the first area to this processor's. Not `pure`:
    // after a switch it is another one.
    unsafe {
        asm!("mov {}, gs:[{}]", out(reg) area, sym AREAS, options(nostack, preserves_flags, readonly));
        &*area
    }
}

/// `cmpxchg16b` relative to `gs`.
pub struct Gs(Pinned<Pc>);

impl Gs {
    pub fn new() -> Self {
        Self(kernel_harness::pinned())
    }
}

// SAFETY: the exchange is one instruction on the cell of the processor that executes it. If the task has moved since it read
// `old`, that cell holds another processor's tid, and nothing is written. No processor writes another one's cell, and an
// interrupt, also an NMI, comes before or after an instruction.
unsafe impl TidBackend for Gs {
    type Cell = AtomicPair;
    #[expect(clippy::declare_interior_mutable_const, reason = "each use makes a new cell")]
    const CELL: Self::Cell = <Pinned<Pc> as TidBackend>::CELL;
    type Pin = PreemptionOff<Pc>;

    #[inline(always)]
    fn cpu(&self) -> usize {
        self.0.cpu()
    }
    fn pin(&self) -> Self::Pin {
        self.0.pin()
    }
    #[inline(always)]
    fn tid(&self, cell: &AtomicPair) -> usize {
        self.0.tid(cell)
    }
    #[inline(always)]
    fn head(&self, cell: &AtomicPair) -> *mut u8 {
        self.0.head(cell)
    }
    #[inline(always)]
    fn exchange(&self, cpu: usize, cell: &AtomicPair, old: (*mut u8, usize), new: (*mut u8, usize)) -> bool {
        const { assert!(slot_size::<Self>() == size_of::<PerCpu>()) };
        let first = (&raw const *cell).addr() - cpu * slot_size::<Self>();
        let done: u8;
        // SAFETY: with the base, an address inside the same cache's slots. No `nomem`, no `preserves_flags`: it writes both.
        // rbx is the compiler's and gets its value back.
        unsafe {
            asm!("xchg rsi, rbx", "cmpxchg16b gs:[rdi]", "sete r8b", "mov rbx, rsi",
                in("rdi") first, inout("rsi") new.0.expose_provenance() => _, in("rcx") new.1,
                inout("rax") old.0.expose_provenance() => _, inout("rdx") old.1 => _, out("r8b") done,
                options(nostack));
        }
        done != 0
    }
}
