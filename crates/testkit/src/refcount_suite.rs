// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The contract of a saturating counter: cases K57 to K70, K72 and K74 as plain functions, for one thread.
//!
//! Generic over the counter ([`Counter`]) and over what saw its warnings ([`Warnings`]), so that the same functions run under
//! `cargo test` and inside the bare-metal images. [`cases`] lists them for a runner. A case panics where the contract is broken.
//! The macro [`refcount_backend!`](crate::refcount_backend) makes a [`Counter`] of `fastpath_refcount::RefCount`.
#![expect(
    clippy::missing_panics_doc,
    clippy::missing_errors_doc,
    reason = "stated once, above: a broken contract panics"
)]

/// The largest count.
pub const MAX: u32 = 0x7fff_ffff;
/// Where a misused counter stays.
pub const SATURATED: u32 = 0xc000_0000;

/// The kinds of warning, as indices into what [`Warnings::seen`] returns.
pub mod kind {
    /// A `_not_zero` operation overflowed.
    pub const ADD_NOT_ZERO_OVF: usize = 0;
    /// `add` or `inc` overflowed.
    pub const ADD_OVF: usize = 1;
    /// `add` or `inc` from zero.
    pub const ADD_UAF: usize = 2;
    /// More was dropped than there was.
    pub const SUB_UAF: usize = 3;
    /// `dec` reached zero.
    pub const DEC_LEAK: usize = 4;
    /// `dec_not_one` on zero.
    pub const DEC_NOT_ONE: usize = 5;
}

/// Who saw the warnings of the counter under test.
pub trait Warnings {
    /// Forgets all warnings, and makes every kind be reported again.
    fn clear();
    /// How often each kind was reported since.
    fn seen() -> [u32; 6];
}

/// The counter under test. The methods do what `fastpath_refcount::RefCount`'s do.
#[expect(missing_docs, reason = "each method is documented at `RefCount`")]
pub trait Counter {
    fn new(n: u32) -> Self;
    fn read(&self) -> u32;
    fn set(&self, n: u32);
    fn set_release(&self, n: u32);
    fn inc(&self);
    fn add(&self, i: u32);
    fn inc_not_zero(&self) -> bool;
    fn add_not_zero(&self, i: u32) -> bool;
    fn inc_not_zero_acquire(&self) -> bool;
    fn add_not_zero_acquire(&self, i: u32) -> bool;
    fn add_not_zero_limited_acquire(&self, i: u32, limit: u32) -> Result<u32, u32>;
    fn dec(&self);
    fn dec_and_test(&self) -> bool;
    fn sub_and_test(&self, i: u32) -> bool;
    fn dec_if_one(&self) -> bool;
    fn dec_not_one(&self) -> bool;
    fn dec_and_lock_with<G>(&self, lock: impl FnOnce() -> G) -> Option<G>;
}

