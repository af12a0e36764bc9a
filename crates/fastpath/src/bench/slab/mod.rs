// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! slab_test, as its authors wrote it, on each way of allocating: 10,000 objects of one size, sizes 8 to 16384.
//!
//! Every column is a process of its own (`worker.rs`) that takes its turn in every round, on the same CPU. Except for
//! those that are named otherwise, all of them call `malloc` and `free`, so that the path into the allocator is the
//! same; `LD_PRELOAD` and the environment decide who answers. The list under a lock (`base.rs`) and the tid front
//! (`tid.rs`) are called directly: they are no `malloc`.

mod base;
mod tid;
mod worker;

use std::cell::RefCell;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::clock::Clock;
use super::harness::{Candidate, Family, NewTable, Session};
use super::pin;
use super::report::{Row, Scale, Unit};
use super::seeds::{self, SlabColumn};
use crate::failure::Failure;
use crate::library::Library;

pub(crate) use worker::serve;

pub(super) const FAMILY: Family =
    Family { name: "slab", title: "slab_test: allocate and free by size", steps: 65, run };

/// Objects of a loop, as in slab_test.
const COUNT: u64 = 10_000;

/// A column: its name, its title, what the worker allocates with, whether the library is preloaded, its environment.
struct Way {
    name: &'static str,
    title: &'static str,
    allocator: &'static str,
    preload: bool,
    environment: &'static [(&'static str, &'static str)],
}

const RSEQ_OFF: (&str, &str) = ("GLIBC_TUNABLES", "glibc.pthread.rseq=0");

const WAYS: &[Way] = &[
    Way {
        name: "sheaf",
        title: "sheaf, rseq",
        allocator: "malloc",
        preload: true,
        environment: &[("FASTPATH_FRONT", "sheaf")],
    },
    Way {
        name: "tid",
        title: "tid, locked cmpxchg, slab layer called directly",
        allocator: "tid",
        preload: false,
        environment: &[],
    },
    Way {
        name: "sheaf-no-rseq",
        title: "sheaf, rseq off",
        allocator: "malloc",
        preload: true,
        environment: &[("FASTPATH_FRONT", "sheaf"), RSEQ_OFF],
    },
    Way {
        name: "tid-no-rseq",
        title: "tid, rseq off, slab layer called directly",
        allocator: "tid-no-rseq",
        preload: false,
        environment: &[RSEQ_OFF],
    },
    Way {
        name: "lock",
        title: "per-CPU list under a lock",
        allocator: "base",
        preload: false,
        environment: &[],
    },
    Way { name: "system", title: "system malloc", allocator: "malloc", preload: false, environment: &[] },
    Way {
        name: "rust",
        title: "sheaf, called from Rust",
        allocator: "rust",
        preload: false,
        environment: &[("FASTPATH_FRONT", "sheaf")],
    },
];

