// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The kernel's algorithm under the seeds' loop: one task, nobody to switch to, four ways to change the owner word.

#![expect(unsafe_code, reason = "implements the algorithm's unsafe surroundings for one thread")]

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};

use fastpath_cmpxchg::Atomic;
use fastpath_cmpxchg::backend::Generic;
use fastpath_cmpxchg::interrupt::InterruptControl;
use fastpath_rtmutex::kernel::{
    ForcedSlow, Key, Native, NoLock, OwnerWord, RawMutex, RawSpin, Scheduler, Signal, SpinOnWord, Task,
};

/// The model of a processor's interrupt flag: reading, clearing and writing it back are real memory accesses.
static INTERRUPTS_ON: AtomicBool = AtomicBool::new(true);

/// The model's controller.
pub(super) struct Model;

// SAFETY: one thread uses what depends on it (see `measure`), so there is nobody to keep away; the fences keep the
// compiler from moving accesses out of the section.
unsafe impl InterruptControl for Model {
    type State = bool;
    const EXCLUDES_OTHER_PROCESSORS: bool = true;

    #[inline(always)]
    fn disable() -> bool {
        // ORDERING: Relaxed: one thread.
        let before = INTERRUPTS_ON.load(Ordering::Relaxed);
        INTERRUPTS_ON.store(false, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        before
    }

    #[inline(always)]
    unsafe fn restore(state: bool) {
        compiler_fence(Ordering::SeqCst);
        // ORDERING: Relaxed: one thread.
        INTERRUPTS_ON.store(state, Ordering::Relaxed);
    }
}

/// An owner word without compare-and-exchange: interrupts off, read, compare, write, interrupts on.
pub(super) struct Emulated<T>(Atomic<*const T, Generic<Model>>);

// SAFETY: the backend's operations are indivisible for the one thread that uses the word, and ordered for it.
unsafe impl<T> OwnerWord<T> for Emulated<T> {
    const FAST: bool = true;
    const NONE: Self = Self(Atomic::new_in(std::ptr::null()));

    #[inline(always)]
    fn load(&self, order: Ordering) -> *const T {
        self.0.load(order)
    }

    #[inline(always)]
    fn store(&self, new: *const T, order: Ordering) {
        self.0.store(new, order);
    }

    #[inline(always)]
    fn xchg(&self, new: *const T, order: Ordering) -> *const T {
        self.0.xchg(new, order)
    }

    #[inline(always)]
    fn cmpxchg(&self, old: *const T, new: *const T, order: Ordering) -> *const T {
        self.0.cmpxchg(old, new, order)
    }
}

/// What distinguishes the four.
pub(super) trait Variant: Sized + 'static {
    /// The owner word.
    type Owner: OwnerWord<Task<Alone<Self>>>;
    /// The raw lock of the slow path.
    type RawLock: RawSpin;
    /// The only task.
    fn task() -> &'static Task<Alone<Self>>;
}

/// Surroundings with one task.
pub(super) struct Alone<V>(PhantomData<V>);

// SAFETY: one task on one thread. It never waits: nobody else owns a lock of this scheduler.
unsafe impl<V: Variant> Scheduler for Alone<V> {
    type RawLock = V::RawLock;
    type Owner = V::Owner;
    type Irq = bool;
    type Data = ();

    #[inline(always)]
    fn current() -> &'static Task<Self> {
        V::task()
    }

    #[inline(always)]
    fn irq_save() -> bool {
        Model::disable()
    }

    #[inline(always)]
    fn irq_restore(irq: bool) {
        // SAFETY: `irq` comes from the matching `irq_save`.
        unsafe { Model::restore(irq) };
    }

    fn preempt_disable() {}
    fn preempt_enable() {}
    fn park(_deadline: Option<u64>) {}
    fn unpark(_task: &'static Task<Self>) {}

    fn now() -> u64 {
        0
    }

    fn signal(_task: &Task<Self>) -> Signal {
        Signal::None
    }

    fn priority_changed(_task: &'static Task<Self>, _key: Key) {}

    fn on_cpu(_task: &Task<Self>) -> bool {
        false
    }

    fn need_resched() -> bool {
        false
    }

    fn relax() {}
}

macro_rules! variant {
    ($(#[$doc:meta])* $name:ident, $owner:ty, $raw:ty) => {
        $(#[$doc])*
        pub(super) struct $name;

        impl Variant for $name {
            type Owner = $owner;
            type RawLock = $raw;

            #[inline(always)]
            fn task() -> &'static Task<Alone<Self>> {
                static TASK: Task<Alone<$name>> = Task::new(Key::NORMAL, ());
                &TASK
            }
        }
    };
}

variant!(
    /// The processor's compare-and-exchange, raw spinlocks for several processors.
    Fast, Native<Task<Alone<Self>>>, SpinOnWord
);
variant!(
    /// The same without the fast path.
    Slow, ForcedSlow<Native<Task<Alone<Self>>>>, SpinOnWord
);
variant!(
    /// No compare-and-exchange, one processor: interrupts off is all there is.
    GenericFast, Emulated<Task<Alone<Self>>>, NoLock
);
variant!(
    /// The same without the fast path.
    GenericSlow, ForcedSlow<Emulated<Task<Alone<Self>>>>, NoLock
);

/// `n` times lock and unlock. Called by the measuring thread only.
pub(super) fn pairs<V: Variant>(lock: &RawMutex<Alone<V>>, n: u64) {
    for _ in 0..n {
        let lock = std::hint::black_box(lock);
        lock.lock();
        // SAFETY: locked in the line before, by the only task.
        unsafe { lock.unlock() };
    }
}
