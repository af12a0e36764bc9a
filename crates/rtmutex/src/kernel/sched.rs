// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the algorithm asks of its surroundings: a scheduler, a raw spinlock, and a way to change the owner word.

use core::fmt::Debug;

use super::key::Key;
use super::task::Task;

/// The surroundings of the locks: a kernel's scheduler, or a model of one.
///
/// All functions are associated functions without a receiver: a program has one scheduler per type. Time is in any unit
/// that [`now`](Self::now) and the deadlines share.
///
/// # Safety
///
/// The implementation guarantees:
///
/// 1. [`current`](Self::current) is the calling thread of execution, and no two threads ever are the same task. Locks are
///    used in task context only, never in an interrupt handler.
/// 2. A task lives while it owns or waits for a lock, and from [`get_task`](Self::get_task) to
///    [`put_task`](Self::put_task), and until every [`read_section`](Self::read_lock) that was open when it last owned a
///    lock is closed. Where tasks are never freed all these are empty.
/// 3. Between [`irq_save`](Self::irq_save) and [`irq_restore`](Self::irq_restore) nothing else runs on this processor.
/// 4. [`park`](Self::park) and [`unpark`](Self::unpark) work on a token per task: `unpark` makes the token available, `park`
///    returns at once if it is, consuming it, and otherwise sleeps until it is, until the deadline, or spuriously.
///    What a task did before `unpark` is visible to the other one after `park`.
pub unsafe trait Scheduler: Sized + 'static {
    /// The raw spinlock that protects locks and tasks. On one processor [`NoLock`](super::raw::NoLock) is enough.
    type RawLock: RawSpin;
    /// How the owner word of a lock is changed, which decides what the fast path is.
    type Owner: OwnerWord<Task<Self>>;
    /// A saved interrupt state.
    type Irq: Copy;
    /// What the scheduler keeps in each [`Task`].
    type Data: Send + Sync;

    /// Kernels built for debugging: every walk that has a waiter to check looks for deadlocks to the end of the chain.
    const DETECT_ALWAYS: bool = false;

    /// The calling task.
    fn current() -> &'static Task<Self>;

    /// Disables interrupts on this processor and returns what was before.
    fn irq_save() -> Self::Irq;
    /// Puts back what [`irq_save`](Self::irq_save) returned.
    fn irq_restore(irq: Self::Irq);
    /// From here on no other task runs on this processor, until as many [`preempt_enable`](Self::preempt_enable).
    fn preempt_disable();
    /// The end of [`preempt_disable`](Self::preempt_disable): preempts if that is due.
    fn preempt_enable();

    /// Sleeps until [`unpark`](Self::unpark), the deadline, or spuriously. See the safety section.
    #[doc(alias = "schedule")]
    fn park(deadline: Option<u64>);
    /// Makes `task`'s token available. Called with raw locks held and interrupts off: must not sleep.
    fn unpark(task: &'static Task<Self>);
    /// The time now.
    fn now() -> u64;
    /// Which signal waits for `task`?
    fn signal(task: &Task<Self>) -> Signal;

    /// `task` runs at `key` from now on. Called under the task's raw lock with interrupts off: must not sleep or lock.
    #[doc(alias = "rt_mutex_setprio")]
    fn priority_changed(task: &'static Task<Self>, key: Key);

    /// Does `task` run on a processor right now, as far as one knows (and that processor runs too, under a hypervisor)?
    /// False disables spinning: the right answer on one processor.
    fn on_cpu(task: &Task<Self>) -> bool;
    /// Should the caller let another task run?
    fn need_resched() -> bool;
    /// One turn of a spinning loop.
    #[doc(alias = "cpu_relax")]
    fn relax();

    /// How long a chain may be before the walk gives up and calls it a deadlock.
    #[doc(alias = "max_lock_depth")]
    fn max_depth() -> usize {
        1024
    }
    /// A chain was longer than `limit`. Called without locks. [`DepthReport`] says whether to print it.
    fn depth_exceeded(task: &Task<Self>, limit: usize) {
        let _ = (task, limit);
    }
    /// `task` is about to sleep for ever: it used a lock call that cannot fail, and closed a cycle. Called without locks.
    fn deadlock(task: &Task<Self>) {
        let _ = task;
    }

    /// `task` must not be freed from here on.
    fn get_task(task: &'static Task<Self>) {
        let _ = task;
    }
    /// The end of [`get_task`](Self::get_task).
    fn put_task(task: &'static Task<Self>) {
        let _ = task;
    }
    /// Opens a section in which a task that was seen owning a lock is not freed (RCU).
    fn read_lock() {}
    /// Closes what [`read_lock`](Self::read_lock) opened.
    fn read_unlock() {}

    /// A point that a test may stop at or count. Empty everywhere else.
    #[inline(always)]
    fn at(point: Point) {
        let _ = point;
    }
}

/// A raw spinlock, taken with interrupts off, held for a bounded time.
///
/// # Safety
///
/// At most one holder; `unlock` releases and `lock`, `try_lock` acquire: what was done under the lock before is visible
/// after. After `unlock`'s store the lock's memory is not touched.
pub unsafe trait RawSpin: Send + Sync {
    /// An unlocked lock.
    #[cfg(not(loom))]
    const UNLOCKED: Self;
    /// An unlocked lock.
    #[cfg(loom)]
    fn unlocked() -> Self;
    /// Takes the lock.
    fn lock(&self);
    /// Takes the lock if it is free.
    fn try_lock(&self) -> bool;
    /// Gives the lock back.
    ///
    /// # Safety
    /// The caller holds it.
    unsafe fn unlock(&self);
}

/// The word that names a lock's owner, and the operations of the fast path on it.
///
/// # Safety
///
/// Each operation is indivisible among all users of the word and has the asked order.
pub unsafe trait OwnerWord<T>: Send + Sync {
    /// False compiles the fast path out: each lock and unlock takes the slow path. Debug kernels do this.
    const FAST: bool;
    /// No owner.
    #[cfg(not(loom))]
    const NONE: Self;
    /// No owner.
    #[cfg(loom)]
    fn none() -> Self;
    /// What the word is.
    fn load(&self, order: core::sync::atomic::Ordering) -> *const T;
    /// Replaces the word.
    fn store(&self, new: *const T, order: core::sync::atomic::Ordering);
    /// Replaces the word; returns what it was.
    fn xchg(&self, new: *const T, order: core::sync::atomic::Ordering) -> *const T;
    /// Replaces the word if it is `old`; returns what it was. A failed compare orders nothing.
    fn cmpxchg(&self, old: *const T, new: *const T, order: core::sync::atomic::Ordering) -> *const T;
}

/// A signal that waits for a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Signal {
    /// None.
    #[default]
    None,
    /// One that ends only interruptible waits.
    Pending,
    /// One that kills the task: it ends killable waits too.
    Fatal,
}

