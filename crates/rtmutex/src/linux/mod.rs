// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The priority-inheriting mutex for Linux threads, on the PI futex.

mod backend;
mod condvar;
mod error;
mod guard;
mod mutex;
pub mod priority;
#[doc(hidden)]
pub mod protocol;
mod raw;
mod rwlock;
mod tid;
#[doc(hidden)]
pub mod word;

pub use condvar::{NotifyError, RtCondvar, WaitTimeoutResult};
pub use error::{LockError, LockResult, TryLockError, TryLockResult, UnlockError};
pub use guard::{MappedRtMutexGuard, RtMutexGuard};
pub use mutex::{Builder, RtMutex};
pub use raw::RawRtMutex;
pub use rwlock::{RtRwLock, RtRwLockReadGuard, RtRwLockWriteGuard};
