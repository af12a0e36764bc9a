// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Looking at locks and tasks from outside: for tests, debuggers and panic handlers.
//!
//! Nothing here takes a lock. It reads what the algorithm's own locks protect, and checks its structural invariants.

use super::key::Key;
use super::lock::LockBase;
use super::mutex::RawMutex;
use super::rw::RwBase;
use super::sched::Scheduler;
use super::spinlock::SpinLock;
use super::task::Task;
use super::ww::WwMutex;

/// Anything that has a lock word and a queue.
pub trait Inspect<S: Scheduler> {
    #[doc(hidden)]
    fn inspected(&self) -> View<'_, S>;
}

/// A lock, seen from outside.
pub struct View<'a, S: Scheduler>(&'a LockBase<S>);

impl<S: Scheduler> core::fmt::Debug for View<'_, S> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

impl<S: Scheduler> Inspect<S> for RawMutex<S> {
    fn inspected(&self) -> View<'_, S> {
        View(self.base())
    }
}
impl<S: Scheduler> Inspect<S> for SpinLock<S> {
    fn inspected(&self) -> View<'_, S> {
        View(self.base())
    }
}
impl<S: Scheduler> Inspect<S> for WwMutex<S> {
    fn inspected(&self) -> View<'_, S> {
        View(self.base())
    }
}
impl<S: Scheduler> Inspect<S> for RwBase<S> {
    fn inspected(&self) -> View<'_, S> {
        View(self.base())
    }
}

/// One queued task, as a lock's tree shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued {
    /// The address of the task that waits.
    pub task: *const (),
    /// The urgency it is queued with.
    pub key: Key,
    /// Its own urgency now.
    pub effective: Key,
}

/// The address by which [`Queued::task`] and the others name a task.
pub fn address<S: Scheduler>(task: &Task<S>) -> *const () {
    core::ptr::from_ref(task).cast()
}

/// The owner's address (null if none) and the waiters bit.
pub fn word<S: Scheduler>(lock: &impl Inspect<S>) -> (*const (), bool) {
    let (owner, bit) = lock.inspected().0.word();
    (owner.cast(), bit)
}

/// Is somebody in the middle of changing this lock?
///
/// Tries the raw lock and gives it back.
pub fn is_quiet<S: Scheduler>(lock: &impl Inspect<S>) -> bool {
    let base = lock.inspected().0;
    let free = base.try_enter_raw();
    if free {
        // SAFETY: taken two lines above.
        unsafe { base.leave_raw() };
    }
    free
}

/// Calls `each` for the lock's waiters, most urgent first, and checks the tree: sorted, balanced, each waiter's lock is this
/// one and its task is blocked on it.
///
/// # Safety
///
/// Nobody else is using the lock: all other tasks are stopped, and none inside the lock's raw lock.
///
/// # Panics
///
/// If an invariant does not hold.
pub unsafe fn waiters<S: Scheduler>(lock: &impl Inspect<S>, each: &mut dyn FnMut(Queued)) {
    let base = lock.inspected().0;
    // SAFETY: the caller's; queued waiters and their tasks are alive.
    unsafe {
        base.waiters.check(&mut |waiter, rank| {
            let waiter = &*waiter;
            assert!(core::ptr::eq(waiter.lock.get(), base), "a queued waiter names its lock");
            let Some(task) = waiter.task.get() else { panic!("a queued waiter has a task") };
            assert!(core::ptr::eq(task.blocked_on.get(), waiter), "a queued task is blocked on its waiter");
            each(Queued { task: address(task), key: rank.key, effective: task.key() });
        });
    }
}

/// Calls `each` with the address of each task through which `task` inherits: the top waiters of the locks it owns, and the
/// urgency inherited, most urgent first.
///
/// # Safety
///
/// Nobody else is using the task: all others are stopped, and none inside the task's raw lock.
///
/// # Panics
///
/// If an invariant does not hold.
pub unsafe fn heirs<S: Scheduler>(task: &Task<S>, each: &mut dyn FnMut(*const (), Key)) {
    // SAFETY: the caller's; waiters in the tree are queued, so alive, and so are their tasks.
    unsafe {
        task.pi_waiters.check(&mut |waiter, rank| {
            let heir = (*waiter).task.get().map_or(core::ptr::null(), |task| address(task));
            each(heir, rank.key);
        });
    }
}

/// `task`'s own urgency, the one it runs at, and whether it is queued, without taking its raw lock.
///
/// # Safety
///
/// As for [`heirs`].
pub unsafe fn task<S: Scheduler>(task: &Task<S>) -> (Key, Key, bool) {
    (task.base_unlocked(), task.key(), !task.blocked_on.get().is_null())
}

/// Is somebody in the middle of changing this task?
pub fn is_quiet_task<S: Scheduler>(task: &Task<S>) -> bool {
    use super::sched::RawSpin;
    let free = task.pi_lock.try_lock();
    if free {
        // SAFETY: taken two lines above.
        unsafe { task.pi_lock.unlock() };
    }
    free
}
