// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Per-CPU data beside its alternatives: a word to count in, and a list and a stack to push to and pop from.
//!
//! No result is used on any side. A `compiler_fence` after each plain operation keeps the optimizer from merging
//! them, which it may not do with the others either; it costs no instruction.

use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, compiler_fence};

use fastpath_percpu::{PerCpu, Word};

use super::harness::{Bound, Candidate, Family, NewTable, Session};
use super::report::{Row, Scale, Unit};
use crate::failure::Failure;

pub(super) const FAMILY: Family =
    Family { name: "percpu", title: "per-CPU operations beside their alternatives", steps: 4, run };

/// Shards of the sharded counter: a power of two above the CPUs of most machines.
const SHARDS: usize = 64;

/// One shard on cache lines of its own.
#[repr(align(128))]
#[derive(Default)]
struct Shard(AtomicU64);

static NEXT_SHARD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static PLAIN: Cell<u64> = const { Cell::new(0) };
    /// Threads take shards in turn.
    static SHARD: usize = NEXT_SHARD.fetch_add(1, Ordering::Relaxed) % SHARDS;
}

fn run(bench: &mut Session<'_>) -> Result<(), Failure> {
    let no_memory = |error| Failure::operation("no memory for per-CPU slots", error);
    let backend = fastpath_percpu::backend().name();
    bench.note(&format!("the per-CPU columns run on the {backend} backend"));
    let slots = PerCpu::<Word<u64>>::new().map_err(no_memory)?;
    let shared = AtomicU64::new(0);
    let shards: Vec<Shard> = (0..SHARDS).map(|_| Shard::default()).collect();
    let mut plain = 0_u64;
    black_box((&shared, &shards, &mut plain));

    let percpu = |n: u64| (0..n).for_each(|_| slots.this_cpu_add(1));
    let thread_local = |n: u64| {
        for _ in 0..n {
            PLAIN.with(|word| word.set(word.get().wrapping_add(1)));
            compiler_fence(Ordering::SeqCst);
        }
    };
    // ORDERING: Relaxed (all of this file): counters that publish nothing.
    let atomic = |n: u64| (0..n).for_each(|_| _ = shared.fetch_add(1, Ordering::Relaxed));
    let sharded =
        |n: u64| (0..n).for_each(|_| _ = shards[SHARD.with(|at| *at)].0.fetch_add(1, Ordering::Relaxed));

    let mut add = NewTable::new("add", "Add 1, the result unused, one thread", Unit::Cycles)
        .column("percpu", "per-CPU (fastpath)")
        .column("plain", "plain word")
        .column("thread-local", "thread-local word")
        .column("atomic", "fetch_add")
        .column("sharded", "sharded fetch_add")
        .baseline("percpu");
    bench.measure(
        &mut add,
        &Row::named("add"),
        &mut [
            Candidate::new("percpu", percpu),
            Candidate::new("plain", |n| {
                for _ in 0..n {
                    plain = plain.wrapping_add(1);
                    compiler_fence(Ordering::SeqCst);
                }
            }),
            Candidate::new("thread-local", thread_local),
            Candidate::new("atomic", atomic),
            Candidate::new("sharded", sharded),
        ],
    );
    let over_plain = add.ratio("add", "percpu", "plain");
    let over_atomic = add.ratio("add", "percpu", "atomic");
    bench.add(add);
    bench.target("add-plain", "a per-CPU add costs at most 1.5 plain adds", over_plain, Bound::AtMost(1.5));
    bench.target(
        "add-atomic",
        "and at most 0.4 of a fetch_add that nobody contends",
        over_atomic,
        Bound::AtMost(0.4),
    );

    let mut threads_table = NewTable::new(
        "add-threads",
        "Add 1 on several threads at once: time of one add on each thread",
        Unit::Cycles,
    )
    .axis("threads", Scale::Linear)
    .column("percpu", "per-CPU (fastpath)")
    .column("thread-local", "thread-local word")
    .column("atomic", "fetch_add on one word")
    .column("sharded", "sharded fetch_add")
    .baseline("percpu");
    let mut counts = bench.thread_counts();
    if bench.cpus().len() == 1 {
        bench.note("one CPU may be used: nothing runs at the same time here");
    } else if !counts.contains(&2) {
        counts.push(2);
    }
    for threads in &counts {
        bench.measure(
            &mut threads_table,
            &Row::number(*threads),
            &mut [
                Candidate::concurrent("percpu", *threads, |_, n| percpu(n)),
                Candidate::concurrent("thread-local", *threads, |_, n| thread_local(n)),
                Candidate::concurrent("atomic", *threads, |_, n| atomic(n)),
                Candidate::concurrent("sharded", *threads, |_, n| sharded(n)),
            ],
        );
    }
    let contended = if counts.contains(&2) { threads_table.ratio("2", "atomic", "percpu") } else { f64::NAN };
    bench.add(threads_table);
    bench.target(
        "add-two-threads",
        "two threads count at least 10 x as fast as on one shared atomic",
        contended,
        Bound::AtLeast(10.0),
    );
    Ok(())
}
