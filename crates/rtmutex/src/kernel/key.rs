// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Urgency: who goes first.

/// How urgent a task is. Three classes, as in Linux: deadline before real-time before everything else.
///
/// Among deadline tasks the earlier absolute deadline goes first; deadlines are compared by wrapping difference, so they
/// must lie within half the range of `u64` of each other. Real-time priorities are 0 to 99, **lower is more urgent**.
/// All other tasks are equal: nice levels belong to the scheduler, they never order waiters and never boost.
///
/// ```
/// use fastpath_rtmutex::kernel::Key;
/// assert!(Key::realtime(10).before(Key::realtime(50)));
/// assert!(Key::deadline(u64::MAX - 5).before(Key::deadline(3))); // wraps
/// assert!(Key::deadline(1 << 40).before(Key::realtime(0)));
/// assert_eq!(Key::from_prio(100), Key::from_prio(139));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    prio: i16,
    deadline: u64,
}

/// The priority number of every task that is neither real-time nor deadline.
const DEFAULT_PRIO: i16 = 120;
/// The first priority number that is not real-time.
const MAX_RT_PRIO: i16 = 100;

impl Key {
    /// A task that is neither real-time nor deadline.
    #[doc(alias = "DEFAULT_PRIO")]
    pub const NORMAL: Self = Self { prio: DEFAULT_PRIO, deadline: 0 };

    /// A deadline task with this absolute deadline.
    pub const fn deadline(at: u64) -> Self {
        Self { prio: -1, deadline: at }
    }

    /// A real-time task. Priorities from 100 on are [`NORMAL`](Self::NORMAL).
    pub const fn realtime(prio: u8) -> Self {
        Self::from_prio(prio as i16)
    }

    /// From a kernel priority number: 0 to 99 real-time, from 100 on normal; below 0 a deadline task due at time 0.
    pub const fn from_prio(prio: i16) -> Self {
        if prio < 0 {
            Self::deadline(0)
        } else if prio >= MAX_RT_PRIO {
            Self::NORMAL
        } else {
            Self { prio, deadline: 0 }
        }
    }

    /// The kernel priority number: −1 for deadline tasks, 120 for normal ones.
    pub const fn prio(self) -> i16 {
        self.prio
    }

    /// Is this a real-time or deadline task?
    pub const fn is_realtime(self) -> bool {
        self.prio < MAX_RT_PRIO
    }

    /// Is `self` strictly more urgent than `other`?
    #[doc(alias = "rt_mutex_waiter_less")]
    pub const fn before(self, other: Self) -> bool {
        if self.prio != other.prio {
            return self.prio < other.prio;
        }
        // Wraps: two deadlines are at most half the range apart.
        self.prio < 0 && (self.deadline.wrapping_sub(other.deadline) as i64) < 0
    }

    /// The more urgent of the two.
    #[must_use]
    pub const fn most_urgent(self, other: Self) -> Self {
        if other.before(self) { other } else { self }
    }
}

/// A place in a waiter tree: urgency first, then, among equals, wound/wait contexts by age before waiters without one.
/// What is still equal stays in order of arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rank {
    pub(crate) key: Key,
    /// The wound/wait stamp: smaller is older.
    pub(crate) stamp: Option<u32>,
}

impl Rank {
    pub(crate) const fn plain(key: Key) -> Self {
        Self { key, stamp: None }
    }

    pub(crate) fn before(self, other: Self) -> bool {
        if self.key.before(other.key) {
            return true;
        }
        if other.key.before(self.key) {
            return false;
        }
        match (self.stamp, other.stamp) {
            (Some(mine), Some(theirs)) => (mine.wrapping_sub(theirs) as i32) < 0,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_keys_are_not_before_each_other() {
        for key in [Key::NORMAL, Key::realtime(3), Key::deadline(9)] {
            assert!(!key.before(key));
            assert_eq!(key.most_urgent(key), key);
        }
    }

    #[test]
    fn stamps_order_only_equal_keys() {
        let rank = |prio, stamp| Rank { key: Key::realtime(prio), stamp };
        assert!(rank(10, None).before(rank(20, Some(1))));
        assert!(rank(10, Some(2)).before(rank(10, None)));
        assert!(!rank(10, None).before(rank(10, Some(2))));
        assert!(rank(10, Some(1)).before(rank(10, Some(2))));
        assert!(rank(10, Some(u32::MAX)).before(rank(10, Some(0))), "stamps wrap");
    }
}
