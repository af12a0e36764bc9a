// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The lock/unlock loop in which the fast path was first measured: one task, one free lock, locked and unlocked over and
//! over, on a scheduler that has nothing to schedule.
//!
//! What is measured is the algorithm and nothing else: no system call, no other task. The variants differ in the owner
//! word, and in what the raw lock is.
//!
//! | variant | owner word | raw lock |
//! |---|---|---|
//! | [`Variant::Slow`] | the target's own, fast path compiled out | none: one processor, interrupts off |
//! | [`Variant::SlowSmp`] | the same | a spinlock: several processors |
//! | [`Variant::Native`] | the target's own | none (and not used) |
//! | [`Variant::Generic`] | the generic compare-and-exchange, interrupts off around plain accesses | none (and not used) |
//!
//! Interrupts are a model of a status register: a volatile word per variant that is read and written to disable and
//! written to restore, as the instructions for it would be, without what such an instruction costs on a given processor.

use core::cell::UnsafeCell;

use fastpath_cmpxchg::backend::Generic;
use fastpath_cmpxchg::interrupt::InterruptControl;
use fastpath_cmpxchg::{Atomic, Ordering};

use super::key::Key;
use super::mutex::RawMutex;
use super::raw::{Emulated, ForcedSlow, Native, NoLock, SpinOnWord};
use super::sched::{Scheduler, Signal};
use super::task::Task;

/// Which lock is locked and unlocked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// Always the slow path, one processor.
    Slow,
    /// Always the slow path, with a raw spinlock.
    SlowSmp,
    /// The fast path on the target's own compare-and-exchange.
    Native,
    /// The fast path on the generic compare-and-exchange.
    Generic,
}

impl Variant {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 4] = [Self::Slow, Self::SlowSmp, Self::Native, Self::Generic];
}

/// A modelled status register.
struct Register(UnsafeCell<u32>);

// SAFETY: used by one thread at a time: `RUNNING` admits one.
unsafe impl Sync for Register {}

static STATUS: Register = Register(UnsafeCell::new(0));

impl Register {
    #[inline(always)]
    fn disable(&self) -> u32 {
        // SAFETY: one thread at a time.
        unsafe {
            let was = self.0.get().read_volatile();
            self.0.get().write_volatile(was | 1);
            was
        }
    }
    #[inline(always)]
    fn restore(&self, was: u32) {
        // SAFETY: one thread at a time.
        unsafe { self.0.get().write_volatile(was) };
    }
}

/// The model's interrupts, for the generic compare-and-exchange.
#[derive(Debug)]
pub struct ModelledInterrupts;

// SAFETY: the only code that shares the word is this module's loop, one thread at a time, without signal handlers.
unsafe impl InterruptControl for ModelledInterrupts {
    type State = u32;
    const EXCLUDES_OTHER_PROCESSORS: bool = true;
    #[inline(always)]
    fn disable() -> u32 {
        STATUS.disable()
    }
    #[inline(always)]
    unsafe fn restore(state: u32) {
        STATUS.restore(state);
    }
}

/// One thread at a time is the one task there is.
static RUNNING: Atomic<bool> = Atomic::new(false);

macro_rules! schedulers {
    ($($name:ident: $owner:ty, $raw:ty;)*) => {$(
        struct $name;
        impl $name {
            fn task() -> &'static Task<Self> {
                static TASK: Task<$name> = Task::new(Key::NORMAL, ());
                &TASK
            }
        }
        // SAFETY: one task, one thread (`RUNNING`); nothing ever has to wait.
        unsafe impl Scheduler for $name {
            type RawLock = $raw;
            type Owner = $owner;
            type Irq = u32;
            type Data = ();
            #[inline(always)]
            fn current() -> &'static Task<Self> {
                Self::task()
            }
            #[inline(always)]
            fn irq_save() -> u32 {
                STATUS.disable()
            }
            #[inline(always)]
            fn irq_restore(irq: u32) {
                STATUS.restore(irq);
            }
            fn preempt_disable() {}
            fn preempt_enable() {}
            fn park(_: Option<u64>) {}
            fn unpark(_: &'static Task<Self>) {}
            fn now() -> u64 {
                0
            }
            fn signal(_: &Task<Self>) -> Signal {
                Signal::None
            }
            fn priority_changed(_: &'static Task<Self>, _: Key) {}
            fn on_cpu(_: &Task<Self>) -> bool {
                false
            }
            fn need_resched() -> bool {
                false
            }
            fn relax() {}
        }
    )*};
}
schedulers! {
    Slow: ForcedSlow<Native<Task<Self>>>, NoLock;
    SlowSmp: ForcedSlow<Native<Task<Self>>>, SpinOnWord;
    Fast: Native<Task<Self>>, NoLock;
    Emulation: Emulated<Task<Self>, Generic<ModelledInterrupts>>, NoLock;
}

#[inline(never)]
fn pairs<S: Scheduler>(lock: &RawMutex<S>, count: u32) {
    for _ in 0..count {
        lock.lock();
        // SAFETY: locked in the line above.
        unsafe { lock.unlock() };
    }
}

/// Locks and unlocks a free lock `count` times. Returns false, and does nothing, if another thread is in here.
///
/// ```
/// use fastpath_rtmutex::kernel::seedloop::{Variant, lock_unlock};
/// let start = std::time::Instant::now();
/// assert!(lock_unlock(Variant::Native, 1_000));
/// println!("{} ns", start.elapsed().as_nanos() / 1_000);
/// ```
#[must_use]
pub fn lock_unlock(variant: Variant, count: u32) -> bool {
    static SLOW: RawMutex<Slow> = RawMutex::new();
    static SLOW_SMP: RawMutex<SlowSmp> = RawMutex::new();
    static FAST: RawMutex<Fast> = RawMutex::new();
    static EMULATION: RawMutex<Emulation> = RawMutex::new();
    // ORDERING: Acquire pairs with the Release below: the thread before is done with the model.
    if RUNNING.cmpxchg(false, true, Ordering::Acquire) {
        return false;
    }
    match variant {
        Variant::Slow => pairs(&SLOW, count),
        Variant::SlowSmp => pairs(&SLOW_SMP, count),
        Variant::Native => pairs(&FAST, count),
        Variant::Generic => pairs(&EMULATION, count),
    }
    // ORDERING: Release pairs with the Acquire above.
    RUNNING.store(false, Ordering::Release);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_runs_and_restores_the_register() {
        for variant in Variant::ALL {
            while !lock_unlock(variant, 100) {}
        }
        while RUNNING.cmpxchg(false, true, Ordering::Acquire) {}
        // SAFETY: admitted in the line above.
        assert_eq!(unsafe { STATUS.0.get().read_volatile() }, 0);
        RUNNING.store(false, Ordering::Release);
    }
}
