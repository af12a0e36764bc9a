// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The saturating counter.
//!
//! # States
//!
//! | value | meaning | leaves it by |
//! |---|---|---|
//! | 0 | nobody holds a reference; the object is gone or going | `set`, `set_release` only |
//! | 1 ..= [`MAX`] | so many references | any operation |
//! | above [`MAX`] ("bad") | count lost: the object is leaked and never freed | `set`, `set_release` only |
//!
//! [`SATURATED`] lies in the middle of the bad values. `inc`, `add`, `dec` and the `_and_test` forms change the word first, with
//! one read-modify-write that cannot fail, and judge the old value afterwards; whoever finds that it left the good
//! values, or was outside them, stores `SATURATED`. Operations that need a comparison anyway (`_not_zero`,
//! `dec_not_one`) never store a bad value other than `SATURATED`.
//!
//! # Invariants
//!
//! 1. Only a thread that turned a value `i` in 1..=MAX into 0 by subtracting `i` is told `true` ("free it").
//! 2. A read-modify-write that finds a bad value, or makes one, is followed by that thread's own store of `SATURATED`. So once a
//!    counter is bad, the last write to it in modification order is a store of `SATURATED`: it ends saturated.
//! 3. Between the two, the value drifts by at most [`BATCH`] per thread. From `SATURATED` to 0 there are 2^30 steps up, and 2^30 + 1
//!    down to `MAX`: a bad counter looks good only if 2^14 threads are at once stopped between the two instructions
//!    with the largest batch, or 2^30 with single steps. Larger batches take a compare loop. (The kernel's figure:
//!    its 4 Mi tasks would have to nest 256 increments each.) `tests/race_bound.rs` checks this bound exactly on a narrower word.
//! 4. `inc_not_zero` never writes to a counter that is zero: the object's memory may be somebody else's.
//!
//! # Ordering
//!
//! * Taking a reference is Relaxed: whoever takes one already has the object through something that orders (its own
//!   reference, a lock). An object found by an unordered look-up needs an `_acquire` form, pairing with `set_release`
//!   by the one who (re)initialised it.
//! * Dropping a reference is Release, and the one that reaches zero also does an Acquire fence: all uses of the object through
//!   any reference happen before what the last dropper does with it. Those are the only pairs there are.
//! * The kernel also promises that stores after a successful `inc_not_zero` or `dec_if_one` stay after it (a control
//!   dependency). Rust's memory model knows no such thing: here `inc_not_zero` promises nothing, and `dec_if_one`
//!   is Acquire on success.

use core::fmt;

use crate::event::{Event, report};
use crate::sync::{AtomicU32, Ordering, fence};

/// The largest number of references that is counted: 2^31 - 1.
///
/// ```
/// use fastpath_refcount::{MAX, RefCount, SATURATED};
/// let count = RefCount::new(MAX);
/// count.inc();
/// assert_eq!(count.read(), SATURATED);
/// ```
#[doc(alias = "REFCOUNT_MAX")]
pub const MAX: u32 = 0x7fff_ffff;

/// The value of a counter that was misused: 0xc0000000, as far from [`MAX`] as from wrapping around to zero.
///
/// See [`MAX`] for an example.
#[doc(alias = "REFCOUNT_SATURATED")]
pub const SATURATED: u32 = 0xc000_0000;

/// The largest batch that `add` and `sub_and_test` do without a compare loop (Invariant 3).
const BATCH: u32 = 0xffff;

/// A reference count that saturates instead of wrapping around.
///
/// Overflow, underflow and use after zero leave the counter at [`SATURATED`], where it stays: the object is leaked, and
/// nobody is ever told to free it again. The first misuse of each [`Event`] kind is reported to a hook.
///
/// The operations are those of the kernel's `refcount_t`, under their names. The forms ending in `_old` also return the value
/// that was found (`__refcount_*` there): `Ok(old)` where the plain form says true, `Err(old)` where it says false.
/// Counts are `u32`: what a negative argument would do to the kernel's counter cannot be written.
///
/// ```
/// use fastpath_refcount::RefCount;
///
/// let count = RefCount::new(1);
/// count.inc();
/// assert!(!count.dec_and_test());
/// assert!(count.dec_and_test()); // the last reference: now free the object
/// assert!(!count.inc_not_zero()); // too late for everybody else
/// ```
#[doc(alias = "refcount_t")]
#[repr(transparent)]
pub struct RefCount {
    value: AtomicU32,
}

