// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Locking and unlocking as a state machine over one [`Port`]: the word, and the kernel's three operations on it.
//!
//! The same functions run on the real futex and on a modelled kernel under loom. Nothing here knows what the lock
//! protects, which errno means what, or how long a deadline is.
//!
//! # Invariants
//!
//! 1. Only a thread that read 0 stores its own id with a swap; only the owner leaves TID, and by TID -> 0 only.
//! 2. No step clears WAITERS (see [`word`]). The one exception is [`unlock`] in a forked child, whose kernel has never
//!    seen a waiter on the child's copy of the word.
//! 3. Each loop is bounded by [`RETRIES`] or by the port's spin limit: a word that lies does not hang a thread that
//!    asked for a result.
//! 4. Whoever takes over a dead owner's word holds the recovery flag from before the kernel said so until after the
//!    swap. So a thread that re-uses the dead id cannot be robbed: it would have to become owner in between, and every
//!    way to do that from a non-zero word leads through the flag.
//!
//! # Ordering
//!
//! The acquiring swap, and the acquiring load after a grant by the kernel, pair with the releasing swap of the previous
//! owner, or with the kernel's own fully ordered swap when it hands over: the new owner sees what the old one wrote.

use super::word;

/// How often an operation is repeated when the kernel asks for it (a word that changed, an owner that is just exiting)
/// before the error is given back.
pub const RETRIES: u32 = 1000;

/// How many pauses lie between two looks at most. Each look takes the word's cache line from the owner; the fewer there
/// are, the more the owner gets done in between. Two FIFO threads, thousand pairs a second: 6,700 with 1, 8,350 with 4,
/// 11,900 with 8, 16,800 with 16, 21,200 with 32.
pub const LONGEST_PAUSE: u32 = 48;

/// What the kernel answered, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The caller owns the lock, or a chain of owners and waiters leads back to it.
    #[doc(alias = "EDEADLK")]
    Deadlock,
    /// The deadline passed.
    #[doc(alias = "ETIMEDOUT")]
    TimedOut,
    /// The word names a thread that does not exist.
    #[doc(alias = "ESRCH")]
    NoSuchOwner,
    /// The caller does not own the lock (unlock), or the owner is no thread of this process (lock).
    #[doc(alias = "EPERM")]
    NotOurs,
    /// The lock is held (try), or the word changed and the operation is to be repeated.
    #[doc(alias = "EAGAIN")]
    #[doc(alias = "EWOULDBLOCK")]
    Again,
    /// A signal came first.
    #[doc(alias = "EINTR")]
    Interrupted,
    /// Any other errno.
    Other(i32),
}

impl Refusal {
    /// The errno of Linux.
    pub const fn errno(self) -> i32 {
        match self {
            Self::NotOurs => 1,
            Self::NoSuchOwner => 3,
            Self::Interrupted => 4,
            Self::Again => 11,
            // MIPS and SPARC number these two differently; they are not among the targets of `fastpath-sys`.
            Self::Deadlock => 35,
            Self::TimedOut => 110,
            Self::Other(errno) => errno,
        }
    }
}

/// The word and what can be done to it. Implemented by the real futex and by the model.
pub trait Port {
    /// A point in time; the port knows its clock.
    type Deadline: Copy;

    /// Reads the word without ordering.
    fn load(&self) -> u32;
    /// Reads the word; what the previous owner wrote is visible after it.
    fn load_acquire(&self) -> u32;
    /// Swaps with acquire on success.
    fn cmpxchg_acquire(&self, old: u32, new: u32) -> bool;
    /// Swaps with release on success.
    fn cmpxchg_release(&self, old: u32, new: u32) -> bool;
    /// Clears OWNER_DIED in one atomic step and leaves every other bit.
    fn note_death(&self);

    /// Blocks in the kernel until the lock is granted.
    #[doc(alias = "FUTEX_LOCK_PI")]
    #[doc(alias = "FUTEX_LOCK_PI2")]
    fn lock_pi(&self, deadline: Option<Self::Deadline>) -> Result<(), Refusal>;
    /// Asks the kernel without blocking.
    #[doc(alias = "FUTEX_TRYLOCK_PI")]
    fn trylock_pi(&self) -> Result<(), Refusal>;
    /// Lets the kernel release the lock or hand it over.
    #[doc(alias = "FUTEX_UNLOCK_PI")]
    fn unlock_pi(&self) -> Result<(), Refusal>;

    /// How many pauses a contended locker may make between looks before it goes to the kernel; 0 for strict order.
    fn spin_limit(&self) -> u32;
    /// Whether `owner` is known to have last run on the caller's own CPU: it cannot make progress while we watch.
    fn owner_is_on_this_cpu(&self, owner: u32) -> bool;
    /// Whether any thread but `owner` is known to wait in the kernel for this lock.
    fn has_sleepers_beside(&self, owner: u32) -> bool;
    /// Counts the caller among those that wait in the kernel, or (`false`) no longer.
    fn count_sleeper(&self, sleeps: bool);
    /// One pause between two looks.
    fn pause(&self);
    /// Lets others run before retry number `attempt`.
    fn give_way(&self, attempt: u32);

    /// Takes the recovery flag; false if another thread has it.
    fn begin_recovery(&self) -> bool;
    /// Gives the recovery flag back.
    fn end_recovery(&self);
    /// The caller's thread id, asked afresh from the kernel.
    fn fresh_tid(&self) -> u32;
}

/// How a lock was obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// From an owner that released it.
    Clean,
    /// From an owner that ended while it held it: what it protects may be half changed.
    OwnerDied,
}

