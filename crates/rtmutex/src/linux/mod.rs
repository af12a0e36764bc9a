// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The priority-inheriting mutex for Linux threads, on the PI futex.

#![allow(dead_code, reason = "the condition variable and the reader/writer lock come next")]

mod backend;
mod error;
mod guard;
mod mutex;
#[doc(hidden)]
pub mod protocol;
mod raw;
mod tid;
#[doc(hidden)]
pub mod word;

pub use error::{LockError, LockResult, TryLockError, TryLockResult, UnlockError};
pub use guard::{MappedRtMutexGuard, RtMutexGuard};
pub use mutex::{Builder, RtMutex};
pub use raw::RawRtMutex;