/// A running worker.
struct Worker {
    way: &'static Way,
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts one. `None` with a reason if this build does not know the way.
    fn start(way: &'static Way, library: &Library, cpus: &[usize]) -> Result<Result<Self, String>, Failure> {
        let me =
            std::env::current_exe().map_err(|error| Failure::operation("cannot find this program", error))?;
        let list: Vec<String> = cpus.iter().map(usize::to_string).collect();
        let mut command = Command::new(me);
        command.args(["bench-worker", way.allocator, "--cpus", &list.join(",")]);
        for name in ["LD_PRELOAD", "FASTPATH_FRONT", "GLIBC_TUNABLES", "FASTPATH_DEBUG", "FASTPATH_PERCPU"] {
            command.env_remove(name);
        }
        if way.preload {
            command.env("LD_PRELOAD", library.path());
        }
        command.envs(way.environment.iter().copied());
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child =
            spawned.map_err(|error| Failure::operation("cannot start a measuring process", error))?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::Operation("a measuring process has no pipes".to_owned()));
        };
        let mut worker = Self { way, child, requests, answers: BufReader::new(answers) };
        let expected = if way.preload { "ready fastpath" } else { "ready system" };
        let line = worker.line()?;
        if let Some(reason) = line.strip_prefix("cannot ") {
            return Ok(Err(reason.to_owned()));
        }
        if line != expected {
            return Err(Failure::Operation(format!(
                "{}: the measuring process said '{line}', not '{expected}'",
                way.title
            )));
        }
        // One request, so that the allocator has read its settings and complained if it does not know one.
        worker.ask("pair", 64, 1)?;
        if let Some(complaint) = worker.complaint() {
            return Ok(Err(complaint));
        }
        Ok(Ok(worker))
    }

    /// What the worker wrote to stderr so far.
    fn complaint(&mut self) -> Option<String> {
        let stderr = self.child.stderr.as_mut()?;
        let mut ready = [rustix::event::PollFd::new(stderr, rustix::event::PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        if rustix::event::poll(&mut ready, Some(&now)).ok()? == 0 {
            return None;
        }
        let mut text = vec![0; 4096];
        let length = stderr.read(&mut text).ok()?;
        let text = String::from_utf8_lossy(&text[..length]).trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(1..) => Ok(line.trim_end().to_owned()),
            Ok(0) => {
                let status =
                    self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
                let complaint = self.complaint().unwrap_or_default();
                Err(Failure::Operation(format!(
                    "{}: the measuring process ended: {status} {complaint}",
                    self.way.title
                )))
            }
            Err(error) => Err(Failure::operation(self.way.title, error)),
        }
    }

    /// Runs a test and returns the ticks per operation of its parts.
    fn ask(&mut self, test: &str, size: usize, count: u64) -> Result<Vec<f64>, Failure> {
        let sent = writeln!(self.requests, "{test} {size} {count}").and_then(|()| self.requests.flush());
        if sent.is_err() {
            // It ended: reading says how.
            self.line()?;
        }
        let line = self.line()?;
        line.split(' ')
            .map(|word| word.parse().map_err(|_| Failure::operation(self.way.title, &line)))
            .collect()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first failure of any worker in a measurement: candidates cannot return one.
type FirstFailure = RefCell<Option<Failure>>;

fn run(bench: &mut Session<'_>) -> Result<(), Failure> {
    let library = Library::place()?;
    let mut workers = Vec::new();
    // An allocator may look at its CPUs when it starts: they are to be what any process has.
    pin::to_any(bench.cpus());
    for way in WAYS {
        match Worker::start(way, &library, bench.cpus())? {
            Ok(worker) => workers.push(worker),
            Err(complaint) => bench.note(&format!("left out: {}: {complaint}", way.title)),
        }
    }
    pin::to(bench.cpus()[0]);
    let data = seeds::slab_test()?;
    let sizes: Vec<usize> = if bench.quick() { vec![8, 64, 512, 4096] } else { data.sizes.clone() };
    let table = |name: &str, title: &str, unit: Unit| {
        let mut table = NewTable::new(name, title, unit).axis("size", Scale::Log).baseline("system");
        for worker in &workers {
            table = table.column(worker.way.name, worker.way.title);
        }
        table
    };
    let with_seeds = |mut table: NewTable, pick: fn(&SlabColumn) -> &Vec<f64>| {
        for column in &data.columns {
            let wanted = data.sizes.iter().zip(pick(column)).filter(|(size, _)| sizes.contains(size));
            let figures: Vec<(String, f64)> =
                wanted.map(|(size, value)| (size.to_string(), *value)).collect();
            table = table.reference(&column.name, &column.title, &column.origin(), &figures);
        }
        table
    };
    let mut alloc = with_seeds(
        table("test1-alloc", "Test 1: allocate 10000 objects and touch each", Unit::Cycles),
        |column| &column.alloc,
    );
    let mut free = with_seeds(
        table("test1-free", "Test 1: touch and free them in the same order", Unit::Cycles),
        |column| &column.free,
    );
    let mut pair = with_seeds(
        table("test2", "Test 2: allocate and free at once, 10000 times", Unit::Cycles),
        |column| &column.pair,
    );
    let mut one = table("pair-loop", "One object allocated and freed in a loop of 100000", Unit::Nanoseconds);
    for (name, title, value) in [
        ("2015-before", "2015, preemption off", data.pair_loop.before),
        ("2015-after", "2015, preemption on", data.pair_loop.after),
    ] {
        let column = data.columns.iter().find(|column| column.name == name);
        let origin = column.map_or_else(String::new, SlabColumn::origin);
        one = one.reference(name, title, &origin, &[("64".to_owned(), value)]);
    }
    let mut everywhere = [
        table("all-test1-alloc", "Test 1 on all CPUs at once: allocate", Unit::Cycles),
        table("all-test1-free", "Test 1 on all CPUs at once: free", Unit::Cycles),
        table("all-test2", "Test 2 on all CPUs at once", Unit::Cycles),
        table("remote-free-alloc", "Remote free: the other CPUs allocate", Unit::Cycles),
        table("remote-free", "Remote free: the first CPU frees all of it", Unit::Cycles),
        table("spread-alloc", "One producer: the first CPU allocates for the others", Unit::Cycles),
        table("spread-free", "N consumers: each other CPU frees its share", Unit::Cycles),
    ];

    for size in &sizes {
        // Large objects touch many pages: a round takes long enough that fewer of them will do.
        bench.limit_rounds(match (bench.quick(), size) {
            (true, 4096..) => Some(3),
            (true, _) => Some(5),
            (false, 4096..) => Some(15),
            (false, _) => None,
        });
        measure(bench, &mut workers, "serial", *size, COUNT, &mut [&mut alloc, &mut free])?;
        measure(bench, &mut workers, "pair", *size, COUNT, &mut [&mut pair])?;
        if *size <= 4096 && bench.cpus().len() > 1 && (!bench.quick() || *size == 64) {
            let [all_alloc, all_free, all_pair, remote_alloc, remote_free, spread_alloc, spread_free] =
                &mut everywhere;
            measure(bench, &mut workers, "all-serial", *size, COUNT, &mut [all_alloc, all_free])?;
            measure(bench, &mut workers, "all-pair", *size, COUNT, &mut [all_pair])?;
            measure(bench, &mut workers, "remote-free", *size, COUNT, &mut [remote_alloc, remote_free])?;
            measure(bench, &mut workers, "spread", *size, COUNT, &mut [spread_alloc, spread_free])?;
        }
        for worker in &mut workers {
            worker.ask("trim", 1, 1)?;
        }
    }
    bench.limit_rounds(bench.quick().then_some(5));
    measure(bench, &mut workers, "pair", 64, 100_000, &mut [&mut one])?;
    bench.limit_rounds(None);
    for table in [alloc, free, pair, one] {
        bench.add(table);
    }
    if bench.cpus().len() > 1 {
        for table in everywhere {
            bench.add(table);
        }
    } else {
        bench.note("one CPU may be used: the tests on several CPUs were left out");
    }
    bench.note(
        "the columns of other machines are for their shape: their cycles are those of other CPUs and kernels",
    );
    bench.note(
        "'per-CPU list under a lock' models the design of before 2008, interrupts off around each use of the CPU's list, \
         as a lower bound: powers of two only, no slabs behind the list, nothing ever given back",
    );
    bench.note(
        "the tid columns call the slab layer of fastpath-slub directly, not through malloc, and tell the free the size: \
         caches of powers of two up to 8 KiB, above that runs of pages, as kmalloc did in 2015; the CPU is a hint, from rseq or, \
         with rseq off, from getcpu; pages that are free stay mapped, so using them again costs no page fault",
    );
    Ok(())
}

/// One row of the tables that are the parts of `test`.
fn measure(
    bench: &mut Session<'_>,
    workers: &mut [Worker],
    test: &'static str,
    size: usize,
    count: u64,
    tables: &mut [&mut NewTable],
) -> Result<(), Failure> {
    let failure: FirstFailure = RefCell::new(None);
    let parts = tables.len();
    let in_ns = tables[0].unit() == Unit::Nanoseconds;
    let mut candidates: Vec<Candidate<'_>> = workers
        .iter_mut()
        .map(|worker| {
            let failure = &failure;
            Candidate::measured(worker.way.name, count, move |clock: Clock, count| {
                let asked = if failure.borrow().is_some() {
                    Ok(vec![f64::NAN; parts])
                } else {
                    worker.ask(test, size, count)
                };
                let ticks = asked.unwrap_or_else(|reason| {
                    failure.borrow_mut().get_or_insert(reason);
                    vec![f64::NAN; parts]
                });
                ticks.into_iter().map(|ticks| if in_ns { clock.ns(ticks) } else { ticks }).collect()
            })
        })
        .collect();
    bench.measure_parts(tables, &Row::number(size), &mut candidates);
    drop(candidates);
    failure.into_inner().map_or(Ok(()), Err)
}
