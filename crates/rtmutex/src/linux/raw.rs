// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The lock without data: the fast paths, and the real [`Port`] behind them.

use core::fmt;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering};

use super::backend::{self, Deadline};
use super::protocol::{self, Grant, Port, Refusal};
use super::{tid, word};

/// How many pauses a contended locker makes between looks before it goes to the kernel: some 7 microseconds.
///
/// Two FIFO threads on two CPUs with a short section, thousand pairs per second, on a loaded machine where
/// `std::sync::Mutex` does 8,200: 400 without looking, 300 with 10 pauses, 2,800 with 30, 5,100 with 100, 6,700 with 300
/// and with more; all that with a look after each pause (see `LONGEST_PAUSE`).
const SPIN_LIMIT: u32 = 300;

/// The data was left half changed by a previous owner, and nobody has repaired it yet.
pub(super) const POISONED: u8 = 1;
/// The lock is closed for good.
pub(super) const CLOSED: u8 = 2;
/// A thread is taking over the lock of an owner that no longer exists.
const RECOVERING: u8 = 4;
/// What makes an acquisition a special one.
pub(super) const REMARKABLE: u8 = POISONED | CLOSED;

/// No spinning: strict order of priorities even against a thread that is just releasing.
pub(super) const NO_SPIN: u8 = 1;
/// Releasing an unrepaired lock closes it.
pub(super) const STRICT_RECOVERY: u8 = 2;

/// A priority-inheriting lock without data and without a guard: twelve bytes, all zero when free.
///
/// Use [`RtMutex`](super::RtMutex); this is for those who build their own lock types, and for `lock_api`.
///
/// # The word, and what stands beside it
///
/// `word` is shared with the kernel: see `word.rs`. `owner_cpu` is a hint, written by the owner after it has the word:
/// its thread id and the CPU it ran on, or 0. A contended thread that reads its own CPU there, with the id that the
/// word names, does not spin: on this CPU the owner cannot be running.
#[repr(C)]
pub struct RawRtMutex {
    word: AtomicU32,
    owner_cpu: AtomicU32,
    flags: AtomicU8,
    options: u8,
    /// How many threads are about to wait in the kernel, wait there, or have just waited. Wrong if one died there:
    /// then too many, which costs others their spinning.
    sleepers: AtomicU16,
}

const _: () = assert!(size_of::<RawRtMutex>() == 12 && align_of::<RawRtMutex>() == 4);

/// The hint's low bits hold the CPU, modulo this; its high bits the thread id, of which Linux uses 22 bits at most.
const HINT_CPUS: u32 = 1024;

/// The hint for thread `tid` on `cpu`.
const fn hint(tid: u32, cpu: u32) -> u32 {
    (tid << HINT_CPUS.trailing_zeros()) | (cpu % HINT_CPUS)
}

impl RawRtMutex {
    /// A free lock.
    ///
    /// ```
    /// use fastpath_rtmutex::linux::RawRtMutex;
    /// static LOCK: RawRtMutex = RawRtMutex::new();
    /// assert!(!LOCK.is_locked());
    /// ```
    pub const fn new() -> Self {
        Self::with_options(0)
    }

    pub(super) const fn with_options(options: u8) -> Self {
        Self {
            word: AtomicU32::new(word::FREE),
            owner_cpu: AtomicU32::new(0),
            flags: AtomicU8::new(0),
            options,
            sleepers: AtomicU16::new(0),
        }
    }

    /// Locks, and says under which id.
    #[inline(always)]
    pub(super) fn lock(&self) -> Result<u32, Refusal> {
        let me = tid::current();
        // ORDERING: Acquire pairs with the Release in `unlock`: we see what the previous owner wrote.
        if self.word.compare_exchange(word::FREE, me, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.lock_contended(me)?;
        }
        self.leave_hint(me);
        Ok(me)
    }

    /// Locks unless `deadline` passes first. A free lock is taken however late it is.
    pub(super) fn lock_until(&self, deadline: Deadline) -> Result<u32, Refusal> {
        let me = tid::current();
        // ORDERING: Acquire, as in `lock`.
        if self.word.compare_exchange(word::FREE, me, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.lock_contended_until(me, Some(deadline))?;
        }
        self.leave_hint(me);
        Ok(me)
    }

