// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What these tests do with threads and processes: watchdogs, forks, waiting for a thread to sleep.
#![allow(dead_code, unsafe_code, reason = "each test binary uses its part; fork and wait have no safe form")]

pub(crate) mod fifo;

use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Runs `test` and ends the whole process if it takes longer than a minute: a hang is a failure, not a wait.
pub(crate) fn watched<R: Send>(name: &str, test: impl FnOnce() -> R + Send) -> R {
    let (done, over) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if over.recv_timeout(Duration::from_mins(1)) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("watchdog: {name} still runs after 60 s");
                std::process::abort();
            }
        });
        let result = test();
        drop(done);
        result
    })
}

/// Waits until `condition` holds; panics after 20 s.
#[track_caller]
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what} did not happen within 20 s");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The calling thread's id.
pub(crate) fn tid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Whether thread `tid` of this process sleeps in a system call.
pub(crate) fn sleeps(tid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S'))
}

/// Whether thread `tid` of this process waits on a futex; true only if the kernel says so.
pub(crate) fn waits_on_futex(tid: u32) -> bool {
    // "number arguments.. sp pc" of the current system call, or "running".
    let call = std::fs::read_to_string(format!("/proc/self/task/{tid}/syscall")).unwrap_or_default();
    let number = call.split(' ').next().and_then(|n| n.parse::<i64>().ok());
    number == Some(libc::SYS_futex) && sleeps(tid)
}

/// How to make a child process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fork {
    /// With the C library, which runs its handlers.
    Libc,
    /// By the bare system call, which no library notices.
    Bare,
}

/// Runs `child` in a forked child and returns its exit status (255 if it was killed or panicked).
pub(crate) fn in_child(how: Fork, child: impl FnOnce() -> u8) -> u8 {
    // SAFETY: the child only runs `child`, which the tests keep free of other threads' locks, and leaves by `_exit`.
    let pid = unsafe {
        match how {
            Fork::Libc => libc::fork(),
            Fork::Bare => {
                let none = core::ptr::null::<u8>();
                libc::syscall(libc::SYS_clone, libc::SIGCHLD, none, none, none, none) as libc::pid_t
            }
        }
    };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(255);
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(code)) };
    }
    exit_status(pid)
}

/// Waits for a child process; 255 if it was killed.
pub(crate) fn exit_status(pid: libc::pid_t) -> u8 {
    let mut status = 0;
    // SAFETY: `status` is writable.
    while unsafe { libc::waitpid(pid, &raw mut status, 0) } != pid {
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EINTR));
    }
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) as u8 } else { 255 }
}
