// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The traced process: one thread that runs operations and stops itself in between, and a helper thread.

#![expect(unsafe_code, reason = "a signal handler and raw process calls")]

use core::sync::atomic::{AtomicPtr, Ordering};

use crate::operations::Operation;
use crate::shared::{Command, Disturbance, Shared};
use crate::tracer::pin;

/// The CPU all operations start on.
pub(crate) const HOME: usize = 0;

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(core::ptr::null_mut());

fn shared() -> &'static Shared {
    // ORDERING: Acquire pairs with the Release in `main`, which publishes the page before any thread or signal.
    // SAFETY: `main` stored the address of the page, which is never unmapped.
    unsafe { &*SHARED.load(Ordering::Acquire) }
}

fn current(shared: &Shared) -> &'static Operation {
    crate::operations::nth(shared.operation.load(Ordering::Relaxed) as usize)
}

fn disturb() {
    let shared = shared();
    (current(shared).disturb)();
    shared.disturbed.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn on_signal(_: libc::c_int) {
    disturb();
}

fn helper() {
    pin(0, HOME);
    let shared = shared();
    loop {
        // ORDERING: Acquire pairs with the tracer's Release: the operation's number is in place.
        if shared.helper.load(Ordering::Acquire) == 1 {
            disturb();
            // ORDERING: Release pairs with the tracer's Acquire: the operation has happened.
            shared.helper.store(0, Ordering::Release);
        }
        // A sleep, not a spin: the traced thread shares this CPU.
        std::thread::sleep(core::time::Duration::from_micros(50));
    }
}

/// Runs in the forked child and never returns.
pub(crate) fn main(page: &'static Shared) -> ! {
    // ORDERING: Release pairs with the Acquire in `shared`.
    SHARED.store(core::ptr::from_ref(page).cast_mut(), Ordering::Release);
    // SAFETY: the handler only runs one per-CPU operation and counts; the structure is valid; `raise` stops the thread.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        libc::sigaction(libc::SIGUSR1, &raw const action, core::ptr::null_mut());
        libc::ptrace(libc::PTRACE_TRACEME, 0, 0usize, 0usize);
        // The child dies with its tracer.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
    std::thread::spawn(helper);
    loop {
        // SAFETY: stopping oneself touches no memory.
        unsafe { libc::raise(libc::SIGSTOP) };
        if page.command.load(Ordering::Relaxed) == Command::Quit as u32 {
            // SAFETY: the process ends here; nothing of it is needed any more.
            unsafe { libc::_exit(0) };
        }
        let operation = current(page);
        pin(0, HOME);
        page.disturbed.store(0, Ordering::Relaxed);
        (operation.set_up)();
        (operation.run)();
        let disturbance = Disturbance::from_word(page.disturbance.load(Ordering::Relaxed));
        page.report((operation.check)(disturbance));
    }
}
