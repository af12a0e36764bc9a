// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The harness that every benchmark family shares: interleaved rounds, robust statistics, one shape of results.
//!
//! # How it measures
//! A *row* (an operation, a size, a number of threads) is measured for all its *candidates* together. Each candidate is
//! warmed up, and the number of operations in its batch chosen so that a batch is long against the counter's reading and
//! short against the scheduler's tick. Then, round by round, every candidate runs one batch; the order rotates. So
//! whatever slows the machine slows all of them, and a ratio is taken round by round and its median kept.
//! The measuring thread is pinned to one CPU. Kept per cell: median, minimum, quartiles, maximum, spread.
//!
//! # Adding a family
//! 1. Write `src/bench/<family>.rs` after the pattern of `cmpxchg.rs`:
//!    ```ignore
//!    pub(super) const FAMILY: Family = Family { name: "refcount", title: "…", steps: 2, run };
//!
//!    fn run(bench: &mut Session<'_>) -> Result<(), Failure> {
//!        let mut table = NewTable::new("pair", "Increment and decrement", Unit::Cycles)
//!            .axis("threads", Scale::Linear)                 // or .axis("operation", Scale::Category)
//!            .column("plain", "plain atomic")
//!            .column("refcount", "RefCount")
//!            .baseline("plain");
//!        for threads in bench.thread_counts() {
//!            bench.measure(&mut table, &Row::number(threads), &mut [
//!                Candidate::concurrent("plain", threads, |_thread, n| for _ in 0..n { /* one operation */ }),
//!                Candidate::concurrent("refcount", threads, |_thread, n| for _ in 0..n { /* one operation */ }),
//!            ]);
//!        }
//!        let ratio = table.ratio("1", "refcount", "plain");
//!        bench.target("one-thread", "an uncontended pair costs at most 1.05 x a plain atomic's", ratio, AtMost(1.05));
//!        bench.add(table);
//!        Ok(())
//!    }
//!    ```
//!    `steps` is the number of `measure*` calls, for the progress bar.
//! 2. Name it in the list of `src/bench/mod.rs`. The command line, JSON, table and page then know it.
//!
//! A candidate's closure gets the number of operations to do, does exactly that many, and keeps the optimizer from
//! removing them ([`core::hint::black_box`]). [`Candidate::new`] times a closure on the pinned thread,
//! [`Candidate::concurrent`] the same on several threads at once (cost = the slowest thread's time per its own
//! operation), [`Candidate::measured`] lets the closure do its own timing and return one value per table
//! ([`Session::measure_parts`]: slab_test times its allocations apart from its frees). Under `--quick` all families
//! together stay under 20 s: a family that is slow by nature asks [`Session::quick`].

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::clock::Clock;
use super::pin;
use super::progress::Progress;
use super::report::{self, Better, Cell, Column, Row, Scale, Table, Target, Unit};
use super::statistics::{Summary, paired_ratio};
use crate::failure::Failure;

/// A benchmark family, as `src/bench/mod.rs` lists them.
#[derive(Debug)]
pub(crate) struct Family {
    /// Stable name, as on the command line.
    pub(crate) name: &'static str,
    /// For people.
    pub(crate) title: &'static str,
    /// How often it calls `measure` or `measure_parts`.
    pub(crate) steps: u64,
    /// Measures.
    pub(crate) run: fn(&mut Session<'_>) -> Result<(), Failure>,
}

/// How thoroughly to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// A first impression only.
    pub(crate) quick: bool,
    /// Rounds of each row.
    pub(crate) rounds: u32,
    /// What one batch should take.
    pub(crate) batch: Duration,
}

impl Plan {
    /// The full plan, or the quick one.
    pub(crate) const fn new(quick: bool) -> Self {
        if quick {
            Self { quick, rounds: 9, batch: Duration::from_micros(80) }
        } else {
            Self { quick, rounds: 61, batch: Duration::from_micros(300) }
        }
    }
}

/// A family's access to the harness while it measures.
pub(crate) struct Session<'a> {
    plan: Plan,
    clock: Clock,
    cpus: &'a [usize],
    progress: &'a Progress,
    family: report::Family,
    /// At most so many rounds, for rows that take long.
    most_rounds: Option<u32>,
}

/// A bound on a ratio.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    /// The value must not exceed this.
    AtMost(f64),
    /// The value must reach this.
    AtLeast(f64),
}

/// A table that is being filled.
#[derive(Debug)]
pub(crate) struct NewTable {
    table: Table,
    /// The rounds of each cell, in the order of `table.cells`.
    samples: Vec<Vec<f64>>,
}

