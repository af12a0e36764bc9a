// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The priority-inheriting mutex for Linux threads, on the PI futex.
//!
//! | for | use |
//! |---|---|
//! | data that threads share | [`RtMutex`], [`RtRwLock`], [`RtCondvar`] |
//! | a program that uses `std::sync` | the same types under std's names: [`sync`] |
//! | several processes, or threads that may be killed | [`SharedRtMutex`] |
//! | strict order of priorities, POSIX recovery | [`Builder`] |
//! | setting and seeing priorities | [`priority`] |
//!
//! The README of the crate introduces them. In this folder each file sees its neighbours only: `word` (bits), `protocol`
//! (the state machine over the word and three kernel operations; runs under loom too), `backend` (the real kernel, through
//! `fastpath-sys`), `tid` (the thread's id, right after fork), `raw` (the lock without data), then the types with data.
//!
//! # Ordering
//!
//! Locking acquires and unlocking releases, in user space and through the kernel alike: what one owner wrote, the next one
//! sees. A failed attempt orders nothing.

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

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct ReadmeExamples;