/// Locks a word whose first `0 -> me` swap failed: watches it for a while, then blocks in the kernel.
///
/// # Errors
///
/// What the kernel refused, after at most [`RETRIES`] repetitions. The caller then does not own the lock.
pub fn lock<P: Port>(port: &P, me: u32, deadline: Option<P::Deadline>) -> Result<Grant, Refusal> {
    if watch(port, me) {
        return Ok(Grant::Clean);
    }
    let mut last = Refusal::Again;
    for attempt in 0..RETRIES {
        port.count_sleeper(true);
        let answer = port.lock_pi(deadline);
        port.count_sleeper(false);
        match answer {
            Ok(()) => return Ok(granted(port)),
            Err(Refusal::NoSuchOwner) => match take_over(port, me) {
                Ok(grant) => return Ok(grant),
                Err(refusal) => last = refusal,
            },
            Err(refusal @ (Refusal::Again | Refusal::Interrupted)) => last = refusal,
            Err(refusal) => return Err(refusal),
        }
        port.give_way(attempt);
    }
    Err(last)
}

/// Watches the word for at most the port's spin limit and takes it if it becomes free. True if the caller owns it.
///
/// Stops at once when somebody waits in the kernel (the order of priorities is the kernel's then), and when the owner
/// cannot run because the caller occupies its CPU. WAITERS with nobody waiting does not stop it: two threads that take
/// turns would otherwise, once one of them slept, sleep for each other for ever.
fn watch<P: Port>(port: &P, me: u32) -> bool {
    let limit = port.spin_limit();
    let (mut paused, mut pauses) = (0, 1);
    while paused < limit {
        let seen = port.load();
        if seen == word::FREE {
            if port.cmpxchg_acquire(word::FREE, me) {
                return true;
            }
        } else if !word::worth_watching(seen, me, port.has_sleepers_beside(word::owner(seen)))
            || port.owner_is_on_this_cpu(word::owner(seen))
        {
            return false;
        }
        for _ in 0..pauses {
            port.pause();
        }
        paused += pauses;
        pauses = (pauses * 2).min(LONGEST_PAUSE);
    }
    false
}

/// Tries to lock a word whose first `0 -> me` swap failed, without blocking.
///
/// # Errors
///
/// [`Refusal::Again`] if it is held, else what the kernel said.
pub fn try_lock<P: Port>(port: &P, me: u32) -> Result<Grant, Refusal> {
    let mut last = Refusal::Again;
    for attempt in 0..RETRIES {
        let seen = port.load();
        if seen == word::FREE {
            if port.cmpxchg_acquire(word::FREE, me) {
                return Ok(Grant::Clean);
            }
            continue;
        }
        if !word::kernel_may_grant(seen, me) {
            return Err(Refusal::Again);
        }
        match port.trylock_pi() {
            Ok(()) => return Ok(granted(port)),
            // The caller's own lock, seen through a word that changed since: held, as far as a try is concerned.
            Err(Refusal::Deadlock) => return Err(Refusal::Again),
            Err(Refusal::NoSuchOwner) => match take_over(port, me) {
                Ok(grant) => return Ok(grant),
                Err(refusal) => last = refusal,
            },
            Err(Refusal::Interrupted) => last = Refusal::Interrupted,
            Err(refusal) => return Err(refusal),
        }
        port.give_way(attempt);
    }
    Err(last)
}

/// What a grant by the kernel brought. OWNER_DIED is taken out of the word, so that the release can be a fast one: the
/// caller has to remember it.
pub fn granted<P: Port>(port: &P) -> Grant {
    if word::owner_died(port.load_acquire()) {
        port.note_death();
        Grant::OwnerDied
    } else {
        Grant::Clean
    }
}

/// Takes the lock of an owner that ended without telling anybody (no robust list, nobody waiting).
fn take_over<P: Port>(port: &P, me: u32) -> Result<Grant, Refusal> {
    if !port.begin_recovery() {
        return Err(Refusal::Again);
    }
    // Asked again under the flag: Invariant 4.
    let answer = match port.trylock_pi() {
        Ok(()) => Ok(granted(port)),
        Err(Refusal::NoSuchOwner) => {
            let seen = port.load();
            if word::owner(seen) != 0 && port.cmpxchg_acquire(seen, word::taken_over(seen, me)) {
                Ok(Grant::OwnerDied)
            } else {
                Err(Refusal::Again)
            }
        }
        Err(refusal) => Err(refusal),
    };
    port.end_recovery();
    answer
}

/// Unlocks a word whose first `me -> 0` swap failed. `me` is the id the lock was taken under.
///
/// In a child made by fork, the word may still hold the id that the surviving thread had in the parent. Nobody can wait
/// on the child's copy under that id (the kernel refuses: the owner is no thread of this process), so the copy is
/// released by a swap to 0, whatever its flags say.
///
/// # Errors
///
/// What the kernel refused. The word is then not the caller's to release.
pub fn unlock<P: Port>(port: &P, me: u32) -> Result<(), Refusal> {
    let mut last = Refusal::Again;
    for attempt in 0..RETRIES {
        match port.unlock_pi() {
            Ok(()) => return Ok(()),
            Err(Refusal::NotOurs) => {
                let seen = port.load();
                if word::owner(seen) != me || port.fresh_tid() == me {
                    return Err(Refusal::NotOurs);
                }
                if port.cmpxchg_release(seen, word::FREE) {
                    return Ok(());
                }
            }
            Err(refusal @ (Refusal::Again | Refusal::Interrupted)) => last = refusal,
            Err(refusal) => return Err(refusal),
        }
        port.give_way(attempt);
    }
    Err(last)
}
