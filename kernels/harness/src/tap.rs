// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The list of tests, the plan, and a line per test.

use crate::{BootProcessorOnly, Machine, interrupts, processors, refcount};
use core::fmt::{self, Write};
use core::marker::PhantomData;
use fastpath_cmpxchg::backend::Generic;
use fastpath_cmpxchg::{Backend, DoubleOps, LocalDoubleOps, Native};
use fastpath_testkit::cmpxchg_suite as cmpxchg;

/// The machine's console as a `fmt::Write`.
pub(crate) struct Console<M>(PhantomData<M>);

impl<M> Console<M> {
    #[cfg(feature = "icount")]
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<M: Machine> Write for Console<M> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        M::write(text);
        Ok(())
    }
}

/// A named list of cases, and why they are left out, if they are.
type Group<'a> = (&'a str, &'a [cmpxchg::Case], Option<&'a str>);

/// What stands for tests on a machine too small for them: the same names, so that plans agree.
#[cfg(not(all(feature = "slub", feature = "tasks")))]
fn left_out<const N: usize>(names: [&'static str; N]) -> [cmpxchg::Case; N] {
    names.map(|name| (name, (|| {}) as fn()))
}

/// Runs every test, prints a line for each, and ends the machine.
pub fn run<M: Machine>() -> ! {
    #[cfg(feature = "icount")]
    if M::COUNTS {
        crate::icount::run::<M>();
    }
    type Off<M> = Generic<BootProcessorOnly<<M as Machine>::Interrupts>>;
    #[cfg(feature = "slub")]
    let (slub_off, slub_own, too_small) = (
        crate::slub::cases::<M, crate::slub::Off<M>>(),
        crate::slub::cases::<M, crate::slub::Own<M>>(),
        None,
    );
    #[cfg(not(feature = "slub"))]
    let (slub_off, slub_own, too_small) =
        (left_out(crate::SLUB_CASES), left_out(crate::SLUB_CASES), Some("two pages and a stack do not fit"));
    #[cfg(feature = "tasks")]
    let (slub_tasks, rtmutex, several, no_tasks) =
        (crate::slub_tasks::cases::<M>(), crate::mutexes::cases::<M>(), crate::mutexes::several::<M>(), None);
    #[cfg(not(feature = "tasks"))]
    let (slub_tasks, rtmutex, several, no_tasks) = (
        left_out(crate::SLUB_TASKS_CASES),
        left_out(crate::RTMUTEX_CASES),
        left_out(crate::SEVERAL_CASES),
        Some("the tasks' stacks do not fit"),
    );
    let groups: [Group; 13] = [
        ("cmpxchg native", &cmpxchg::cases::<Native>(), None),
        ("cmpxchg native", &cmpxchg::double_cases::<Native>(), None),
        ("cmpxchg generic", &cmpxchg::cases::<Off<M>>(), None),
        ("cmpxchg generic", &cmpxchg::double_cases::<Off<M>>(), None),
        (
            "interrupts",
            &[
                ("K12 native local forms under a timer", interrupts::k12::<M, Native>),
                ("K12 generic local forms under a timer", interrupts::k12::<M, Off<M>>),
            ],
            None,
        ),
        ("processors", &[("K11 every increment counts", processors::k11::<M>)], None),
        ("refcount", &refcount::cases(), None),
        ("refcount", &[("K73 balanced on every processor", refcount::balanced_everywhere::<M>)], None),
        ("slub tid, interrupts off", &slub_off, too_small),
        ("slub tid, local", &slub_own, too_small),
        ("rtmutex", &rtmutex, no_tasks),
        ("rtmutex, several processors", &several, no_tasks),
        ("slub tid, tasks", &slub_tasks, no_tasks),
    ];
    let mut console = Console::<M>(PhantomData);
    let total: usize = groups.iter().map(|(_, cases, _)| cases.len()).sum();
    // Firmware may have left the line unfinished.
    let _ = writeln!(console, "\nTAP version 13");
    let _ = writeln!(
        console,
        "# machine {}, {} processors, native backend {}, double words {}, local double words {}",
        M::NAME,
        M::processors(),
        Native::NAME,
        Native::available(),
        Native::available_local()
    );
    let _ = writeln!(console, "1..{total}");
    let mut number = 0;
    for (group, cases, skipped) in groups {
        for (name, case) in cases {
            number += 1;
            let _ = if let Some(reason) = skipped {
                writeln!(console, "ok {number} - {group}: {name} # SKIP {reason}")
            } else {
                case();
                writeln!(console, "ok {number} - {group}: {name}")
            };
        }
    }
    let _ = writeln!(console, "# passed {number} of {total}");
    M::afterwards();
    M::exit(number == total)
}

/// What a panic handler does: the current test failed, and with it the run.
pub fn fail<M: Machine>(info: &core::panic::PanicInfo) -> ! {
    let _ = writeln!(Console::<M>(PhantomData), "not ok - {info}\nBail out!");
    M::exit(false)
}
