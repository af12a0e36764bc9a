// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The lock word that user space and the kernel share, as pure functions.
//!
//! | word | meaning |
//! |---|---|
//! | 0 | free: the next locker swaps its thread id in |
//! | TID | held by that thread, nobody waits: it may swap 0 in |
//! | TID + WAITERS | held, and the kernel has (or had) waiters: only the kernel may release it |
//! | WAITERS | free, with waiters on their way: only the kernel may grant it |
//! | OWNER_DIED, with or without WAITERS | the owner ended while it held the lock; the kernel grants it with the bit kept |
//! | TID + OWNER_DIED | held by a thread that has been told so and has not yet cleared the bit |
//!
//! The rule that everything here serves: **user space never clears WAITERS.** The kernel sets it before it looks at the
//! owner and needs it until the owner comes to the kernel to release; a bit too many costs one system call, a bit too
//! few loses a wake-up.

/// The bits that hold the owner's thread id (30 bits).
#[doc(alias = "FUTEX_TID_MASK")]
pub const TID_MASK: u32 = 0x3fff_ffff;

/// The owner ended while it held the lock.
#[doc(alias = "FUTEX_OWNER_DIED")]
pub const OWNER_DIED: u32 = 0x4000_0000;

/// Somebody waits in the kernel, so the release must go through the kernel.
#[doc(alias = "FUTEX_WAITERS")]
pub const WAITERS: u32 = 0x8000_0000;

/// The free word.
pub const FREE: u32 = 0;

/// The thread id in `word`, 0 if nobody owns it.
pub const fn owner(word: u32) -> u32 {
    word & TID_MASK
}

/// Whether WAITERS is set: the owner cannot release in user space.
pub const fn has_waiters(word: u32) -> bool {
    word & WAITERS != 0
}

/// Whether OWNER_DIED is set.
pub const fn owner_died(word: u32) -> bool {
    word & OWNER_DIED != 0
}

/// Whether a failed `0 -> TID` swap is worth a system call in `try_lock`.
///
/// The kernel grants a word without owner, whatever its flag bits; and it lets a strictly higher priority take a lock
/// that has been handed to a waiter that has not run yet, which looks like TID + WAITERS. A plain TID it refuses: the
/// question would cost a system call and set WAITERS.
pub const fn kernel_may_grant(word: u32, me: u32) -> bool {
    owner(word) == 0 || (has_waiters(word) && owner(word) != me)
}

/// Whether watching `word` for its release may pay: it is held by another thread, and nobody waits in the kernel.
///
/// While somebody does, the kernel hands the lock over in order of priority, and a thread that watches is not in that
/// order. WAITERS alone does not say so: the kernel leaves it set when it hands over to the last waiter. So `sleepers`
/// says whether any thread is known to wait; with none, the owner's release will make the word 0.
/// With OWNER_DIED nobody is going to release it.
pub const fn worth_watching(word: u32, me: u32, sleepers: bool) -> bool {
    !owner_died(word) && owner(word) != me && !(has_waiters(word) && sleepers)
}

/// The word after `me` has taken over the lock of a thread that no longer exists: WAITERS is kept.
///
/// OWNER_DIED is not set: the caller keeps that knowledge beside the word, and the next release may then use the fast
/// path again.
pub const fn taken_over(word: u32, me: u32) -> u32 {
    (word & WAITERS) | me
}

/// The word after its owner has noted the death of the previous one: only OWNER_DIED goes.
pub const fn death_noted(word: u32) -> u32 {
    word & !OWNER_DIED
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each flag combination, for no owner, me, and another thread.
    fn all() -> impl Iterator<Item = u32> {
        [0, OWNER_DIED, WAITERS, OWNER_DIED | WAITERS]
            .into_iter()
            .flat_map(|flags| [0, 7, 9, TID_MASK].map(|t| flags | t))
    }

    #[test]
    fn the_three_fields_do_not_overlap_and_fill_the_word() {
        assert_eq!(TID_MASK ^ OWNER_DIED ^ WAITERS, u32::MAX);
        assert_eq!(TID_MASK & OWNER_DIED, 0);
        assert_eq!(TID_MASK & WAITERS, 0);
        assert_eq!(OWNER_DIED & WAITERS, 0);
    }

    #[test]
    fn no_function_clears_waiters() {
        for word in all() {
            assert_eq!(has_waiters(taken_over(word, 7)), has_waiters(word), "{word:#x}");
            assert_eq!(has_waiters(death_noted(word)), has_waiters(word), "{word:#x}");
        }
    }

    #[test]
    fn taking_over_names_the_new_owner_and_noting_a_death_keeps_it() {
        for word in all() {
            assert_eq!(owner(taken_over(word, 7)), 7);
            assert!(!owner_died(taken_over(word, 7)));
            assert_eq!(owner(death_noted(word)), owner(word));
            assert!(!owner_died(death_noted(word)));
        }
    }

    #[test]
    fn the_kernel_is_asked_exactly_where_it_may_grant() {
        for (word, expected) in [
            (9, false),
            (7, false),
            (9 | WAITERS, true),
            (7 | WAITERS, false),
            (WAITERS, true),
            (OWNER_DIED, true),
            (OWNER_DIED | WAITERS, true),
            (9 | OWNER_DIED, false),
        ] {
            assert_eq!(kernel_may_grant(word, 7), expected, "{word:#x}");
        }
    }

    #[test]
    fn only_a_foreign_owner_for_whom_nobody_sleeps_is_watched() {
        for word in all() {
            let foreign = !owner_died(word) && owner(word) != 7;
            assert_eq!(worth_watching(word, 7, false), foreign, "{word:#x}");
            assert_eq!(worth_watching(word, 7, true), foreign && !has_waiters(word), "{word:#x}");
        }
    }
}
