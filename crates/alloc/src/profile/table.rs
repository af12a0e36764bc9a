// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What was sampled: the stacks, with their sums, and the blocks that are still there. Two tables in mappings of their
//! own, used by atomic operations alone: a signal handler that interrupts any of this can do all of it.

use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use super::unwind::DEPTH;
use crate::os;

/// Different stacks that can be told apart; number 0 stands for all others.
pub(crate) const STACKS: usize = 1 << 14;
const FRAMES: usize = 1 << 19;

/// One stack and what was allocated there. Numbers of blocks are in 65536ths.
#[derive(Default)]
pub(crate) struct Stack {
    hash: AtomicU64,
    /// Where its frames start, times 64, plus their number; 0 until they are there.
    frames: AtomicU64,
    pub(crate) blocks: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) freed_blocks: AtomicU64,
    pub(crate) freed_bytes: AtomicU64,
}

// ORDERING: Relaxed for the sums: figures.
static STACK_TABLE: AtomicPtr<Stack> = AtomicPtr::new(core::ptr::null_mut());
static FRAME_TABLE: AtomicPtr<AtomicUsize> = AtomicPtr::new(core::ptr::null_mut());
static FRAMES_USED: AtomicUsize = AtomicUsize::new(0);

/// Eight words: seven blocks, and how many others looked for room here and went on.
const WAYS: usize = 7;
#[repr(align(64))]
struct Set {
    blocks: [AtomicUsize; WAYS],
    passed: AtomicU32,
}
static SETS: AtomicPtr<Set> = AtomicPtr::new(core::ptr::null_mut());
/// Per block its stack and size, as `size * STACKS + stack`.
static NOTES: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());
static SET_COUNT: AtomicUsize = AtomicUsize::new(0);
/// Sets that are looked at before a block is given up.
const REACH: usize = 32;
/// Blocks that found no room: they stay "live" for ever.
pub(crate) static LOST: AtomicU64 = AtomicU64::new(0);

/// Maps the tables; false if there is no memory.
pub(crate) fn set_up(sets: usize) -> bool {
    let parts = [STACKS * size_of::<Stack>(), FRAMES * 8, sets * size_of::<Set>(), sets * WAYS * 8]
        .map(os::map_memory);
    let [Some(stacks), Some(frames), Some(lines), Some(notes)] = parts else { return false };
    // ORDERING: Relaxed: the heap's set-up publishes them before anything is sampled.
    STACK_TABLE.store(stacks as *mut Stack, Relaxed);
    FRAME_TABLE.store(frames as *mut AtomicUsize, Relaxed);
    SETS.store(lines as *mut Set, Relaxed);
    NOTES.store(notes as *mut AtomicU64, Relaxed);
    SET_COUNT.store(sets, Relaxed);
    true
}

pub(crate) fn stack(number: usize) -> &'static Stack {
    // SAFETY: the table has `STACKS` entries, zeroed ones being empty, and is never unmapped.
    unsafe { &*STACK_TABLE.load(Relaxed).add(number % STACKS) }
}

/// The addresses of a stack, innermost first.
pub(crate) fn frames(number: usize) -> &'static [AtomicUsize] {
    // ORDERING: Acquire pairs with the Release in `number_of`: the addresses are there.
    let frames = stack(number).frames.load(Acquire) as usize;
    // SAFETY: `number_of` reserved that part of the table.
    unsafe { core::slice::from_raw_parts(FRAME_TABLE.load(Relaxed).add(frames / 64), frames % 64) }
}

