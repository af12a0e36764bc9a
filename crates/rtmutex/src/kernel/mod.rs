// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The kernel's rtmutex algorithm, for any scheduler.
//!
//! Locks whose owner runs at the urgency of the most urgent task that waits for it, along whole chains of locks: so a task
//! that is in nobody's way is never delayed by one less urgent than itself for longer than the locks it takes are held.
//!
//! | type | what it is | a wait may end by |
//! |---|---|---|
//! | [`RawMutex`], [`Mutex`] | the mutex | deadline, signal, deadlock |
//! | [`SpinLock`] | the sleeping spinlock, takable in the middle of another wait | - |
//! | [`RwSemaphore`], [`RwLock`] | reader/writer locks, of the mutex's and of the spinlock's kind | deadline, signal; - |
//! | [`WwMutex`] | several locks at once in any order, by wound/wait or wait/die | signal, giving way |
//! | [`Proxy`] | a lock taken and waited for on behalf of others | deadline, signal, deadlock |
//! | [`WaitQueue`] | a queue whose sleepers move to a mutex when notified: a condition variable | deadline, signal |
//!
//! The surroundings come in by the trait [`Scheduler`]: who runs, how to sleep and wake, a raw spinlock with interrupts off,
//! and to be told which urgency a task has now. The contract, numbered invariants and ordering of each state machine stand
//! at the head of its file: the lock word (`lock.rs`), waiting (`block.rs`), the chain walk (`chain.rs`), tasks
//! (`task.rs`), sleeping (`sleep.rs`), readers and writers (`rw.rs`), wound/wait (`ww.rs`), requeueing (`requeue.rs`).
//!
//! # Costs
//!
//! Free lock: one acquire `cmpxchg`; nobody waits: one release `cmpxchg`. Queueing and leaving are O(log n) in the number of
//! waiters and of contended locks the owner holds; each step of a chain is that, with at most two raw locks held. Nothing
//! is allocated: a waiter lives on its task's stack, so no pool can run out.
//!
//! # Rules for users
//!
//! * Task context only, never an interrupt handler; never with a raw lock held.
//! * The one who locked unlocks. Locks may be given back in any order.
//! * A lock must not be moved or freed while somebody owns it or waits for it; after an unlock it may be freed at once.
//!
//! # Where it differs from Linux
//!
//! The algorithm is Linux's, written anew from a description of its behaviour. Beyond that: urgency is recomputed also when a
//! task takes over waiters (a change of its own urgency just before could otherwise get lost), the copy of a rank in the
//! owner's tree is renewed at each insertion, spinning looks at deadline and signals, wound/wait wakes at once instead of
//! by a list, and clearing the waiters bit of a free lock releases by itself. A walk that takes a boost back is not stopped by
//! a ring that nobody noticed (minimal detection and a deadline allow one): its boost would otherwise outlive the wait.

#![expect(
    unsafe_code,
    reason = "waiters on stacks and tasks are linked by address; the raw locks prove exclusion"
)]

mod block;
mod chain;
pub mod inspect;
mod key;
mod lock;
mod mutex;
mod proxy;
mod raw;
mod requeue;
mod rw;
mod sched;
#[cfg(not(loom))]
pub mod seedloop;
mod sleep;
mod spinlock;
mod task;
mod tree;
mod waiter;
mod ww;

pub use block::LockError;
pub use key::Key;
pub use mutex::{Mutex, MutexGuard, RawMutex, Wait};
pub use proxy::{Cleanup, Proxy, Started};
#[cfg(not(loom))]
pub use raw::Emulated;
pub use raw::{ForcedSlow, Native, NoLock, SpinOnWord};
pub use requeue::{RequeueError, WaitQueue};
pub use rw::{RwBase, RwLock, RwSemaphore};
pub use sched::{DepthReport, Detect, OwnerWord, Point, RawSpin, Scheduler, Signal};
pub use sleep::{TaskState, Wake};
pub use spinlock::SpinLock;
pub use task::Task;
pub use waiter::Waiter;
pub use ww::{Context, Policy, WwClass, WwError, WwMutex};
