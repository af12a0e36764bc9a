// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The priority-inheriting mutex for Linux threads, on the PI futex.

mod backend;
mod condvar;
mod error;
mod guard;
#[cfg(any(feature = "lock_api_0_4", feature = "lock_api_0_5"))]
mod lock_api;
#[cfg(feature = "lock_api_0_4")]
pub mod lock_api_0_4;
#[cfg(feature = "lock_api_0_5")]
pub mod lock_api_0_5;
mod mutex;
pub mod priority;
#[doc(hidden)]
pub mod protocol;
mod raw;
mod rwlock;
mod shared;
pub mod sync;
mod tid;
#[doc(hidden)]
pub mod word;

pub use condvar::{NotifyError, RtCondvar, WaitTimeoutResult};
pub use error::{LockError, LockResult, TryLockError, TryLockResult, UnlockError};
pub use guard::{MappedRtMutexGuard, RtMutexGuard};
pub use mutex::{Builder, RtMutex};
pub use raw::RawRtMutex;
pub use rwlock::{RtRwLock, RtRwLockReadGuard, RtRwLockWriteGuard};
pub use shared::{SharedError, SharedRtMutex, SharedRtMutexGuard};
