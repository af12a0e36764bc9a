// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The few calls of libc and of our own crates that are unsafe to make, as safe functions.
#![expect(unsafe_code, reason = "calls C functions and raw entry points")]

use std::ffi::CStr;
use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

#[cfg_attr(target_env = "gnu", expect(clippy::unnecessary_wraps, reason = "other libraries have none"))]
/// glibc's version, as it says itself; none for other libraries.
pub(crate) fn glibc_version() -> Option<String> {
    core::cfg_select! {
        target_env = "gnu" => {
            // SAFETY: returns a static string.
            let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
            Some(version.to_string_lossy().into_owned())
        }
        _ => None,
    }
}

/// Allocates and frees once, so that the allocator has decided which front end it uses.
pub(crate) fn touch_allocator() {
    let block = fastpath_alloc::raw::malloc(64);
    // SAFETY: allocated above (null is fine) and not used.
    unsafe { fastpath_alloc::raw::free(block) };
}

/// What `wait4` says a process and the children it waited for used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
    /// The largest resident set of any of them.
    pub(crate) peak_kib: u64,
    /// Minor and major page faults.
    pub(crate) faults: u64,
}

/// The process that signals are passed on to; 0 for none yet.
static TO: AtomicI32 = AtomicI32::new(0);
/// Signals (bit by number) that came before there was one.
static EARLY: AtomicU64 = AtomicU64::new(0);

/// Signals that end a program or mean something to it, and that people send.
const PASSED_ON: [i32; 6] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];

extern "C" fn pass_on(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid one (SA_SIGINFO).
    let from_the_terminal = unsafe { (*info).si_code } > 0;
    // What the terminal sends, it sends to the whole group: the program has it already.
    if from_the_terminal {
        return;
    }
    // ORDERING (both words): SeqCst, so that this handler and `forward_signals_to` cannot both miss each other: one
    // of them sees the other's store.
    EARLY.fetch_or(1 << signal, Ordering::SeqCst);
    let to = TO.load(Ordering::SeqCst);
    if to != 0 {
        deliver(to);
    }
}

/// Sends what waits in `EARLY`.
fn deliver(to: i32) {
    // ORDERING: SeqCst, see `pass_on`.
    let waiting = EARLY.swap(0, Ordering::SeqCst);
    for signal in PASSED_ON {
        if waiting & 1 << signal != 0 {
            // SAFETY: `kill` is async-signal-safe. The process is our child and not waited for yet, so its number is
            // not another's.
            unsafe { libc::kill(to, signal) };
        }
    }
}

/// From now on signals that somebody sends to this process are kept for the program that [`forward_signals_to`] names.
/// Signals that are ignored (`nohup`) stay ignored, here and in the program.
pub(crate) fn forward_signals() {
    for signal in PASSED_ON {
        // SAFETY: plain data in and out; the handler is async-signal-safe.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut before);
            if before.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction =
                pass_on as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigemptyset(&raw mut action.sa_mask);
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

/// Names the program that signals are passed on to, and sends it those that came earlier.
pub(crate) fn forward_signals_to(pid: i32) {
    // ORDERING: SeqCst, see `pass_on`.
    TO.store(pid, Ordering::SeqCst);
    deliver(pid);
}

/// Waits for a child; its status as `wait` gives it, and what it used.
pub(crate) fn wait_for(pid: i32) -> io::Result<(i32, Usage)> {
    // SAFETY: plain data out.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        // First without reaping it: while it is a zombie its number cannot be another's, and signals may still be sent.
        while libc::waitid(libc::P_PID, pid as libc::id_t, &raw mut info, libc::WEXITED | libc::WNOWAIT) != 0
        {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        // ORDERING: SeqCst, see `pass_on`.
        TO.store(0, Ordering::SeqCst);
        let (mut status, mut usage): (i32, libc::rusage) = (0, std::mem::zeroed());
        while libc::wait4(pid, &raw mut status, 0, &raw mut usage) != pid {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
        let usage = Usage {
            user: time(usage.ru_utime),
            system: time(usage.ru_stime),
            peak_kib: usage.ru_maxrss as u64,
            faults: (usage.ru_minflt + usage.ru_majflt) as u64,
        };
        Ok((status, usage))
    }
}

/// Ends this process by `signal`, so that whoever waits for us sees what they would have seen of the program. Returns
/// the status a shell would show if the signal does not end us.
pub(crate) fn end_by(signal: i32) -> ExitCode {
    // SAFETY: plain data in. The program has left its core file if it was to leave one; ours would tell nothing.
    unsafe {
        let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core);
        libc::signal(signal, libc::SIG_DFL);
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        libc::raise(signal);
    }
    ExitCode::from((128 + signal) as u8)
}
