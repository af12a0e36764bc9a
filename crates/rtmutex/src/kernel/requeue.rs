// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! A queue of sleepers that are moved to a mutex instead of being woken: a condition variable that inherits priorities.
//!
//! Waking ten sleepers that all need one mutex makes nine of them wake up to sleep again, in no good order. Here the one who
//! notifies puts them into the mutex's queue by proxy, by urgency, and only the one who gets the mutex wakes up.
//!
//! # Stages of a sleeper
//!
//! | stage | meaning | next |
//! |---|---|---|
//! | None | asleep in the queue | Ignore; InProgress: a mover took it out |
//! | Ignore | it left by itself | - |
//! | InProgress | taken out of the queue, being put into the mutex's | Done, Locked, Woken; None: could not be moved; Wait |
//! | Wait | as InProgress, and the sleeper is awake: it waits for the outcome | as for InProgress |
//! | Done | it is in the mutex's queue | - |
//! | Locked | it owns the mutex | - |
//! | Woken | it had not even given the mutex back yet: it takes it again by itself | - |
//!
//! # Invariants
//!
//! 1. The sleeper makes the steps None → Ignore and InProgress → Wait, the mover all others. Done, Locked, Woken and
//!    Ignore are final.
//! 2. A sleeper does not return before its stage is final. The mover does not touch a sleeper after it stored a final
//!    stage, only its task, which it holds.
//! 3. `node` is linked while the stage is None, or Ignore until its task or a mover has unlinked it; under the queue's lock.
//! 4. A sleeper that was moved waits for the mutex without deadline and signals: it was notified, and returns with the mutex
//!    whatever happens.
//!
//! The queue's raw lock is given back before the mutex is touched: two raw locks at most are held, also here.
//!
//! # Ordering
//!
//! The mover's Release exchange to a final stage pairs with the sleeper's Acquire load: it sees the mutex taken for it, and
//! with it what the last owner wrote.

use core::fmt;
use core::ptr;
use core::sync::atomic::Ordering;

use super::block::LockError;
use super::key::Rank;
use super::mutex::{RawMutex, Wait};
use super::proxy::Started;
use super::sched::{Point, RawSpin, Scheduler};
use super::sleep::{TaskState, Wake};
use super::task::Task;
use super::tree::{Node, Tree};
use super::waiter::Waiter;
use crate::sync::Count;

const NONE: u32 = 0;
const IGNORE: u32 = 1;
const IN_PROGRESS: u32 = 2;
const WAIT: u32 = 3;
const DONE: u32 = 4;
const LOCKED: u32 = 5;
const WOKEN: u32 = 6;

/// One sleeping task, on its own stack.
struct Sleeper<S: Scheduler> {
    node: Node<Sleeper<S>>,
    task: &'static Task<S>,
    target: *const RawMutex<S>,
    stage: Count,
    waiter: Waiter<S>,
}

impl<S: Scheduler> Sleeper<S> {
    /// ORDERING: Acquire pairs with the Release in `set_stage`.
    fn stage(&self) -> u32 {
        self.stage.load(Ordering::Acquire)
    }
}

/// Why nobody was moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequeueError {
    /// The count of tasks to wake is not 1, or a sleeper waits for another mutex (`EINVAL`).
    #[doc(alias = "EINVAL")]
    Invalid,
    /// Moving the next sleeper would close a circle (`EDEADLK`). It sleeps on; those before it were moved.
    #[doc(alias = "EDEADLK")]
    Deadlock,
}

impl fmt::Display for RequeueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Invalid => "wrong count, or a sleeper of another mutex",
            Self::Deadlock => "a sleeper would wait for itself",
        })
    }
}

impl core::error::Error for RequeueError {}

/// The queue. See the module.
#[doc(alias = "condvar")]
pub struct WaitQueue<S: Scheduler> {
    lock: S::RawLock,
    sleepers: Tree<Sleeper<S>>,
}

// SAFETY: the tree is accessed under `lock`, its sleepers as the stages say.
unsafe impl<S: Scheduler> Sync for WaitQueue<S> {}
// SAFETY: a queue without sleepers is plain data.
unsafe impl<S: Scheduler> Send for WaitQueue<S> {}

impl<S: Scheduler> WaitQueue<S> {
    #[cfg(not(loom))]
    /// An empty queue.
    pub const fn new() -> Self {
        Self { lock: S::RawLock::UNLOCKED, sleepers: Tree::new() }
    }

    #[cfg(loom)]
    /// An empty queue.
    pub fn new() -> Self {
        Self { lock: S::RawLock::unlocked(), sleepers: Tree::new() }
    }

