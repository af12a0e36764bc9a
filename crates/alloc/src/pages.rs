// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Runs of 64 KiB units, out of large pieces of reserved address space.
//!
//! A piece is reserved whole and made accessible from its start on, so it costs the kernel at most two mappings
//! whatever happens inside. Three bits per unit: *used*; *dirty*, for a free unit whose memory may be resident; and
//! *kept*, for a dirty one that a big block left behind. Dirty units beyond the limits go back to the system in
//! batches, inside the `free` that exceeded the limit, because an idle process calls nothing. A program that takes the same
//! memory back within a second raises the limits by what it took back: giving it away once more would only cost it the
//! page faults again. What was raised decays by a quarter a second.

use crate::classes::UNIT;
use crate::lock::{Lock, Rank};
use crate::shared_stats::word;
use crate::{big, huge, limit, meta, os, stats};

/// The longest run: larger blocks are mapped on their own.
pub(crate) const MAX_RUN: usize = 512;
/// Units of a full-sized piece.
const PIECE: usize = 1024;
const WORDS: usize = PIECE / 64;
const PIECE_ALIGN: usize = 2 << 20;
/// Units made accessible at a time: a huge page.
const COMMIT_STEP: usize = huge::PAGE / UNIT;
/// Dirty units that are always kept.
const DIRTY_FLOOR: usize = (8 << 20) / UNIT;
/// Runs from this on are as good as blocks of their own.
const LARGE_RUN: usize = (1 << 20) / UNIT;
/// Units of freed big blocks that are always kept.
const KEPT_FLOOR: usize = (64 << 20) / UNIT;

type Bits = [u64; WORDS];

struct Piece {
    next: *mut Piece,
    base: usize,
    units: usize,
    committed: usize,
    free: usize,
    /// No free run is longer than this.
    longest: usize,
    used: Bits,
    dirty: Bits,
    kept: Bits,
}

/// All pieces, and the accounts.
pub(crate) struct Pages {
    first: *mut Piece,
    last: *mut Piece,
    reserved: usize,
    used: usize,
    peak: usize,
    dirty: usize,
    kept: usize,
    piece_units: usize,
    purged: u64,
    /// There were once so many slabs that memory for more is backed by huge pages.
    fills: bool,
    /// The system refused to take memory back, or did not zero it: not asked again.
    no_purge: bool,
    /// The address space of the process is limited: free pieces go back at once.
    limited: bool,
    /// Records without a piece.
    records: *mut Piece,
    /// When kept units were last given back, in seconds.
    swept: u64,
    /// Units given back to the system lately, and when the last of them were, in seconds.
    given: usize,
    given_at: u64,
    /// What the limits are raised by.
    spare: usize,
    /// When that last decayed, in seconds.
    decayed: u64,
}

// SAFETY: the pieces are reached through the lock only.
unsafe impl Send for Pages {}

impl Pages {
    const NONE: Self = Self {
        first: core::ptr::null_mut(),
        last: core::ptr::null_mut(),
        reserved: 0,
        used: 0,
        peak: 0,
        dirty: 0,
        kept: 0,
        piece_units: 0,
        purged: 0,
        fills: false,
        no_purge: false,
        limited: false,
        records: core::ptr::null_mut(),
        swept: 0,
        given: 0,
        given_at: 0,
        spare: 0,
        decayed: 0,
    };
}

static PAGES: Lock<Pages> = Lock::new(Rank::Pages, Pages::NONE);

/// A run that was taken.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub(crate) base: usize,
    /// Whether all of it reads as zero.
    pub(crate) zeroed: bool,
    /// Units that had no memory yet.
    pub(crate) fresh: usize,
}

/// Takes `units` units at a multiple of `align` units. `None`: no memory, or a signal handler interrupted us here.
pub(crate) fn take(units: usize, align: usize) -> Option<Run> {
    debug_assert!(units <= MAX_RUN);
    PAGES.lock()?.take(units, align, false)
}

/// The same for a slab of a heap that has `slabs` units of them. From the time on that they are more than a few, memory for
/// them is backed by huge pages.
pub(crate) fn take_for_slab(units: usize, slabs: usize) -> Option<Run> {
    let mut pages = PAGES.lock()?;
    pages.fills |= slabs >= huge::FROM / UNIT;
    // What a large block leaves untouched must not be filled; and a limit counts what is in use, not what is filled.
    let fill = pages.fills && !limit::on();
    pages.take(units, 1, fill)
}