/// One way to do a row's operation.
pub(crate) struct Candidate<'a> {
    column: &'static str,
    /// Operations in a batch; `None` lets the harness choose.
    batch: Option<u64>,
    /// Runs a batch and returns ticks, or values in the tables' units, per operation: one for each table.
    run: Runner<'a>,
}

enum Runner<'a> {
    /// The harness times it on this thread.
    Here(Box<dyn FnMut(u64) + 'a>),
    /// The harness times it on this many threads at once.
    Threads(usize, Box<dyn Fn(usize, u64) + Sync + 'a>),
    /// It times itself.
    Itself(Box<dyn FnMut(Clock, u64) -> Vec<f64> + 'a>),
}

impl<'a> Candidate<'a> {
    /// `work(n)` does the operation `n` times.
    pub(crate) fn new(column: &'static str, work: impl FnMut(u64) + 'a) -> Self {
        Self { column, batch: None, run: Runner::Here(Box::new(work)) }
    }

    /// `work(thread, n)` does the operation `n` times on each of `threads` threads, each pinned, all started together.
    pub(crate) fn concurrent(
        column: &'static str,
        threads: usize,
        work: impl Fn(usize, u64) + Sync + 'a,
    ) -> Self {
        Self { column, batch: None, run: Runner::Threads(threads, Box::new(work)) }
    }

    /// `work(clock, batch)` times itself and returns one value per table, each in the table's unit and per operation.
    pub(crate) fn measured(
        column: &'static str,
        batch: u64,
        work: impl FnMut(Clock, u64) -> Vec<f64> + 'a,
    ) -> Self {
        Self { column, batch: Some(batch), run: Runner::Itself(Box::new(work)) }
    }

    /// The same candidate with a batch of exactly `operations`.
    pub(crate) fn batch(mut self, operations: u64) -> Self {
        self.batch = Some(operations);
        self
    }

    /// Runs one batch. Values per operation, in ticks unless the candidate times itself.
    fn round(&mut self, clock: Clock, cpus: &[usize], operations: u64) -> Vec<f64> {
        match &mut self.run {
            Runner::Here(work) => vec![clock.time(|| work(operations)) as f64 / operations as f64],
            Runner::Threads(threads, work) => vec![together(clock, cpus, *threads, operations, &**work)],
            Runner::Itself(work) => work(clock, operations),
        }
    }

    /// Warms up and chooses the batch: doubles it until it takes `wanted`.
    fn prepare(&mut self, clock: Clock, cpus: &[usize], wanted: Duration) -> u64 {
        if let Some(batch) = self.batch {
            self.round(clock, cpus, batch);
            return batch;
        }
        // Threads take a while to start: a longer batch keeps that small.
        let wanted =
            clock.ticks(wanted) * if matches!(self.run, Runner::Threads(2.., _)) { 4.0 } else { 1.0 };
        let mut batch = 64;
        loop {
            let taken = self.round(clock, cpus, batch)[0] * batch as f64;
            if taken >= wanted || batch >= 1 << 24 {
                return batch;
            }
            // Never more than eight times as many: the first measurement may have been disturbed.
            batch = ((batch as f64 * (1.1 * wanted / taken.max(1.0)).clamp(1.5, 8.0)) as u64).max(batch + 1);
        }
    }

    /// True if the values are ticks.
    fn in_ticks(&self) -> bool {
        !matches!(self.run, Runner::Itself(_))
    }
}

/// Ticks per operation of the slowest of `threads` threads that each do `operations`, started together.
fn together(
    clock: Clock,
    cpus: &[usize],
    threads: usize,
    operations: u64,
    work: &(dyn Fn(usize, u64) + Sync),
) -> f64 {
    if threads == 1 {
        return clock.time(|| work(0, operations)) as f64 / operations as f64;
    }
    let ready = AtomicUsize::new(0);
    let slowest = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|thread| {
                let ready = &ready;
                scope.spawn(move || {
                    pin::to(cpus[thread % cpus.len()]);
                    // ORDERING: Relaxed: only the number matters, nothing is published with it.
                    ready.fetch_add(1, Ordering::Relaxed);
                    while ready.load(Ordering::Relaxed) < threads {
                        // More threads than CPUs: let the others arrive.
                        std::thread::yield_now();
                    }
                    clock.time(|| work(thread, operations))
                })
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().unwrap_or(0)).max()
    });
    slowest.unwrap_or(0) as f64 / operations as f64
}