/// The number of a stack, entered if it is new.
pub(crate) fn number_of(addresses: &[usize]) -> usize {
    let mut hash = addresses.len() as u64;
    for &address in addresses {
        hash = (hash.rotate_left(5) ^ address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    let hash = (hash ^ (hash >> 29)).max(1);
    for probe in 0..64 {
        let number = (hash as usize + probe) % STACKS;
        if number == 0 {
            continue;
        }
        let entry = stack(number);
        // ORDERING: AcqRel: only claims the entry; the frames are published by `frames`.
        match entry.hash.compare_exchange(0, hash, AcqRel, Acquire) {
            Ok(_) => {
                let at = FRAMES_USED.fetch_add(addresses.len(), Relaxed);
                let room = FRAMES.saturating_sub(at).min(addresses.len()).min(DEPTH);
                for (offset, &address) in addresses[..room].iter().enumerate() {
                    // SAFETY: the reserved part of the table.
                    unsafe { (*FRAME_TABLE.load(Relaxed).add(at + offset)).store(address, Relaxed) };
                }
                if room > 0 {
                    // ORDERING: Release publishes the addresses to `frames`.
                    entry.frames.store((at * 64 + room) as u64, Release);
                }
                return number;
            }
            Err(other) if other == hash => return number,
            Err(_) => {}
        }
    }
    0
}

fn home(block: usize) -> usize {
    (((block >> 4) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
}

fn set(index: usize) -> (&'static Set, usize) {
    let index = index & (SET_COUNT.load(Relaxed) - 1);
    // SAFETY: the tables have that many sets, a power of two, and are never unmapped.
    (unsafe { &*SETS.load(Relaxed).add(index) }, index)
}

fn note(index: usize, way: usize) -> &'static AtomicU64 {
    // SAFETY: as in `set`.
    unsafe { &*NOTES.load(Relaxed).add(index * WAYS + way) }
}

/// Notes a live block.
pub(crate) fn insert(block: usize, stack: usize, size: u64) -> bool {
    let home = home(block);
    for step in 0..REACH {
        let (lines, index) = set(home + step);
        for (way, slot) in lines.blocks.iter().enumerate() {
            // ORDERING: Relaxed throughout: whoever frees the block got it from here, with all that was done before, by the
            // program's own synchronisation.
            if slot.load(Relaxed) == 0 && slot.compare_exchange(0, block, Relaxed, Relaxed).is_ok() {
                note(index, way).store(size * STACKS as u64 + stack as u64, Relaxed);
                return true;
            }
        }
        lines.passed.fetch_add(1, Relaxed);
    }
    for step in 0..REACH {
        set(home + step).0.passed.fetch_sub(1, Relaxed);
    }
    LOST.fetch_add(1, Relaxed);
    false
}

/// The stack and size of a live block, if it was sampled.
pub(crate) fn find(block: usize) -> Option<(usize, u64)> {
    let home = home(block);
    (home..home + REACH).find_map(|at| {
        let (lines, index) = set(at);
        let way = lines.blocks.iter().position(|slot| slot.load(Relaxed) == block)?;
        let noted = note(index, way).load(Relaxed);
        Some(((noted % STACKS as u64) as usize, noted / STACKS as u64))
    })
}

/// Takes a block out; its stack and size, if it was sampled.
#[inline]
pub(crate) fn remove(block: usize) -> Option<(usize, u64)> {
    let home = home(block);
    for step in 0..REACH {
        let (lines, index) = set(home + step);
        for (way, slot) in lines.blocks.iter().enumerate() {
            if slot.load(Relaxed) == block {
                let noted = note(index, way).load(Relaxed);
                slot.store(0, Relaxed);
                for before in 0..step {
                    set(home + before).0.passed.fetch_sub(1, Relaxed);
                }
                return Some(((noted % STACKS as u64) as usize, noted / STACKS as u64));
            }
        }
        if lines.passed.load(Relaxed) == 0 {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn blocks_are_found_again_also_when_their_sets_are_full() {
        assert!(set_up(64));
        // Nearly as many as there are places, so that many do not fit where they belong.
        let blocks: std::vec::Vec<usize> = (1..=440).map(|n| n * 48).collect();
        let kept: std::vec::Vec<usize> =
            blocks.iter().copied().filter(|&block| insert(block, block % 1000, block as u64)).collect();
        assert!(kept.len() > 430);
        assert_eq!(remove(7 * 16), None);
        for &block in &kept {
            assert_eq!(find(block), Some((block % 1000, block as u64)));
            assert_eq!(remove(block), Some((block % 1000, block as u64)));
            assert_eq!(remove(block), None);
        }
        // Nothing is left behind: a search ends in its first set.
        assert!((0..64).all(|index| set(index).0.passed.load(Relaxed) == 0));
        let (first, second) = (number_of(&[1, 2, 3]), number_of(&[1, 2]));
        assert_ne!(first, second);
        assert_eq!(number_of(&[1, 2, 3]), first);
        let frames: std::vec::Vec<usize> = frames(first).iter().map(|frame| frame.load(Relaxed)).collect();
        assert_eq!(frames, [1, 2, 3]);
    }
}
