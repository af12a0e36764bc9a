// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Mutexes: the seeds' loop, then what happens when threads meet.

mod core_loop;
mod peers;
mod threads;

use std::cell::RefCell;

use fastpath_rtmutex::kernel::RawMutex;
use fastpath_rtmutex::linux::RtMutex;
use priority_inheriting_lock::PriorityInheritingLock;

use self::core_loop::{Alone, Fast, GenericFast, GenericSlow, Slow, Variant, pairs};
use self::peers::{Lock, Pthread, strict};
use super::clock::Clock;
use super::harness::Bound::{AtLeast, AtMost};
use super::harness::{Candidate, Family, NewTable, Session};
use super::report::{Row, Unit};
use super::seeds;
use crate::failure::Failure;

pub(super) const FAMILY: Family = Family {
    name: "rtmutex",
    title: "mutexes: uncontended, contended, handed over, and when priorities invert",
    steps: 6,
    run,
};

/// Iterations of the seeds' loop, and how often they ran it for one figure.
const ITERATIONS: u64 = 100_000;
const LOOPS: usize = 10;

/// The mutexes for Linux threads, by column.
struct Locks {
    std: std::sync::Mutex<u64>,
    parking_lot: parking_lot::Mutex<u64>,
    pthread: Pthread,
    pthread_pi: Pthread,
    pi_lock: PriorityInheritingLock<u64>,
    rtmutex: RtMutex<u64>,
    strict: RtMutex<u64>,
}

impl Locks {
    fn new() -> Self {
        Self {
            std: std::sync::Mutex::new(0),
            parking_lot: parking_lot::Mutex::new(0),
            pthread: Pthread::normal(),
            pthread_pi: Pthread::inheriting(),
            pi_lock: PriorityInheritingLock::new(0),
            rtmutex: RtMutex::new(0),
            strict: strict(),
        }
    }

    /// The columns of a table that compares them.
    fn columns(table: NewTable) -> NewTable {
        table
            .column("std", "std Mutex")
            .column("parking_lot", "parking_lot")
            .column("pthread", "pthread normal")
            .column("pthread-pi", "pthread PI")
            .column("pi-lock", "priority-inheriting-lock")
            .column("rtmutex", "RtMutex")
            .column("rtmutex-strict", "RtMutex, no spinning")
    }

    /// One self-timing candidate for each.
    fn candidates<'a>(&'a self, n: u64, work: &'a impl Work) -> Vec<Candidate<'a>> {
        vec![
            Candidate::measured("std", n, |clock, n| vec![work.of(clock, &self.std, n)]),
            Candidate::measured("parking_lot", n, |clock, n| vec![work.of(clock, &self.parking_lot, n)]),
            Candidate::measured("pthread", n, |clock, n| vec![work.of(clock, &self.pthread, n)]),
            Candidate::measured("pthread-pi", n, |clock, n| vec![work.of(clock, &self.pthread_pi, n)]),
            Candidate::measured("pi-lock", n, |clock, n| vec![work.of(clock, &self.pi_lock, n)]),
            Candidate::measured("rtmutex", n, |clock, n| vec![work.of(clock, &self.rtmutex, n)]),
            Candidate::measured("rtmutex-strict", n, |clock, n| vec![work.of(clock, &self.strict, n)]),
        ]
    }
}

/// A measurement that works for every lock: `n` operations or microseconds, one value.
trait Work {
    fn of(&self, clock: Clock, lock: &impl Lock, n: u64) -> f64;
}

/// Throughput of two threads.
struct Contended<'a> {
    cpus: &'a [usize],
    level: Option<u8>,
}

impl Work for Contended<'_> {
    fn of(&self, clock: Clock, lock: &impl Lock, n: u64) -> f64 {
        threads::contended(clock, self.cpus, lock, self.level, n)
    }
}

/// Time from release to the sleeper's running.
struct HandOver<'a> {
    cpus: &'a [usize],
    level: Option<u8>,
}

impl Work for HandOver<'_> {
    fn of(&self, clock: Clock, lock: &impl Lock, n: u64) -> f64 {
        threads::hand_over(clock, self.cpus, lock, self.level, n)
    }
}

/// The strong thread's wait in the inversion scheme.
struct Blocked<'a> {
    cpus: &'a [usize],
}