    /// Gives `mutex` back, sleeps until notified, and takes it again.
    ///
    /// The task has the mutex again when this returns, whatever it returns. There are no spurious returns with `Ok`.
    ///
    /// # Errors
    ///
    /// [`LockError::TimedOut`], [`LockError::Interrupted`]: not notified, as `wait` allows.
    ///
    /// # Safety
    ///
    /// The calling task owns `mutex`, and all sleepers of one queue use the same one.
    #[doc(alias = "futex_wait_requeue_pi")]
    pub unsafe fn wait(&self, mutex: &RawMutex<S>, wait: Wait) -> Result<(), LockError> {
        let me = S::current();
        let sleeper = Sleeper {
            node: Node::new(),
            task: me,
            target: mutex,
            stage: Count::new(NONE),
            waiter: Waiter::new(),
        };
        let how = wait.how::<S>();
        let key = me.effective();
        // Before the mutex is given back: who takes it and notifies finds a sleeper.
        me.set_state(how.state);
        // SAFETY: the sleeper stays here until its stage is final and it is unlinked (Invariants 2, 3).
        self.locked(|| unsafe { self.sleepers.insert(&sleeper.node, Rank::plain(key), &raw const sleeper) });
        // SAFETY: the caller owns it.
        unsafe { mutex.unlock() };
        let mut error = None;
        let stage = loop {
            match sleeper.stage() {
                NONE => {
                    if how.deadline.is_some_and(|deadline| S::now() >= deadline) {
                        error = Some(LockError::TimedOut);
                    } else if how.state.ended_by(S::signal(me)) {
                        error = Some(LockError::Interrupted);
                    }
                    if error.is_none() {
                        me.schedule(how.deadline);
                        me.set_state(how.state);
                    } else if self.leave(&sleeper) {
                        break IGNORE;
                    }
                }
                // Awake, whyever: the wake-up may be the mutex's already, if its owner met our waiter in its queue before
                // the mover could say so. It must not be slept over.
                IN_PROGRESS => Self::await_outcome(&sleeper, how.state),
                stage => break stage,
            }
        };
        me.set_state(TaskState::Running);
        match stage {
            LOCKED => Ok(()),
            WOKEN => {
                mutex.lock();
                Ok(())
            }
            DONE => {
                // SAFETY: the mover queued `waiter` for this task, and cannot fail without deadline and signals.
                let waited = unsafe { mutex.proxy().wait(&sleeper.waiter, Wait::uninterruptible()) };
                debug_assert!(waited.is_ok(), "nothing can end this wait");
                Ok(())
            }
            _ => {
                mutex.lock();
                error.map_or(Ok(()), Err)
            }
        }
    }

    /// The sleeper leaves, unless a mover was faster. True if it left.
    fn leave(&self, sleeper: &Sleeper<S>) -> bool {
        // ORDERING: Relaxed: nothing is published; the queue's lock orders the unlinking.
        if sleeper.stage.cmpxchg(NONE, IGNORE, Ordering::Relaxed) != NONE {
            return false;
        }
        // SAFETY: under the queue's lock; linked unless a mover that saw the stage was here first.
        self.locked(|| unsafe {
            if sleeper.node.is_linked() {
                self.sleepers.remove(&sleeper.node);
            }
        });
        true
    }

    /// The sleeper woke up while it was being moved: waits until the mover is done with it.
    #[doc(alias = "futex_requeue_pi_wakeup_sync")]
    fn await_outcome(sleeper: &Sleeper<S>, state: TaskState) {
        // ORDERING: Relaxed: the mover's exchange to a final stage orders.
        if sleeper.stage.cmpxchg(IN_PROGRESS, WAIT, Ordering::Relaxed) == IN_PROGRESS {
            loop {
                sleeper.task.set_state(TaskState::Uninterruptible);
                if sleeper.stage() != WAIT {
                    break;
                }
                sleeper.task.schedule(None);
            }
            sleeper.task.set_state(state);
        }
    }

    /// Gives `mutex` to the most urgent sleeper, or puts it into the mutex's queue. Returns whether there was one.
    ///
    /// Best called with the mutex held. Without it, a sleeper between its check and its sleep cannot be missed either: it
    /// queues itself before it gives the mutex back.
    ///
    /// # Errors
    ///
    /// See [`requeue`](Self::requeue).
    pub fn notify_one(&self, mutex: &RawMutex<S>) -> Result<bool, RequeueError> {
        self.requeue(mutex, 1, 0).map(|moved| moved == 1)
    }

    /// Gives `mutex` to the most urgent sleeper and puts all others into the mutex's queue. Returns how many there were.
    ///
    /// # Errors
    ///
    /// See [`requeue`](Self::requeue).
    pub fn notify_all(&self, mutex: &RawMutex<S>) -> Result<usize, RequeueError> {
        self.requeue(mutex, 1, usize::MAX)
    }

