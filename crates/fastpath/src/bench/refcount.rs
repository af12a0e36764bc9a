// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reference counters and shared pointers: what the checks cost, against unchecked atomics, the compare loop that the
//! kernel's counters were before 2019, `std::sync::Arc` and triomphe.

use std::hint::black_box;

use fastpath_refcount::RefCount;

use super::counters::{CompareLoop, Counter, Plain, pairs};
use super::harness::Bound::AtMost;
use super::harness::{Candidate, Family, NewTable, Session};
use super::report::{Row, Scale, Unit};
use crate::failure::Failure;

pub(super) const FAMILY: Family = Family {
    name: "refcount",
    title: "reference counters and shared pointers",
    // Two tables by threads (one row at least, two where there are two CPUs) and the long loop.
    steps: 5,
    run,
};

/// The long loop's figures of 2019, in seconds for INT_MAX - 1 increments and as many decrements.
const SERIES: &str = "lib/refcount: Consolidate implementations, Will Deacon, 2019: REFCOUNT_TIMING and ATOMIC_TIMING of lkdtm";
const PAIRS_2019: f64 = 2_147_483_646.0;

#[expect(clippy::unnecessary_wraps, reason = "the type that every family has")]
fn run(bench: &mut Session<'_>) -> Result<(), Failure> {
    // One thread, then two on the same line: more add nothing but waiting on most machines, and `open-close` has them.
    let threads: &[usize] = if bench.cpus().len() > 1 { &[1, 2] } else { &[1] };
    counters(bench, threads);
    pointers(bench, threads);
    long_loop(bench);
    Ok(())
}

fn pair<C: Counter>(counter: &C, threads: usize) -> Candidate<'_> {
    Candidate::concurrent(C::NAME, threads, move |_, n| pairs(counter, n))
}

fn counters(bench: &mut Session<'_>, threads: &[usize]) {
    let mut table =
        NewTable::new("pair", "Increment, then decrement and test; threads share one counter", Unit::Cycles)
            .axis("threads", Scale::Linear)
            .column(Plain::NAME, "plain atomics")
            .column(CompareLoop::NAME, "compare loop (before 2019)")
            .column(RefCount::NAME, "RefCount")
            .baseline(Plain::NAME);
    for &threads in threads {
        let (plain, compare, ours) = (Plain::new(), CompareLoop::new(), <RefCount as Counter>::new());
        bench.measure(
            &mut table,
            &Row::number(threads),
            &mut [pair(&plain, threads), pair(&compare, threads), pair(&ours, threads)],
        );
    }
    let ratio = table.ratio("1", RefCount::NAME, Plain::NAME);
    bench.target(
        "pair",
        "a pair costs at most 1.05 x plain atomics' with their results used",
        ratio,
        AtMost(1.05),
    );
    bench.add(table);
}

fn clones<'a, P: Clone + Sync>(column: &'static str, pointer: &'a P, threads: usize) -> Candidate<'a> {
    Candidate::concurrent(column, threads, move |_, n| {
        for _ in 0..n {
            drop(black_box(black_box(pointer).clone()));
        }
    })
}

fn pointers(bench: &mut Session<'_>, threads: &[usize]) {
    let mut table =
        NewTable::new("arc", "Clone and drop a shared pointer; threads share one value", Unit::Cycles)
            .axis("threads", Scale::Linear)
            .column("std", "std::sync::Arc")
            .column("triomphe", "triomphe::Arc")
            .column("arc", "Arc")
            .column("weak", "weak::Arc")
            .baseline("std");
    for &threads in threads {
        let of_std = std::sync::Arc::new(1_u64);
        let of_triomphe = triomphe::Arc::new(1_u64);
        let ours = fastpath_refcount::Arc::new(1_u64);
        let weak = fastpath_refcount::weak::Arc::new(1_u64);
        bench.measure(
            &mut table,
            &Row::number(threads),
            &mut [
                clones("std", &of_std, threads),
                clones("triomphe", &of_triomphe, threads),
                clones("arc", &ours, threads),
                clones("weak", &weak, threads),
            ],
        );
    }
    let ratio = table.ratio("1", "arc", "std");
    bench.target("arc", "clone and drop cost at most 1.15 x std's", ratio, AtMost(1.15));
    bench.add(table);
}

/// Up, then down until the counter says "last": the loop that the kernel ran over all of INT_MAX, shorter.
fn up_and_down<C: Counter>(n: u64) {
    let counter = C::new();
    let mut sum = 0;
    for _ in 0..n {
        sum ^= black_box(&counter).get();
    }
    black_box(sum);
    let mut drops = 1;
    while !black_box(&counter).put() {
        drops += 1;
    }
    assert_eq!(drops, n + 1, "the last reference is the last");
}

fn long_loop(bench: &mut Session<'_>) {
    let of_2019 = |seconds: f64| vec![("long loop".to_owned(), seconds / PAIRS_2019 * 1e9)];
    let mut table =
        NewTable::new("long-loop", "Count up, then down to the last reference, per pair", Unit::Nanoseconds)
            .column(Plain::NAME, "plain atomics")
            .column(CompareLoop::NAME, "compare loop (before 2019)")
            .column(RefCount::NAME, "RefCount")
            .baseline(Plain::NAME);
    for (name, title, seconds) in [
        ("x86-plain", "2019 x86: atomic_t", 31.62),
        ("x86-assembly", "2019 x86: assembly", 31.67),
        ("x86-compare", "2019 x86: compare loop", 53.20),
        ("x86-fetch", "2019 x86: fetch", 31.74),
        ("arm64-plain", "2019 arm64: atomic_t", 46.50),
        ("arm64-compare", "2019 arm64: compare loop", 77.58),
        ("arm64-fetch", "2019 arm64: fetch", 48.72),
    ] {
        table = table.reference(name, title, SERIES, &of_2019(seconds));
    }
    let batch = if bench.quick() { 1 << 12 } else { 1 << 16 };
    bench.measure(
        &mut table,
        &Row::named("long loop"),
        &mut [
            Candidate::new(Plain::NAME, up_and_down::<Plain>).batch(batch),
            Candidate::new(CompareLoop::NAME, up_and_down::<CompareLoop>).batch(batch),
            Candidate::new(RefCount::NAME, up_and_down::<RefCount>).batch(batch),
        ],
    );
    bench.add(table);
}
