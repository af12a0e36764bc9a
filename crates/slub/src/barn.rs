// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The store of full and empty sheaves of one node: what makes producer and consumer exchange a sheaf of objects for one lock.
#![expect(unsafe_code, reason = "stacks of sheaves are guarded by the barn lock")]

use crate::lock::RawLock;
use crate::sheaf::Sheaf;
use crate::source::Wait;
use crate::sync::{AtomicUsize, Ordering, const_fn};
use core::cell::UnsafeCell;
use core::ptr::NonNull;

/// A stack of sheaves, linked through their first words by their top addresses.
#[derive(Debug)]
struct Stack {
    top: Option<Sheaf>,
}

impl Stack {
    fn push(&mut self, sheaf: Sheaf) {
        let next = self.top.map_or(core::ptr::null_mut(), |next| next.top().cast::<u8>());
        // SAFETY: the caller of the barn gave the sheaf away; its words belong to the barn now.
        unsafe { sheaf.words().write(next) };
        self.top = Some(sheaf);
    }

    /// Objects in all its sheaves, whose capacity is `capacity`.
    fn objects(&self, capacity: usize) -> usize {
        let (mut at, mut sum) = (self.top, 0);
        while let Some(sheaf) = at {
            sum += sheaf.len(capacity);
            // SAFETY: as in `pop`.
            at = unsafe { NonNull::new(sheaf.words().read().cast()).map(|top| Sheaf::from_top(top)) };
        }
        sum
    }

    fn pop(&mut self) -> Option<Sheaf> {
        let sheaf = self.top?;
        // SAFETY: `push` wrote NULL or the top of a sheaf that is in the stack.
        self.top = unsafe { NonNull::new(sheaf.words().read().cast()).map(|top| Sheaf::from_top(top)) };
        Some(sheaf)
    }
}

/// Both stacks, and the sheaf that collects deferred frees.
#[derive(Debug)]
pub(crate) struct Stock {
    full: Stack,
    empty: Stack,
    /// Objects of deferred frees that do not fill a sheaf yet.
    pub(crate) rcu: Option<Sheaf>,
}

/// Full and empty sheaves of a node. Limits are soft: they are checked by whoever puts something in, under the lock,
/// except where a refill must not lose what it has in hand.
#[doc(alias = "node_barn")]
#[derive(Debug)]
pub(crate) struct Barn<L> {
    lock: L,
    stock: UnsafeCell<Stock>,
    nr_full: AtomicUsize,
    nr_empty: AtomicUsize,
    /// The fewest full sheaves since somebody looked: so many were not needed.
    low: AtomicUsize,
    /// A node without memory of its own has no barn.
    pub(crate) present: bool,
}

// SAFETY: the stock is reached under the lock only.
unsafe impl<L: RawLock> Sync for Barn<L> {}
// SAFETY: sheaves are bound to no thread.
unsafe impl<L: RawLock + Send> Send for Barn<L> {}

/// Why the barn did not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BarnError {
    /// As many as the limit allows (the kernel's `E2BIG`).
    TooMany,
    /// Nothing of the kind (the kernel's `ENOMEM`), or no barn.
    Nothing,
    /// The lock is busy and the caller cannot wait (the kernel's `EBUSY`).
    Busy,
}

impl<L: RawLock> Barn<L> {
    const_fn! {
        pub(crate) const fn new(lock: L, present: bool) -> Self {
            Self {
                lock,
                stock: UnsafeCell::new(Stock { full: Stack { top: None }, empty: Stack { top: None }, rcu: None }),
                nr_full: AtomicUsize::new(0),
                nr_empty: AtomicUsize::new(0),
                low: AtomicUsize::new(0),
                present,
            }
        }
    }

    /// Runs `with` under the lock.
    pub(crate) fn locked<R>(
        &self,
        context: usize,
        wait: Wait,
        with: impl FnOnce(&mut Stock) -> R,
    ) -> Option<R> {
        let got = match wait {
            Wait::Yes => self.lock.lock(context),
            Wait::Never => self.lock.try_lock(context),
        };
        if !got {
            return None;
        }
        // SAFETY: the lock is held until the `unlock` below, and `with` cannot keep the borrow.
        let result = with(unsafe { &mut *self.stock.get() });
        // SAFETY: held since above.
        unsafe { self.lock.unlock() };
        Some(result)
    }

    /// Full sheaves; a hint without the lock.
    #[inline]
    pub(crate) fn nr_full(&self) -> usize {
        // ORDERING: Relaxed: a hint; the stacks are only touched under the lock.
        self.nr_full.load(Ordering::Relaxed)
    }