/// Declares `struct $name` and makes it a [`Counter`](crate::refcount_suite::Counter) on `$krate::RefCount`.
#[macro_export]
macro_rules! refcount_backend {
    ($name:ident, $krate:ident) => {
        struct $name($krate::RefCount);

        impl $crate::refcount_suite::Counter for $name {
            fn new(n: u32) -> Self {
                Self($krate::RefCount::new(n))
            }
            fn dec_and_lock_with<G>(&self, lock: impl FnOnce() -> G) -> Option<G> {
                self.0.dec_and_lock_with(lock)
            }
            $crate::refcount_backend! { @forward
                fn read() -> u32;
                fn set(n: u32) -> ();
                fn set_release(n: u32) -> ();
                fn inc() -> ();
                fn add(i: u32) -> ();
                fn inc_not_zero() -> bool;
                fn add_not_zero(i: u32) -> bool;
                fn inc_not_zero_acquire() -> bool;
                fn add_not_zero_acquire(i: u32) -> bool;
                fn add_not_zero_limited_acquire(i: u32, limit: u32) -> Result<u32, u32>;
                fn dec() -> ();
                fn dec_and_test() -> bool;
                fn sub_and_test(i: u32) -> bool;
                fn dec_if_one() -> bool;
                fn dec_not_one() -> bool;
            }
        }
    };
    (@forward $(fn $method:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(fn $method(&self $(, $argument: $type)*) -> $result {
            self.0.$method($($argument),*)
        })*
    };
}

/// A case of the suite: its number and the function to run.
pub type Case = (&'static str, fn());

/// Every case, on the counter `C` whose warnings `W` sees.
#[must_use]
pub fn cases<C: Counter, W: Warnings>() -> [Case; 16] {
    [
        ("K57", k57::<C, W>),
        ("K58", k58::<C, W>),
        ("K59", k59::<C, W>),
        ("K60", k60::<C, W>),
        ("K61", k61::<C, W>),
        ("K62", k62::<C, W>),
        ("K63", k63::<C, W>),
        ("K64", k64::<C, W>),
        ("K65", k65::<C, W>),
        ("K66", k66::<C, W>),
        ("K67", k67::<C, W>),
        ("K68", k68::<C, W>),
        ("K69", k69::<C, W>),
        ("K70", k70::<C, W>),
        ("K72", k72::<C, W>),
        ("K74", k74::<C, W>),
    ]
}

/// Runs `operation` on a counter at `start`; it must end at `end` with exactly the warnings `kinds`.
#[track_caller]
fn check<C: Counter, W: Warnings, R>(
    start: u32,
    end: u32,
    kinds: &[usize],
    operation: impl FnOnce(&C) -> R,
) -> R {
    W::clear();
    let count = C::new(start);
    let result = operation(&count);
    assert_eq!(count.read(), end, "from {start:#x}");
    let mut expected = [0; 6];
    for kind in kinds {
        expected[*kind] += 1;
    }
    assert_eq!(W::seen(), expected, "warnings from {start:#x}");
    result
}

/// K57: `inc` counts up to MAX in silence; the next one saturates.
pub fn k57<C: Counter, W: Warnings>() {
    check::<C, W, _>(MAX - 1, MAX - 1, &[], |c| {
        c.dec();
        c.inc();
    });
    check::<C, W, _>(MAX - 1, MAX, &[], C::inc);
    check::<C, W, _>(MAX, SATURATED, &[kind::ADD_OVF], C::inc);
    check::<C, W, _>(MAX - 1, SATURATED, &[kind::ADD_OVF], |c| {
        c.inc();
        c.inc();
    });
}

/// K58: `add` up to MAX, and past it; also with batches that no single step of the word could hold.
pub fn k58<C: Counter, W: Warnings>() {
    check::<C, W, _>(MAX - 1, MAX - 1, &[], |c| {
        for _ in 0..4 {
            c.dec();
        }
        c.add(4);
    });
    check::<C, W, _>(MAX - 1, SATURATED, &[kind::ADD_OVF], |c| c.add(4));
    check::<C, W, _>(MAX - 4, MAX, &[], |c| c.add(4));
    check::<C, W, _>(1, MAX, &[], |c| c.add(MAX - 1));
    check::<C, W, _>(1, SATURATED, &[kind::ADD_OVF], |c| c.add(MAX));
    check::<C, W, _>(1, SATURATED, &[kind::ADD_OVF], |c| c.add(u32::MAX));
    check::<C, W, _>(7, 7, &[], |c| c.add(0));
}

/// K59: the `_not_zero` forms at MAX saturate and say true.
pub fn k59<C: Counter, W: Warnings>() {
    assert!(check::<C, W, _>(MAX, SATURATED, &[kind::ADD_NOT_ZERO_OVF], C::inc_not_zero));
    assert!(check::<C, W, _>(MAX, SATURATED, &[kind::ADD_NOT_ZERO_OVF], |c| c.add_not_zero(6)));
    assert!(check::<C, W, _>(5, SATURATED, &[kind::ADD_NOT_ZERO_OVF], |c| c.add_not_zero(u32::MAX)));
    assert!(check::<C, W, _>(MAX - 6, MAX, &[], |c| c.add_not_zero(6)));
}

/// K60: `dec` never shows zero.
pub fn k60<C: Counter, W: Warnings>() {
    check::<C, W, _>(2, 1, &[], C::dec);
    check::<C, W, _>(1, SATURATED, &[kind::DEC_LEAK], C::dec);
}

/// K61: dropping what was not there.
pub fn k61<C: Counter, W: Warnings>() {
    check::<C, W, _>(0, SATURATED, &[kind::DEC_LEAK], C::dec);
    assert!(!check::<C, W, _>(0, SATURATED, &[kind::SUB_UAF], C::dec_and_test));
    assert!(!check::<C, W, _>(3, SATURATED, &[kind::SUB_UAF], |c| c.sub_and_test(5)));
    assert!(!check::<C, W, _>(3, SATURATED, &[kind::SUB_UAF], |c| c.sub_and_test(u32::MAX)));
}

/// K62: a counter at zero: the `_not_zero` forms leave it alone, the others saturate, with one warning.
pub fn k62<C: Counter, W: Warnings>() {
    assert!(!check::<C, W, _>(0, 0, &[], C::inc_not_zero));
    assert!(!check::<C, W, _>(0, 0, &[], |c| c.add_not_zero(3)));
    assert!(!check::<C, W, _>(0, 0, &[], C::inc_not_zero_acquire));
    assert!(!check::<C, W, _>(0, 0, &[], |c| c.add_not_zero_acquire(3)));
    check::<C, W, _>(0, SATURATED, &[kind::ADD_UAF], C::inc);
    check::<C, W, _>(0, SATURATED, &[kind::ADD_UAF], |c| c.add(3));
    check::<C, W, _>(0, SATURATED, &[kind::ADD_UAF], |c| c.add(0));
    check::<C, W, _>(0, SATURATED, &[kind::ADD_UAF], |c| c.add(MAX));
}

/// K63: a saturated counter stays so, whatever is done, and so do the other bad values.
pub fn k63<C: Counter, W: Warnings>() {
    for bad in [SATURATED, MAX + 1, SATURATED - 1, SATURATED + 1, u32::MAX] {
        check::<C, W, _>(bad, SATURATED, &[kind::ADD_OVF], C::inc);
        check::<C, W, _>(bad, SATURATED, &[kind::DEC_LEAK], C::dec);
        check::<C, W, _>(bad, SATURATED, &[kind::ADD_OVF], |c| c.add(8));
        check::<C, W, _>(bad, SATURATED, &[kind::ADD_OVF], |c| c.add(MAX));
        assert!(check::<C, W, _>(bad, SATURATED, &[kind::ADD_NOT_ZERO_OVF], C::inc_not_zero));
        assert!(check::<C, W, _>(bad, SATURATED, &[kind::ADD_NOT_ZERO_OVF], |c| c.add_not_zero(7)));
        assert!(!check::<C, W, _>(bad, SATURATED, &[kind::SUB_UAF], C::dec_and_test));
        assert!(!check::<C, W, _>(bad, SATURATED, &[kind::SUB_UAF], |c| c.sub_and_test(8)));
        assert!(!check::<C, W, _>(bad, SATURATED, &[kind::SUB_UAF], |c| c.sub_and_test(bad)));
    }
}

/// K64: the last reference.
pub fn k64<C: Counter, W: Warnings>() {
    assert!(check::<C, W, _>(1, 0, &[], C::dec_and_test));
    assert!(!check::<C, W, _>(2, 1, &[], C::dec_and_test));
    assert!(check::<C, W, _>(5, 0, &[], |c| c.sub_and_test(5)));
    assert!(!check::<C, W, _>(5, 1, &[], |c| c.sub_and_test(4)));
    assert!(check::<C, W, _>(MAX, 0, &[], |c| c.sub_and_test(MAX)));
}

/// K65: subtracting nothing from nothing frees nothing.
pub fn k65<C: Counter, W: Warnings>() {
    assert!(!check::<C, W, _>(0, SATURATED, &[kind::SUB_UAF], |c| c.sub_and_test(0)));
    assert!(!check::<C, W, _>(5, 5, &[], |c| c.sub_and_test(0)));
}

/// K66: `dec_if_one`.
pub fn k66<C: Counter, W: Warnings>() {
    assert!(check::<C, W, _>(1, 0, &[], C::dec_if_one));
    for other in [0, 2, MAX, SATURATED, u32::MAX] {
        assert!(!check::<C, W, _>(other, other, &[], C::dec_if_one));
    }
}

/// K67: `dec_not_one`.
pub fn k67<C: Counter, W: Warnings>() {
    assert!(!check::<C, W, _>(1, 1, &[], C::dec_not_one));
    assert!(check::<C, W, _>(2, 1, &[], C::dec_not_one));
    assert!(check::<C, W, _>(MAX, MAX - 1, &[], C::dec_not_one));
    for bad in [SATURATED, MAX + 1, u32::MAX] {
        assert!(check::<C, W, _>(bad, bad, &[], C::dec_not_one));
    }
    assert!(check::<C, W, _>(0, 0, &[kind::DEC_NOT_ONE], C::dec_not_one));
}

/// K68: the last reference is dropped under the lock; a reference taken meanwhile means that it was not the last.
pub fn k68<C: Counter, W: Warnings>() {
    use core::cell::Cell;

    struct Guard<'a>(&'a Cell<i32>);
    impl Drop for Guard<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() - 1);
        }
    }
    let (held, taken) = (Cell::new(0), Cell::new(0));
    let lock = || {
        held.set(held.get() + 1);
        taken.set(taken.get() + 1);
        Guard(&held)
    };
    check::<C, W, _>(2, 1, &[], |c| assert!(c.dec_and_lock_with(lock).is_none()));
    assert_eq!((held.get(), taken.get()), (0, 0), "the lock is not touched when references remain");

    check::<C, W, _>(1, 0, &[], |c| {
        let guard = c.dec_and_lock_with(lock);
        assert_eq!(held.get(), 1, "held by the guard");
        assert!(guard.is_some());
    });
    assert_eq!((held.get(), taken.get()), (0, 1));

    check::<C, W, _>(1, 1, &[], |c| {
        let guard = c.dec_and_lock_with(|| {
            assert!(c.inc_not_zero(), "somebody finds the object before we have the lock");
            lock()
        });
        assert!(guard.is_none());
    });
    assert_eq!((held.get(), taken.get()), (0, 2), "taken and released");
}

