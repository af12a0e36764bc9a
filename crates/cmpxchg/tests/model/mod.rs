// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! A model interrupt controller for `generic`: one handler per thread, fired at a chosen step of an operation.
//!
//! It behaves as hardware does. A maskable interrupt that arrives while interrupts are off stays pending and is taken the
//! moment they come back on; a non-maskable one is taken at once. A handler runs with interrupts off.
#![allow(dead_code, reason = "each test file uses a part")]

use fastpath_cmpxchg::interrupt::{InterruptControl, Step};
use std::cell::{Cell, RefCell};

thread_local! {
    static ENABLED: Cell<bool> = const { Cell::new(true) };
    static PENDING: Cell<bool> = const { Cell::new(false) };
    static PLAN: Cell<Option<(Step, Kind)>> = const { Cell::new(None) };
    static HANDLER: RefCell<Option<Box<dyn Fn()>>> = const { RefCell::new(None) };
    static TAKEN: Cell<u32> = const { Cell::new(0) };
}

/// What arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Waits while interrupts are off.
    Maskable,
    /// Does not wait.
    NonMaskable,
}

/// Every point between two steps.
pub(crate) const STEPS: [Step; 5] = [Step::Before, Step::Disabled, Step::Read, Step::Written, Step::After];

/// The controller.
#[derive(Debug)]
pub(crate) struct Model;

// SAFETY: a maskable interrupt of the model is taken only while interrupts are on; there is one thread per model state.
// Sections nest: the flag is saved and put back.
unsafe impl InterruptControl for Model {
    type State = bool;
    const EXCLUDES_OTHER_PROCESSORS: bool = true;

    fn disable() -> bool {
        ENABLED.replace(false)
    }

    unsafe fn restore(enabled: bool) {
        ENABLED.set(enabled);
        if enabled && PENDING.take() {
            take();
        }
    }

    fn step(step: Step) {
        let Some((wanted, kind)) = PLAN.get() else { return };
        if wanted != step {
            return;
        }
        PLAN.set(None);
        if kind == Kind::NonMaskable || ENABLED.get() {
            take();
        } else {
            PENDING.set(true);
        }
    }
}

/// Runs the handler with interrupts off, as a processor does.
fn take() {
    TAKEN.set(TAKEN.get() + 1);
    let enabled = ENABLED.replace(false);
    HANDLER.with_borrow(|handler| handler.as_ref().expect("an interrupt has a handler")());
    ENABLED.set(enabled);
}

/// Runs `operation` with one interrupt of `kind` at `step`, handled by `handler`. Returns how many were taken (one, unless
/// the operation has no such step), and asserts that interrupts are on again afterwards and none is left pending.
pub(crate) fn interrupted<R>(
    step: Step,
    kind: Kind,
    handler: impl Fn() + 'static,
    operation: impl FnOnce() -> R,
) -> (R, u32) {
    HANDLER.set(Some(Box::new(handler)));
    TAKEN.set(0);
    PLAN.set(Some((step, kind)));
    let result = operation();
    PLAN.set(None);
    assert!(ENABLED.get(), "interrupts are as they were");
    assert!(!PENDING.get(), "no interrupt is forgotten");
    HANDLER.set(None);
    (result, TAKEN.get())
}

/// Runs `operation` with interrupts off, as a caller that has turned them off itself.
pub(crate) fn with_interrupts_off<R>(operation: impl FnOnce() -> R) -> R {
    let state = Model::disable();
    let result = operation();
    assert!(!ENABLED.get(), "the operation left interrupts off, as it found them");
    // SAFETY: the state is that of the `disable` above.
    unsafe { Model::restore(state) };
    result
}
