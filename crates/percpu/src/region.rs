// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Where slots live: regions of one stripe per slot, shared by many per-CPU objects.
//!
//! ```text
//! chunk   | stripe 0     | stripe 1     | ... | stripe n-1   | outsider     |    64 KiB each, mapped lazily
//!           ^base+offset   ^the same offset in every stripe
//! ```
//!
//! An object has the same offset in every stripe, so a slot's address is `base + (slot << SHIFT)`, and the objects of
//! one CPU share its pages and nobody else's: a counter costs 8 bytes per CPU, no padding, and no false sharing. A
//! page is backed when its own CPU first writes it, which puts it on that CPU's memory node.
//!
//! Units of 16 bytes are handed out by a bitmap of 64-bit words, each claimed with one compare-and-exchange: no lock, so
//! nothing is left locked in a forked child or below a signal handler. Objects above 1 KiB take whole words (1 KiB
//! each); objects above half a stripe get a chunk of their own with wider stripes. Memory is zero when handed out.
//!
//! **Invariant 1.** A unit's bit is set from before its address is handed out until after its last use.
//! **Invariant 2.** Memory of a clear bit is all zero in every stripe.
//! **Invariant 3.** Chunks are never unmapped (except those of a single object).

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use fastpath_sys::mm;

use crate::thread::slots;

/// log2 of the bytes in a stripe of shared chunks.
pub(crate) const STRIPE_SHIFT: u32 = 16;
const STRIPE: usize = 1 << STRIPE_SHIFT;
const UNIT: usize = 16;
const WORD: usize = UNIT * 64;
const WORDS: usize = STRIPE / WORD;

/// No memory for per-CPU slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfMemory;

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no address space left for per-CPU slots")
    }
}

impl core::error::Error for OutOfMemory {}

/// Describes a shared chunk; lies in a mapping of its own, apart from the stripes.
struct Chunk {
    next: AtomicPtr<Chunk>,
    stripes: NonNull<u8>,
    used: [AtomicU64; WORDS],
}

static CHUNKS: AtomicPtr<Chunk> = AtomicPtr::new(core::ptr::null_mut());

/// log2 of the distance of slots for objects of `bytes` bytes.
pub(crate) const fn shift_for(bytes: usize) -> u32 {
    if bytes <= STRIPE / 2 { STRIPE_SHIFT } else { bytes.next_power_of_two().trailing_zeros() }
}

/// Zeroed memory for one object of `bytes` bytes in every stripe: the address in stripe 0.
///
/// `align` is a power of two, at most 1024 for shared chunks.
pub(crate) fn allocate(bytes: usize, align: usize) -> Result<NonNull<u8>, OutOfMemory> {
    debug_assert!(align.is_power_of_two());
    let count = slots() as usize + 1;
    if shift_for(bytes) != STRIPE_SHIFT || align > WORD {
        return mm::map_lazily(count << shift_for(bytes)).map_err(|_| OutOfMemory);
    }
    let units = bytes.max(1).div_ceil(UNIT);
    let step = align.div_ceil(UNIT);
    // ORDERING: Acquire pairs with the Release that pushed the chunk: its fields are written.
    let mut chunk = CHUNKS.load(Ordering::Acquire);
    loop {
        // SAFETY: chunks are never freed (Invariant 3) and were published whole.
        while let Some(found) = unsafe { chunk.as_ref() } {
            if let Some(unit) = claim(&found.used, units, step) {
                // SAFETY: unit * UNIT is inside stripe 0.
                return Ok(unsafe { found.stripes.add(unit * UNIT) });
            }
            // ORDERING: Acquire: as above.
            chunk = found.next.load(Ordering::Acquire);
        }
        chunk = new_chunk(count)?;
    }
}

/// Maps a chunk and publishes it.
fn new_chunk(count: usize) -> Result<*mut Chunk, OutOfMemory> {
    let stripes = mm::map_lazily(count << STRIPE_SHIFT).map_err(|_| OutOfMemory)?;
    let descriptor = mm::map_lazily(size_of::<Chunk>()).map_err(|_| OutOfMemory)?.cast::<Chunk>();
    let chunk = descriptor.as_ptr();
    // ORDERING: Relaxed: the exchange below publishes.
    let mut first = CHUNKS.load(Ordering::Relaxed);
    loop {
        // SAFETY: freshly mapped, large enough, page-aligned, and not published yet.
        unsafe {
            chunk.write(Chunk {
                next: AtomicPtr::new(first),
                stripes,
                used: [const { AtomicU64::new(0) }; WORDS],
            });
        };
        // ORDERING: Release pairs with the Acquire loads in `allocate`.
        match CHUNKS.compare_exchange_weak(first, chunk, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return Ok(chunk),
            Err(other) => first = other,
        }
    }
}

/// Claims `units` adjacent units whose first is a multiple of `step`: its number.
fn claim(used: &[AtomicU64; WORDS], units: usize, step: usize) -> Option<usize> {
    if units > 64 {
        return claim_words(used, units.div_ceil(64));
    }
    let mask = u64::MAX >> (64 - units);
    for (index, word) in used.iter().enumerate() {
        // ORDERING: Relaxed: the exchange orders.
        let mut bits = word.load(Ordering::Relaxed);
        while let Some(at) = (0..=64 - units).step_by(step).find(|at| bits & (mask << at) == 0) {
            // ORDERING: Acquire pairs with the Release of whoever gave the units back: its zeroes are there.
            match word.compare_exchange_weak(bits, bits | (mask << at), Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return Some(index * 64 + at),
                Err(now) => bits = now,
            }
        }
    }
    None
}

