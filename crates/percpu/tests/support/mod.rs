// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What several test programs need: signal timers, threads by CPU, and the name of what was really under test.
#![allow(dead_code, reason = "each test program uses a part")]

use std::time::Duration;

use fastpath_percpu::{Backend, Ids, Owner};

/// The backend under test, for the record of cases.
pub(crate) fn backend() -> &'static str {
    match fastpath_percpu::backend() {
        Backend::Rseq { owner: Owner::Libc, ids: Ids::Cpu } => "rseq",
        Backend::Rseq { owner: Owner::Libc, ids: Ids::MmCid } => "rseq-mm_cid",
        Backend::Rseq { owner: Owner::Own, ids: Ids::Cpu } => "rseq-own",
        Backend::Rseq { owner: Owner::Own, ids: Ids::MmCid } => "rseq-own-mm_cid",
        Backend::Locked => "locked",
    }
}

/// Under an emulator or with the locked backend everything is slower: tests shrink their loops by this.
pub(crate) fn scale(count: usize) -> usize {
    if std::env::var_os("FASTPATH_TEST_QUICK").is_some() { count / 20 + 1 } else { count }
}

/// Sends `signal` to the thread that made it, every `period`, until it is dropped.
///
/// To that thread only: the handler interrupts the very code under test, and none runs after the drop.
pub(crate) struct Ticks(libc::timer_t);

impl Ticks {
    pub(crate) fn every(period: Duration, signal: libc::c_int, handler: extern "C" fn(libc::c_int)) -> Self {
        // SAFETY: installs a handler that only uses this crate's operations and atomics, and starts a timer of this
        // thread; all structures are plain data for which zero is valid.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            assert_eq!(libc::sigaction(signal, &raw const action, core::ptr::null_mut()), 0);
            let mut event: libc::sigevent = core::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = signal;
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer = core::ptr::null_mut();
            assert_eq!(libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer), 0);
            let interval = libc::timespec { tv_sec: 0, tv_nsec: libc::c_long::from(period.subsec_nanos()) };
            let value = libc::itimerspec { it_interval: interval, it_value: interval };
            assert_eq!(libc::timer_settime(timer, 0, &raw const value, core::ptr::null_mut()), 0);
            Self(timer)
        }
    }
}

impl Drop for Ticks {
    fn drop(&mut self) {
        // SAFETY: made above. A signal that is pending is delivered before this call returns.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// Moves the calling thread to the next CPU it may use, round by round.
pub(crate) fn migrate(round: usize) {
    let allowed = allowed_cpus();
    let _ = fastpath_sys::sched::pin_to(allowed[round % allowed.len()]);
}

/// The CPUs this process may use.
pub(crate) fn allowed_cpus() -> Vec<u32> {
    static ALL: std::sync::OnceLock<Vec<u32>> = std::sync::OnceLock::new();
    ALL.get_or_init(|| {
        let set = fastpath_sys::sched::affinity().expect("affinity");
        (0..1024).filter(|cpu| set.is_set(*cpu)).map(|cpu| cpu as u32).collect()
    })
    .clone()
}

/// Runs the calling test again in a new process with `variables` set; true in that process, false in this one (after
/// the other has succeeded).
///
/// The backend is chosen once per process, so a test of another choice needs another process.
pub(crate) fn in_environment(test: &str, variables: &[(&str, &str)]) -> bool {
    in_changed_process(test, |command| {
        command.envs(variables.iter().copied());
    })
}

/// As [`in_environment`], with any change to the new process.
pub(crate) fn in_changed_process(test: &str, change: impl FnOnce(&mut std::process::Command)) -> bool {
    if std::env::var("FASTPATH_TEST_CHILD").as_deref() == Ok(test) {
        return true;
    }
    let mut command = std::process::Command::new(std::env::current_exe().expect("this test program"));
    for name in ["FASTPATH_PERCPU", "FASTPATH_PERCPU_IDS", "FASTPATH_PERCPU_SELF_TEST", "GLIBC_TUNABLES"] {
        command.env_remove(name);
    }
    command.args(["--exact", test, "--test-threads", "1", "--nocapture"]).env("FASTPATH_TEST_CHILD", test);
    change(&mut command);
    let output = command.output().expect("this test program again");
    assert!(
        output.status.success(),
        "{}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    false
}
