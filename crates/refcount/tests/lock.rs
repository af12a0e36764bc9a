// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `dec_and_lock` on each kind of mutex it knows: K68 again, with real locks.
#![cfg(not(loom))]

#[cfg(feature = "std")]
#[test]
fn std_mutex() {
    use std::sync::Mutex;

    use fastpath_refcount::RefCount;

    let mutex = Mutex::new(7);
    let count = RefCount::new(2);
    assert!(count.dec_and_mutex_lock(&mutex).is_none());
    assert!(mutex.try_lock().is_ok());
    let guard = count.dec_and_mutex_lock(&mutex).expect("the last one").expect("not poisoned");
    assert!(mutex.try_lock().is_err());
    assert_eq!((*guard, count.read()), (7, 0));
    drop(guard);
    fastpath_testkit::case("K68", "std mutex");

    // Poison is reported, with the lock held and the count at zero.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _guard = mutex.lock();
        panic!("poison it");
    }));
    count.set(1);
    assert!(count.dec_and_mutex_lock(&mutex).expect("the last one").is_err());
    assert_eq!(count.read(), 0);
}

/// The same test for both versions of `lock_api`, whose raw traits differ.
#[cfg(any(feature = "lock_api_0_5", feature = "lock_api_0_4"))]
macro_rules! lock_api_test {
    ($mutex:ty, $dec_and_lock:ident) => {{
        let mutex = <$mutex>::new(7);
        let count = fastpath_refcount::RefCount::new(2);
        assert!(count.$dec_and_lock(&mutex).is_none());
        assert!(!mutex.is_locked());
        let guard = count.$dec_and_lock(&mutex).expect("the last one");
        assert!(mutex.is_locked());
        assert_eq!((*guard, count.read()), (7, 0));
        drop(guard);
        assert!(!mutex.is_locked());
    }};
}

#[cfg(feature = "lock_api_0_5")]
mod version_5 {
    #![expect(unsafe_code, reason = "a raw lock for the test")]

    use std::sync::atomic::{AtomicBool, Ordering};

    use fastpath_refcount::RefCount;
    use lock_api_0_5::{GuardSend, RawMutex};

    struct Spin(AtomicBool);

    // SAFETY: the swap lets one thread through, with Acquire; the store in `unlock` is Release.
    unsafe impl RawMutex for Spin {
        const INIT: Self = Self(AtomicBool::new(false));
        type Guard = GuardSend;

        fn lock(&self) -> GuardSend {
            loop {
                if let Some(guard) = self.try_lock() {
                    return guard;
                }
                std::thread::yield_now();
            }
        }

        fn try_lock(&self) -> Option<GuardSend> {
            // ORDERING: Acquire pairs with the Release in `unlock`.
            (!self.0.swap(true, Ordering::Acquire)).then(GuardSend::default)
        }

        unsafe fn unlock(&self, _: GuardSend) {
            // ORDERING: Release pairs with the Acquire in `try_lock`.
            self.0.store(false, Ordering::Release);
        }

        fn is_locked(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn mutex() {
        lock_api_test!(lock_api_0_5::Mutex<Spin, i32>, dec_and_lock);
        fastpath_testkit::case("K68", "lock_api 0.5");
    }

    #[test]
    fn raw_mutex() {
        let raw = Spin::INIT;
        let count = RefCount::new(2);
        assert!(count.dec_and_raw_lock(&raw).is_none());
        assert!(!raw.is_locked());
        let state = count.dec_and_raw_lock(&raw).expect("the last one");
        assert!(raw.is_locked());
        // SAFETY: `state` is that of the acquisition above.
        unsafe { raw.unlock(state) };

        // A reference taken while we wait for the lock: released again, nobody told.
        count.set(1);
        let held = raw.try_lock().expect("free");
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| count.dec_and_raw_lock(&raw).is_none());
            assert!(count.inc_not_zero());
            // SAFETY: the state of the acquisition above.
            unsafe { raw.unlock(held) };
            assert!(waiter.join().expect("no panic"));
        });
        assert!(!raw.is_locked());
        assert_eq!(count.read(), 1);
        fastpath_testkit::case("K68", "lock_api 0.5, raw");
    }
}

#[cfg(feature = "lock_api_0_4")]
mod version_4 {
    #![expect(unsafe_code, reason = "a raw lock for the test")]

    use std::sync::atomic::{AtomicBool, Ordering};

    use lock_api_0_4::{GuardSend, RawMutex};

    struct Spin(AtomicBool);

    // SAFETY: the swap lets one thread through, with Acquire; the store in `unlock` is Release.
    unsafe impl RawMutex for Spin {
        const INIT: Self = Self(AtomicBool::new(false));
        type GuardMarker = GuardSend;

        fn lock(&self) {
            while !self.try_lock() {
                std::thread::yield_now();
            }
        }

        fn try_lock(&self) -> bool {
            // ORDERING: Acquire pairs with the Release in `unlock`.
            !self.0.swap(true, Ordering::Acquire)
        }

        unsafe fn unlock(&self) {
            // ORDERING: Release pairs with the Acquire in `try_lock`.
            self.0.store(false, Ordering::Release);
        }
    }

    #[test]
    fn mutex() {
        lock_api_test!(lock_api_0_4::Mutex<Spin, i32>, dec_and_lock_04);
        fastpath_testkit::case("K68", "lock_api 0.4");
    }
}