impl RefCount {
    /// A counter that stands at `n`. A value above [`MAX`] is bad: the first operation on it saturates.
    #[cfg(not(loom))]
    #[doc(alias = "REFCOUNT_INIT")]
    #[must_use]
    pub const fn new(n: u32) -> Self {
        Self { value: AtomicU32::new(n) }
    }

    /// A counter that stands at `n` (not `const`: loom's atomics cannot be).
    #[cfg(loom)]
    #[must_use]
    pub fn new(n: u32) -> Self {
        Self { value: AtomicU32::new(n) }
    }

    /// Stores `n`. Relaxed. Only for an object that nobody else counts at this moment.
    ///
    /// ```
    /// let count = fastpath_refcount::RefCount::new(0);
    /// count.set(3);
    /// assert_eq!(count.read(), 3);
    /// ```
    #[doc(alias = "refcount_set")]
    pub fn set(&self, n: u32) {
        // ORDERING: Relaxed: the caller publishes the object by other means.
        self.value.store(n, Ordering::Relaxed);
    }

    /// Stores `n` with Release: publishes the fields of an object whose memory is used again, to look-ups that take their
    /// reference with an `_acquire` form and then check that it is still the object they want.
    ///
    /// ```
    /// let count = fastpath_refcount::RefCount::new(0);
    /// // ... initialise the fields, and last:
    /// count.set_release(1);
    /// assert!(count.inc_not_zero_acquire());
    /// ```
    #[doc(alias = "refcount_set_release")]
    pub fn set_release(&self, n: u32) {
        // ORDERING: Release pairs with the Acquire of `add_not_zero_acquire_old` and its shorthands.
        self.value.store(n, Ordering::Release);
    }

    /// The value at some moment, as a hint. Relaxed. Above [`MAX`] the counter is saturated.
    ///
    /// See [`set`](Self::set) for an example.
    #[doc(alias = "refcount_read")]
    #[must_use]
    pub fn read(&self) -> u32 {
        // ORDERING: Relaxed: a hint, nothing is concluded from it about other memory.
        self.value.load(Ordering::Relaxed)
    }

    /// Whether the count was lost, so that the object is leaked.
    ///
    /// ```
    /// use fastpath_refcount::{RefCount, SATURATED};
    /// assert!(RefCount::new(SATURATED).is_saturated());
    /// ```
    #[must_use]
    pub fn is_saturated(&self) -> bool {
        self.read() > MAX
    }

    /// Whether there is exactly one reference, and everything done through the others has happened.
    #[inline]
    pub(crate) fn is_one_acquire(&self) -> bool {
        // ORDERING: Acquire pairs with the Release of the decrements that brought the count down to one.
        self.value.load(Ordering::Acquire) == 1
    }

    /// Takes one more reference. The caller holds one. Relaxed.
    ///
    /// Saturates with [`Event::AddUseAfterFree`] on zero, with [`Event::AddOverflow`] at [`MAX`] and above.
    ///
    /// ```
    /// let count = fastpath_refcount::RefCount::new(1);
    /// count.inc();
    /// assert_eq!(count.read(), 2);
    /// ```
    #[doc(alias = "refcount_inc")]
    #[inline]
    pub fn inc(&self) {
        let _ = self.inc_old();
    }

    /// [`inc`](Self::inc), returning the value it found.
    #[doc(alias = "__refcount_inc")]
    #[inline]
    #[must_use = "use `inc` if the old value is not needed"]
    pub fn inc_old(&self) -> u32 {
        // ORDERING: Relaxed: see the module's "Ordering"; taking a reference publishes nothing.
        let old = self.value.fetch_add(1, Ordering::Relaxed);
        // One comparison for all three: 0 becomes 1, MAX and the bad values become negative or zero.
        if (old.wrapping_add(1) as i32) < 2 {
            add_was_bad(self, old);
        }
        old
    }