/// Whether the limit allows `units` units more. Gives free memory back where it is tight.
pub(crate) fn fits(units: usize) -> bool {
    !limit::on() || PAGES.lock().is_none_or(|mut pages| pages.fits(units))
}

/// Gives a run back; false if a signal handler interrupted us here, and nothing has happened.
pub(crate) fn give(base: usize, units: usize, big: bool) -> bool {
    match PAGES.lock() {
        Some(mut pages) => {
            pages.give(base, units, big);
            true
        }
        None => false,
    }
}

/// Extends a run at its end, if the units there are free. Tells whether the new part reads as zero.
pub(crate) fn extend(base: usize, units: usize, more: usize) -> Option<bool> {
    PAGES.lock()?.extend(base, units, more)
}

/// Gives every dirty unit back to the system; the number of bytes.
pub(crate) fn trim() -> usize {
    PAGES.lock().map_or(0, |mut pages| {
        let before = pages.dirty + pages.kept;
        pages.spare = 0;
        pages.purge_small(0);
        pages.purge_kept(0);
        pages.given = 0;
        pages.drop_free_pieces();
        (before - pages.dirty - pages.kept) * UNIT
    })
}

/// Figures of the page layer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) reserved: usize,
    pub(crate) dirty: usize,
    pub(crate) purged: u64,
}

/// The figures now, in bytes.
pub(crate) fn figures() -> Figures {
    PAGES.lock().map_or_else(Figures::default, |pages| Figures {
        reserved: pages.reserved * UNIT,
        dirty: (pages.dirty + pages.kept) * UNIT,
        purged: pages.purged * UNIT as u64,
    })
}

/// The page layer's lock, as a test takes it.
#[cfg(test)]
pub(crate) fn lock_for_test() -> impl Sized {
    PAGES.lock().expect("free")
}

/// Whether the thread that `mine` names holds the lock.
pub(crate) fn held_by(mine: u64) -> bool {
    PAGES.is_held_by(mine)
}

pub(crate) fn before_fork() {
    PAGES.lock_raw();
}

pub(crate) fn after_fork() {
    PAGES.unlock_raw();
}

/// Notes the memory in use, runs and mappings together, in the statistics file.
fn note(units: usize) {
    // ORDERING: Relaxed: a figure.
    stats::used((units * UNIT + big::MAPPED_BYTES.load(core::sync::atomic::Ordering::Relaxed)) as u64);
}

/// The first position from `from` on, below `to`, whose bit is `value`; `to` if there is none.
fn find_bit(bits: &Bits, from: usize, to: usize, value: bool) -> usize {
    let mut at = from;
    while at < to {
        let word = bits[at / 64];
        let rest = (if value { word } else { !word }) >> (at % 64);
        if rest != 0 {
            return to.min(at + rest.trailing_zeros() as usize);
        }
        at = (at / 64 + 1) * 64;
    }
    to
}

/// Sets or clears `count` bits; returns how many of them changed.
fn set_bits(bits: &mut Bits, from: usize, count: usize, value: bool) -> usize {
    let mut changed = 0;
    let (mut at, end) = (from, from + count);
    while at < end {
        let step = (64 - at % 64).min(end - at);
        let mask = (u64::MAX >> (64 - step)) << (at % 64);
        let word = &mut bits[at / 64];
        let before = *word & mask;
        changed += if value { step - before.count_ones() as usize } else { before.count_ones() as usize };
        *word = if value { *word | mask } else { *word & !mask };
        at += step;
    }
    changed
}

impl Piece {
    fn find(&self, units: usize, align: usize) -> Option<usize> {
        let align_bytes = align * UNIT;
        let mut at = 0;
        loop {
            at = find_bit(&self.used, at, self.units, false);
            at = ((self.base + at * UNIT).next_multiple_of(align_bytes) - self.base) / UNIT;
            if at + units > self.units {
                return None;
            }
            let end = find_bit(&self.used, at, at + units, true);
            if end == at + units {
                return Some(at);
            }
            at = end + 1;
        }
    }

    /// Makes everything up to `end` accessible.
    fn commit(&mut self, end: usize) -> bool {
        if end <= self.committed {
            return true;
        }
        let generous = end.next_multiple_of(COMMIT_STEP).min(self.units);
        for target in [generous, end] {
            if os::commit(self.base + self.committed * UNIT, (target - self.committed) * UNIT) {
                self.committed = target;
                return true;
            }
        }
        false
    }

