// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! [`Counter`]: counting without sharing.

use core::fmt;

use crate::{OutOfMemory, PerCpu, Word, fence};

/// A counter that every CPU counts up in a word of its own.
///
/// ```
/// use fastpath_percpu::Counter;
///
/// let requests = Counter::new().unwrap();
/// std::thread::scope(|scope| {
///     for _ in 0..8 {
///         scope.spawn(|| (0..1000).for_each(|_| requests.add(1)));
///     }
/// });
/// assert_eq!(requests.sum(), 8000);
/// ```
///
/// As a static, see [`Lazy`](crate::Lazy).
#[doc(alias = "percpu_counter")]
#[repr(transparent)]
pub struct Counter(PerCpu<Word<i64>>);

impl Counter {
    /// A counter at 0.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] when there is no address space left.
    pub fn new() -> Result<Self, OutOfMemory> {
        PerCpu::new().map(Self)
    }

    /// Adds `value`, wrapping: a few plain instructions, no locked one, no shared line. Orders nothing.
    #[inline(always)]
    #[doc(alias = "percpu_counter_add")]
    pub fn add(&self, value: i64) {
        self.0.this_cpu_add(value);
    }

    /// Subtracts `value`, wrapping.
    #[inline(always)]
    pub fn sub(&self, value: i64) {
        self.0.this_cpu_sub(value);
    }

    /// The sum of all slots, wrapping.
    ///
    /// Exact when every addition happened before the call (the threads were joined, a lock was passed on). While others
    /// count it is no snapshot: it misses some additions and includes later ones. It never blocks anybody.
    #[doc(alias = "percpu_counter_sum")]
    pub fn sum(&self) -> i64 {
        self.0.iter().fold(0, |sum, (_, slot)| sum.wrapping_add(slot.load()))
    }

    /// As [`sum`](Self::sum), and includes every addition that any thread finished before this call, even if nothing
    /// else orders that thread with this one. About 10 µs: it fences all CPUs.
    ///
    /// Still no snapshot: additions during the call may or may not be in it.
    ///
    /// # Errors
    ///
    /// The fence's, see [`fence`].
    pub fn sum_fenced(&self) -> Result<i64, fastpath_sys::Errno> {
        fence(None)?;
        Ok(self.sum())
    }

    /// The slots, for what this type has no method for.
    pub fn slots(&self) -> &PerCpu<Word<i64>> {
        &self.0
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Counter").field(&self.sum()).finish()
    }
}
