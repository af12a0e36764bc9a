// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The statistics page of a running process, for a look from outside: one page of the process's own memory. Whoever may read
//! the memory of the process (`/proc/PID/mem`) finds it by its first word; the process is not stopped and does not notice.
//!
//! Whoever looks says so: it writes the time to the page's word 31. For five seconds from then on slow paths bring the page up
//! to date every quarter of a second, and spend at most a 20th of the time on it. While nobody looks they spend at most a 1000th
//! of the time on it, and do it at most ten times a second, so that there is something to see of a process that rests. Of the
//! slow paths of a CPU one in 16 looks at the clock. A process that allocates nothing, or whose sheaves serve it, keeps the page of its last
//! slow path; the time is in it.
//!
//! The layout, in 64-bit words: the magic; a sequence number, odd while the page changes; process, front end, time (ms of
//! the monotonic clock), soft and hard limit in bytes (all ones: none); from word 8 on the figures of [`Stats`] in their
//! order; word 31: when somebody looked last (ms of the monotonic clock); from word 32 on, per size class: bytes of an object,
//! objects with the program, objects in sheaves, bytes of slabs, and of the objects in sheaves those in barns.

use core::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

use crate::Stats;
use crate::classes::{CLASSES, COUNT};
use crate::{caches, cpu, heap, limit, os, stats};

/// First word of the page: `FPLIVE02`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"FPLIVE02");
/// Length and alignment of the page.
pub const BYTES: usize = 4096;

/// Where in the page whoever looks writes the time, in bytes: eight of them, milliseconds of the monotonic clock.
pub const ASK: usize = ASKED * 8;

const SEQUENCE: usize = 1;
const FIGURES: usize = 8;
const ASKED: usize = 31;
const ROWS: usize = 32;
/// Words of a row.
const ROW: usize = 5;
/// Milliseconds for which a look counts.
const HEARD: u64 = 5000;
/// Slow paths of a CPU between two looks at the clock.
const LOOKS: u64 = 16;

const _: () = assert!(FIGURES + crate::stats::FIGURES <= ASKED && ROWS + ROW * (COUNT - 1) <= BYTES / 8);

#[repr(align(64))]
struct Ticks(AtomicU64);

#[repr(align(4096))]
struct Page([AtomicU64; BYTES / 8]);

static PAGE: Page = Page([const { AtomicU64::new(0) }; BYTES / 8]);
/// Slow paths so far, by CPU.
static TICKS: [Ticks; 64] = [const { Ticks(AtomicU64::new(0)) }; 64];
/// When the page was brought up to date, and how long that took, in microseconds.
static UPDATED: AtomicU64 = AtomicU64::new(0);
static TOOK: AtomicU64 = AtomicU64::new(0);
static UPDATING: AtomicBool = AtomicBool::new(false);

/// Called by slow paths that hold no lock.
#[inline]
pub(crate) fn tick() {
    // ORDERING: Relaxed: a count that may lose some.
    let word = &TICKS[cpu::lane() % TICKS.len()].0;
    let ticks = word.load(Relaxed);
    word.store(ticks + 1, Relaxed);
    if ticks.is_multiple_of(LOOKS) {
        look();
    }
}

#[cold]
fn look() {
    let now = os::microseconds();
    let asked = PAGE.0[ASKED].load(Relaxed);
    let watched = (now / 1000).wrapping_sub(asked) < HEARD;
    // ORDERING: Relaxed; Acquire and Release of the flag: one at a time, each after what the last one wrote.
    if now.wrapping_sub(UPDATED.load(Relaxed)) < pause(watched, TOOK.load(Relaxed))
        || UPDATING.swap(true, Acquire)
    {
        return;
    }
    UPDATED.store(now, Relaxed);
    update(now / 1000);
    TOOK.store(os::microseconds() - now, Relaxed);
    UPDATING.store(false, Release);
}

/// Microseconds from one update to the next, if one takes `took`.
fn pause(watched: bool, took: u64) -> u64 {
    if watched { (took * 20).max(250_000) } else { (took * 1000).max(100_000) }
}

/// In the child of a `fork`: the thread that was bringing the page up to date is not here.
pub(crate) fn after_fork() {
    UPDATED.store(0, Relaxed);
    // ORDERING: Release, as in `look`.
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
            holding.barn as u64,
        ];
        for (at, value) in values.into_iter().enumerate() {
            PAGE.0[row + at].store(value, Relaxed);
        }
        row += ROW;
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
    /// Of the objects in sheaves, those in barns.
    pub barn: u64,
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
    let mut figures = [0; crate::stats::FIGURES];
    for (at, figure) in figures.iter_mut().enumerate() {
        *figure = word(FIGURES + at)?;
    }
    let mut classes = [Class::default(); COUNT - 1];
    for (number, class) in classes.iter_mut().enumerate() {
        let at = ROWS + number * ROW;
        *class = Class {
            size: word(at)?,
            used: word(at + 1)?,
            cached: word(at + 2)?,
            slab_bytes: word(at + 3)?,
            barn: word(at + 4)?,
        };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_costs_little_and_hardly_anything_when_nobody_looks() {
        assert_eq!(pause(true, 30), 250_000);
        assert_eq!(pause(false, 30), 100_000);
        // A heap that takes 50 ms to look at: a second of pause, 50 seconds while nobody looks.
        assert_eq!(pause(true, 50_000), 1_000_000);
        assert_eq!(pause(false, 50_000), 50_000_000);
    }

    #[test]
    fn slow_paths_count_by_cpu_and_hear_that_somebody_looks() {
        crate::heap::ensure();
        let before: u64 = TICKS.iter().map(|ticks| ticks.0.load(Relaxed)).sum();
        for _ in 0..10 * LOOKS {
            tick();
        }
        assert!(TICKS.iter().map(|ticks| ticks.0.load(Relaxed)).sum::<u64>() > before);
        // The page was filled in now or by an earlier test; not again for a while.
        let sequence = || PAGE.0[SEQUENCE].load(Relaxed);
        let looks = |updated: u64, asked: u64| {
            let now = os::microseconds();
            UPDATED.store(now - updated, Relaxed);
            TOOK.store(5_000, Relaxed);
            PAGE.0[ASKED].store((now / 1000).wrapping_sub(asked), Relaxed);
            let before = sequence();
            look();
            sequence() != before
        };
        // Other tests fill it in too, and a machine that stands still between two lines proves nothing: once is enough.
        let once =
            |wanted: bool, updated: u64, asked: u64| (0..1000).any(|_| looks(updated, asked) == wanted);
        assert!(once(true, 300_000_000, 1_000_000), "nobody looks, but it is long ago");
        assert!(once(true, 300_000, 10), "somebody looks");
        assert!(once(false, 1, 10), "it was filled in a moment ago");
        assert!(once(false, 300_000, HEARD + 1000), "nobody looks any more");
    }
}