/// K69: the limited form.
pub fn k69<C: Counter, W: Warnings>() {
    let limited = |c: &C| c.add_not_zero_limited_acquire(1, 10);
    assert_eq!(check::<C, W, _>(9, 10, &[], limited), Ok(9));
    assert_eq!(check::<C, W, _>(10, 10, &[], limited), Err(10));
    assert_eq!(check::<C, W, _>(11, 11, &[], limited), Err(11));
    assert_eq!(check::<C, W, _>(0, 0, &[], limited), Err(0));
    assert_eq!(check::<C, W, _>(8, 8, &[], |c| c.add_not_zero_limited_acquire(3, 10)), Err(8));
    assert_eq!(check::<C, W, _>(8, 8, &[], |c| c.add_not_zero_limited_acquire(u32::MAX, 10)), Err(8));
    assert_eq!(check::<C, W, _>(MAX, MAX, &[], |c| c.add_not_zero_limited_acquire(1, MAX)), Err(MAX));
    assert_eq!(check::<C, W, _>(SATURATED, SATURATED, &[kind::ADD_NOT_ZERO_OVF], limited), Ok(SATURATED));
}

/// K70: the choice for `inc_not_zero_acquire` at MAX and above: as `inc_not_zero`, not as the kernel's quirk.
pub fn k70<C: Counter, W: Warnings>() {
    for start in [MAX, SATURATED] {
        assert!(check::<C, W, _>(start, SATURATED, &[kind::ADD_NOT_ZERO_OVF], C::inc_not_zero_acquire));
        assert!(check::<C, W, _>(start, SATURATED, &[kind::ADD_NOT_ZERO_OVF], |c| c.add_not_zero_acquire(2)));
    }
    assert!(check::<C, W, _>(1, 2, &[], C::inc_not_zero_acquire));
    assert!(check::<C, W, _>(1, 4, &[], |c| c.add_not_zero_acquire(3)));
}