    /// Takes `i` more references. The caller holds one. Relaxed. Events as for [`inc`](Self::inc).
    ///
    /// ```
    /// let count = fastpath_refcount::RefCount::new(1);
    /// count.add(4);
    /// assert_eq!(count.read(), 5);
    /// ```
    #[doc(alias = "refcount_add")]
    #[inline]
    pub fn add(&self, i: u32) {
        let _ = self.add_old(i);
    }

    /// [`add`](Self::add), returning the value it found.
    #[doc(alias = "__refcount_add")]
    #[inline]
    #[must_use = "use `add` if the old value is not needed"]
    pub fn add_old(&self, i: u32) -> u32 {
        if i > BATCH {
            return self.add_large(i);
        }
        // ORDERING: Relaxed, as in `inc_old`.
        let old = self.value.fetch_add(i, Ordering::Relaxed);
        if !add_is_good(old, i) {
            add_was_bad(self, old);
        }
        old
    }

    /// Takes a reference unless the count is zero; says whether it did. Relaxed.
    ///
    /// Use it on objects found in a table that holds no reference of its own. Never writes to a counter that is zero. On a
    /// saturated counter the answer is true: the object lives for ever. Saturates with [`Event::AddNotZeroOverflow`].
    ///
    /// ```
    /// use fastpath_refcount::RefCount;
    /// assert!(RefCount::new(1).inc_not_zero());
    /// assert!(!RefCount::new(0).inc_not_zero());
    /// ```
    #[doc(alias = "refcount_inc_not_zero")]
    #[inline]
    #[must_use = "false means that the object is gone"]
    pub fn inc_not_zero(&self) -> bool {
        self.add_not_zero_old(1).is_ok()
    }

    /// [`inc_not_zero`](Self::inc_not_zero) for `i` references.
    #[doc(alias = "refcount_add_not_zero")]
    #[inline]
    #[must_use = "false means that the object is gone"]
    pub fn add_not_zero(&self, i: u32) -> bool {
        self.add_not_zero_old(i).is_ok()
    }

    /// [`add_not_zero`](Self::add_not_zero), returning the value it found.
    ///
    /// # Errors
    ///
    /// `Err(0)` if the count was zero.
    #[doc(alias = "__refcount_add_not_zero")]
    #[doc(alias = "__refcount_inc_not_zero")]
    #[inline]
    #[must_use = "an error means that the object is gone"]
    pub fn add_not_zero_old(&self, i: u32) -> Result<u32, u32> {
        // ORDERING: Relaxed: see the module's "Ordering"; the Acquire form is the next one.
        self.add_unless(i, Ordering::Relaxed, |old| old == 0)
    }

    /// [`inc_not_zero`](Self::inc_not_zero) with Acquire on success, which pairs with [`set_release`](Self::set_release).
    ///
    /// **Differs from the kernel** on a counter that is at [`MAX`] or bad. There the call goes through the limited form, whose
    /// subtraction then overflows, so that it answers false and changes nothing, although the plain `inc_not_zero`
    /// saturates and answers true. Here both do the same: true, saturated, [`Event::AddNotZeroOverflow`]. A look-up
    /// that is told "gone" about an object that can never go would wait or search for ever.
    ///
    /// ```
    /// use fastpath_refcount::{MAX, RefCount};
    /// let count = RefCount::new(MAX);
    /// assert!(count.inc_not_zero_acquire());
    /// assert!(count.is_saturated());
    /// ```
    #[doc(alias = "refcount_inc_not_zero_acquire")]
    #[inline]
    #[must_use = "false means that the object is gone"]
    pub fn inc_not_zero_acquire(&self) -> bool {
        self.add_not_zero_acquire_old(1).is_ok()
    }