/// How hard a chain walk looks for deadlocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Detect {
    /// The walk ends where no priority changes any more; a cycle behind that point goes unnoticed.
    #[doc(alias = "RT_MUTEX_MIN_CHAINWALK")]
    #[default]
    Min,
    /// The walk follows the whole chain.
    #[doc(alias = "RT_MUTEX_FULL_CHAINWALK")]
    Full,
}

/// Says once per limit that a chain was too long.
///
/// ```
/// use fastpath_rtmutex::kernel::DepthReport;
/// let report = DepthReport::new();
/// assert!(report.first_time(1024));
/// assert!(!report.first_time(1024));
/// assert!(report.first_time(512), "the limit was changed: say it again");
/// ```
pub struct DepthReport {
    last: crate::sync::Count,
}

impl DepthReport {
    crate::sync::const_unless_loom! {
        /// Nothing was reported.
        pub fn new() -> Self {
            Self { last: crate::sync::Count::new(0) }
        }
    }

    /// Is this the first report for this limit, since the limit was last another one?
    pub fn first_time(&self, limit: usize) -> bool {
        let limit = limit as u32;
        loop {
            // ORDERING: Relaxed: the word says only whether to print; it publishes nothing.
            let last = self.last.load(core::sync::atomic::Ordering::Relaxed);
            if last == limit {
                return false;
            }
            // ORDERING: Relaxed, as above.
            if self.last.cmpxchg(last, limit, core::sync::atomic::Ordering::Relaxed) == last {
                return true;
            }
        }
    }
}

impl Default for DepthReport {
    fn default() -> Self {
        Self::new()
    }
}

impl Debug for DepthReport {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("DepthReport")
    }
}

/// Where the algorithm is: for tests that stop a task there, count, or check invariants. See [`Scheduler::at`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Point {
    /// A slow path to a lock begins; no lock is held.
    SlowLock,
    /// The task queued itself; the raw lock is held.
    Queued,
    /// About to sleep or spin; no lock is held.
    BeforeSleep,
    /// Awake again, before the raw lock is taken.
    Awake,
    /// One turn of spinning on the owner.
    Spin,
    /// A slow path to unlock begins; no lock is held.
    SlowUnlock,
    /// The waiters bit is clear, no lock is held, the owner is not yet cleared.
    UnlockWindow,
    /// The releaser is deboosted and the lock handed over; the waiter is not yet woken, no lock is held.
    BeforeWake,
    /// A step of the chain walk, numbered 1 to 13 as in the module's description.
    Walk(u8),
    /// The walk could not get the next lock and starts this step anew.
    WalkRetry,
    /// A wait failed; the task is about to leave the queue; the raw lock is held.
    Leave,
    /// A reader or writer goes the slow way; no lock is held.
    RwSlow,
    /// A sleeper was taken out of a [`WaitQueue`](super::WaitQueue) and is about to be put into a mutex's queue; no lock is
    /// held.
    Requeue,
}