impl Work for Blocked<'_> {
    fn of(&self, clock: Clock, lock: &impl Lock, _n: u64) -> f64 {
        threads::blocked(clock, self.cpus, lock)
    }
}

fn run(bench: &mut Session<'_>) -> Result<(), Failure> {
    seeds_loop(bench)?;
    if bench.cpus().len() < 2 {
        bench.note("one CPU: contention, hand-over and blocking are not measured");
        return Ok(());
    }
    let real_time = match threads::no_real_time() {
        None => true,
        Some(why) => {
            bench.note(&format!("not measured with real-time threads: {why}"));
            false
        }
    };
    contention(bench, real_time);
    hand_overs(bench, real_time);
    if real_time {
        blocking(bench);
    }
    Ok(())
}

/// The seeds' loop: lock, then unlock, 100,000 times, by one thread, alone.
fn seeds_loop(bench: &mut Session<'_>) -> Result<(), Failure> {
    let mut table = Locks::columns(
        NewTable::new("loop", "Lock and unlock at once, 100,000 times, nobody else there", Unit::Nanoseconds)
            .column("core-slow", "kernel algorithm, slow path")
            .column("core-fast", "kernel algorithm, cmpxchg")
            .column("generic-slow", "no cmpxchg, slow path")
            .column("generic-fast", "no cmpxchg, interrupts off"),
    )
    .baseline("std");
    // Nanoseconds of each loop of 100,000, for the seeds' "total".
    let names = ["core-slow", "core-fast", "generic-slow", "generic-fast", "rtmutex"];
    let loops: [RefCell<Vec<f64>>; 5] = std::array::from_fn(|_| RefCell::new(Vec::new()));
    let locks = Locks::new();
    let slow = RawMutex::<Alone<Slow>>::new();
    let fast = RawMutex::<Alone<Fast>>::new();
    let generic_slow = RawMutex::<Alone<GenericSlow>>::new();
    let generic_fast = RawMutex::<Alone<GenericFast>>::new();
    let mut candidates = vec![
        of_core("core-slow", &slow, &loops[0]),
        of_core("core-fast", &fast, &loops[1]),
        of_core("generic-slow", &generic_slow, &loops[2]),
        of_core("generic-fast", &generic_fast, &loops[3]),
        timed("rtmutex", &loops[4], |n| locks.rtmutex.pairs(n)),
        Candidate::new("std", |n| locks.std.pairs(n)).batch(ITERATIONS),
        Candidate::new("parking_lot", |n| locks.parking_lot.pairs(n)).batch(ITERATIONS),
        Candidate::new("pthread", |n| locks.pthread.pairs(n)).batch(ITERATIONS),
        Candidate::new("pthread-pi", |n| locks.pthread_pi.pairs(n)).batch(ITERATIONS),
        Candidate::new("pi-lock", |n| locks.pi_lock.pairs(n)).batch(ITERATIONS),
        Candidate::new("rtmutex-strict", |n| locks.strict.pairs(n)).batch(ITERATIONS),
    ];
    bench.measure(&mut table, &Row::named("pair"), &mut candidates);
    drop(candidates);
    for (name, loops) in names.iter().zip(&loops) {
        let loops = loops.borrow();
        let last = &loops[loops.len().saturating_sub(LOOPS)..];
        let mean = last.iter().sum::<f64>() / last.len() as f64;
        bench.note(&format!(
            "{name}: mean of the last {} loops of {ITERATIONS}: total {:.1} us, loop {:.1} ns",
            last.len(),
            mean / 1000.0,
            mean / ITERATIONS as f64
        ));
    }
    for row in seeds::lock_loop()?.rows {
        let (machine, label, cmpxchg) = (row.machine, row.label, row.cmpxchg);
        bench.note(&format!(
            "2015, {machine} ({label}), {cmpxchg} cmpxchg: slow path {} ns, fast path {} ns, ratio {:.2}",
            row.slow_ns,
            row.fast_ns,
            row.slow_ns / row.fast_ns
        ));
    }
    bench.note(
        "pthread normal: while a program has one thread, glibc leaves the atomic operations out; the others do not",
    );
    let native = table.ratio("pair", "core-slow", "core-fast");
    let generic = table.ratio("pair", "generic-slow", "generic-fast");
    bench.note(&format!("slow over fast here: {native:.2} with cmpxchg, {generic:.2} with interrupts off"));
    let ratio = table.ratio("pair", "rtmutex", "std");
    bench.target("uncontended", "an uncontended pair costs at most 1.08 x std Mutex's", ratio, AtMost(1.08));
    bench.add(table);
    Ok(())
}

