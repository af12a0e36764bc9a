// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The measurements with several threads: throughput, hand-over, and blocking under the inversion scheme.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fastpath_rtmutex::linux::priority::{self, Priority, Thread};

use super::peers::Lock;
use crate::bench::clock::Clock;
use crate::bench::pin;

/// Puts the calling thread on `cpu`, with a real-time priority if `level` says so.
fn settle(cpu: usize, level: Option<u8>) {
    pin::to(cpu);
    if let Some(level) = level {
        // `may_be_real_time` has asked before.
        let _ = priority::set(Thread::current(), Priority::Fifo(level));
    }
}

/// Why real-time threads cannot be had here, if so.
pub(super) fn no_real_time() -> Option<String> {
    let asked = std::thread::spawn(|| priority::set(Thread::current(), Priority::Fifo(50))).join();
    asked.ok().and_then(Result::err).map(|error| error.to_string())
}

/// Pairs a second of two threads on two CPUs that lock, count and unlock as fast as they can, for `microseconds`.
pub(super) fn contended(
    clock: Clock,
    cpus: &[usize],
    lock: &impl Lock,
    level: Option<u8>,
    microseconds: u64,
) -> f64 {
    let span = clock.ticks(Duration::from_micros(microseconds)) as u64;
    let (started, arrived) = (Barrier::new(2), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let both = [cpus[0], cpus[1]].map(|cpu| {
            let (started, arrived) = (&started, &arrived);
            scope.spawn(move || {
                settle(cpu, level);
                // Asleep until both exist, since a real-time thread that spins keeps the one that makes the other from
                // running; then awake together, each on its own CPU.
                started.wait();
                arrived.fetch_add(1, Ordering::AcqRel);
                while arrived.load(Ordering::Acquire) < 2 {
                    std::hint::spin_loop();
                }
                let begin = clock.now();
                let mut done = 0_u64;
                loop {
                    for _ in 0..16 {
                        lock.with(|count| *count += 1);
                    }
                    done += 16;
                    let taken = clock.now() - begin;
                    if taken >= span {
                        return done as f64 * 1e9 / clock.ns(taken as f64);
                    }
                }
            })
        });
        both.map(|thread| thread.join().unwrap_or(0.0)).iter().sum()
    })
}

/// Nanoseconds from the release of a lock to the moment when the thread that sleeps for it runs owning it.
pub(super) fn hand_over(clock: Clock, cpus: &[usize], lock: &impl Lock, level: Option<u8>, n: u64) -> f64 {
    let (asking, answered) = (AtomicU64::new(0), AtomicU64::new(0));
    let (turns, over) = (Barrier::new(2), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            settle(cpus[1], level);
            for turn in 1..=n {
                turns.wait();
                asking.store(turn, Ordering::Release);
                let granted = lock.with(|_| clock.now());
                answered.store(granted, Ordering::Release);
                turns.wait();
            }
        });
        for turn in 1..=n {
            let released = lock.with(|_| {
                turns.wait();
                while asking.load(Ordering::Acquire) < turn {
                    std::hint::spin_loop();
                }
                // Long enough for a peer that spins to fall asleep.
                std::thread::sleep(Duration::from_micros(60));
                clock.now()
            });
            turns.wait();
            over.fetch_add(answered.load(Ordering::Acquire).saturating_sub(released), Ordering::Relaxed);
        }
    });
    clock.ns(over.into_inner() as f64 / n as f64)
}

/// Milliseconds of work in the inversion scheme, on one CPU: what the weak owner still does, and what the thread
/// between would like to do. (The test does 20 and 300.)
pub(super) const OWNER_MS: u64 = 1;
/// See [`OWNER_MS`].
pub(super) const MIDDLE_MS: u64 = 10;

/// Nanoseconds that a strong thread waits for a lock whose weak owner has 1 ms to do, while a thread between them has
/// 10 ms to do, all at FIFO on one CPU. With inheritance: the owner's part. Without: both.
pub(super) fn blocked(clock: Clock, cpus: &[usize], lock: &impl Lock) -> f64 {
    let cpu = cpus[1 % cpus.len()];
    let (asked, held) = (AtomicBool::new(false), AtomicBool::new(false));
    let (start_strong, start_middle) = (Barrier::new(2), Barrier::new(2));
    let burn = |milliseconds: u64| {
        let span = clock.ticks(Duration::from_millis(milliseconds)) as u64;
        let begin = clock.now();
        while clock.now() - begin < span {
            std::hint::spin_loop();
        }
    };
    let waited = std::thread::scope(|scope| {
        scope.spawn(|| {
            settle(cpu, Some(10));
            lock.with(|_| {
                held.store(true, Ordering::Release);
                while !asked.load(Ordering::Acquire) {
                    std::thread::sleep(Duration::from_micros(50));
                }
                burn(OWNER_MS);
            });
        });
        scope.spawn(|| {
            settle(cpu, Some(20));
            start_middle.wait();
            burn(MIDDLE_MS);
        });
        let strong = scope.spawn(|| {
            settle(cpu, Some(30));
            start_strong.wait();
            // The middle one may run from now on, but not before we block.
            start_middle.wait();
            asked.store(true, Ordering::Release);
            let begin = clock.now();
            lock.with(|_| clock.now() - begin)
        });
        while !held.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_micros(50));
        }
        start_strong.wait();
        strong.join().unwrap_or(0)
    });
    // Real-time threads get 0.95 s of each second: leave the rest to the others before the next round.
    std::thread::sleep(Duration::from_millis(2));
    clock.ns(waited as f64)
}