    /// [`inc_not_zero_acquire`](Self::inc_not_zero_acquire) for `i` references.
    #[doc(alias = "refcount_add_not_zero_acquire")]
    #[inline]
    #[must_use = "false means that the object is gone"]
    pub fn add_not_zero_acquire(&self, i: u32) -> bool {
        self.add_not_zero_acquire_old(i).is_ok()
    }

    /// [`add_not_zero_acquire`](Self::add_not_zero_acquire), returning the value it found.
    ///
    /// # Errors
    ///
    /// `Err(0)` if the count was zero.
    #[doc(alias = "__refcount_add_not_zero_acquire")]
    #[doc(alias = "__refcount_inc_not_zero_acquire")]
    #[inline]
    #[must_use = "an error means that the object is gone"]
    pub fn add_not_zero_acquire_old(&self, i: u32) -> Result<u32, u32> {
        // ORDERING: Acquire pairs with `set_release`: the fields it published are visible on success.
        self.add_unless(i, Ordering::Acquire, |old| old == 0)
    }

    /// Takes `i` references unless the count is zero or would exceed `limit`; returns the value it found. Acquire on success.
    ///
    /// A saturated counter has no count that a limit could apply to: the answer is `Ok`, as for
    /// [`add_not_zero`](Self::add_not_zero).
    ///
    /// # Errors
    ///
    /// `Err(old)` with the value found, which is unchanged: zero, or a count that `i` more would take above `limit`.
    ///
    /// ```
    /// let readers = fastpath_refcount::RefCount::new(9);
    /// assert_eq!(readers.add_not_zero_limited_acquire(1, 10), Ok(9));
    /// assert_eq!(readers.add_not_zero_limited_acquire(1, 10), Err(10));
    /// ```
    #[doc(alias = "__refcount_add_not_zero_limited_acquire")]
    #[doc(alias = "__refcount_inc_not_zero_limited_acquire")]
    #[inline]
    #[must_use = "an error means that no reference was taken"]
    pub fn add_not_zero_limited_acquire(&self, i: u32, limit: u32) -> Result<u32, u32> {
        // ORDERING: Acquire pairs with `set_release`, as in `add_not_zero_acquire_old`.
        self.add_unless(i, Ordering::Acquire, |old| {
            old == 0 || (old <= MAX && u64::from(old) + u64::from(i) > limit.into())
        })
    }

    /// Drops one reference and says whether it was the last one: then the caller frees the object.
    ///
    /// Release; and Acquire when true. After false the object may already be gone: do not touch it, nor the counter.
    /// Saturates with [`Event::SubUseAfterFree`] on zero and on bad values.
    ///
    /// See [`RefCount`] for an example.
    #[doc(alias = "refcount_dec_and_test")]
    #[inline]
    #[must_use = "true means that the object is to be freed; use `dec` if that cannot be"]
    pub fn dec_and_test(&self) -> bool {
        self.dec_and_test_old().is_ok()
    }

    /// [`dec_and_test`](Self::dec_and_test), returning the value it found.
    ///
    /// # Errors
    ///
    /// `Err(old)` if it was not the last reference.
    #[doc(alias = "__refcount_dec_and_test")]
    #[inline]
    #[must_use = "`Ok` means that the object is to be freed"]
    pub fn dec_and_test_old(&self) -> Result<u32, u32> {
        // ORDERING: Release pairs with the fence below, in whichever thread drops the last reference.
        let old = self.value.fetch_sub(1, Ordering::Release);
        // The common case first, and one comparison for it: this order compiles to one branch, not taken.
        if (old as i32) > 1 {
            return Err(old);
        }
        if old == 1 {
            // ORDERING: Acquire pairs with the Release of every earlier decrement: their uses come before the free.
            fence(Ordering::Acquire);
            return Ok(old);
        }
        saturate(self, Event::SubUseAfterFree);
        Err(old)
    }

