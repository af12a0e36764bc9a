// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What an address belongs to: two maps of the address space in units of 64 KiB, apart from the objects.
//!
//! * The *fast* map holds one byte per unit, twice the class of the slab there. A root in zeroed static memory leads
//!   to leaves of 1 GiB each: two dependent loads. Root entries are biased by the leaf's first unit, so that the unit
//!   number indexes without a mask. It stays empty in every mode in which `free` must take the slow path.
//! * The *record* map holds one word per unit: the record of the slab or of the big block that starts there.
//!
//! Entries are written by whoever owns the memory, before it is handed out and after it came back, so they need no
//! lock; a leaf is installed by compare and exchange.

use core::sync::atomic::{
    AtomicU8, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed},
};

use crate::os;

/// log2 of a unit.
const UNIT_SHIFT: u32 = 16;
/// log2 of what a leaf covers.
const LEAF_SHIFT: u32 = 30;
/// Entries of a leaf.
const LEAF: usize = 1 << (LEAF_SHIFT - UNIT_SHIFT);
/// Bits of user addresses: half of the canonical ones on x86-64, all of 48 on AArch64.
const ADDRESS_BITS: u32 = if cfg!(target_arch = "x86_64") { 47 } else { 48 };
/// Entries of a root.
pub const ROOT: usize = 1 << (ADDRESS_BITS - LEAF_SHIFT);

/// The root of the fast map. Also read by the exported `free`.
pub static FAST_ROOT: [AtomicUsize; ROOT] = [const { AtomicUsize::new(0) }; ROOT];
static RECORD_ROOT: [AtomicUsize; ROOT] = [const { AtomicUsize::new(0) }; ROOT];

/// What a unit's record word says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Record {
    /// Not ours, or not the start of anything.
    None,
    /// A slab: address of its record.
    Slab(usize),
    /// The first unit of a big block: address of its record.
    Big(usize),
    /// An emergency mapping, which carries its record in its first page: address of the mapping.
    Emergency(usize),
}

impl Record {
    const fn encode(self) -> usize {
        match self {
            Record::None => 0,
            Record::Slab(address) => address | 1,
            Record::Big(address) => address | 2,
            Record::Emergency(address) => address | 3,
        }
    }
}

/// Twice the class of the object at `address`, 0 if the fast map knows nothing about it.
#[inline(always)]
pub(crate) fn class2_at(address: usize) -> usize {
    let index = address >> LEAF_SHIFT;
    if index >= ROOT {
        return 0;
    }
    // ORDERING: Relaxed: the entry was written before the pointer was handed out, and whatever passed the pointer to
    // this thread ordered the two.
    let leaf = FAST_ROOT[index].load(Relaxed);
    if leaf == 0 {
        return 0;
    }
    // SAFETY: a biased pointer to a leaf, and the unit lies in what that leaf covers.
    unsafe { (*(leaf.wrapping_add(address >> UNIT_SHIFT) as *const AtomicU8)).load(Relaxed) as usize }
}

/// The record of the unit of `address`.
pub(crate) fn record_at(address: usize) -> Record {
    let index = address >> LEAF_SHIFT;
    if index >= ROOT {
        return Record::None;
    }
    // ORDERING: Acquire pairs with the AcqRel in `leaf`: the new leaf is seen zeroed.
    let leaf = RECORD_ROOT[index].load(Acquire);
    if leaf == 0 {
        return Record::None;
    }
    // SAFETY: a leaf has an entry for each unit of its range.
    let word = unsafe { (*(leaf as *const AtomicUsize).add((address >> UNIT_SHIFT) % LEAF)).load(Relaxed) };
    match word & 7 {
        1 => Record::Slab(word - 1),
        2 => Record::Big(word - 2),
        3 => Record::Emergency(word - 3),
        _ => Record::None,
    }
}

/// The leaf behind `root[index]`, made if it is missing; 0 if there is no memory.
fn leaf(root: &[AtomicUsize; ROOT], index: usize, entry: usize, bias: usize) -> usize {
    // ORDERING: Acquire pairs with the AcqRel below.
    let known = root[index].load(Acquire);
    if known != 0 {
        return known;
    }
    let Some(memory) = os::map_memory(LEAF * entry) else { return 0 };
    // ORDERING: AcqRel: Release publishes the zeroed leaf, Acquire sees the one that another thread installed first.
    match root[index].compare_exchange(0, memory.wrapping_sub(bias), AcqRel, Acquire) {
        Ok(_) => memory.wrapping_sub(bias),
        Err(theirs) => {
            os::unmap(memory, LEAF * entry);
            theirs
        }
    }
}

/// Notes the record of one unit; false if there is no memory for the map.
pub(crate) fn set_record(address: usize, record: Record) -> bool {
    let index = address >> LEAF_SHIFT;
    if index >= ROOT {
        return false;
    }
    let leaf = leaf(&RECORD_ROOT, index, size_of::<usize>(), 0);
    if leaf == 0 {
        return false;
    }
    // SAFETY: as in `record_at`.
    // ORDERING: Relaxed: see `class2_at`.
    unsafe {
        (*(leaf as *const AtomicUsize).add((address >> UNIT_SHIFT) % LEAF)).store(record.encode(), Relaxed);
    }
    true
}

/// Notes twice the class of one unit; false if there is no memory for the map.
pub(crate) fn set_class2(address: usize, class2: usize) -> bool {
    let index = address >> LEAF_SHIFT;
    if index >= ROOT {
        return false;
    }
    let leaf = leaf(&FAST_ROOT, index, 1, index << (LEAF_SHIFT - UNIT_SHIFT));
    if leaf == 0 {
        return false;
    }
    // SAFETY: as in `class2_at`.
    // ORDERING: Relaxed: see `class2_at`.
    unsafe { (*(leaf.wrapping_add(address >> UNIT_SHIFT) as *const AtomicU8)).store(class2 as u8, Relaxed) };
    true
}
