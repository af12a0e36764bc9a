// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! K12 with a real timer: a handler that changes the word the interrupted code is changing.

use crate::Machine;
use fastpath_cmpxchg::{Atomic, LocalOps, Ops, Ordering};
use fastpath_testkit::cmpxchg_suite as suite;

/// The word that both sides count in, by the backend under test. Its own type does not matter.
static WORD: Atomic<u32> = Atomic::new(0);
/// How often the handler ran.
static TICKS: Atomic<u32> = Atomic::new(0);
/// What the handler does, as a `fn()`.
static HANDLER: Atomic<*const ()> = Atomic::new(core::ptr::null());

/// To be called by the machine's timer interrupt.
pub fn tick() {
    // ORDERING: Relaxed: the handler runs on the processor that set the pointer.
    let handler = HANDLER.load(Ordering::Relaxed);
    if !handler.is_null() {
        // SAFETY: only `k12` stores a pointer, and it is that of a `fn()`.
        unsafe { core::mem::transmute::<*const (), fn()>(handler)() };
    }
}

/// Has the timer's handler do this, or nothing.
#[cfg(feature = "tasks")]
pub(crate) fn handle_by(handler: Option<fn()>) {
    // ORDERING: Relaxed: the handler runs on this processor.
    HANDLER.store(handler.map_or(core::ptr::null(), |handler| handler as *const ()), Ordering::Relaxed);
}

/// What [`during`] has the handler do, as a `fn(u32)`.
#[cfg(feature = "slub")]
static TICKED: Atomic<*const ()> = Atomic::new(core::ptr::null());

#[cfg(feature = "slub")]
fn on_counted_tick() {
    // ORDERING: Relaxed: the handler runs on the processor that set the pointer.
    let tick = TICKS.load(Ordering::Relaxed);
    TICKS.store(tick + 1, Ordering::Relaxed);
    // SAFETY: only `during` stores a pointer, and it is that of a `fn(u32)`.
    unsafe { core::mem::transmute::<*const (), fn(u32)>(TICKED.load(Ordering::Relaxed))(tick) };
}

/// Repeats `step` while the timer's handler runs `handler`, with the number of the tick, until it has done so `ticks` times.
#[cfg(feature = "slub")]
pub(crate) fn during<M: Machine>(handler: fn(u32), ticks: u32, mut step: impl FnMut()) {
    // ORDERING: Relaxed everywhere: one processor.
    TICKS.store(0, Ordering::Relaxed);
    TICKED.store(handler as *const (), Ordering::Relaxed);
    HANDLER.store(on_counted_tick as fn() as *const (), Ordering::Relaxed);
    M::start_timer();
    while TICKS.load(Ordering::Relaxed) < ticks {
        step();
    }
    M::stop_timer();
    HANDLER.store(core::ptr::null(), Ordering::Relaxed);
}

/// `WORD` on the backend `B`.
fn word<B>() -> &'static Atomic<u32, B> {
    // SAFETY: a static, aligned; during one test all accesses are by this backend.
    unsafe { Atomic::from_ptr(WORD.as_ptr()) }
}

/// One more in the word, and one more tick.
fn on_tick<B: LocalOps<u32>>() {
    // SAFETY: the handler runs on the processor of the test, which is the only one that uses the word.
    unsafe { word::<B>().inc_local() };
    // SAFETY: as above.
    unsafe { TICKS.inc_local() };
}

/// Counts with local forms while the timer's handler does, until it has interrupted 100 times: nothing is lost.
pub(crate) fn k12<M: Machine, B: Ops<u32> + LocalOps<u32>>() {
    // ORDERING: Relaxed everywhere: one processor.
    word::<B>().store(0, Ordering::Relaxed);
    TICKS.store(0, Ordering::Relaxed);
    HANDLER.store(on_tick::<B> as fn() as *const (), Ordering::Relaxed);
    M::start_timer();
    let mut mine = 0_u32;
    while TICKS.load(Ordering::Relaxed) < 100 {
        // SAFETY: this processor and its handler are the only users of the word.
        unsafe {
            suite::local_increments(word::<B>(), 100);
            for _ in 0..100 {
                word::<B>().add_local(1);
                word::<B>().fetch_add_local(1);
                word::<B>().xor_local(0);
            }
        }
        mine = mine.wrapping_add(300);
    }
    M::stop_timer();
    HANDLER.store(core::ptr::null(), Ordering::Relaxed);
    let ticks = TICKS.load(Ordering::Relaxed);
    assert_eq!(word::<B>().load(Ordering::Relaxed), mine.wrapping_add(ticks), "{ticks} interrupts");
}

/// What [`between_steps`] calls, as a `fn()`.
#[cfg(feature = "tasks")]
static SCRIPT: Atomic<*const ()> = Atomic::new(core::ptr::null());

/// Has [`between_steps`] do this, or nothing.
#[cfg(all(feature = "tasks", feature = "slub"))]
pub(crate) fn script(step: Option<fn()>) {
    // ORDERING: Relaxed: the calling task is the one that meets it.
    SCRIPT.store(step.map_or(core::ptr::null(), |step| step as *const ()), Ordering::Relaxed);
}

/// A point at which a test may do something to the task that passes it.
#[cfg(feature = "tasks")]
pub(crate) fn between_steps() {
    // ORDERING: Relaxed: see `script`.
    let step = SCRIPT.load(Ordering::Relaxed);
    if !step.is_null() {
        // SAFETY: only `script` stores a pointer, and it is that of a `fn()`.
        unsafe { core::mem::transmute::<*const (), fn()>(step)() };
    }
}
