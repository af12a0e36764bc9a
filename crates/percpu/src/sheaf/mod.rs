// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Per-CPU stacks of pointers ("sheaves"), the allocator's fast path, as restartable sequences.
//!
//! # Layout
//!
//! A *sheaf* is a 2048-byte aligned array of 256 words. The occupied words end at `top`; the word below the first
//! object is 0 (the *sentinel*), so that one load answers both "what is the next object" and "is there one". A sheaf
//! is full when `top` is its last word, so that one addition answers both "where does the next object go" and "is
//! there room". A smaller capacity only moves the sentinel up.
//!
//! A *block* is one CPU's array of [`Slot`]s, one per size class: the top of the sheaf in use and the top of a spare
//! one. The *table* maps a CPU number to its block. Its entries for -1 and -2 (what the kernel and the C library
//! store for a thread that is not registered) lead to [`guard_block`] for ever: its sheaves are both empty and full,
//! so that a thread that must not touch per-CPU data finds nothing to take and no room to put.
//!
//! # Contract (pseudo-code of the three sections)
//!
//! ```text
//! pop(class):             block = table[cpu]; top = block[class].main; object = *top
//!                         if object == 0: give up;               commit block[class].main = top - 1
//! push(class, object):    block = table[cpu]; top = block[class].main + 1
//!                         if top is a multiple of 2048: give up;  *top = object; commit block[class].main = top
//! exchange(class, b, old, new):
//!                         if table[cpu] != b or b[class] != old: give up;  commit b[class] = new   (both words)
//! ```
//!
//! Each commits with one store, as its last instruction. The kernel restarts a section that was preempted, migrated
//! or interrupted by a signal before that store, so whoever commits saw the CPU's own latest state. The write of
//! `*top` in `push` lies above the occupied words and means nothing until the commit.
//!
//! After an `exchange` nobody else can reach the sheaf that was taken out: threads of the same CPU restart and see
//! the new pair, and threads of other CPUs never look at this CPU's block. No fence is needed, because every earlier
//! access to that sheaf was made on the same CPU, and a switch of threads orders them.

#![expect(unsafe_code, reason = "restartable sequences are assembly on raw pointers")]

#[cfg_attr(all(target_arch = "x86_64", target_os = "linux"), path = "x86_64.rs")]
#[cfg_attr(all(target_arch = "aarch64", target_endian = "little", target_os = "linux"), path = "aarch64.rs")]
#[cfg_attr(
    not(all(
        any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")),
        target_os = "linux"
    )),
    path = "none.rs"
)]
mod arch;

/// Whether this build has the sections at all. Without them a heap keeps its sheaves under locks.
pub const SUPPORTED: bool = arch::SUPPORTED;

/// Bytes of a sheaf, and its alignment.
pub const SHEAF_BYTES: usize = 2048;

/// The bits of a top that are zero just above a full sheaf.
#[allow(dead_code, reason = "only where there are sections")]
const MASK: usize = SHEAF_BYTES - 1;

/// The largest number of objects a sheaf can hold: one word is the sentinel.
pub const MAX_CAPACITY: usize = SHEAF_BYTES / 8 - 1;

/// Number of slots of a block: classes 1 to 127 and the class 0 that is never served.
pub const CLASSES: usize = 80;

/// A pointer to one word of a sheaf.
pub type Top = *mut *mut u8;

/// One class on one CPU: the sheaf in use, and a spare one that is empty or full.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Top of the sheaf that [`pop`] and [`push`] use.
    pub main: Top,
    /// Top of the spare sheaf.
    pub spare: Top,
}

/// One CPU's slots.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Block {
    /// Indexed by class.
    pub slots: [Slot; CLASSES],
}

#[repr(C, align(2048))]
struct GuardSheaf([*mut u8; SHEAF_BYTES / 8]);

// SAFETY: all words are null and stay null: nobody writes it, because it is always full.
unsafe impl Sync for GuardSheaf {}

