// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `FASTPATH_DEBUG`: checks that close the fast path and cost it nothing while they are off. The letters are those of
//! the kernel's `slab_debug`.
//!
//! * `F`: every object goes straight back to its slab, so a double free or a pointer that is no object is noticed in
//!   the very call.
//! * `Z`: a red zone before and behind each small block, with the size that was asked for; checked when it is freed.
//! * `P`: freed memory is filled with a pattern, which must still be there when it is allocated again.
//! * `U`: who allocated and who freed a block is remembered, and named by reports: see the module `profile`.

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::caches;
use crate::classes::{CLASSES, class_of_aligned};
use crate::report::Line;

pub(crate) const CHECKS: u8 = 1;
pub(crate) const ZONES: u8 = 2;
pub(crate) const POISON: u8 = 4;
pub(crate) const OWNERS: u8 = 8;

/// What freed memory is filled with; zeros where the heap is hardened, so that nothing of the program stays in it.
static FREED: AtomicU8 = AtomicU8::new(0x6b);
const ZONE: u8 = 0xbb;
const SEAL: usize = 0x9e37_79b9_7f4a_7c15;
/// Bytes before a block that hold its size and a seal.
const HEAD: usize = 16;

static FLAGS: AtomicU8 = AtomicU8::new(0);

/// Reads the letters; `None` if one is not known.
pub(crate) fn parse(letters: &[u8]) -> Option<u8> {
    letters.iter().try_fold(0, |flags, letter| match letter {
        b'F' => Some(flags | CHECKS),
        b'Z' => Some(flags | ZONES | CHECKS),
        b'P' => Some(flags | POISON | CHECKS),
        b'U' => Some(flags | OWNERS | CHECKS),
        _ => None,
    })
}

/// `FASTPATH_HARDENED`: all checks, freed memory cleared, objects in random order.
pub(crate) fn harden() {
    // ORDERING: Relaxed: as in `set`.
    FREED.store(0, Relaxed);
    set(CHECKS | ZONES | POISON);
    caches::harden();
}

fn freed() -> u8 {
    FREED.load(Relaxed)
}

pub(crate) fn set(flags: u8) {
    // ORDERING: Relaxed: set during set-up, before any object exists.
    FLAGS.store(flags, Relaxed);
}

/// Whether any check is on.
#[inline]
pub(crate) fn on() -> bool {
    FLAGS.load(Relaxed) != 0
}

/// Whether owners are remembered.
pub(crate) fn tracks_owners() -> bool {
    has(OWNERS)
}

fn has(flag: u8) -> bool {
    FLAGS.load(Relaxed) & flag != 0
}

/// Fills the memory of a new slab as if its objects had been freed.
pub(crate) fn new_slab(base: usize, bytes: usize) {
    if has(POISON) {
        // SAFETY: a run that was just taken, and nobody else knows it.
        unsafe { (base as *mut u8).write_bytes(freed(), bytes) };
    }
}

/// Whether a block of this size and alignment is a small one with the zones it needs; its class, and the lead.
fn placed(size: usize, align: usize) -> (usize, usize) {
    if has(ZONES) {
        let lead = align.max(HEAD);
        let Some(whole) = size.checked_add(lead + 8) else { return (0, 0) };
        (class_of_aligned(whole, align), lead)
    } else {
        (class_of_aligned(size, align), 0)
    }
}

/// Allocates a small block with its checks. `None`: it is not a small one.
pub(crate) fn alloc(size: usize, align: usize) -> Option<*mut u8> {
    let (class, lead) = placed(size, align);
    if class == 0 {
        return None;
    }
    let object = caches::alloc_direct(class);
    if object.is_null() {
        return Some(object);
    }
    let bytes = CLASSES[class].size as usize;
    // SAFETY: a new object of `bytes` bytes, and `lead + size + 8` fits.
    unsafe {
        if has(POISON) {
            let freed = freed();
            for at in 0..bytes {
                if object.add(at).read() != freed {
                    Line::new()
                        .text("write after free at ")
                        .hex(object.addr() + at)
                        .text(", in a block of ")
                        .number(bytes as u64)
                        .text(" bytes")
                        .abort_about(object.addr() + lead);
                }
            }
        }
        let block = object.add(lead);
        if lead > 0 {
            object.write_bytes(ZONE, lead - HEAD);
            block.sub(16).cast::<usize>().write(size);
            block.sub(8).cast::<usize>().write(size ^ block.addr() ^ SEAL);
            block.add(size).write_bytes(ZONE, bytes - lead - size);
        }
        Some(block)
    }
}

/// The size that was asked for, if the zone before the block is whole. With the start of its object.
fn head(record: usize, address: usize) -> Option<(usize, usize, usize)> {
    let (start, class) = caches::object_around(record, address)?;
    if !has(ZONES) {
        return (start == address).then(|| (start, class, CLASSES[class].size as usize));
    }
    let bytes = CLASSES[class].size as usize;
    if address < start + HEAD || !address.is_multiple_of(8) {
        return None;
    }
    // SAFETY: both words lie in the object, before the address.
    let (size, seal) =
        unsafe { ((address as *const usize).sub(2).read(), (address as *const usize).sub(1).read()) };
    (seal == size ^ address ^ SEAL && address - start + size + 8 <= bytes).then_some((start, class, size))
}

/// The bytes that may be used at `address`; `None` if no block starts there.
pub(crate) fn size(record: usize, address: usize) -> Option<usize> {
    head(record, address).map(|(_, _, size)| size)
}

/// Checks a small block and frees it.
pub(crate) fn free(record: usize, address: usize) {
    let Some((start, class, size)) = head(record, address) else {
        Line::new()
            .text("free of ")
            .hex(address)
            .text(": freed twice, overwritten before its start, or not the start of a block")
            .abort_about(address)
    };
    let bytes = CLASSES[class].size as usize;
    if caches::is_free(class, start) {
        crate::report::double_free(address);
    }
    // SAFETY: the object is the caller's to free; all of this lies inside it.
    unsafe {
        if has(ZONES) {
            for at in address + size..start + bytes {
                if (at as *const u8).read() != ZONE {
                    Line::new()
                        .text("overflow at ")
                        .hex(at)
                        .text(", behind a block of ")
                        .number(size as u64)
                        .text(" bytes at ")
                        .hex(address)
                        .abort_about(address);
                }
            }
        }
        if has(POISON) {
            (start as *mut u8).write_bytes(freed(), bytes);
        } else if has(ZONES) {
            // The seal goes, so that a second free is noticed here too.
            (address as *mut usize).sub(1).write(0);
        }
    }
    caches::free_direct(class, start as *mut u8);
}
