// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The state of one slab that several CPUs change, in one 64-bit word.
//!
//! | bits | field | meaning |
//! |---|---|---|
//! | 0..16 | head | index of the first free object, [`NONE`] if the list is empty |
//! | 16..32 | inuse | objects handed out (in a user's hands, in a sheaf, on a CPU's list) |
//! | 32..47 | objects | objects that exist: the slab is cut into objects on demand |
//! | 47 | frozen | owned by one CPU or waiting for a lock: exempt from list handling |
//! | 48..64 | generation | counts changes, so that an equal head does not look like an unchanged list |
//!
//! Invariants, at any time: `inuse <= objects <= capacity`; the length of the free list is `objects - inuse`; head is
//! `NONE` exactly when `inuse == objects`. A slab is *full* when its list is empty and nothing is left to cut
//! (`objects == capacity`). One ordinary compare-and-exchange changes all fields together, which is what the kernel
//! needs a double-word exchange for (pointer and counters).

/// The head of an empty free list.
pub const NONE: u16 = u16::MAX;

/// The largest number of objects a slab can hold: the field has 15 bits.
pub const MAX_OBJECTS: usize = 0x7fff;

/// A value of the slab word. A pure value: reading and writing the shared word is the slab layer's business.
///
/// ```
/// use fastpath_slub::word::{NONE, SlabWord};
/// let fresh = SlabWord::new();
/// assert_eq!((fresh.head(), fresh.inuse(), fresh.objects(), fresh.frozen()), (NONE, 0, 0, false));
/// let cut = fresh.cut(3).take(NONE, 3);
/// assert_eq!((cut.inuse(), cut.objects()), (3, 3));
/// let freed = cut.give(1, 1);
/// assert_eq!((freed.head(), freed.inuse(), freed.free()), (1, 2, 1));
/// assert_eq!(freed.generation(), 2); // changed twice since `fresh`: taken, given
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct SlabWord(u64);

const INUSE: u32 = 16;
const OBJECTS: u32 = 32;
const FROZEN: u64 = 1 << 47;
const GENERATION: u32 = 48;

impl SlabWord {
    /// A slab of which no object exists yet.
    #[inline]
    pub const fn new() -> Self {
        Self(NONE as u64)
    }

    /// From the raw word.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The raw word.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Index of the first free object, [`NONE`] if there is none.
    #[inline]
    pub const fn head(self) -> u16 {
        self.0 as u16
    }

    /// Objects handed out.
    #[inline]
    pub const fn inuse(self) -> usize {
        ((self.0 >> INUSE) & 0xffff) as usize
    }

    /// Objects that exist.
    #[inline]
    pub const fn objects(self) -> usize {
        ((self.0 >> OBJECTS) & MAX_OBJECTS as u64) as usize
    }

    /// Length of the free list.
    #[inline]
    pub const fn free(self) -> usize {
        self.objects().saturating_sub(self.inuse())
    }

    /// Whether list handling leaves this slab alone.
    #[inline]
    pub const fn frozen(self) -> bool {
        self.0 & FROZEN != 0
    }

    /// The change counter.
    #[inline]
    pub const fn generation(self) -> u16 {
        (self.0 >> GENERATION) as u16
    }

    /// Whether nothing can be allocated from a slab of `capacity` objects.
    #[inline]
    pub const fn full(self, capacity: usize) -> bool {
        self.head() == NONE && self.objects() >= capacity
    }

    /// `count` more objects exist; they are not on the list and not yet in use: follow with [`Self::take`].
    #[inline]
    #[must_use]
    pub const fn cut(self, count: usize) -> Self {
        Self(self.0.wrapping_add((count as u64) << OBJECTS))
    }

    /// `count` objects are handed out and `head` is what remains of the list.
    #[inline]
    #[must_use]
    pub const fn take(self, head: u16, count: usize) -> Self {
        self.changed(head, self.inuse().wrapping_add(count))
    }

    /// `count` objects come back as a chain that starts with index `head`. `count` must not exceed `inuse`.
    #[inline]
    #[must_use]
    pub const fn give(self, head: u16, count: usize) -> Self {
        self.changed(head, self.inuse().wrapping_sub(count))
    }

    /// The same with the frozen bit as given, as one more change.
    #[inline]
    #[must_use]
    pub const fn with_frozen(self, frozen: bool) -> Self {
        let next = self.changed(self.head(), self.inuse());
        if frozen { Self(next.0 | FROZEN) } else { Self(next.0 & !FROZEN) }
    }

    /// The list and the count as they should be, after damage; one change.
    #[must_use]
    pub(crate) const fn repaired(self, head: u16, inuse: usize) -> Self {
        self.changed(head, inuse)
    }

    const fn changed(self, head: u16, inuse: usize) -> Self {
        let kept = self.0 & (FROZEN | ((MAX_OBJECTS as u64) << OBJECTS));
        let generation = self.generation().wrapping_add(1) as u64;
        Self(kept | head as u64 | (((inuse & 0xffff) as u64) << INUSE) | (generation << GENERATION))
    }
}

impl Default for SlabWord {
    fn default() -> Self {
        Self::new()
    }
}

impl core::fmt::Debug for SlabWord {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SlabWord")
            .field("head", &self.head())
            .field("inuse", &self.inuse())
            .field("objects", &self.objects())
            .field("frozen", &self.frozen())
            .field("generation", &self.generation())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_spill() {
        let word = SlabWord::new().cut(MAX_OBJECTS).take(NONE, MAX_OBJECTS).with_frozen(true);
        assert_eq!((word.inuse(), word.objects(), word.frozen()), (MAX_OBJECTS, MAX_OBJECTS, true));
        let mut word = word;
        for index in 0..MAX_OBJECTS {
            word = word.give(index as u16, 1);
        }
        assert_eq!(
            (word.inuse(), word.objects(), word.free(), word.frozen()),
            (0, MAX_OBJECTS, MAX_OBJECTS, true)
        );
        assert_eq!(word.with_frozen(false).objects(), MAX_OBJECTS);
        // The generation wraps without touching its neighbours.
        let mut turning = SlabWord::new().cut(5);
        for _ in 0..=u16::MAX as usize {
            turning = turning.with_frozen(false);
        }
        assert_eq!(turning, SlabWord::new().cut(5));
    }

    #[test]
    fn full_needs_an_empty_list_and_nothing_to_cut() {
        let word = SlabWord::new().cut(4).take(NONE, 4);
        assert!(word.full(4) && !word.full(5));
        assert!(!word.give(2, 1).full(4));
    }
}