    /// Backs by huge pages what has no memory yet around `units` free units at `at`: steps of which nothing is in use nor
    /// was left behind.
    fn fill(&self, at: usize, units: usize) {
        for step in at / COMMIT_STEP..(at + units).div_ceil(COMMIT_STEP) {
            let first = step * COMMIT_STEP;
            let taken = |bits: &Bits| find_bit(bits, first, first + COMMIT_STEP, true) < first + COMMIT_STEP;
            if first + COMMIT_STEP <= self.committed
                && ![&self.used, &self.dirty, &self.kept].into_iter().any(taken)
            {
                huge::fill(self.base + first * UNIT, huge::PAGE);
            }
        }
    }
}

impl Pages {
    #[cold]
    fn fits(&mut self, more: usize) -> bool {
        // ORDERING: Relaxed: a figure.
        let mapped = big::MAPPED_BYTES.load(core::sync::atomic::Ordering::Relaxed);
        let used = (self.used + more) * UNIT + mapped;
        if !limit::allows(used) {
            return false;
        }
        if limit::is_tight(used + (self.dirty + self.kept) * UNIT) {
            self.purge_small(0);
            self.purge_kept(0);
        }
        true
    }

    fn take(&mut self, units: usize, align: usize, fill: bool) -> Option<Run> {
        if limit::on() && !self.fits(units) {
            return None;
        }
        let mut piece = self.first;
        while !piece.is_null() {
            // SAFETY: pieces of the list are valid for ever, and we hold the lock.
            let this = unsafe { &mut *piece };
            if this.free >= units && this.longest >= units {
                match this.find(units, align) {
                    Some(at) => return self.claim(piece, at, units, fill),
                    None if align == 1 => this.longest = units - 1,
                    None => {}
                }
            }
            piece = this.next;
        }
        let piece = self.reserve(units, align)?;
        // SAFETY: as above.
        let at = unsafe { (*piece).find(units, align) }?;
        self.claim(piece, at, units, fill)
    }

    fn claim(&mut self, piece: *mut Piece, at: usize, units: usize, fill: bool) -> Option<Run> {
        // SAFETY: as in `take`.
        let piece = unsafe { &mut *piece };
        if !piece.commit(at + units) {
            return None;
        }
        if fill {
            piece.fill(at, units);
        }
        set_bits(&mut piece.used, at, units, true);
        let dirty = set_bits(&mut piece.dirty, at, units, false);
        let kept = set_bits(&mut piece.kept, at, units, false);
        piece.free -= units;
        self.dirty -= dirty;
        self.kept -= kept;
        self.used += units;
        self.peak = self.peak.max(self.used);
        // Small runs that do not fit between what is left prove nothing: only when little is left was it too little.
        if self.given > 0 && dirty + kept < units && (units >= LARGE_RUN || self.dirty <= DIRTY_FLOOR / 2) {
            self.regret(units - dirty - kept);
        }
        note(self.used);
        let fresh = units - dirty - kept;
        Some(Run { base: piece.base + at * UNIT, zeroed: fresh == units, fresh })
    }

    /// Notes that `units` units without memory are taken while others are missed that were given back.
    #[cold]
    fn regret(&mut self, units: usize) {
        let back = units.min(self.given);
        self.given -= back;
        if os::seconds().wrapping_sub(self.given_at) <= 1 {
            self.spare = (self.spare + back).min(self.peak);
        } else {
            self.given = 0;
        }
    }

    /// Lets what the limits are raised by shrink, a quarter a second.
    #[cold]
    fn decay(&mut self) {
        let second = os::seconds();
        if second != self.decayed {
            self.decayed = second;
            self.spare -= self.spare.div_ceil(4);
        }
    }

