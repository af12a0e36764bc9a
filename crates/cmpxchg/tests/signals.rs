// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! K12 with real interruptions: a signal is to a thread what an interrupt is to a processor.
//!
//! `generic` with signals blocked keeps every update; with a controller that blocks nothing the update is lost, exactly
//! where the model says. The one-instruction local forms need no blocking. Each test has its own signal, so that the
//! tests of this file may run side by side.
#![cfg(all(not(loom), target_os = "linux"))]
#![expect(unsafe_code, reason = "signal handlers and local forms")]

use fastpath_cmpxchg::backend::Generic;
use fastpath_cmpxchg::interrupt::{InterruptControl, Step};
use fastpath_cmpxchg::{Atomic, Backend, LocalOps, Native, Ops, Ordering};
use fastpath_testkit::cmpxchg_suite as suite;
use std::cell::Cell;
use std::mem::MaybeUninit;

thread_local! {
    /// At which step this thread sends itself which signal.
    static PLAN: Cell<Option<(Step, libc::c_int)>> = const { Cell::new(None) };
}

/// Sends the planned signal if this is the planned step. `raise` returns after the handler ran, unless it is blocked.
fn send_at(step: Step) {
    if let Some((wanted, signal)) = PLAN.get()
        && wanted == step
    {
        PLAN.set(None);
        // SAFETY: no memory is involved.
        assert_eq!(unsafe { libc::raise(signal) }, 0);
    }
}

/// Interrupts off = all signals of this thread blocked.
struct Blocked;

// SAFETY: the words under test are touched by one thread and its signal handlers only, and blocked signals stay pending.
// `pthread_sigmask` is an opaque call and so a compiler barrier. Masks nest: the earlier one is put back.
unsafe impl InterruptControl for Blocked {
    type State = libc::sigset_t;
    const EXCLUDES_OTHER_PROCESSORS: bool = true;

    fn disable() -> libc::sigset_t {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: both sets are ours; `pthread_sigmask` fills `before`.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
            before.assume_init()
        }
    }

    unsafe fn restore(before: libc::sigset_t) {
        // SAFETY: a set that `pthread_sigmask` filled.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    }

    fn step(step: Step) {
        send_at(step);
    }
}

/// A controller that breaks its contract: it blocks nothing.
struct NotBlocked;

// SAFETY: none: the test shows what breaks. The damage is a lost update of an integer.
unsafe impl InterruptControl for NotBlocked {
    type State = ();
    const EXCLUDES_OTHER_PROCESSORS: bool = true;
    fn disable() {}
    unsafe fn restore((): ()) {}
    fn step(step: Step) {
        send_at(step);
    }
}

fn install(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) {
    // SAFETY: the handlers of this file only use atomics, which is allowed in a handler.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
    }
}

const STEPS: [Step; 5] = [Step::Before, Step::Disabled, Step::Read, Step::Written, Step::After];

static WITH_BLOCKED: Atomic<u32, Generic<Blocked>> = Atomic::new_in(0);
extern "C" fn on_blocked(_: libc::c_int) {
    WITH_BLOCKED.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn k12_generic_with_signals_blocked_loses_nothing() {
    let signal = libc::SIGRTMIN() + 1;
    install(signal, on_blocked);
    for (round, step) in STEPS.into_iter().enumerate() {
        PLAN.set(Some((step, signal)));
        WITH_BLOCKED.fetch_add(1, Ordering::SeqCst);
        assert_eq!(WITH_BLOCKED.load(Ordering::SeqCst), 2 * (round as u32 + 1), "{step:?}");
        assert!(PLAN.get().is_none(), "{step:?}: the signal was sent");
    }
    fastpath_testkit::case("K12", "generic");
}

static NOT_BLOCKED: Atomic<u32, Generic<NotBlocked>> = Atomic::new_in(0);
extern "C" fn on_not_blocked(_: libc::c_int) {
    NOT_BLOCKED.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn k12_generic_with_signals_not_blocked_loses_the_update() {
    let signal = libc::SIGRTMIN() + 2;
    install(signal, on_not_blocked);
    let mut lost = Vec::new();
    for step in STEPS {
        NOT_BLOCKED.store(0, Ordering::SeqCst);
        PLAN.set(Some((step, signal)));
        NOT_BLOCKED.fetch_add(1, Ordering::SeqCst);
        if NOT_BLOCKED.load(Ordering::SeqCst) != 2 {
            lost.push(step);
        }
    }
    assert_eq!(lost, [Step::Read]);
}

/// What the timer's handler and the thread both count. The word is used by one thread and its handler: the same-processor
/// rule holds even if the thread migrates between two instructions, because nobody runs beside it.
static LOCAL: Atomic<u32> = Atomic::new(0);
static TICKS: Atomic<u32> = Atomic::new(0);
extern "C" fn on_tick(_: libc::c_int) {
    // SAFETY: a handler of the only thread that uses `LOCAL`.
    unsafe { LOCAL.inc_local() };
    TICKS.fetch_add(1, Ordering::Relaxed);
}

/// A timer that signals this thread while it counts with local forms: nothing is lost, and nothing is blocked.
#[test]
fn k12_local_forms_need_no_blocking() {
    fn check<B: LocalOps<u32> + Ops<u32> + Backend>(word: &'static Atomic<u32, B>, mine: u32) {
        // SAFETY: this thread and its handlers are the only users of the word.
        unsafe {
            suite::local_increments(word, mine / 2);
            for _ in 0..mine / 2 {
                word.add_local(1);
            }
        }
    }
    let signal = libc::SIGRTMIN() + 3;
    install(signal, on_tick);
    // SAFETY: plain system calls on our own structures; the timer signals this thread only.
    let timer = unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        event.sigev_notify_thread_id = libc::gettid();
        let mut timer = std::mem::zeroed();
        assert_eq!(libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer), 0);
        let every = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };
        let time = libc::itimerspec { it_interval: every, it_value: every };
        assert_eq!(libc::timer_settime(timer, 0, &raw const time, std::ptr::null_mut()), 0);
        timer
    };
    let mut mine = 0;
    while TICKS.load(Ordering::Relaxed) < 100 {
        check::<Native>(&LOCAL, 10_000);
        mine += 10_000;
    }
    // SAFETY: our timer. Afterwards a last signal may be pending: it is taken by the time this system call returns.
    unsafe { assert_eq!(libc::timer_delete(timer), 0) };
    assert_eq!(LOCAL.load(Ordering::SeqCst), mine + TICKS.load(Ordering::SeqCst));
    fastpath_testkit::case("K12", Native::NAME);
}