impl NewTable {
    /// An empty table of costs (lower is better), rows being a category.
    pub(crate) fn new(name: &str, title: &str, unit: Unit) -> Self {
        let better = if unit == Unit::OperationsPerSecond { Better::Higher } else { Better::Lower };
        let table = Table {
            name: name.to_owned(),
            title: title.to_owned(),
            unit,
            better,
            axis: "operation".to_owned(),
            scale: Scale::Category,
            baseline: None,
            rows: Vec::new(),
            columns: Vec::new(),
            cells: Vec::new(),
        };
        Self { table, samples: Vec::new() }
    }

    /// What the rows are.
    pub(crate) fn axis(mut self, label: &str, scale: Scale) -> Self {
        label.clone_into(&mut self.table.axis);
        self.table.scale = scale;
        self
    }

    /// Adds a candidate's column.
    pub(crate) fn column(mut self, name: &str, title: &str) -> Self {
        self.table.columns.push(Column { name: name.to_owned(), title: title.to_owned(), reference: None });
        self
    }

    /// The column that ratios refer to.
    pub(crate) fn baseline(mut self, column: &str) -> Self {
        self.table.baseline = Some(column.to_owned());
        self
    }

    /// Adds a column of another machine's figures: `source` says which, `figures` are row names and values.
    pub(crate) fn reference(
        mut self,
        name: &str,
        title: &str,
        source: &str,
        figures: &[(String, f64)],
    ) -> Self {
        self.table.columns.push(Column {
            name: name.to_owned(),
            title: title.to_owned(),
            reference: Some(source.to_owned()),
        });
        for (row, value) in figures {
            self.table.cells.push(Cell::of_one(row, name, *value));
            self.samples.push(vec![*value]);
        }
        self
    }

    /// Adds a row that only reference columns have figures for.
    pub(crate) fn row(mut self, row: Row) -> Self {
        self.table.rows.push(row);
        self
    }

    /// The median of one cell; NaN if it was not measured.
    pub(crate) fn median(&self, row: &str, column: &str) -> f64 {
        self.table.cell(row, column).map_or(f64::NAN, |cell| cell.median)
    }

    /// The median of the rounds' ratios of two columns in one row; NaN if either was not measured.
    pub(crate) fn ratio(&self, row: &str, column: &str, over: &str) -> f64 {
        match (self.rounds(row, column), self.rounds(row, over)) {
            (Some(samples), Some(baseline)) => paired_ratio(samples, baseline).median,
            _ => f64::NAN,
        }
    }

    /// The unit of its values.
    pub(crate) const fn unit(&self) -> Unit {
        self.table.unit
    }

    /// The rounds of one cell.
    fn rounds(&self, row: &str, column: &str) -> Option<&[f64]> {
        let at = self.table.cells.iter().position(|cell| cell.row == row && cell.column == column)?;
        Some(&self.samples[at])
    }

    fn push(&mut self, row: &str, column: &str, samples: Vec<f64>, batch: u64, ns_per_tick: f64) {
        debug_assert!(
            self.table.columns.iter().any(|known| known.name == column),
            "{column} is no column of {}",
            self.table.name
        );
        let summary = Summary::of(&samples);
        self.table.cells.push(Cell {
            row: row.to_owned(),
            column: column.to_owned(),
            median: summary.median,
            min: summary.min,
            q1: summary.q1,
            q3: summary.q3,
            max: summary.max,
            spread: summary.spread(),
            rounds: samples.len() as u32,
            batch,
            ns: (self.table.unit == Unit::Cycles).then_some(summary.median * ns_per_tick),
            ratio: None,
        });
        self.samples.push(samples);
    }

    /// Fills in the ratios to the baseline.
    fn finish(mut self) -> Table {
        if let Some(baseline) = self.table.baseline.clone() {
            for at in 0..self.table.cells.len() {
                let row = self.table.cells[at].row.clone();
                if let Some(base) = self.rounds(&row, &baseline)
                    && base.len() == self.samples[at].len()
                {
                    self.table.cells[at].ratio = Some(paired_ratio(&self.samples[at], base));
                }
            }
        }
        self.table
    }
}

impl Row {
    /// A row of a category.
    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), x: None }
    }

    /// A row at `x`: a size, a number of threads.
    pub(crate) fn number(x: usize) -> Self {
        Self { name: x.to_string(), x: Some(x as f64) }
    }
}