#[repr(transparent)]
struct GuardBlock(Block);

// SAFETY: never written, because `push` and `pop` give up on it and `exchange` is refused on it by contract.
unsafe impl Sync for GuardBlock {}

static GUARD_SHEAF: GuardSheaf = GuardSheaf([core::ptr::null_mut(); SHEAF_BYTES / 8]);

const GUARD_TOP: Top =
    (&raw const GUARD_SHEAF.0).cast_mut().cast::<*mut u8>().wrapping_add(SHEAF_BYTES / 8 - 1);

static GUARD_BLOCK: GuardBlock =
    GuardBlock(Block { slots: [Slot { main: GUARD_TOP, spare: GUARD_TOP }; CLASSES] });

/// The top that is both empty and full: of slots that are not in use.
#[inline]
pub fn guard_top() -> Top {
    GUARD_TOP
}

/// The block whose slots are all both empty and full. Never written.
#[inline]
pub fn guard_block() -> *mut Block {
    (&raw const GUARD_BLOCK.0).cast_mut()
}

/// Whether a sheaf with this top has no room left.
#[inline]
pub fn is_full(top: Top) -> bool {
    (top.addr() + 8).is_multiple_of(SHEAF_BYTES)
}

/// Where the sections find this thread's CPU and its block. Constant for a process once it has been set up.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Distance from the thread pointer to the thread's `struct rseq`, as the C library publishes it.
    pub rseq_offset: isize,
    /// The entry for CPU 0 of the table of blocks; the entries -1 and -2 are the guard block.
    pub table: *const *mut Block,
}

/// Takes the top object of this CPU's sheaf of the class `class2 / 2`; null when there is none.
///
/// `CLEAR` ends the section by taking its descriptor out of the thread's area: needed wherever the code may be
/// unloaded, that is everywhere but in a shared object that never is.
///
/// # Safety
///
/// `access.rseq_offset` must lead to an area that the C library set up for every thread (registered, or with a
/// negative `cpu_id`). `access.table` must have an entry for every CPU, each a valid block whose slots hold tops of
/// valid sheaves that are never unmapped. `class2 / 2 < CLASSES`.
#[inline(always)]
pub unsafe fn pop<const CLEAR: bool>(access: Access, class2: usize) -> *mut u8 {
    // SAFETY: the caller's obligation, word for word.
    unsafe { arch::pop::<CLEAR>(access, class2) }
}

/// Puts `object` on top of this CPU's sheaf of the class `class2 / 2`; false when it is full.
///
/// # Safety
///
/// As [`pop`]. `object` must not be null, and belongs to the sheaf afterwards.
#[inline(always)]
pub unsafe fn push<const CLEAR: bool>(access: Access, class2: usize, object: *mut u8) -> bool {
    // SAFETY: the caller's obligation, word for word.
    unsafe { arch::push::<CLEAR>(access, class2, object) }
}

/// Replaces the pair of this CPU's slot by `new` if this CPU's block is `block` and its pair is `old`.
///
/// True: done, and the sheaves of `old` that are not in `new` now belong to the caller alone.
///
/// # Safety
///
/// As [`pop`]; `block` is not the guard block, and the tops of `new` point into sheaves that the caller owns or that
/// `old` holds.
#[inline(always)]
pub unsafe fn exchange(access: Access, class2: usize, block: *mut Block, old: Slot, new: &Slot) -> bool {
    // SAFETY: the caller's obligation, word for word.
    unsafe { arch::exchange(access, class2, block, old, new) }
}

/// The CPU number in this thread's area: negative when the thread is not registered. Only a hint.
///
/// # Safety
///
/// As [`pop`], for the offset only.
#[inline]
pub unsafe fn cpu_id(rseq_offset: isize) -> i32 {
    // SAFETY: the caller's obligation, word for word.
    unsafe { arch::cpu_id(rseq_offset) }
}