    /// Empty sheaves; a hint without the lock.
    #[inline]
    pub(crate) fn nr_empty(&self) -> usize {
        // ORDERING: Relaxed: as above.
        self.nr_empty.load(Ordering::Relaxed)
    }

    /// How many full sheaves were there all the time since the last call. A hint, without the lock.
    pub(crate) fn unneeded(&self) -> usize {
        // ORDERING: Relaxed: as above.
        let (full, low) = (self.nr_full(), self.low.load(Ordering::Relaxed));
        self.low.store(full, Ordering::Relaxed);
        low.min(full)
    }

    /// Notes how many full sheaves there are now, after some left. Under the lock.
    fn note_low(&self, full: usize) {
        // ORDERING: Relaxed: as above.
        if full < self.low.load(Ordering::Relaxed) {
            self.low.store(full, Ordering::Relaxed);
        }
    }

    fn get(&self, context: usize, wait: Wait, full: bool) -> Result<Sheaf, BarnError> {
        if !self.present || (if full { self.nr_full() } else { self.nr_empty() }) == 0 {
            return Err(BarnError::Nothing);
        }
        self.locked(context, wait, |stock| {
            let (stack, count) =
                if full { (&mut stock.full, &self.nr_full) } else { (&mut stock.empty, &self.nr_empty) };
            let sheaf = stack.pop().ok_or(BarnError::Nothing)?;
            // ORDERING: Relaxed: the count is a hint; only holders of the lock write it.
            let now = count.load(Ordering::Relaxed) - 1;
            count.store(now, Ordering::Relaxed);
            if full {
                self.note_low(now);
            }
            Ok(sheaf)
        })
        .unwrap_or(Err(BarnError::Busy))
    }

    /// Takes a full sheaf (any fill but none).
    pub(crate) fn get_full(&self, context: usize, wait: Wait) -> Result<Sheaf, BarnError> {
        self.get(context, wait, true)
    }

    /// Takes an empty sheaf.
    pub(crate) fn get_empty(&self, context: usize, wait: Wait) -> Result<Sheaf, BarnError> {
        self.get(context, wait, false)
    }

    /// Puts a sheaf in, on the stack that fits its fill, unless there are `limit` already.
    pub(crate) fn put(
        &self,
        context: usize,
        wait: Wait,
        sheaf: Sheaf,
        limit: usize,
    ) -> Result<(), BarnError> {
        if !self.present {
            return Err(BarnError::Nothing);
        }
        let full = !sheaf.is_empty();
        if (if full { self.nr_full() } else { self.nr_empty() }) >= limit {
            return Err(BarnError::TooMany);
        }
        self.locked(context, wait, |stock| {
            let (stack, count) =
                if full { (&mut stock.full, &self.nr_full) } else { (&mut stock.empty, &self.nr_empty) };
            // ORDERING: Relaxed: the count is a hint; only holders of the lock write it.
            let now = count.load(Ordering::Relaxed);
            if now >= limit {
                return Err(BarnError::TooMany);
            }
            stack.push(sheaf);
            count.store(now + 1, Ordering::Relaxed);
            Ok(())
        })
        .unwrap_or(Err(BarnError::Busy))
    }