    fn reserve(&mut self, units: usize, align: usize) -> Option<*mut Piece> {
        if self.piece_units == 0 {
            self.piece_units = match os::address_space_limit() {
                Some(limit) => {
                    self.limited = true;
                    ((limit / 32) as usize / UNIT).clamp(16, PIECE)
                }
                None => PIECE,
            };
        }
        let mut size = self.piece_units.max(units);
        let align_bytes = PIECE_ALIGN.max(align * UNIT);
        loop {
            let align_bytes = if size * UNIT < PIECE_ALIGN { UNIT.max(align * UNIT) } else { align_bytes };
            if let Some(base) = os::map_aligned(size * UNIT, align_bytes, false) {
                let mut piece = self.records;
                if piece.is_null() {
                    piece = meta::take(size_of::<Piece>(), align_of::<Piece>()).cast::<Piece>();
                } else {
                    // SAFETY: records in the list are valid.
                    self.records = unsafe { (*piece).next };
                }
                if piece.is_null() {
                    os::unmap(base, size * UNIT);
                    return None;
                }
                let mut used = [0; WORDS];
                set_bits(&mut used, size, PIECE - size, true);
                // SAFETY: fresh memory of the right size and alignment.
                unsafe {
                    piece.write(Piece {
                        next: core::ptr::null_mut(),
                        base,
                        units: size,
                        committed: 0,
                        free: size,
                        longest: size,
                        used,
                        dirty: [0; WORDS],
                        kept: [0; WORDS],
                    });
                    if self.last.is_null() {
                        self.first = piece;
                    } else {
                        (*self.last).next = piece;
                    }
                }
                self.last = piece;
                self.reserved += size;
                stats::count(word::RESERVED, (size * UNIT) as u64);
                return Some(piece);
            }
            if size == units {
                return None;
            }
            size = (size / 2).max(units);
        }
    }

    fn piece_of(&self, base: usize) -> *mut Piece {
        let mut piece = self.first;
        while !piece.is_null() {
            // SAFETY: as in `take`.
            let this = unsafe { &*piece };
            if base.wrapping_sub(this.base) < this.units * UNIT {
                break;
            }
            piece = this.next;
        }
        piece
    }

    fn extend(&mut self, base: usize, units: usize, more: usize) -> Option<bool> {
        let piece = self.piece_of(base);
        if piece.is_null() {
            return None;
        }
        // SAFETY: as in `take`.
        let this = unsafe { &*piece };
        let end = (base - this.base) / UNIT + units;
        if limit::on() && !self.fits(more) {
            return None;
        }
        if end + more > this.units || find_bit(&this.used, end, end + more, true) != end + more {
            return None;
        }
        self.claim(piece, end, more, false).map(|run| run.zeroed)
    }

    fn give(&mut self, base: usize, units: usize, big: bool) {
        let piece = self.piece_of(base);
        if piece.is_null() {
            return;
        }
        // SAFETY: as in `take`.
        let piece = unsafe { &mut *piece };
        let at = (base - piece.base) / UNIT;
        set_bits(&mut piece.used, at, units, false);
        if big {
            self.kept += set_bits(&mut piece.kept, at, units, true);
        } else {
            self.dirty += set_bits(&mut piece.dirty, at, units, true);
        }
        piece.free += units;
        piece.longest = piece.units;
        self.used -= units;
        note(self.used);
        if self.limited && piece.free == piece.units {
            self.drop_free_pieces();
            return;
        }
        if self.spare > 0 {
            self.decay();
        }
        let limit = DIRTY_FLOOR.max(self.peak / 16);
        if self.dirty > limit + self.spare {
            self.purge_small(limit / 2 + self.spare);
            self.peak = self.used.max(self.peak - self.peak / 8);
        }
        // Blocks of a few MiB come and go: what one leaves behind serves the next without a page fault, as long as it
        // is not more than what is in use. What is beyond a quarter of that goes back once a second.
        let most = KEPT_FLOOR.max(self.used);
        if self.kept > most + self.spare {
            self.purge_kept(most / 2 + self.spare);
        } else if big && self.kept > KEPT_FLOOR.max(self.used / 4) + self.spare {
            let second = os::seconds();
            if second != self.swept {
                self.swept = second;
                self.purge_kept(KEPT_FLOOR.max(self.used / 4) / 2 + self.spare);
            }
        }
    }

    /// Gives pieces without a unit in use back, addresses and all.
    fn drop_free_pieces(&mut self) {
        if crate::tid::keeps_pages() {
            return;
        }
        let mut previous: *mut Piece = core::ptr::null_mut();
        let mut piece = self.first;
        while !piece.is_null() {
            // SAFETY: as in `take`; a piece that leaves the list is reached by nobody.
            unsafe {
                let next = (*piece).next;
                if (*piece).free == (*piece).units && os::unmap((*piece).base, (*piece).units * UNIT) {
                    let units = (*piece).units;
                    self.dirty -= set_bits(&mut (*piece).dirty, 0, units, false);
                    self.kept -= set_bits(&mut (*piece).kept, 0, units, false);
                    self.reserved -= units;
                    if previous.is_null() {
                        self.first = next;
                    } else {
                        (*previous).next = next;
                    }
                    if self.last == piece {
                        self.last = previous;
                    }
                    (*piece).next = self.records;
                    self.records = piece;
                } else {
                    previous = piece;
                }
                piece = next;
            }
        }
    }

