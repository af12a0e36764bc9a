// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Bound, Candidate, Family, NewTable, Plan, Session};
use crate::bench::clock::Clock;
use crate::bench::progress::Progress;
use crate::bench::report::{Row, Scale, Unit};

const NOTHING: Family = Family { name: "made-up", title: "made up", steps: 1, run: |_| Ok(()) };
const PLAN: Plan = Plan { quick: true, rounds: 5, batch: Duration::from_micros(20) };

fn session<'a>(progress: &'a Progress, cpus: &'a [usize]) -> Session<'a> {
    Session::new(PLAN, Clock::with_frequency(1e9), cpus, progress, &NOTHING)
}

#[test]
fn candidates_take_turns_and_the_first_one_changes() {
    let order = RefCell::new(Vec::new());
    let progress = Progress::silent();
    let mut bench = session(&progress, &[0]);
    let mut table = NewTable::new("t", "t", Unit::Cycles).column("a", "a").column("b", "b");
    bench.measure(
        &mut table,
        &Row::named("row"),
        &mut [
            Candidate::new("a", |_| order.borrow_mut().push('a')).batch(1),
            Candidate::new("b", |_| order.borrow_mut().push('b')).batch(1),
        ],
    );
    // Two warm-ups, then the rounds.
    assert_eq!(order.borrow().iter().collect::<String>(), "ab".to_owned() + "abbaabbaab");
}

#[test]
fn statistics_ratios_and_units_reach_the_cells() {
    let progress = Progress::silent();
    let mut bench = session(&progress, &[0]);
    let mut first =
        NewTable::new("first", "t", Unit::Cycles).column("base", "b").column("other", "o").baseline("base");
    let mut second = NewTable::new("second", "t", Unit::Nanoseconds)
        .column("base", "b")
        .column("other", "o")
        .axis("size", Scale::Log);
    // The first call is the warm-up; then five rounds.
    let values = Cell::new(0.0);
    let next = || {
        values.set(values.get() + 1.0);
        values.get()
    };
    bench.measure_parts(
        &mut [&mut first, &mut second],
        &Row::number(8),
        &mut [
            Candidate::measured("base", 10, |_, n| vec![2.0, n as f64]),
            Candidate::measured("other", 10, |_, _| vec![next(), 4.0]),
        ],
    );
    assert!(
        (first.ratio("8", "other", "base") - 2.0).abs() < 1e-12,
        "rounds 2 to 6 over 2, the median is 4 / 2"
    );
    assert!(first.ratio("8", "other", "missing").is_nan());
    bench.add(first);
    bench.add(second);
    let report = bench.finish(&NOTHING).unwrap();
    let cell = report.tables[0].cell("8", "other").unwrap();
    assert_eq!((cell.min, cell.q1, cell.median, cell.q3, cell.max), (2.0, 3.0, 4.0, 5.0, 6.0));
    assert_eq!((cell.rounds, cell.batch, cell.ns), (5, 10, Some(4.0)));
    let ratio = cell.ratio.unwrap();
    assert_eq!((ratio.q1, ratio.median, ratio.q3), (1.5, 2.0, 2.5));
    let plain = report.tables[1].cell("8", "base").unwrap();
    assert_eq!((plain.median, plain.ns), (10.0, None));
    assert!(plain.ratio.is_none(), "no baseline");
    assert_eq!(report.tables[1].rows, [Row { name: "8".into(), x: Some(8.0) }]);
}

#[test]
fn every_thread_does_its_operations() {
    let progress = Progress::silent();
    let cpus = crate::bench::pin::allowed();
    let mut bench = session(&progress, &cpus);
    let done = [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)];
    let mut table = NewTable::new("t", "t", Unit::Cycles).column("a", "a");
    let work = |thread: usize, n: u64| {
        done[thread].fetch_add(n, Ordering::Relaxed);
    };
    bench.measure(&mut table, &Row::number(3), &mut [Candidate::concurrent("a", 3, work).batch(100)]);
    for count in &done {
        assert_eq!(count.load(Ordering::Relaxed), 100 * u64::from(PLAN.rounds + 1));
    }
}

#[test]
fn the_batch_grows_until_it_is_long_enough() {
    let clock = Clock::calibrate();
    let largest = Cell::new(0);
    let mut candidate = Candidate::new("a", |n| {
        largest.set(largest.get().max(n));
        for _ in 0..n {
            std::hint::black_box(n);
        }
    });
    // Whoever interrupts the first batch for that long ends the search there: not twenty times in a row.
    let grew = (0..20).any(|_| {
        largest.set(0);
        let batch = candidate.prepare(clock, &[0], Duration::from_micros(50));
        assert_eq!(batch, largest.get());
        batch > 64
    });
    assert!(grew);
}

#[test]
fn targets_are_judged_both_ways() {
    let progress = Progress::silent();
    let mut bench = session(&progress, &[0]);
    bench.target("a", "a", 1.5, Bound::AtMost(1.5));
    bench.target("b", "b", 1.51, Bound::AtMost(1.5));
    bench.target("c", "c", 10.0, Bound::AtLeast(10.0));
    bench.target("d", "d", 9.9, Bound::AtLeast(10.0));
    bench.target("e", "e", f64::NAN, Bound::AtLeast(10.0));
    let report = bench.finish(&NOTHING).unwrap();
    assert_eq!(
        report.targets.iter().map(|target| target.met).collect::<Vec<_>>(),
        [true, false, true, false]
    );
    assert_eq!(report.notes, ["not measured: e"]);
}

#[test]
fn thread_counts_end_with_all_cpus() {
    let progress = Progress::silent();
    assert_eq!(session(&progress, &[3]).thread_counts(), [1]);
    assert_eq!(session(&progress, &[1, 0]).thread_counts(), [1, 2]);
    assert_eq!(session(&progress, &[0, 1, 2, 3, 4, 5]).thread_counts(), [1, 2, 4, 6]);
}
