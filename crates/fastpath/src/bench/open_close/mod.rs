// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Threads that open, read and close files: through the kernel on tmpfs, and in a table inside this process with each kind
//! of reference counter; and a model that carries the curves to the 96 CPUs of the seeds' machine.

mod model;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Barrier;

use fastpath_example_file_table::{Count, FileTable, Names};
use fastpath_refcount::RefCount;

use self::model::{Demand, SEEDS};
use super::clock::Clock;
use super::counters::{CompareLoop, Counter, Plain};
use super::harness::{Candidate, Family, NewTable, Session};
use super::report::{Row, Scale, Unit};
use super::{pin, seeds};
use crate::failure::Failure;

pub(super) const FAMILY: Family = Family {
    name: "open-close",
    title: "open, read and close a file",
    // Two rows where there are two CPUs: through the kernel, in this process on a shared file and on private ones.
    steps: 6,
    run,
};

/// Bytes of each file.
const CONTENTS: [u8; 512] = [7; 512];
/// The name that all threads open.
const SHARED: &str = "shared";

fn run(bench: &mut Session<'_>) -> Result<(), Failure> {
    let counts = bench.thread_counts();
    through_the_kernel(bench, &counts)?;
    let in_process = InProcess::new(*counts.last().unwrap_or(&1));
    let shared =
        in_process.measure(bench, &counts, "shared", "One file for all threads, in this process", true);
    let private =
        in_process.measure(bench, &counts, "private", "A file for each thread, in this process", false);
    if counts.contains(&2) {
        modelled(bench, &counts, &shared, &private)?;
    } else {
        bench.note("not modelled: the cost of sharing a line shows on two CPUs at least");
    }
    bench.add(shared);
    bench.add(private);
    Ok(())
}

/// Rounds a second of `threads` threads, each pinned, that do `rounds` each.
fn throughput(
    clock: Clock,
    cpus: &[usize],
    threads: usize,
    rounds: u64,
    work: &(dyn Fn(usize, u64) + Sync),
) -> f64 {
    let start = Barrier::new(threads);
    let spans = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let start = &start;
                scope.spawn(move || {
                    pin::to(cpus[thread % cpus.len()]);
                    start.wait();
                    let from = clock.now();
                    work(thread, rounds);
                    (from, clock.now())
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or((0, 0))).collect::<Vec<_>>()
    });
    let from = spans.iter().map(|span| span.0).min().unwrap_or(0);
    let to = spans.iter().map(|span| span.1).max().unwrap_or(0);
    (threads as u64 * rounds) as f64 / (to.saturating_sub(from).max(1) as f64 / clock.hz())
}

/// A candidate whose value is its throughput.
fn candidate<'a>(
    bench: &Session<'a>,
    column: &'static str,
    threads: usize,
    rounds: u64,
    work: impl Fn(usize, u64) + Sync + 'a,
) -> Candidate<'a> {
    let cpus = bench.cpus();
    Candidate::measured(column, rounds, move |clock, rounds| {
        vec![throughput(clock, cpus, threads, rounds, &work)]
    })
}

