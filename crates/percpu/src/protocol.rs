// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The Rust side of the state machines, apart from slots and assembly, so that loom can explore it.
//!
//! * [`SlotLock`]: the lock of a slot that full atomics work on, and of everybody who works on a slot from outside.
//! * [`stop`]: taking a word away from the sections of a slot.
//! * [`Central`]: the shared half of a reference count that is per-CPU most of the time.

use crate::sync::{AtomicI64, AtomicU64, Ordering, yield_now};

/// A lock that knows its owner. Never spins on itself: a signal handler finds its own thread's lock and does without.
///
/// The word: 0 is free, else the owner's token (its thread pointer: unique among live threads).
///
/// **Invariant.** Only the thread whose token is in the word stores 0.
#[derive(Debug)]
#[repr(transparent)]
pub struct SlotLock(AtomicU64);

/// How often [`SlotLock::with`] tries before it gives up: its owner may be below a signal handler that waits for us.
const ATTEMPTS: usize = if cfg!(loom) { 3 } else { 20_000 };

impl Default for SlotLock {
    fn default() -> Self {
        Self::new()
    }
}

impl SlotLock {
    /// Free.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Free.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self, token: u64) -> bool {
        // ORDERING: Acquire pairs with the Release in `unlock`: what the last owner did is visible.
        self.0.compare_exchange(0, token, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes the lock, however long it takes. Not for signal handlers.
    ///
    /// # Panics
    ///
    /// If this thread holds it already: it would wait for ever.
    pub fn lock(&self, token: u64) {
        while !self.try_lock(token) {
            // ORDERING: Relaxed: our own token can only have been stored by ourselves.
            assert!(self.0.load(Ordering::Relaxed) != token, "this thread has stopped the slot already");
            yield_now();
        }
    }

    /// Frees the lock, which the caller owns.
    pub fn unlock(&self) {
        // ORDERING: Release pairs with the Acquire in `try_lock`.
        self.0.store(0, Ordering::Release);
    }

    /// Runs `body` with the lock held. `None` if this thread holds it already (we are a signal handler), or if it cannot be
    /// had in a bounded number of attempts.
    pub fn with<R>(&self, token: u64, body: impl FnOnce() -> R) -> Option<R> {
        for attempt in 0..ATTEMPTS {
            if self.try_lock(token) {
                let result = body();
                self.unlock();
                return Some(result);
            }
            // ORDERING: Relaxed: our own token can only have been stored by ourselves.
            if self.0.load(Ordering::Relaxed) == token {
                return None;
            }
            if attempt >= ATTEMPTS / 100 {
                yield_now();
            } else {
                core::hint::spin_loop();
            }
        }
        None
    }
}

/// Takes `word` away from the sections of its slot: on return it holds `marker`, which makes every section on it fail,
/// and no section that saw it before can still commit. Gives the last value that a section committed.
///
/// A section that loaded the word before the exchange may still commit over the marker. After the fence no such
/// section exists. So: if the marker survived the fence, the exchange saw the last commit; if not, once more.
/// Each round's exchange atomically takes what was committed last, so no commit is overlooked.
///
/// Only one thread at a time may stop a word: callers hold the slot's [`SlotLock`].
///
/// # Errors
///
/// The fence's: then the word was given back as it was, unless a section has committed to it meanwhile.
pub fn stop<E>(word: &AtomicU64, marker: u64, fence: impl Fn() -> Result<(), E>) -> Result<u64, E> {
    loop {
        // ORDERING: AcqRel: Acquire pairs with the commits of sections (plain stores, releases where it matters): what
        // they wrote is visible. Release: with `resume`.
        let value = word.swap(marker, Ordering::AcqRel);
        if let Err(error) = fence() {
            // ORDERING: Release on success: as `resume`. Relaxed on failure: a section has committed, nothing to undo.
            let _ = word.compare_exchange(marker, value, Ordering::Release, Ordering::Relaxed);
            return Err(error);
        }
        // ORDERING: Acquire: pairs with a commit that came in between; the next round's swap takes it.
        if word.load(Ordering::Acquire) == marker {
            return Ok(value);
        }
    }
}

/// Gives a stopped word back to the sections, with a new value.
pub fn resume(word: &AtomicU64, value: u64) {
    // ORDERING: Release pairs with the loads of sections on the slot: they see what the stopper did. An exchange, which costs
    // nothing beside the fence, because loom keeps no coherence between plain stores and exchanges.
    word.swap(value, Ordering::AcqRel);
}

/// Every reference is counted in its CPU's slot.
const PER_CPU: u64 = 0;
/// Somebody is moving the counts of the slots to the central one.
const SWITCHING: u64 = 1;
/// Every reference is counted in the central word.
const ATOMIC: u64 = 2;
/// Killed: no new references by `try_get_live`. Added to one of the others.
const DEAD: u64 = 4;

/// Added to the central count while slots count too, so that it cannot reach zero.
const BIAS: i64 = 1 << 62;

/// The shared half of a reference count whose other half is in the slots.
///
/// | mode | get, put count in | count includes |
/// |---|---|---|
/// | `PER_CPU` | slots (threads without one: here) | initial reference, bias |
/// | `SWITCHING` | here; sections that saw the old mode may still commit until the fence | the same |
/// | `ATOMIC` | here | everything; no bias |
///
/// **Invariant 1.** References alive = (count without bias) + (sum of slots, while the bias is there).
/// **Invariant 2.** While the bias is there the count is far above zero: nobody sees the last reference go.
/// **Invariant 3.** Slots are summed only after a fence that followed the end of `PER_CPU`: no section can add to a slot
/// any more, because it checks the mode inside and the fence restarts those that had checked it before.
///
/// # Orderings
///
/// `put` is a release and the `put` that reaches zero an acquire: all uses happen before the release of the object.
/// A `put` in a slot has no ordering of its own; the fence of `switch` orders it before the sum, and the sum is
/// added by a release.
#[derive(Debug)]
pub struct Central {
    mode: AtomicU64,
    count: AtomicI64,
}

impl Default for Central {
    fn default() -> Self {
        Self::new()
    }
}

impl Central {
    /// One reference, counted per CPU.
    pub fn new() -> Self {
        Self { mode: AtomicU64::new(PER_CPU), count: AtomicI64::new(1 + BIAS) }
    }