    /// Locks if that needs no waiting; [`Refusal::Again`] if it does.
    #[inline]
    pub(super) fn try_lock(&self) -> Result<u32, Refusal> {
        let me = tid::current();
        // ORDERING: Acquire, as in `lock`.
        if self.word.compare_exchange(word::FREE, me, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.try_lock_contended(me)?;
        }
        self.leave_hint(me);
        Ok(me)
    }

    /// Unlocks what was locked under the id `me`.
    #[inline(always)]
    pub(super) fn unlock(&self, me: u32) -> Result<(), Refusal> {
        // ORDERING: Release pairs with the Acquire of the next owner: it sees what we wrote.
        if self.word.compare_exchange(me, word::FREE, Ordering::Release, Ordering::Relaxed).is_ok() {
            return Ok(());
        }
        self.unlock_contended(me)
    }

    /// Whether somebody owns the lock at this moment.
    pub fn is_locked(&self) -> bool {
        // ORDERING: Relaxed, the answer may be stale when it is used.
        word::owner(self.word.load(Ordering::Relaxed)) != 0
    }

    /// The word as the kernel sees it at this moment, for tests and diagnosis: the owner's thread id in the low 30 bits,
    /// then OWNER_DIED, then WAITERS.
    ///
    /// ```
    /// use fastpath_rtmutex::linux::RtMutex;
    /// let lock = RtMutex::new(0);
    /// assert_eq!(lock.raw().word(), 0);
    /// let held = lock.lock().unwrap();
    /// assert_ne!(lock.raw().word(), 0);
    /// ```
    pub fn word(&self) -> u32 {
        self.load()
    }

    #[cold]
    #[inline(never)]
    fn lock_contended(&self, me: u32) -> Result<(), Refusal> {
        self.lock_contended_until(me, None)
    }

    #[cold]
    fn lock_contended_until(&self, me: u32, deadline: Option<Deadline>) -> Result<(), Refusal> {
        // A deadline that has passed gives what a try gives. (The kernel would give the same answer, but leave WAITERS
        // behind, and with it a needless system call for the owner.)
        let grant = if deadline.is_some_and(Deadline::has_passed) {
            protocol::try_lock(self, me).map_err(|refusal| match refusal {
                Refusal::Again => Refusal::TimedOut,
                other => other,
            })
        } else {
            protocol::lock(self, me, deadline)
        };
        self.note(grant.map_err(|refusal| self.as_seen_after_fork(refusal))?);
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn try_lock_contended(&self, me: u32) -> Result<(), Refusal> {
        self.note(protocol::try_lock(self, me)?);
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn unlock_contended(&self, me: u32) -> Result<(), Refusal> {
        protocol::unlock(self, me)
    }

    /// Remembers an owner's death until somebody repairs the data.
    pub(super) fn note(&self, grant: Grant) {
        if grant == Grant::OwnerDied {
            self.set_flag(POISONED);
        }
    }

    /// In a forked child, a lock that the forking thread held still names its old id, and the kernel says that the
    /// owner is a stranger. It is the caller itself.
    fn as_seen_after_fork(&self, refusal: Refusal) -> Refusal {
        let owner = word::owner(self.load());
        if refusal == Refusal::NotOurs && owner != 0 && owner == tid::before_fork() {
            Refusal::Deadlock
        } else {
            refusal
        }
    }

    /// Writes down where the owner runs. `me` owns the lock.
    #[inline(always)]
    pub(super) fn leave_hint(&self, me: u32) {
        // Without a registration this is the hint for a CPU that nobody compares with: see `spin_limit`.
        let here = hint(me, tid::unchecked_cpu());
        // A store that the release would have to wait for costs 4 cycles; mostly the same thread comes again.
        // ORDERING: Relaxed, a hint: whoever reads it checks the id against the word and copes with a stale one.
        if self.owner_cpu.load(Ordering::Relaxed) != here {
            // ORDERING: Relaxed, as above.
            self.owner_cpu.store(here, Ordering::Relaxed);
        }
    }

    pub(super) fn futex(&self) -> &AtomicU32 {
        &self.word
    }

    #[inline(always)]
    pub(super) fn flags(&self) -> u8 {
        // ORDERING: Relaxed, flags that matter are written by an owner and read by a later one, ordered by the word.
        self.flags.load(Ordering::Relaxed)
    }

    pub(super) fn set_flag(&self, flag: u8) {
        // ORDERING: Relaxed, as in `flags`.
        self.flags.fetch_or(flag, Ordering::Relaxed);
    }

    pub(super) fn clear_flag(&self, flag: u8) {
        // ORDERING: Relaxed, as in `flags`.
        self.flags.fetch_and(!flag, Ordering::Relaxed);
    }

    pub(super) const fn options(&self) -> u8 {
        self.options
    }
}

impl Default for RawRtMutex {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for RawRtMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = self.load();
        f.debug_struct("RawRtMutex")
            .field("owner", &word::owner(seen))
            .field("waiters", &word::has_waiters(seen))
            .field("poisoned", &(self.flags() & POISONED != 0))
            .finish()
    }
}

impl Port for RawRtMutex {
    type Deadline = Deadline;

