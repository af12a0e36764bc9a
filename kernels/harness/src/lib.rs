// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Runs the contract suites on a machine and prints TAP (test anything protocol).
//!
//! A machine brings what [`Machine`] asks for: a console, an exit, a timer interrupt, its other processors, and how to
//! turn interrupts off. The list of tests is the same on every machine and on the host (`kernels/hosted`), so their
//! plans can be compared.
#![no_std]

#[cfg(feature = "tasks")]
mod arch;
#[cfg(feature = "icount")]
mod icount;
mod interrupts;
#[cfg(feature = "tasks")]
mod mutexes;
mod percpu;
mod processors;
mod refcount;
#[cfg(feature = "tasks")]
mod sched;
#[cfg(feature = "slub")]
mod slub;
#[cfg(feature = "tasks")]
mod slub_tasks;
mod tap;

#[cfg(all(feature = "tasks", target_arch = "arm"))]
pub use arch::arm;
pub use interrupts::tick;
pub use percpu::{AREAS, Here, PROCESSORS, PerCpu};
#[cfg(feature = "tasks")]
pub use percpu::{Pinned, pinned};
#[cfg(feature = "tasks")]
pub use sched::{Preemption, PreemptionOff, kicked};
pub use tap::{fail, run};

use core::marker::PhantomData;
use fastpath_cmpxchg::interrupt::InterruptControl;

/// The slab allocator's tests by name, in order.
const SLUB_CASES: [&str; 7] = [
    "K19 last in, first out",
    "K25 every live object",
    "K45 in bulk",
    "K44 destroyed with a live object",
    "out of memory",
    "K47 a timer allocates and frees",
    "K24 objects come back from every processor",
];

/// The mutex's tests by name: the suite's in its order, then the scheduler's own.
const RTMUTEX_CASES: [&str; 9] = [
    "K75 K77 uncontended",
    "exclusion",
    "K78 order",
    "K80 boost",
    "K81 K82 chain",
    "K83 deadlock",
    "K85 time out",
    "priority inversion",
    "preempted at any instruction",
];

/// The mutex's on several processors, by name.
const SEVERAL_CASES: [&str; 3] =
    ["K80 boost across processors", "K81 chain across processors", "exclusion, with time limits"];

/// The slab allocator's under tasks, by name.
const SLUB_TASKS_CASES: [&str; 4] = [
    "local: moved between any two steps",
    "interrupts off: moved between any two steps",
    "local: K24 K47 preempted anywhere on every processor",
    "interrupts off: K24 K47 preempted anywhere on every processor",
];

/// A machine under test.
pub trait Machine: 'static {
    /// Its name in reports.
    const NAME: &'static str;
    /// How this processor's interrupts are turned off.
    type Interrupts: InterruptControl<State: Copy> + Sync;
    /// Writes to the console.
    fn write(text: &str);
    /// Ends the run: status 0 if `passed`.
    fn exit(passed: bool) -> !;
    /// What only this machine can show, after all tests have passed.
    fn afterwards() {}
    /// Makes the timer interrupt this processor about every 100 microseconds; the handler calls [`tick`].
    fn start_timer();
    /// No more interrupts after it returns.
    fn stop_timer();
    /// Whether it has a clock for the tables in instructions.
    const COUNTS: bool = false;
    /// Core and architecture for the tables, without spaces.
    const SHORT: &'static str = "unknown";
    /// See `SHORT`.
    const ARCH: &'static str = "unknown";
    /// The emulator's time.
    fn nanoseconds() -> u64 {
        0
    }
    /// How many of its processors run tasks.
    const TASK_PROCESSORS: usize = 1;
    /// This processor's area, by its per-CPU base register.
    #[inline(always)]
    fn per_cpu() -> &'static PerCpu {
        &AREAS[0]
    }
    /// Interrupts another processor, whose handler calls [`kicked`]. Interrupts are off here.
    fn kick(processor: usize) {
        let _ = processor;
    }
    /// Lets this processor be kicked, until [`stop_timer`](Self::stop_timer).
    fn accept_kicks() {}
    /// How {list, tid} of a slot change together on the own processor, without what several processors would need.
    #[cfg(feature = "slub")]
    type Front: fastpath_slub::tid::backend::TidBackend;
    /// See [`Front`](Self::Front).
    #[cfg(feature = "slub")]
    fn front() -> Self::Front;
    /// How many processors [`everywhere`](Self::everywhere) uses.
    fn processors() -> usize;
    /// Runs `work` on every processor at once, and returns when all are done.
    fn everywhere(work: fn());
}

/// The machine's interrupts-off, for words that only the boot processor uses: that is what makes the full forms of
/// `generic` sound on a machine with several.
pub struct BootProcessorOnly<I>(PhantomData<I>);

// SAFETY: the controller's own promise for this processor; no other one touches the words of the tests that use it.
unsafe impl<I: InterruptControl> InterruptControl for BootProcessorOnly<I> {
    type State = I::State;
    const EXCLUDES_OTHER_PROCESSORS: bool = true;

    #[inline(always)]
    fn disable() -> Self::State {
        I::disable()
    }

    #[inline(always)]
    unsafe fn restore(state: Self::State) {
        // SAFETY: the caller's guarantee is the same.
        unsafe { I::restore(state) };
    }
}
