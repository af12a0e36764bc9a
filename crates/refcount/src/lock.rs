// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Dropping a reference so that the last one is dropped under a lock.

use crate::RefCount;

impl RefCount {
    /// Drops one reference; if it may be the last one, `lock` is called first and its guard returned when it was.
    ///
    /// `Some(guard)`: the count is zero and the lock is held. `None`: other references remain, and the lock is not held
    /// (it was not even taken unless the count was one for a moment). Use it for objects that others find through a
    /// table guarded by that lock: a look-up under the lock then never meets a dead object.
    ///
    /// Ordering: Release for the drop; Acquire, and that of the lock, when it returns a guard.
    ///
    /// This form takes any lock, for example one that also disables interrupts (`refcount_dec_and_lock_irqsave`).
    ///
    /// ```
    /// use std::sync::Mutex;
    /// use fastpath_refcount::RefCount;
    ///
    /// let table = Mutex::new(vec!["entry"]);
    /// let count = RefCount::new(2);
    /// assert!(count.dec_and_lock_with(|| table.lock().unwrap()).is_none());
    /// if let Some(mut table) = count.dec_and_lock_with(|| table.lock().unwrap()) {
    ///     table.pop();
    /// }
    /// assert!(table.lock().unwrap().is_empty());
    /// ```
    #[doc(alias = "refcount_dec_and_lock")]
    #[doc(alias = "refcount_dec_and_lock_irqsave")]
    #[must_use = "`Some` means that the count is zero and that the lock is held"]
    pub fn dec_and_lock_with<G>(&self, lock: impl FnOnce() -> G) -> Option<G> {
        if self.dec_not_one() {
            return None;
        }
        let guard = lock();
        // Somebody may have taken a reference before we had the lock: the guard is dropped then.
        self.dec_and_test().then_some(guard)
    }

    /// [`dec_and_lock_with`](Self::dec_and_lock_with) on a mutex of `std`.
    ///
    /// # Errors
    ///
    /// Inside the `Some`: the mutex is poisoned. The count is zero and the lock is held all the same; the error carries
    /// the guard.
    ///
    /// ```
    /// use std::sync::Mutex;
    /// use fastpath_refcount::RefCount;
    ///
    /// let (mutex, count) = (Mutex::new(()), RefCount::new(1));
    /// let guard = count.dec_and_mutex_lock(&mutex).expect("the last one").expect("not poisoned");
    /// assert!(mutex.try_lock().is_err());
    /// # drop(guard);
    /// ```
    #[cfg(feature = "std")]
    #[doc(alias = "refcount_dec_and_mutex_lock")]
    #[must_use = "`Some` means that the count is zero and that the lock is held"]
    pub fn dec_and_mutex_lock<'a, T: ?Sized>(
        &self,
        mutex: &'a std::sync::Mutex<T>,
    ) -> Option<std::sync::LockResult<std::sync::MutexGuard<'a, T>>> {
        self.dec_and_lock_with(|| mutex.lock())
    }

    /// [`dec_and_lock_with`](Self::dec_and_lock_with) on a mutex of `lock_api` 0.5.
    #[cfg(feature = "lock_api_0_5")]
    #[must_use = "`Some` means that the count is zero and that the lock is held"]
    pub fn dec_and_lock<'a, R: lock_api_0_5::RawMutex, T: ?Sized>(
        &self,
        mutex: &'a lock_api_0_5::Mutex<R, T>,
    ) -> Option<lock_api_0_5::MutexGuard<'a, R, T>> {
        self.dec_and_lock_with(|| mutex.lock())
    }

    /// [`dec_and_lock_with`](Self::dec_and_lock_with) on a mutex of `lock_api` 0.4.
    #[cfg(feature = "lock_api_0_4")]
    #[must_use = "`Some` means that the count is zero and that the lock is held"]
    pub fn dec_and_lock_04<'a, R: lock_api_0_4::RawMutex, T: ?Sized>(
        &self,
        mutex: &'a lock_api_0_4::Mutex<R, T>,
    ) -> Option<lock_api_0_4::MutexGuard<'a, R, T>> {
        self.dec_and_lock_with(|| mutex.lock())
    }

    /// [`dec_and_lock_with`](Self::dec_and_lock_with) on a raw lock of `lock_api` 0.5. Unlock with the state returned.
    #[cfg(feature = "lock_api_0_5")]
    #[must_use = "`Some` means that the count is zero and that the lock is held"]
    pub fn dec_and_raw_lock<R: lock_api_0_5::RawMutex>(&self, raw: &R) -> Option<R::Guard> {
        // Not through `dec_and_lock_with`: guard state need not unlock when it is dropped.
        if self.dec_not_one() {
            return None;
        }
        let state = raw.lock();
        if self.dec_and_test() {
            return Some(state);
        }
        unlock(raw, state);
        None
    }
}

#[cfg(feature = "lock_api_0_5")]
#[expect(unsafe_code, reason = "a raw lock is unlocked")]
fn unlock<R: lock_api_0_5::RawMutex>(raw: &R, state: R::Guard) {
    // SAFETY: `state` is what `raw.lock()` returned to our only caller, which has not unlocked since.
    unsafe { raw.unlock(state) };
}