fn of_core<'a, V: Variant>(
    name: &'static str,
    lock: &'a RawMutex<Alone<V>>,
    loops: &'a RefCell<Vec<f64>>,
) -> Candidate<'a> {
    timed(name, loops, move |n| pairs(lock, n))
}

/// A candidate that also keeps what each loop took.
fn timed<'a>(name: &'static str, loops: &'a RefCell<Vec<f64>>, work: impl Fn(u64) + 'a) -> Candidate<'a> {
    Candidate::measured(name, ITERATIONS, move |clock, n| {
        let taken = clock.ns(clock.time(|| work(n)) as f64);
        loops.borrow_mut().push(taken);
        vec![taken / n as f64]
    })
}

fn contention(bench: &mut Session<'_>, real_time: bool) {
    let mut table = Locks::columns(NewTable::new(
        "contended",
        "Two threads on two CPUs that lock, count and unlock without a pause",
        Unit::OperationsPerSecond,
    ))
    .baseline("pthread");
    let locks = Locks::new();
    let microseconds = if bench.quick() { 4_000 } else { 8_000 };
    for (row, level) in [("fair scheduling", None), ("FIFO 50", Some(50))] {
        if level.is_none() || real_time {
            let work = Contended { cpus: bench.cpus(), level };
            bench.measure(&mut table, &Row::named(row), &mut locks.candidates(microseconds, &work));
        }
    }
    let over_pi = table.ratio("fair scheduling", "rtmutex", "pthread-pi");
    let over_normal = table.ratio("fair scheduling", "rtmutex", "pthread");
    bench.target("contended-pi", "contended, at least 40 x pthread PI's throughput", over_pi, AtLeast(40.0));
    bench.target(
        "contended-normal",
        "contended, at least 0.8 x pthread normal's throughput",
        over_normal,
        AtLeast(0.8),
    );
    if real_time {
        let over_pi = table.ratio("FIFO 50", "rtmutex", "pthread-pi");
        let over_normal = table.ratio("FIFO 50", "rtmutex", "pthread");
        bench.target(
            "contended-pi-fifo",
            "the same with FIFO threads: 40 x pthread PI",
            over_pi,
            AtLeast(40.0),
        );
        bench.target(
            "contended-normal-fifo",
            "the same with FIFO threads: 0.8 x pthread normal",
            over_normal,
            AtLeast(0.8),
        );
    }
    bench.add(table);
}

fn hand_overs(bench: &mut Session<'_>, real_time: bool) {
    let mut table = Locks::columns(NewTable::new(
        "hand-over",
        "From one thread's release to the running of the one that sleeps for it, on another CPU",
        Unit::Nanoseconds,
    ))
    .baseline("pthread-pi");
    let locks = Locks::new();
    let n = if bench.quick() { 8 } else { 30 };
    for (row, level) in [("fair scheduling", None), ("waiter FIFO 50", Some(50))] {
        if level.is_none() || real_time {
            let work = HandOver { cpus: bench.cpus(), level };
            bench.measure(&mut table, &Row::named(row), &mut locks.candidates(n, &work));
        }
    }
    let ratio = table.ratio("waiter FIFO 50", "rtmutex", "pthread-pi");
    bench.target(
        "hand-over",
        "handing over to a FIFO thread takes no longer than pthread PI",
        ratio,
        AtMost(1.0),
    );
    bench.add(table);
}

fn blocking(bench: &mut Session<'_>) {
    let mut table = Locks::columns(NewTable::new(
        "inversion",
        "What FIFO 30 waits for a lock of FIFO 10, which has 1 ms to do, while FIFO 20 has 10 ms to do",
        Unit::Nanoseconds,
    ))
    .baseline("pthread-pi");
    let locks = Locks::new();
    let work = Blocked { cpus: bench.cpus() };
    bench.measure(&mut table, &Row::named("blocked"), &mut locks.candidates(1, &work));
    bench.add(table);
}