    /// The mode word, for the sections' guard, and the value it must have.
    #[cfg(not(loom))]
    pub fn guard(&self) -> (*const u64, u64) {
        (self.mode.as_ptr(), PER_CPU)
    }

    /// Models have no sections.
    #[cfg(loom)]
    pub fn guard(&self) -> (*const u64, u64) {
        (core::ptr::null(), PER_CPU)
    }

    /// Do slots count at this moment?
    pub fn is_per_cpu(&self) -> bool {
        // ORDERING: Acquire pairs with the Release that leaves `SWITCHING`: who sees `PER_CPU` again sees cleared slots. The
        // sections' load of the guard must be an acquire for the same reason (on x86-64 every load is).
        self.mode.load(Ordering::Acquire) == PER_CPU
    }

    /// Has it been killed?
    pub fn is_dying(&self) -> bool {
        // ORDERING: Acquire pairs with the Release in `kill`: what its caller did before is visible.
        self.mode.load(Ordering::Acquire) & DEAD != 0
    }

    /// One more reference; the caller has one, or otherwise knows that one exists.
    pub fn get(&self) {
        // ORDERING: Relaxed: a reference exists, so nothing is published by having another.
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// One more reference, unless there is none left.
    pub fn try_get(&self) -> bool {
        // ORDERING: Relaxed: as `get`; the caller found the object by other means, which ordered it.
        let mut count = self.count.load(Ordering::Relaxed);
        while count != 0 {
            // ORDERING: Relaxed: as above.
            match self.count.compare_exchange_weak(count, count + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => count = now,
            }
        }
        false
    }

    /// One reference less. True for the last one: the caller then owns the object alone.
    #[must_use = "the last reference's owner must release the object"]
    pub fn put(&self) -> bool {
        // ORDERING: Release: our uses come before the object's release by whoever sees zero. Acquire (for that one):
        // everybody else's uses come before what we do next.
        self.count.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Ends per-CPU counting. `fence` must order and restart all sections; `sum` reads all slots. Waits for another switch.
    ///
    /// # Errors
    ///
    /// The fence's; then counting is per CPU again.
    pub fn switch_to_atomic<E>(
        &self,
        fence: impl Fn() -> Result<(), E>,
        sum: impl Fn() -> i64,
    ) -> Result<(), E> {
        loop {
            // ORDERING: Acquire: pairs with the Release of the one who ended the last switch.
            let mode = self.mode.load(Ordering::Acquire);
            match mode & !DEAD {
                PER_CPU => {}
                SWITCHING => {
                    yield_now();
                    continue;
                }
                _ => return Ok(()),
            }
            // ORDERING: Acquire: as above. The fence orders the store itself before everything that follows.
            if self
                .mode
                .compare_exchange(mode, SWITCHING | mode & DEAD, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                break;
            }
        }
        if let Err(error) = fence() {
            self.leave_switch(PER_CPU);
            return Err(error);
        }
        // ORDERING: AcqRel: passes on what the puts in slots released (the fence ordered them before us).
        self.count.fetch_add(sum() - BIAS, Ordering::AcqRel);
        self.leave_switch(ATOMIC);
        Ok(())
    }

    /// Starts per-CPU counting again. `clear` sets all slots to zero. False if it is dying or not in atomic mode.
    pub fn switch_to_per_cpu(&self, clear: impl Fn()) -> bool {
        // ORDERING: Acquire: the slots' last sum was taken before.
        if self.mode.compare_exchange(ATOMIC, SWITCHING, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        clear();
        // ORDERING: Relaxed: the mode's Release publishes it.
        self.count.fetch_add(BIAS, Ordering::Relaxed);
        self.leave_switch(PER_CPU);
        true
    }

    /// Ends the state `SWITCHING`; `DEAD` may have been added meanwhile.
    fn leave_switch(&self, to: u64) {
        // ORDERING: Release: the count (and the cleared slots) come first. XOR keeps a `DEAD` that came meanwhile.
        self.mode.fetch_xor(SWITCHING ^ to, Ordering::Release);
    }

    /// Marks it dead: [`is_dying`](Self::is_dying) is true from now on. False if it was already.
    ///
    /// Sections that check for `PER_CPU` fail from now on too, once they see it.
    pub fn mark_dead(&self) -> bool {
        // ORDERING: Release pairs with the Acquire in `is_dying`.
        self.mode.fetch_or(DEAD, Ordering::AcqRel) & DEAD == 0
    }
}
