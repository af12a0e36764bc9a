// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The statistics page of a running process, for a look from outside: one page of the process's own memory that holds
//! the figures of the last quarter of a second or so. Whoever may read the memory of the process (`/proc/PID/mem`) finds it by
//! its first word; the process is not stopped and does not notice.
//!
//! The page is filled in by slow paths, of which one in 16 looks at the clock. A process that allocates nothing, or whose
//! sheaves serve it, keeps the page of its last slow path; the time is in it.
//!
//! The layout, in 64-bit words: the magic; a sequence number, odd while the page changes; process, front end, time (ms of
//! the monotonic clock), soft and hard limit in bytes (all ones: none); from word 8 on the figures of [`Stats`] in their
//! order; from word 32 on, per size class: bytes of an object, objects with the program, objects in sheaves, bytes of slabs.

use core::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

use crate::Stats;
use crate::classes::{CLASSES, COUNT};
use crate::{caches, heap, limit, os, stats};

/// First word of the page: `FPLIVE01`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"FPLIVE01");
/// Length and alignment of the page.
pub const BYTES: usize = 4096;

const SEQUENCE: usize = 1;
const FIGURES: usize = 8;
const ROWS: usize = 32;
/// Milliseconds between two updates.
const EVERY: u64 = 250;
/// Slow paths between two looks at the clock.
const LOOKS: u64 = 16;

#[repr(align(4096))]
struct Page([AtomicU64; BYTES / 8]);

static PAGE: Page = Page([const { AtomicU64::new(0) }; BYTES / 8]);
static TICKS: AtomicU64 = AtomicU64::new(0);
static UPDATED: AtomicU64 = AtomicU64::new(0);
static UPDATING: AtomicBool = AtomicBool::new(false);

/// Called by slow paths that hold no lock.
#[inline]
pub(crate) fn tick() {
    // ORDERING: Relaxed: a count that may lose some.
    let ticks = TICKS.load(Relaxed);
    TICKS.store(ticks + 1, Relaxed);
    if ticks.is_multiple_of(LOOKS) {
        look();
    }
}

#[cold]
fn look() {
    let now = os::milliseconds();
    // ORDERING: Relaxed; Acquire and Release of the flag: one at a time, each after what the last one wrote.
    if now.wrapping_sub(UPDATED.load(Relaxed)) < EVERY || UPDATING.swap(true, Acquire) {
        return;
    }
    UPDATED.store(now, Relaxed);
    update(now);
    UPDATING.store(false, Release);
}

fn update(now: u64) {
    let put = |at: usize, value: u64| PAGE.0[at].store(value, Relaxed);
    let sequence = PAGE.0[SEQUENCE].load(Relaxed);
    put(SEQUENCE, sequence | 1);
    // ORDERING: Release: whoever sees a new figure sees the odd number too. (Readers are other processes, which copy
    // the page between two looks at the number.)
    fence(Release);
    let mut row = ROWS;
    let now_held = stats::collect(|class, holding: caches::Holding| {
        let values = [
            u64::from(CLASSES[class].size),
            holding.used as u64,
            holding.cached as u64,
            holding.slab_bytes as u64,
        ];
        for (at, value) in values.into_iter().enumerate() {
            PAGE.0[row + at].store(value, Relaxed);
        }
        row += 4;
    });
    let (soft, hard) = limit::limits();
    put(2, os::pid() as u64);
    put(3, heap::front_number());
    put(4, now);
    put(5, soft.map_or(u64::MAX, |bytes| bytes as u64));
    put(6, hard.map_or(u64::MAX, |bytes| bytes as u64));
    for (at, value) in now_held.figures().into_iter().enumerate() {
        put(FIGURES + at, value);
    }
    put(0, MAGIC);
    // ORDERING: Release: whoever sees the even number sees the figures.
    PAGE.0[SEQUENCE].store((sequence | 1).wrapping_add(1), Release);
}

/// One size class, at the time of the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// Bytes of an object.
    pub size: u64,
    /// Objects with the program.
    pub used: u64,
    /// Objects in sheaves.
    pub cached: u64,
    /// Bytes of the class's slabs.
    pub slab_bytes: u64,
}

/// A page, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The process that wrote it.
    pub pid: u32,
    /// The front end, as [`raw::front`](crate::raw::front) names it.
    pub front: &'static str,
    /// When it was written: milliseconds of the monotonic clock.
    pub time: u64,
    /// The soft limit, in bytes.
    pub soft_limit: Option<u64>,
    /// The hard limit, in bytes.
    pub hard_limit: Option<u64>,
    /// The figures.
    pub stats: Stats,
    /// The size classes.
    pub classes: [Class; COUNT - 1],
    sequence: u64,
}

/// Reads a copy of the page. `None`: it is none, or it was changing.
///
/// A copy that was taken while the page changed may pass this; take two, and ask [`Snapshot::is_the_same_as`].
///
/// ```
/// assert!(fastpath_alloc::live::decode(&[0; 4096]).is_none());
/// ```
pub fn decode(page: &[u8]) -> Option<Snapshot> {
    let word = |at: usize| page.get(at * 8..at * 8 + 8)?.try_into().ok().map(u64::from_le_bytes);
    let sequence = word(SEQUENCE)?;
    if word(0)? != MAGIC || !sequence.is_multiple_of(2) || page.len() < BYTES {
        return None;
    }
    let mut figures = [0; 18];
    for (at, figure) in figures.iter_mut().enumerate() {
        *figure = word(FIGURES + at)?;
    }
    let mut classes = [Class::default(); COUNT - 1];
    for (number, class) in classes.iter_mut().enumerate() {
        let at = ROWS + number * 4;
        *class =
            Class { size: word(at)?, used: word(at + 1)?, cached: word(at + 2)?, slab_bytes: word(at + 3)? };
    }
    Some(Snapshot {
        pid: word(2)? as u32,
        front: heap::front_name(word(3)? as u8),
        time: word(4)?,
        soft_limit: word(5).filter(|&bytes| bytes != u64::MAX),
        hard_limit: word(6).filter(|&bytes| bytes != u64::MAX),
        stats: Stats::from_figures(figures),
        classes,
        sequence,
    })
}

impl Snapshot {
    /// Whether the page did not change between the two copies: then the earlier one is whole.
    pub fn is_the_same_as(&self, later: &Self) -> bool {
        self.sequence == later.sequence
    }
}
