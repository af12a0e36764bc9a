// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Whether a task means to sleep, and what a wake-up does to that.
//!
//! A sleeper first says that it will sleep ([`Task::set_state`]), then checks what it waits for, then calls
//! [`Task::schedule`]. A waker first makes true what is waited for, then calls [`Task::wake`].
//!
//! | state | left by |
//! |---|---|
//! | Running | - |
//! | Interruptible | any wake-up, any signal |
//! | Killable | any wake-up, a fatal signal |
//! | Uninterruptible | any wake-up |
//! | LockWait | a lock wake-up only; an ordinary one changes the *saved* state to Running |
//!
//! # Invariants
//!
//! 1. `state` and `saved` change under the task's raw lock only; the task itself sets them to anything, others only to
//!    Running.
//! 2. Whoever changes `state` to Running from outside unparks the task afterwards, under the same raw lock.
//! 3. `saved` means something only while `state` is LockWait. A lock that sleeps inside another wait (a spinlock taken
//!    between `set_state(Interruptible)` and `schedule`) saves the outer state there, and an ordinary wake-up in the
//!    meantime reaches `saved`: when the lock is taken, the outer wait finds itself woken.
//!
//! # Ordering
//!
//! Both sides change `state` under the raw lock. Either the waker's section comes first, then the sleeper's check, which
//! follows its own section, sees what was made true; or the sleeper's comes first, then the waker finds a state to change
//! and leaves a token, and `schedule` returns. No wake-up is lost, and a token too many is only a spurious wake-up.

use super::sched::{Scheduler, Signal};
use super::task::Task;
use crate::sync::{Cell, const_unless_loom};

/// What a task is doing, as far as sleeping goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TaskState {
    /// Not about to sleep.
    #[default]
    #[doc(alias = "TASK_RUNNING")]
    Running,
    /// Sleeps until woken or signalled.
    #[doc(alias = "TASK_INTERRUPTIBLE")]
    Interruptible,
    /// Sleeps until woken or killed.
    #[doc(alias = "TASK_KILLABLE")]
    Killable,
    /// Sleeps until woken.
    #[doc(alias = "TASK_UNINTERRUPTIBLE")]
    Uninterruptible,
    /// Sleeps for a [`SpinLock`](super::SpinLock) or [`RwLock`](super::RwLock): only that lock's wake-up counts.
    #[doc(alias = "TASK_RTLOCK_WAIT")]
    LockWait,
}

impl TaskState {
    /// Does this signal end a wait in this state?
    pub fn ended_by(self, signal: Signal) -> bool {
        match self {
            Self::Interruptible => signal != Signal::None,
            Self::Killable => signal == Signal::Fatal,
            Self::Running | Self::Uninterruptible | Self::LockWait => false,
        }
    }
}

/// Which sleepers a wake-up is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wake {
    /// Those in an ordinary wait.
    #[default]
    Normal,
    /// Those in [`TaskState::LockWait`].
    Lock,
}

/// The sleep state of one task.
pub(crate) struct Sleep {
    state: Cell<TaskState>,
    saved: Cell<TaskState>,
}

impl Sleep {
    const_unless_loom! {
        pub(crate) fn new() -> Self {
            Self { state: Cell::new(TaskState::Running), saved: Cell::new(TaskState::Running) }
        }
    }
}

impl<S: Scheduler> Task<S> {
    /// Says that the calling task, which must be `self`, is about to sleep in `state` (or is not, with Running).
    #[doc(alias = "set_current_state")]
    pub fn set_state(&self, state: TaskState) {
        self.locked(|| self.sleep.state.set(state));
    }

    /// The state now.
    pub fn state(&self) -> TaskState {
        self.locked(|| self.sleep.state.get())
    }

    /// Sleeps if the calling task, which must be `self`, still means to: returns at once in state Running, otherwise when
    /// woken, when the deadline has passed, or spuriously.
    pub fn schedule(&self, deadline: Option<u64>) {
        if self.state() != TaskState::Running {
            S::park(deadline);
        }
    }

    /// Saves the state and enters [`TaskState::LockWait`].
    #[doc(alias = "current_save_and_set_rtlock_wait_state")]
    pub(crate) fn enter_lock_wait(&self) {
        self.locked(|| {
            self.sleep.saved.set(self.sleep.state.get());
            self.sleep.state.set(TaskState::LockWait);
        });
    }

    /// Puts the saved state back; it is Running by now if a wake-up came in the meantime.
    #[doc(alias = "current_restore_rtlock_saved_state")]
    pub(crate) fn leave_lock_wait(&self) {
        self.locked(|| {
            self.sleep.state.set(self.sleep.saved.get());
            self.sleep.saved.set(TaskState::Running);
        });
    }

    /// Wakes the task if it sleeps, or means to, in a state that `wake` is for. Returns whether it did.
    #[doc(alias = "wake_up_process")]
    pub fn wake(&'static self, wake: Wake) -> bool {
        self.locked(|| {
            let sleep = &self.sleep;
            match (wake, sleep.state.get()) {
                (_, TaskState::Running) => false,
                (Wake::Normal, TaskState::LockWait) => {
                    let slept = sleep.saved.get() != TaskState::Running;
                    sleep.saved.set(TaskState::Running);
                    slept
                }
                (Wake::Normal, _) | (Wake::Lock, TaskState::LockWait) => {
                    sleep.state.set(TaskState::Running);
                    S::unpark(self);
                    true
                }
                (Wake::Lock, _) => false,
            }
        })
    }

    /// Tells the task that [`Scheduler::signal`] now reports a signal: ends the wait it is in, if that signal does.
    #[doc(alias = "signal_wake_up")]
    pub fn interrupt(&'static self) {
        let signal = S::signal(self);
        self.locked(|| {
            let sleep = &self.sleep;
            if sleep.state.get().ended_by(signal) {
                sleep.state.set(TaskState::Running);
                S::unpark(self);
            } else if sleep.state.get() == TaskState::LockWait && sleep.saved.get().ended_by(signal) {
                sleep.saved.set(TaskState::Running);
            }
        });
    }
}
