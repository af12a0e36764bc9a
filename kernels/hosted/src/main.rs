// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The same tests as a Linux program. A signal is its interrupt, a thread its processor.

use fastpath_cmpxchg::interrupt::InterruptControl;
use kernel_harness::Machine;
use std::mem::MaybeUninit;

struct Hosted;

/// Interrupts off = signals of this thread blocked.
struct Signals;

// SAFETY: the words of the tests belong to the main thread and its signal handler; blocked signals stay pending.
unsafe impl InterruptControl for Signals {
    type State = libc::sigset_t;
    const EXCLUDES_OTHER_PROCESSORS: bool = false;

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
}

extern "C" fn on_alarm(_: libc::c_int) {
    kernel_harness::tick();
}

fn timer(microseconds: libc::suseconds_t) {
    let every = libc::timeval { tv_sec: 0, tv_usec: microseconds };
    let time = libc::itimerval { it_interval: every, it_value: every };
    // SAFETY: reads our structure. There is one thread while the timer runs, so that one is interrupted.
    assert_eq!(unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const time, std::ptr::null_mut()) }, 0);
}

impl Machine for Hosted {
    const NAME: &'static str = "host";
    type Interrupts = Signals;

    type Front = kernel_harness::Pinned<Self>;

    fn front() -> Self::Front {
        kernel_harness::pinned()
    }

    fn write(text: &str) {
        print!("{text}");
    }

    fn exit(passed: bool) -> ! {
        std::process::exit(i32::from(!passed))
    }

    fn start_timer() {
        // SAFETY: the handler only uses atomics.
        unsafe { libc::signal(libc::SIGALRM, on_alarm as *const () as usize) };
        timer(100);
    }

    fn stop_timer() {
        timer(0);
    }

    fn processors() -> usize {
        4
    }

    fn everywhere(work: fn()) {
        std::thread::scope(|scope| {
            for _ in 1..Self::processors() {
                scope.spawn(work);
            }
            work();
        });
    }
}

fn main() {
    kernel_harness::run::<Hosted>()
}