/// Claims `count` adjacent free words: the number of the first unit.
fn claim_words(used: &[AtomicU64; WORDS], count: usize) -> Option<usize> {
    let mut first = 0;
    while first + count <= WORDS {
        let taken = used[first..first + count]
            .iter()
            // ORDERING: Acquire: as in `claim`.
            .take_while(|word| {
                word.compare_exchange(0, u64::MAX, Ordering::Acquire, Ordering::Relaxed).is_ok()
            })
            .count();
        if taken == count {
            return Some(first * 64);
        }
        for word in &used[first..first + taken] {
            // ORDERING: Release: nothing was written, but the next owner's Acquire chains through us to the zeroes.
            word.store(0, Ordering::Release);
        }
        first += taken + 1;
    }
    None
}

/// Gives memory of [`allocate`] back.
///
/// # Safety
///
/// `memory`, `bytes` and `align` are those of one `allocate`, and nobody uses the memory any more: whoever used it
/// happens before this call.
pub(crate) unsafe fn free(memory: NonNull<u8>, bytes: usize, align: usize) {
    let count = slots() as usize + 1;
    if shift_for(bytes) != STRIPE_SHIFT || align > WORD {
        // SAFETY: a mapping of its own; the caller's contract. An error leaves it mapped: a leak, nothing worse.
        let _ = unsafe { mm::unmap(memory, count << shift_for(bytes)) };
        return;
    }
    // ORDERING: Acquire: as in `allocate`.
    let mut chunk = CHUNKS.load(Ordering::Acquire);
    // SAFETY: as in `allocate`.
    while let Some(found) = unsafe { chunk.as_ref() } {
        let offset = memory.addr().get().wrapping_sub(found.stripes.addr().get());
        if offset < STRIPE {
            for slot in 0..count {
                // SAFETY: the object's memory in stripe `slot`, which is ours alone now.
                unsafe { zero(memory.add(slot << STRIPE_SHIFT), bytes.max(1).div_ceil(UNIT) * UNIT) };
            }
            release(&found.used, offset / UNIT, bytes.max(1).div_ceil(UNIT));
            return;
        }
        // ORDERING: Acquire: as above.
        chunk = found.next.load(Ordering::Acquire);
    }
}

fn release(used: &[AtomicU64; WORDS], unit: usize, units: usize) {
    if units > 64 {
        for word in &used[unit / 64..unit / 64 + units.div_ceil(64)] {
            // ORDERING: Release pairs with the Acquire in `claim_words`: the memory is zero (Invariant 2).
            word.store(0, Ordering::Release);
        }
    } else {
        let mask = (u64::MAX >> (64 - units)) << (unit % 64);
        // ORDERING: Release pairs with the Acquire in `claim`: the memory is zero (Invariant 2).
        used[unit / 64].fetch_and(!mask, Ordering::Release);
    }
}

/// Makes memory zero, without writing to what is zero already: pages that were never touched stay unbacked.
///
/// # Safety
///
/// `memory` is valid for `bytes` bytes, 16-aligned, and the caller's alone.
unsafe fn zero(memory: NonNull<u8>, bytes: usize) {
    let words = memory.cast::<u64>();
    for index in 0..bytes / 8 {
        // SAFETY: inside the memory.
        unsafe {
            if words.add(index).read() != 0 {
                words.add(index).write(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_do_not_overlap_and_come_back_zeroed() {
        let sizes = [1, 8, 16, 17, 64, 1000, 1024, 1025, 4096, 32768, 100_000];
        let mut live = std::vec::Vec::new();
        for round in 0..40 {
            let bytes = sizes[round % sizes.len()];
            let memory = allocate(bytes, 8).unwrap();
            for slot in [0, slots() as usize] {
                // SAFETY: the object's memory in that stripe.
                let mine = unsafe {
                    std::slice::from_raw_parts_mut(memory.add(slot << shift_for(bytes)).as_ptr(), bytes)
                };
                assert!(mine.iter().all(|byte| *byte == 0), "round {round}");
                mine.fill(round as u8 + 1);
            }
            live.push((memory, bytes, round as u8 + 1));
            if round % 3 == 0 {
                let (memory, bytes, mark) = live.remove(round / 5);
                // SAFETY: ours.
                let mine = unsafe { std::slice::from_raw_parts(memory.as_ptr(), bytes) };
                assert!(mine.iter().all(|byte| *byte == mark));
                // SAFETY: allocated above, used by nobody else.
                unsafe { free(memory, bytes, 8) };
            }
        }
        for (memory, bytes, mark) in live {
            // SAFETY: ours.
            let mine = unsafe { std::slice::from_raw_parts(memory.as_ptr(), bytes) };
            assert!(mine.iter().all(|byte| *byte == mark));
            // SAFETY: allocated above, used by nobody else.
            unsafe { free(memory, bytes, 8) };
        }
    }

    #[test]
    fn alignment_is_kept() {
        for align in [1, 8, 16, 64, 256, 1024] {
            let first = allocate(24, align).unwrap();
            let second = allocate(24, align).unwrap();
            assert_eq!(first.addr().get() % align, 0);
            assert_eq!(second.addr().get() % align, 0);
            // SAFETY: allocated above, used by nobody else.
            unsafe {
                free(first, 24, align);
                free(second, 24, align);
            }
        }
    }
}