    /// Moves up to `wake` + `requeue` sleepers to `mutex`, most urgent first: the first gets it if it is free. Returns how
    /// many were moved.
    ///
    /// A queue and a mutex are different types, so that they can never be the same object.
    ///
    /// # Errors
    ///
    /// [`RequeueError::Invalid`]: `wake` is not 1 (only one task can get a mutex), or a sleeper waits for another mutex.
    /// [`RequeueError::Deadlock`]: see there.
    #[doc(alias = "futex_requeue")]
    pub fn requeue(&self, mutex: &RawMutex<S>, wake: usize, requeue: usize) -> Result<usize, RequeueError> {
        if wake != 1 {
            return Err(RequeueError::Invalid);
        }
        let mut moved = 0;
        while moved <= requeue {
            // A sleeper that is awake waits for us while it is InProgress: that must not last as long as others like to run.
            S::preempt_disable();
            let taken = self.take(mutex);
            let Ok(Some(sleeper)) = taken else {
                S::preempt_enable();
                taken?;
                break;
            };
            S::at(Point::Requeue);
            // SAFETY: InProgress: the sleeper stays until its stage is final.
            let (task, outcome) = unsafe {
                let task = (*sleeper).task;
                S::get_task(task);
                (task, self.move_to(mutex, &*sleeper))
            };
            S::put_task(task);
            S::preempt_enable();
            outcome?;
            moved += 1;
            if moved > requeue {
                break;
            }
        }
        Ok(moved)
    }

    /// Takes the most urgent sleeper that has not left out of the queue: it is InProgress then.
    fn take(&self, mutex: &RawMutex<S>) -> Result<Option<*const Sleeper<S>>, RequeueError> {
        self.locked(|| {
            loop {
                let first = self.sleepers.first();
                if first.is_null() {
                    return Ok(None);
                }
                // SAFETY: linked, so its task is still in `wait`, and cannot unlink it without the lock we hold.
                let sleeper = unsafe { &*first };
                if !ptr::eq(sleeper.target, mutex) {
                    return Err(RequeueError::Invalid);
                }
                // SAFETY: linked here, and the lock is held.
                unsafe { self.sleepers.remove(&sleeper.node) };
                // ORDERING: Acquire: what the sleeper did before it slept; it wrote all that is used under the lock anyway.
                if sleeper.stage.cmpxchg(NONE, IN_PROGRESS, Ordering::Acquire) == NONE {
                    return Ok(Some(first));
                }
                // It left by itself: Ignore.
            }
        })
    }

    /// Puts an InProgress sleeper into the mutex's queue, or gives it the mutex.
    fn move_to(&self, mutex: &RawMutex<S>, sleeper: &Sleeper<S>) -> Result<(), RequeueError> {
        let task = sleeper.task;
        // SAFETY: the task waits for nothing else and cannot leave before the stage is final; the waiter lives as long.
        let stage = match unsafe { mutex.proxy().start_unless_owned(&sleeper.waiter, task) } {
            Some(Ok(Started::Acquired)) => LOCKED,
            Some(Ok(Started::Queued)) => DONE,
            // A notifier without the mutex met a sleeper that still owns it: queued, but not yet through `unlock`.
            None => WOKEN,
            Some(Err(_)) => {
                // Back into the queue; under its lock, so that nobody takes it out again before the stage is right.
                let awake = self.locked(|| {
                    let rank = Rank::plain(task.effective());
                    // SAFETY: it was taken out in `take`; as in `wait`.
                    unsafe { self.sleepers.insert(&sleeper.node, rank, sleeper) };
                    Self::set_stage(sleeper, NONE) == WAIT
                });
                if awake {
                    task.wake(Wake::Normal);
                }
                return Err(RequeueError::Deadlock);
            }
        };
        // The last access to the sleeper.
        if Self::set_stage(sleeper, stage) == WAIT || matches!(stage, LOCKED | WOKEN) {
            task.wake(Wake::Normal);
        }
        Ok(())
    }

    /// Stores a stage; returns the one before.
    fn set_stage(sleeper: &Sleeper<S>, stage: u32) -> u32 {
        loop {
            // ORDERING: Relaxed: the exchange decides.
            let was = sleeper.stage.load(Ordering::Relaxed);
            // ORDERING: Release pairs with the Acquire in `stage`.
            if sleeper.stage.cmpxchg(was, stage, Ordering::Release) == was {
                return was;
            }
        }
    }

    /// Runs `f` under the queue's lock.
    fn locked<R>(&self, f: impl FnOnce() -> R) -> R {
        let irq = S::irq_save();
        self.lock.lock();
        let result = f();
        // SAFETY: taken above.
        unsafe { self.lock.unlock() };
        S::irq_restore(irq);
        result
    }
}

impl<S: Scheduler> Default for WaitQueue<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Scheduler> fmt::Debug for WaitQueue<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WaitQueue")
    }
}