    fn purge_small(&mut self, target: usize) {
        self.purge(target, false);
    }

    fn purge_kept(&mut self, target: usize) {
        self.purge(target, true);
    }

    /// Gives dirty (or kept) units back until `target` are left: the lowest, because `find` takes them first again. First
    /// whole steps, which may be backed by huge pages again; if two steps more than that are left, what is free between runs
    /// in use.
    fn purge(&mut self, target: usize, big: bool) {
        if self.no_purge {
            return;
        }
        self.given_at = os::seconds();
        let enough = if target == 0 { 0 } else { target + 2 * COMMIT_STEP };
        for (step, enough) in [(COMMIT_STEP, target), (1, enough)] {
            let mut spared = target;
            let mut piece = self.first;
            'pass: while !piece.is_null() {
                // SAFETY: as in `take`.
                let this = unsafe { &mut *piece };
                let mut at = 0;
                loop {
                    if (if big { self.kept } else { self.dirty }) <= enough {
                        break 'pass;
                    }
                    let bits = if big { &mut this.kept } else { &mut this.dirty };
                    at = find_bit(bits, at, this.units, true);
                    if at == this.units {
                        break;
                    }
                    let end = find_bit(bits, at, this.units, false);
                    let stay = spared.min(end - at);
                    spared -= stay;
                    let (from, to) = ((at + stay).next_multiple_of(step), end / step * step);
                    at = end;
                    if from >= to {
                        continue;
                    }
                    if !os::purge(this.base + from * UNIT, (to - from) * UNIT) {
                        self.no_purge = true;
                        return;
                    }
                    let cleared = set_bits(bits, from, to - from, false);
                    self.purged += cleared as u64;
                    self.given += cleared;
                    stats::count(word::PURGED, (cleared * UNIT) as u64);
                    if big {
                        self.kept -= cleared;
                    } else {
                        self.dirty -= cleared;
                    }
                }
                piece = this.next;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_set_found_and_counted() {
        let mut bits = [0; WORDS];
        assert_eq!(set_bits(&mut bits, 60, 10, true), 10);
        assert_eq!(set_bits(&mut bits, 65, 100, true), 95);
        assert_eq!(find_bit(&bits, 0, PIECE, true), 60);
        assert_eq!(find_bit(&bits, 60, PIECE, false), 165);
        assert_eq!(find_bit(&bits, 60, 100, false), 100);
        assert_eq!(set_bits(&mut bits, 0, PIECE, false), 105);
        assert_eq!(find_bit(&bits, 0, PIECE, true), PIECE);
    }

    #[test]
    fn what_is_taken_back_at_once_is_not_given_again() {
        let mut pages = Pages::NONE;
        let mut purged = 0;
        // Forty MiB come and go. (A cycle may take more than a second on a busy machine, and then proves nothing.)
        for cycle in 0..100 {
            let runs = [(); 80].map(|()| pages.take(8, 1, false).unwrap());
            for run in runs {
                pages.give(run.base, 8, false);
            }
            if cycle == 0 {
                assert!(pages.dirty <= DIRTY_FLOOR, "the first time, memory goes back at once");
            } else if pages.purged == purged {
                assert!(pages.spare <= pages.peak && pages.dirty <= pages.peak);
                // What was raised shrinks again.
                for _ in 0..100 {
                    pages.decayed = 0;
                    pages.decay();
                }
                assert_eq!(pages.spare, 0);
                return;
            }
            purged = pages.purged;
        }
        panic!("{} units are still given back and faulted in again", pages.purged);
    }

    #[test]
    fn runs_do_not_overlap_and_merge_again() {
        let a = take(3, 1).unwrap();
        let b = take(5, 4).unwrap();
        assert!(b.base.is_multiple_of(4 * UNIT));
        assert!(a.base + 3 * UNIT <= b.base || b.base + 5 * UNIT <= a.base);
        assert!(give(a.base, 3, false) && give(b.base, 5, false));
    }
}
