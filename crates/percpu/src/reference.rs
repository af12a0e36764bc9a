// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! [`PerCpuRef`]: a reference count that costs nothing to share, until it matters.

use core::fmt;

use fastpath_sys::Errno;
use fastpath_sys::rseq::disarm;

use crate::protocol::Central;
use crate::rseq::{self, Outcome};
use crate::thread::fence;
use crate::{OutOfMemory, PerCpu, Word};

/// A reference count kept per CPU while the object is in use, and in one word once it may die.
///
/// Starts with one reference, the initial one, which [`kill`](Self::kill) gives up. While nobody has killed it, `get`
/// and `put` are a few plain instructions on this CPU's slot, and nobody can tell whether the count is zero: it is
/// not, because the initial reference is there. `kill` moves all counts to one word (one fence, about 10 µs); from
/// then on the last `put` is the one that says so.
///
/// In a process without rseq, and for threads that cannot run sections, it always counts in the one word.
///
/// ```
/// use fastpath_percpu::PerCpuRef;
///
/// let users = PerCpuRef::new().unwrap();
/// users.get();
/// assert!(!users.put()); // not the last: the initial one is there
/// assert!(users.try_get_live());
/// assert!(!users.kill().unwrap()); // not the last: somebody holds one
/// assert!(!users.try_get_live());
/// assert!(users.put()); // the last
/// ```
#[doc(alias = "percpu_ref")]
pub struct PerCpuRef {
    slots: PerCpu<Word<i64>>,
    central: Central,
}

impl PerCpuRef {
    /// One reference, counted per CPU.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] when there is no address space left.
    pub fn new() -> Result<Self, OutOfMemory> {
        Ok(Self { slots: PerCpu::new()?, central: Central::new() })
    }

    /// Adds `delta` to this CPU's slot if slots count at this moment.
    #[inline(always)]
    fn add_local(&self, delta: i64) -> bool {
        let (guard, per_cpu) = self.central.guard();
        let base = self.slots.at(0).cast();
        // SAFETY: the slots of a live `PerCpu`, 8 bytes each; the guard is the mode word, which lives as long as `self`.
        let outcome =
            unsafe { rseq::guarded_add_64::<Word<i64>>(base, guard, per_cpu, delta.cast_unsigned()) };
        outcome == Outcome::Done
    }

    /// One more reference. The caller has one already, or otherwise knows that one exists.
    #[inline(always)]
    #[doc(alias = "percpu_ref_get")]
    pub fn get(&self) {
        if !self.add_local(1) {
            self.get_shared();
        }
    }

    #[cold]
    #[inline(never)]
    fn get_shared(&self) {
        disarm();
        self.central.get();
    }

    /// One more reference, unless the last one is gone.
    #[inline(always)]
    #[doc(alias = "percpu_ref_tryget")]
    pub fn try_get(&self) -> bool {
        self.add_local(1) || self.central.try_get()
    }

    /// One more reference, unless it was killed.
    #[inline(always)]
    #[doc(alias = "percpu_ref_tryget_live")]
    pub fn try_get_live(&self) -> bool {
        self.add_local(1) || (!self.central.is_dying() && self.central.try_get())
    }

    /// One reference less. True if it was the last: every use of the object by others happens before that.
    ///
    /// Never true before [`kill`](Self::kill).
    #[inline(always)]
    #[must_use = "the last reference's owner must release the object"]
    #[doc(alias = "percpu_ref_put")]
    pub fn put(&self) -> bool {
        if self.add_local(-1) {
            return false;
        }
        self.put_shared()
    }

    #[cold]
    #[inline(never)]
    fn put_shared(&self) -> bool {
        disarm();
        self.central.put()
    }

    fn sum(&self) -> i64 {
        self.slots.iter().fold(0, |sum, (_, slot)| sum.wrapping_add(slot.load()))
    }

    /// Moves all counts to the one word; `get` and `put` count there from now on.
    ///
    /// # Errors
    ///
    /// The [`fence`]'s; then counting stays per CPU.
    #[doc(alias = "percpu_ref_switch_to_atomic_sync")]
    pub fn switch_to_atomic(&self) -> Result<(), Errno> {
        self.central.switch_to_atomic(|| fence(None), || self.sum())
    }

    /// Counts per CPU again. False if it was killed, or was not in atomic mode.
    #[doc(alias = "percpu_ref_switch_to_percpu")]
    pub fn switch_to_per_cpu(&self) -> bool {
        self.central.switch_to_per_cpu(|| {
            for (_, slot) in self.slots.iter() {
                slot.store_exclusively(0);
            }
        })
    }

    /// Gives up the initial reference: no [`try_get_live`](Self::try_get_live) succeeds after this. True if that was the last
    /// reference.
    ///
    /// Once only; later calls give false.
    ///
    /// # Errors
    ///
    /// The [`fence`]'s; then it is not killed.
    #[doc(alias = "percpu_ref_kill")]
    pub fn kill(&self) -> Result<bool, Errno> {
        self.switch_to_atomic()?;
        Ok(self.central.mark_dead() && self.central.put())
    }

    /// Has it been killed?
    #[doc(alias = "percpu_ref_is_dying")]
    pub fn is_dying(&self) -> bool {
        self.central.is_dying()
    }

    /// Does it count per CPU at this moment?
    pub fn is_per_cpu(&self) -> bool {
        self.central.is_per_cpu()
    }
}

impl fmt::Debug for PerCpuRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerCpuRef")
            .field("per_cpu", &self.is_per_cpu())
            .field("dying", &self.is_dying())
            .finish()
    }
}