    /// Trades a full sheaf (any fill but none) for an empty one, or the other way round, in one turn of the lock: `trade` is
    /// offered a sheaf of the kind `full` and answers with the one it gives for it, or refuses and leaves it as it was.
    /// What comes back goes on the other stack; beyond `limit` it is returned.
    ///
    /// `trade` runs under the lock: it must not ask the barn for anything, nor wait.
    #[doc(alias("barn_replace_empty_sheaf", "barn_replace_full_sheaf"))]
    pub(crate) fn trade(
        &self,
        context: usize,
        wait: Wait,
        full: bool,
        limit: usize,
        trade: impl FnOnce(Sheaf) -> Option<Sheaf>,
    ) -> Result<Option<Sheaf>, BarnError> {
        let (from, to) = if full { (&self.nr_full, &self.nr_empty) } else { (&self.nr_empty, &self.nr_full) };
        // ORDERING: Relaxed here and below: hints without the lock, and only its holders write them.
        if !self.present || from.load(Ordering::Relaxed) == 0 {
            return Err(BarnError::Nothing);
        }
        self.locked(context, wait, |stock| {
            let room = to.load(Ordering::Relaxed) < limit;
            if !full && !room {
                return Err(BarnError::TooMany);
            }
            let (stack, other) =
                if full { (&mut stock.full, &mut stock.empty) } else { (&mut stock.empty, &mut stock.full) };
            let offer = stack.pop().ok_or(BarnError::Nothing)?;
            let Some(back) = trade(offer) else {
                stack.push(offer);
                return Err(BarnError::Nothing);
            };
            let now = from.load(Ordering::Relaxed) - 1;
            from.store(now, Ordering::Relaxed);
            if full {
                self.note_low(now);
            }
            if back.is_missing() || !room {
                return Ok(Some(back));
            }
            other.push(back);
            to.store(to.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            Ok(None)
        })
        .unwrap_or(Err(BarnError::Busy))
    }

    /// Objects in the barn, waiting ones included.
    pub(crate) fn objects(&self, context: usize, capacity: usize) -> usize {
        self.locked(context, Wait::Yes, |stock| {
            stock.full.objects(capacity) + stock.rcu.map_or(0, |sheaf| sheaf.len(capacity))
        })
        .unwrap_or(0)
    }

    /// The lock itself.
    pub(crate) fn lock_word(&self) -> &L {
        &self.lock
    }

    /// Takes the lock and keeps it (before a fork). `false` if the context holds it itself.
    pub(crate) fn lock_for_fork(&self, context: usize) -> bool {
        self.lock.lock(context)
    }

    /// Gives it back.
    ///
    /// # Safety
    ///
    /// Taken by [`lock_for_fork`](Self::lock_for_fork).
    pub(crate) unsafe fn unlock_after_fork(&self) {
        // SAFETY: held (caller).
        unsafe { self.lock.unlock() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use super::*;
    use crate::lock::SpinLock;
    use crate::sheaf::{SHEAF_BYTES, missing};
    use std::alloc::{Layout, alloc};

    const CAPACITY: usize = 2;

    fn sheaf(objects: usize) -> Sheaf {
        // SAFETY: fresh memory of that size and alignment; the objects are never looked at.
        unsafe {
            let memory = alloc(Layout::from_size_align(SHEAF_BYTES, SHEAF_BYTES).unwrap());
            let mut sheaf = Sheaf::lay_out(NonNull::new(memory).unwrap(), CAPACITY);
            for number in 1..=objects {
                assert!(sheaf.push(NonNull::new(core::ptr::without_provenance_mut(number * 16)).unwrap()));
            }
            sheaf
        }
    }

    #[test]
    fn a_trade_keeps_counts_and_limits() {
        let barn = Barn::new(SpinLock::new(), true);
        let put = |sheaf| barn.put(1, Wait::Yes, sheaf, 2);
        assert_eq!([put(sheaf(0)), put(sheaf(2)), put(sheaf(2))], [Ok(()), Ok(()), Ok(())]);
        let counts = || (barn.nr_full(), barn.nr_empty(), barn.objects(1, CAPACITY));

        // No room for a third full one: nobody is asked.
        let full = barn.trade(1, Wait::Yes, false, 2, |_| panic!("asked"));
        assert_eq!((full, counts()), (Err(BarnError::TooMany), (2, 1, 4)));
        // Refused: as it was.
        let refused = barn.trade(1, Wait::Yes, true, 2, |offer| {
            assert!(offer.is_full());
            None
        });
        assert_eq!((refused, counts()), (Err(BarnError::Nothing), (2, 1, 4)));
        // For an empty one; then for none, which is not stored; then there is nothing left.
        let empty = sheaf(0);
        assert_eq!(barn.trade(1, Wait::Yes, true, 2, |_| Some(empty)), Ok(None));
        assert_eq!(counts(), (1, 2, 2));
        assert_eq!(barn.trade(1, Wait::Yes, true, 2, |_| Some(missing())), Ok(Some(missing())));
        assert_eq!(counts(), (0, 2, 0));
        assert_eq!(barn.trade(1, Wait::Yes, true, 2, |_| Some(empty)), Err(BarnError::Nothing));
        // The other way round.
        assert_eq!(barn.trade(1, Wait::Yes, false, 2, |_| Some(sheaf(2))), Ok(None));
        assert_eq!(counts(), (1, 1, 2));
        // More empty ones than there may be: returned.
        assert_eq!(put(sheaf(0)), Ok(()));
        let third = sheaf(0);
        assert_eq!(barn.trade(1, Wait::Yes, true, 2, |_| Some(third)), Ok(Some(third)));
        assert_eq!(counts(), (0, 2, 0));
        // Whoever holds the lock is not made to wait.
        let inner = barn.locked(1, Wait::Yes, |_| barn.trade(1, Wait::Yes, false, 2, |_| None));
        assert_eq!(inner, Some(Err(BarnError::Busy)));
    }
}
