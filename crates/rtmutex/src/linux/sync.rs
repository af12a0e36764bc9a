// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The names of `std::sync`, so that a program switches by changing a `use`.
//!
//! | `std::sync` | here | what differs |
//! |---|---|---|
//! | `Mutex`, `MutexGuard`, `MappedMutexGuard` | [`RtMutex`](super::RtMutex) and its guards | |
//! | `RwLock` and its guards | [`RtRwLock`](super::RtRwLock) and its guards | a waiting writer stops new readers |
//! | `Condvar`, `WaitTimeoutResult` | [`RtCondvar`](super::RtCondvar) | |
//! | `PoisonError` | [`LockError`](super::LockError) | `get_ref` and `get_mut` give an `Option`: some errors come without a guard |
//! | `TryLockError`, `LockResult`, `TryLockResult` | the same | |
//!
//! What std leaves open, and these lock kinds answer: locking twice gives an error (so `unwrap` panics with its text)
//! where std hangs.
//!
//! ```
//! // The same text, once with each.
//! macro_rules! program {
//!     ($name:ident, $($sync:tt)*) => {
//!         mod $name {
//!             use $($sync)*::{Condvar, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};
//!             use std::sync::Arc;
//!             use std::time::Duration;
//!
//!             static COUNT: Mutex<u32> = Mutex::new(0);
//!
//!             fn add(mut guard: MutexGuard<'_, u32>) {
//!                 *guard += 1;
//!             }
//!
//!             pub fn run() -> u32 {
//!                 let pair = Arc::new((Mutex::new(false), Condvar::new()));
//!                 let there = Arc::clone(&pair);
//!                 let thread = std::thread::spawn(move || {
//!                     add(COUNT.lock().unwrap_or_else(PoisonError::into_inner));
//!                     *there.0.lock().unwrap() = true;
//!                     there.1.notify_all();
//!                 });
//!                 let mut ready = pair.0.lock().unwrap();
//!                 while !*ready {
//!                     ready = pair.1.wait(ready).unwrap();
//!                 }
//!                 let (_ready, result) = pair.1.wait_timeout(ready, Duration::from_millis(1)).unwrap();
//!                 let _ = result.timed_out();
//!                 thread.join().unwrap();
//!                 let table = RwLock::new(vec![1]);
//!                 table.write().unwrap().push(2);
//!                 assert_eq!(table.read().unwrap().len(), 2);
//!                 match COUNT.try_lock() {
//!                     Ok(guard) => *guard,
//!                     Err(TryLockError::Poisoned(error)) => *error.into_inner(),
//!                     Err(TryLockError::WouldBlock) => 0,
//!                 }
//!             }
//!         }
//!         assert_eq!($name::run(), 1);
//!     };
//! }
//! program!(with_std, std::sync);
//! program!(with_fastpath, fastpath_rtmutex::linux::sync);
//! ```

pub use super::{
    LockError as PoisonError, LockResult, MappedRtMutexGuard as MappedMutexGuard, RtCondvar as Condvar,
    RtMutex as Mutex, RtMutexGuard as MutexGuard, RtRwLock as RwLock, RtRwLockReadGuard as RwLockReadGuard,
    RtRwLockWriteGuard as RwLockWriteGuard, TryLockError, TryLockResult, WaitTimeoutResult,
};