/// K72: one warning per kind of event, however many counters and times.
pub fn k72<C: Counter, W: Warnings>() {
    W::clear();
    let (one, other) = (C::new(0), C::new(0));
    for count in [&one, &other, &one] {
        count.set(0);
        count.inc();
        count.set(MAX);
        count.inc();
        assert!(count.inc_not_zero());
        count.set_release(0);
        assert!(!count.dec_and_test());
        count.set(1);
        count.dec();
        count.set(0);
        assert!(count.dec_not_one());
    }
    assert_eq!(W::seen(), [1; 6]);
}

/// K74 on one thread: balanced references, exactly one "free it".
pub fn k74<C: Counter, W: Warnings>() {
    W::clear();
    let count = C::new(1);
    assert_eq!(balanced(&count, 1000), 0);
    assert!(count.dec_and_test());
    assert_eq!(W::seen(), [0; 6]);
}

/// The body of K74 for each thread: takes and drops `rounds` references; returns how often it was told "free it".
///
/// The caller keeps one reference while these run: the sum over all threads is 0, and its own drop then gives the one.
pub fn balanced<C: Counter>(count: &C, rounds: u32) -> u32 {
    let mut freed = 0;
    for _ in 0..rounds {
        count.inc();
        freed += u32::from(count.dec_and_test());
    }
    freed
}
