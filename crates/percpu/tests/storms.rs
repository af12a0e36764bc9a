// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sections that signals and moves to other CPUs abort, for real and many times: each is done again, and nothing is lost.

#![expect(unsafe_code, reason = "timers and signal handlers of the support module")]

mod support;

use std::sync::Barrier;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastpath_percpu::{Counter, aborts};
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};
use support::{Ticks, backend};

const THREADS: usize = 3;
/// Aborts that each kind of disturbance must cause.
const ENOUGH: u64 = 20;

static COUNTER: OnceLock<Counter> = OnceLock::new();
static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn add_thousand(_: libc::c_int) {
    if let Some(counter) = COUNTER.get() {
        counter.add(1000);
        HANDLED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Threads that add until `disturb` has caused enough aborts (or, without restartable sequences, was called a while). Returns
/// what they added.
fn adding(counter: &'static Counter, signals: bool, mut disturb: impl FnMut(&[Pid])) -> i64 {
    let (stop, ready) = (AtomicBool::new(false), Barrier::new(THREADS + 1));
    let ids: [OnceLock<Pid>; THREADS] = [const { OnceLock::new() }; THREADS];
    let before = aborts();
    std::thread::scope(|scope| {
        let workers: Vec<_> = ids
            .iter()
            .map(|id| {
                let (stop, ready) = (&stop, &ready);
                scope.spawn(move || {
                    id.set(gettid()).unwrap();
                    let ticks =
                        signals.then(|| Ticks::every(Duration::from_millis(1), libc::SIGALRM, add_thousand));
                    ready.wait();
                    let mut added = 0;
                    while !stop.load(Ordering::Relaxed) {
                        for _ in 0..100 {
                            counter.add(1);
                        }
                        added += 100;
                    }
                    drop(ticks);
                    added
                })
            })
            .collect();
        ready.wait();
        let ids: Vec<_> = ids.iter().map(|id| *id.get().unwrap()).collect();
        let start = Instant::now();
        let sections = backend().starts_with("rseq");
        while if sections { aborts() - before < ENOUGH } else { start.elapsed() < Duration::from_millis(50) }
        {
            assert!(start.elapsed() < Duration::from_mins(1), "{} aborts in a minute", aborts() - before);
            disturb(&ids);
        }
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    })
}

#[test]
fn aborted_sections_are_done_again_and_lose_nothing() {
    let counter = COUNTER.get_or_init(|| Counter::new().unwrap());
    counter.add(0);

    let mut added = adding(counter, true, |_| std::thread::sleep(Duration::from_millis(1)));
    let handled = HANDLED.load(Ordering::Relaxed) as i64;
    assert_eq!(counter.sum(), added + 1000 * handled, "{handled} signals");

    let allowed = sched_getaffinity(None).unwrap();
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
    let mut turn = 0;
    added += adding(counter, false, |ids| {
        for &id in ids {
            turn += 1;
            let mut one = CpuSet::new();
            one.set(cpus[turn % cpus.len()]);
            sched_setaffinity(Some(id), &one).unwrap();
        }
        std::thread::sleep(Duration::from_micros(200));
    });
    assert_eq!(counter.sum(), added + 1000 * handled, "{turn} moves");
    fastpath_testkit::case("R1", backend());
}