impl<'a> Session<'a> {
    /// A session for one family. `cpus` are those this process may use, the measuring thread's first.
    pub(super) fn new(
        plan: Plan,
        clock: Clock,
        cpus: &'a [usize],
        progress: &'a Progress,
        family: &Family,
    ) -> Self {
        let family = report::Family {
            name: family.name.to_owned(),
            title: family.title.to_owned(),
            seconds: 0.0,
            tables: Vec::new(),
            targets: Vec::new(),
            notes: Vec::new(),
        };
        Self { plan, clock, cpus, progress, family, most_rounds: None }
    }

    /// True if only a first impression is wanted.
    pub(crate) const fn quick(&self) -> bool {
        self.plan.quick
    }

    /// The counter.
    pub(crate) const fn clock(&self) -> Clock {
        self.clock
    }

    /// The CPUs this process may use, the measuring thread's first.
    pub(crate) const fn cpus(&self) -> &'a [usize] {
        self.cpus
    }

    /// Numbers of threads worth measuring here: 1, 2, 4 ... up to the CPUs of this process, which come last.
    pub(crate) fn thread_counts(&self) -> Vec<usize> {
        let most = self.cpus.len();
        let mut counts: Vec<usize> =
            std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < most).collect();
        counts.push(most);
        counts
    }

    /// Measures the following rows in at most so many rounds, because one takes long; `None` ends that.
    pub(crate) const fn limit_rounds(&mut self, most: Option<u32>) {
        self.most_rounds = most;
    }

    /// Measures one row of one table.
    pub(crate) fn measure(&mut self, table: &mut NewTable, row: &Row, candidates: &mut [Candidate<'_>]) {
        self.measure_parts(&mut [table], row, candidates);
    }

    /// Measures one row of several tables at once, for candidates that time several parts of their work.
    pub(crate) fn measure_parts(
        &mut self,
        tables: &mut [&mut NewTable],
        row: &Row,
        candidates: &mut [Candidate<'_>],
    ) {
        self.progress.step(&format!("{} {} {}", self.family.name, tables[0].table.name, row.name));
        let batches: Vec<u64> =
            candidates.iter_mut().map(|one| one.prepare(self.clock, self.cpus, self.plan.batch)).collect();
        // samples[candidate][part][round]
        let mut samples =
            vec![vec![Vec::with_capacity(self.plan.rounds as usize); tables.len()]; candidates.len()];
        let rounds = self.most_rounds.map_or(self.plan.rounds, |most| most.min(self.plan.rounds));
        for round in 0..rounds as usize {
            for turn in 0..candidates.len() {
                let at = (turn + round) % candidates.len();
                let values = candidates[at].round(self.clock, self.cpus, batches[at]);
                debug_assert_eq!(values.len(), tables.len(), "one value per table");
                for ((part, value), table) in samples[at].iter_mut().zip(values).zip(tables.iter()) {
                    let in_ns = candidates[at].in_ticks() && table.table.unit == Unit::Nanoseconds;
                    part.push(if in_ns { self.clock.ns(value) } else { value });
                }
            }
        }
        let ns_per_tick = self.clock.ns(1.0);
        for ((candidate, parts), batch) in candidates.iter().zip(samples).zip(batches) {
            for (table, rounds) in tables.iter_mut().zip(parts) {
                table.push(&row.name, candidate.column, rounds, batch, ns_per_tick);
            }
        }
        for table in tables {
            if !table.table.rows.contains(row) {
                table.table.rows.push(row.clone());
            }
        }
    }

    /// Adds a finished table to the results.
    pub(crate) fn add(&mut self, table: NewTable) {
        self.family.tables.push(table.finish());
    }

    /// States what a ratio should be and whether it is. A ratio that was not measured here (NaN) becomes a note.
    pub(crate) fn target(&mut self, name: &str, title: &str, value: f64, bound: Bound) {
        let (limit, better, met) = match bound {
            Bound::AtMost(limit) => (limit, Better::Lower, value <= limit),
            Bound::AtLeast(limit) => (limit, Better::Higher, value >= limit),
        };
        if value.is_nan() {
            self.note(&format!("not measured: {title}"));
            return;
        }
        self.family.targets.push(Target {
            name: name.to_owned(),
            title: title.to_owned(),
            value,
            limit,
            better,
            met,
        });
    }

    /// Adds a remark that is printed under the family's tables.
    pub(crate) fn note(&mut self, text: &str) {
        self.family.notes.push(text.to_owned());
    }

    /// Runs `family` and returns its results.
    pub(super) fn finish(mut self, family: &Family) -> Result<report::Family, Failure> {
        let start = Instant::now();
        (family.run)(&mut self)?;
        self.family.seconds = start.elapsed().as_secs_f64();
        Ok(self.family)
    }
}

#[cfg(test)]
mod tests;