    /// Drops `i` references and says whether those were all there were. As [`dec_and_test`](Self::dec_and_test).
    ///
    /// ```
    /// let count = fastpath_refcount::RefCount::new(5);
    /// assert!(count.sub_and_test(5));
    /// ```
    #[doc(alias = "refcount_sub_and_test")]
    #[inline]
    #[must_use = "true means that the object is to be freed"]
    pub fn sub_and_test(&self, i: u32) -> bool {
        self.sub_and_test_old(i).is_ok()
    }

    /// [`sub_and_test`](Self::sub_and_test), returning the value it found.
    ///
    /// # Errors
    ///
    /// `Err(old)` if references remain, or if the counter was misused.
    #[doc(alias = "__refcount_sub_and_test")]
    #[inline]
    #[must_use = "`Ok` means that the object is to be freed"]
    pub fn sub_and_test_old(&self, i: u32) -> Result<u32, u32> {
        if i > BATCH {
            return self.sub_large(i);
        }
        // ORDERING: Release, as in `dec_and_test_old`.
        let old = self.value.fetch_sub(i, Ordering::Release);
        self.judge_sub(old, i)
    }

    /// Drops one reference that is known not to be the last one. Release.
    ///
    /// Saturates with [`Event::DecLeak`] if it was the last one, or if there was none: with nobody told to free it, the object
    /// is leaked, and the counter never shows zero.
    ///
    /// ```
    /// let count = fastpath_refcount::RefCount::new(2);
    /// count.dec();
    /// assert_eq!(count.read(), 1);
    /// ```
    #[doc(alias = "refcount_dec")]
    #[inline]
    pub fn dec(&self) {
        let _ = self.dec_old();
    }

    /// [`dec`](Self::dec), returning the value it found.
    #[doc(alias = "__refcount_dec")]
    #[inline]
    #[must_use = "use `dec` if the old value is not needed"]
    pub fn dec_old(&self) -> u32 {
        // ORDERING: Release, as in `dec_and_test_old`: the thread that later reaches zero sees our uses.
        let old = self.value.fetch_sub(1, Ordering::Release);
        if (old as i32) < 2 {
            saturate(self, Event::DecLeak);
        }
        old
    }

    /// Drops the reference if it is the only one; says whether it did. Never saturates and never warns.
    ///
    /// Release, and Acquire on success (see the module's notes on the kernel's control dependency).
    ///
    /// ```
    /// use fastpath_refcount::RefCount;
    /// assert!(RefCount::new(1).dec_if_one());
    /// assert!(!RefCount::new(2).dec_if_one());
    /// ```
    #[doc(alias = "refcount_dec_if_one")]
    #[inline]
    #[must_use = "true means that the object is to be freed, false that the reference is still held"]
    pub fn dec_if_one(&self) -> bool {
        // ORDERING: Acquire pairs with the Release of the decrements that led to one; Release is for a later `_acquire`
        // look-up after `set_release`, as in every decrement.
        self.value.try_cmpxchg(&mut 1, 0, Ordering::AcqRel)
    }

    /// Drops one reference unless it is the only one; says whether there are (or may be) others left. Release.
    ///
    /// True on a saturated counter, which stays as it is. On zero it warns with [`Event::DecNotOneUnderflow`], changes nothing,
    /// and answers true. The kernel subtracts from a bad value other than [`SATURATED`] too, which can bring it back
    /// among the good ones; here every bad value stays.
    ///
    /// ```
    /// use fastpath_refcount::RefCount;
    /// let count = RefCount::new(2);
    /// assert!(count.dec_not_one());
    /// assert!(!count.dec_not_one()); // now take the lock and use `dec_and_test`
    /// assert_eq!(count.read(), 1);
    /// ```
    #[doc(alias = "refcount_dec_not_one")]
    #[inline]
    #[must_use = "false means that the reference is still held"]
    pub fn dec_not_one(&self) -> bool {
        // ORDERING: Relaxed: only a first guess for the exchange below.
        let mut old = self.value.load(Ordering::Relaxed);
        loop {
            if old == 1 {
                return false;
            }
            if old.wrapping_sub(1) >= MAX {
                if old == 0 {
                    report(Event::DecNotOneUnderflow, (&raw const self.value).cast());
                }
                return true;
            }
            let new = old - 1;
            // ORDERING: Release, as in `dec_and_test_old`. A failure only gives the value to try again.
            if self.value.try_cmpxchg(&mut old, new, Ordering::Release) {
                return true;
            }
        }
    }