    fn load(&self) -> u32 {
        // ORDERING: Relaxed, only a swap that succeeds makes anything of the value.
        self.word.load(Ordering::Relaxed)
    }

    fn load_acquire(&self) -> u32 {
        // ORDERING: Acquire pairs with the previous owner's release by way of the kernel's hand-over.
        self.word.load(Ordering::Acquire)
    }

    fn cmpxchg_acquire(&self, old: u32, new: u32) -> bool {
        // ORDERING: Acquire pairs with the Release in `unlock`.
        self.word.compare_exchange(old, new, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn cmpxchg_release(&self, old: u32, new: u32) -> bool {
        // ORDERING: Release pairs with the Acquire of the next owner.
        self.word.compare_exchange(old, new, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    fn note_death(&self) {
        // ORDERING: Relaxed, the caller owns the word and publishes by releasing it.
        self.word.fetch_and(word::death_noted(u32::MAX), Ordering::Relaxed);
    }

    fn lock_pi(&self, deadline: Option<Deadline>) -> Result<(), Refusal> {
        backend::lock_pi(&self.word, deadline)
    }

    fn trylock_pi(&self) -> Result<(), Refusal> {
        backend::trylock_pi(&self.word)
    }

    fn unlock_pi(&self) -> Result<(), Refusal> {
        backend::unlock_pi(&self.word)
    }

    fn spin_limit(&self) -> u32 {
        // Without a known CPU nobody can tell whether the owner could make progress: strict order then, too.
        if self.options & NO_SPIN != 0 || tid::cpu().is_none() { 0 } else { SPIN_LIMIT }
    }

    fn owner_is_on_this_cpu(&self, owner: u32) -> bool {
        // ORDERING: Relaxed, a hint.
        let left = self.owner_cpu.load(Ordering::Relaxed);
        tid::cpu().is_some_and(|cpu| left == hint(owner, cpu))
    }

    fn has_sleepers_beside(&self, owner: u32) -> bool {
        // An owner to whom the kernel has just handed the lock counts itself out, and then leaves its hint: without a
        // hint of its own it is still counted.
        // ORDERING: Relaxed, here and below. Who sees WAITERS but not yet the count of the thread that made the kernel
        // set it looks a few times more than it should, and then goes to the kernel too.
        let arrived = self.owner_cpu.load(Ordering::Relaxed) >> HINT_CPUS.trailing_zeros() == owner;
        let on_its_way = u16::from(!arrived);
        // ORDERING: as above.
        self.sleepers.load(Ordering::Relaxed) > on_its_way
    }

    fn count_sleeper(&self, sleeps: bool) {
        let change = if sleeps { 1 } else { u16::MAX };
        // ORDERING: Relaxed, see `has_sleepers_beside`.
        self.sleepers.fetch_add(change, Ordering::Relaxed);
    }

    fn pause(&self) {
        core::hint::spin_loop();
    }

    fn give_way(&self, attempt: u32) {
        backend::give_way(attempt);
    }

    fn begin_recovery(&self) -> bool {
        // ORDERING: Acquire pairs with the Release in `end_recovery`: one taker-over at a time sees the word.
        self.flags.fetch_or(RECOVERING, Ordering::Acquire) & RECOVERING == 0
    }

    fn end_recovery(&self) {
        // ORDERING: Release, see `begin_recovery`.
        self.flags.fetch_and(!RECOVERING, Ordering::Release);
    }

    fn fresh_tid(&self) -> u32 {
        backend::gettid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_of_different_threads_or_cpus_differ() {
        let largest_tid = 1 << 22;
        assert_eq!(hint(largest_tid - 1, 1023) / HINT_CPUS, largest_tid - 1);
        assert_ne!(hint(5, 1), hint(5, 2));
        assert_ne!(hint(5, 1), hint(6, 1));
        assert_ne!(hint(1, 0), 0, "0 means that nobody left a hint");
    }
}