/// A directory of ours on tmpfs, removed with all files when dropped.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Result<Self, Failure> {
        let shm = Path::new("/dev/shm");
        let base = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        let path = base.join(format!("fastpath-open-close-{}", std::process::id()));
        std::fs::create_dir_all(&path)
            .map_err(|error| Failure::operation(path.display().to_string(), error))?;
        Ok(Self(path))
    }

    fn file(&self, name: &str) -> Result<PathBuf, Failure> {
        let path = self.0.join(name);
        std::fs::write(&path, CONTENTS)
            .map_err(|error| Failure::operation(path.display().to_string(), error))?;
        Ok(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What cannot be removed stays in a directory for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn through_the_kernel(bench: &mut Session<'_>, counts: &[usize]) -> Result<(), Failure> {
    let directory = Directory::new()?;
    let shared = directory.file(SHARED)?;
    let private = (0..*counts.last().unwrap_or(&1))
        .map(|thread| directory.file(&format!("private-{thread}")))
        .collect::<Result<Vec<_>, _>>()?;
    let open_close = |path: &Path, rounds: u64| {
        let mut buffer = [0; CONTENTS.len()];
        for _ in 0..rounds {
            // A file that vanished meanwhile makes the figure wrong, and the next run's message says so.
            if let Ok(mut file) = File::open(path) {
                std::hint::black_box(file.read(&mut buffer).unwrap_or(0));
            }
        }
    };
    let rounds = if bench.quick() { 500 } else { 2_000 };
    let mut table = NewTable::new("kernel", "Through the kernel, on tmpfs", Unit::OperationsPerSecond)
        .axis("threads", Scale::Linear)
        .column("shared", "one file for all")
        .column("private", "a file for each thread")
        .baseline("private");
    for &threads in counts {
        let mut candidates = [
            candidate(bench, "shared", threads, rounds, |_, n| open_close(&shared, n)),
            candidate(bench, "private", threads, rounds, |thread, n| open_close(&private[thread], n)),
        ];
        bench.measure(&mut table, &Row::number(threads), &mut candidates);
    }
    if !directory.0.starts_with("/dev/shm") {
        bench.note(
            "no /dev/shm here: the files of the kernel's table lie in the directory for temporary files",
        );
    }
    bench.add(table);
    Ok(())
}

static WITH_PLAIN: Names<Plain> = Names::new();
static WITH_COMPARE: Names<CompareLoop> = Names::new();
static WITH_REFCOUNT: Names<RefCount> = Names::new();

/// The files in this process, once for each counter.
struct InProcess {
    private: Vec<String>,
}

impl InProcess {
    fn new(threads: usize) -> Self {
        let private: Vec<String> = (0..threads).map(|thread| format!("private-{thread}")).collect();
        for name in private.iter().map(String::as_str).chain([SHARED]) {
            // They exist already if the family is measured twice in one process.
            let _ = WITH_PLAIN.create(name, &CONTENTS);
            let _ = WITH_COMPARE.create(name, &CONTENTS);
            let _ = WITH_REFCOUNT.create(name, &CONTENTS);
        }
        Self { private }
    }

    /// Opens, reads and closes with a table of open files of its own, as a process has.
    fn work<C: Count>(names: &Names<C>, name: &str, rounds: u64) {
        let table = FileTable::new(names);
        let mut buffer = [0; CONTENTS.len()];
        for _ in 0..rounds {
            let Ok(file) = table.open(name) else { return };
            std::hint::black_box(table.read(file, &mut buffer).unwrap_or(0));
            let _ = table.close(file);
        }
    }

    fn measure(
        &self,
        bench: &mut Session<'_>,
        counts: &[usize],
        name: &str,
        title: &str,
        shared: bool,
    ) -> NewTable {
        let file = |thread: usize| if shared { SHARED } else { self.private[thread].as_str() };
        let rounds = if bench.quick() { 2_000 } else { 10_000 };
        let mut table = NewTable::new(name, title, Unit::OperationsPerSecond)
            .axis("threads", Scale::Linear)
            .column(Plain::NAME, "plain atomics")
            .column(CompareLoop::NAME, "compare loop")
            .column(<RefCount as Counter>::NAME, "RefCount")
            .baseline(CompareLoop::NAME);
        for &threads in counts {
            let mut candidates = [
                candidate(bench, Plain::NAME, threads, rounds, |thread, n| {
                    Self::work(&WITH_PLAIN, file(thread), n);
                }),
                candidate(bench, CompareLoop::NAME, threads, rounds, |thread, n| {
                    Self::work(&WITH_COMPARE, file(thread), n);
                }),
                candidate(bench, <RefCount as Counter>::NAME, threads, rounds, |thread, n| {
                    Self::work(&WITH_REFCOUNT, file(thread), n);
                }),
            ];
            bench.measure(&mut table, &Row::number(threads), &mut candidates);
        }
        table
    }
}

const MODEL: &str = "a model, not a measurement: closed queue for the shared lines, fitted to this run's 1 and 2 threads; nodes of 24 CPUs, \
                     transfers between nodes 2.5 times as dear";

/// The shared file on the seeds' machine, and the gain of fetch-based counters beside the seeds'.
fn modelled(
    bench: &mut Session<'_>,
    counts: &[usize],
    shared: &NewTable,
    private: &NewTable,
) -> Result<(), Failure> {
    let columns = [Plain::NAME, CompareLoop::NAME, <RefCount as Counter>::NAME];
    let demands = columns.map(|column| Demand::fit(private.median("1", column), shared.median("2", column)));
    let rows = [1, 2, 4, 8, 16, 24, 48, 96];
    let mut table =
        NewTable::new("model", "One file for all threads, carried to 96 CPUs", Unit::OperationsPerSecond)
            .axis("threads", Scale::Log);
    for (column, demand) in columns.iter().zip(demands) {
        let figures: Vec<_> = rows.iter().map(|n| (n.to_string(), demand.throughput(*n, SEEDS))).collect();
        table = table.reference(column, column, MODEL, &figures);
    }
    let published = seeds::open_close()?;
    let mut gain =
        NewTable::new("gain", "What fetch-based counters gain over the compare loop", Unit::Percent)
            .axis("threads", Scale::Log);
    let gains: Vec<_> = rows
        .iter()
        .map(|n| {
            let [_, compare, fetch] = demands.map(|demand| demand.throughput(*n, SEEDS));
            (n.to_string(), (fetch / compare - 1.0) * 100.0)
        })
        .collect();
    let theirs: Vec<_> =
        published.rows.iter().filter_map(|row| Some((row.threads.to_string(), row.gain?))).collect();
    gain = gain.reference("model", "model", MODEL, &gains);
    gain = gain.reference("seeds", &published.machine, &published.source, &theirs);
    for n in rows {
        table = table.row(Row::number(n));
        gain = gain.row(Row::number(n));
    }
    for (column, demand) in columns.iter().zip(demands) {
        bench.note(&format!(
            "model, {column}: {:.0} ns private and {:.0} ns shared per round; {}",
            demand.private * 1e9,
            demand.shared * 1e9,
            errors(counts, shared, column, demand)
        ));
    }
    bench.note(
        "The seeds' workload is a whole kernel, which does more per round than the counters, and its files are not described: \
         its gain is smaller than a table of nothing but shared counters shows, and begins later.",
    );
    if counts.last().is_none_or(|most| *most < 4) {
        bench.note(
            "The model is fitted to 1 and 2 threads and this machine has no more CPUs to check it on: run it where there are. \
             An emulated machine with more CPUs is no check: it moves no lines between caches.",
        );
    }
    bench.add(table);
    bench.add(gain);
    Ok(())
}

/// How far the model is from what was measured here, at the counts that it was not fitted to.
fn errors(counts: &[usize], shared: &NewTable, column: &str, demand: Demand) -> String {
    // One machine without nodes: what this run can say about remote transfers it says as an error.
    let here = model::Machine { node: usize::MAX, remote: 1.0 };
    let parts: Vec<String> = counts
        .iter()
        .filter(|n| **n != 2)
        .map(|n| {
            let measured = shared.median(&n.to_string(), column);
            format!("{n}: {:+.0} %", (demand.throughput(*n, here) / measured - 1.0) * 100.0)
        })
        .collect();
    format!("off the measurement by {}", parts.join(", "))
}