    /// The compare loop of the `_not_zero` family: refuses as `refuse` says, and otherwise adds `i` or saturates.
    #[inline]
    fn add_unless(&self, i: u32, success: Ordering, refuse: impl Fn(u32) -> bool) -> Result<u32, u32> {
        // ORDERING: Relaxed: only a first guess for the exchange below.
        let mut old = self.value.load(Ordering::Relaxed);
        loop {
            if refuse(old) {
                return Err(old);
            }
            let good = old <= MAX && i <= MAX - old;
            let new = if good { old + i } else { SATURATED };
            // ORDERING: `success` is named by the callers. A failure only gives the value to try again.
            if self.value.try_cmpxchg(&mut old, new, success) {
                if !good {
                    saturate(self, Event::AddNotZeroOverflow);
                }
                return Ok(old);
            }
        }
    }

    /// What follows a subtraction of `i` that found `old`.
    #[inline]
    fn judge_sub(&self, old: u32, i: u32) -> Result<u32, u32> {
        let good = old.wrapping_sub(1) < MAX;
        if good && old == i {
            // ORDERING: Acquire, as in `dec_and_test_old`.
            fence(Ordering::Acquire);
            return Ok(old);
        }
        if !good || i > old {
            saturate(self, Event::SubUseAfterFree);
        }
        Err(old)
    }

    /// Batches that could carry a bad value among the good ones (Invariant 3): a compare loop that never stores one.
    #[cold]
    #[inline(never)]
    fn add_large(&self, i: u32) -> u32 {
        // ORDERING: Relaxed, as in `inc_old`; the store of the failed case is `saturate`'s.
        let mut old = self.value.load(Ordering::Relaxed);
        loop {
            let new = if add_is_good(old, i) { old + i } else { SATURATED };
            // ORDERING: Relaxed, as in `inc_old`.
            if self.value.try_cmpxchg(&mut old, new, Ordering::Relaxed) {
                if new == SATURATED {
                    add_was_bad(self, old);
                }
                return old;
            }
        }
    }

    /// As [`add_large`](Self::add_large), downwards.
    #[cold]
    #[inline(never)]
    fn sub_large(&self, i: u32) -> Result<u32, u32> {
        // ORDERING: Relaxed: only a first guess for the exchange below.
        let mut old = self.value.load(Ordering::Relaxed);
        loop {
            let new = if old <= MAX && i <= old { old - i } else { SATURATED };
            // ORDERING: Release, as in `dec_and_test_old`. A failure only gives the value to try again.
            if self.value.try_cmpxchg(&mut old, new, Ordering::Release) {
                return self.judge_sub(old, i);
            }
        }
    }
}

// Two cold functions, `extern "C"` so that they cannot unwind: a counting site then needs no landing pad, only a branch and a call.

/// An addition found `old` and should not have.
#[cold]
#[inline(never)]
extern "C" fn add_was_bad(count: &RefCount, old: u32) {
    saturate(count, if old == 0 { Event::AddUseAfterFree } else { Event::AddOverflow });
}

/// Saturates, then warns: the counter is safe before anybody else's code runs.
#[cold]
#[inline(never)]
extern "C" fn saturate(count: &RefCount, event: Event) {
    // ORDERING: Relaxed: a leaked object is never freed, so nothing has to be ordered before that.
    count.value.store(SATURATED, Ordering::Relaxed);
    report(event, (&raw const count.value).cast());
}

/// Whether adding `i` to `old` starts from a live counter and stays among the good values.
const fn add_is_good(old: u32, i: u32) -> bool {
    old.wrapping_sub(1) < MAX.saturating_sub(i)
}

impl fmt::Debug for RefCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RefCount").field(&self.read()).finish()
    }
}
