// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Compare-and-exchange: `core`'s atomics as the measure of everything else.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use super::harness::{Candidate, Family, NewTable, Session};
use super::report::{Row, Unit};
use crate::failure::Failure;

pub(super) const FAMILY: Family = Family {
    name: "cmpxchg",
    title: "compare-and-exchange on one word, nobody else using it",
    steps: 1,
    run,
};

#[expect(clippy::unnecessary_wraps, reason = "the type that every family has")]
fn run(bench: &mut Session<'_>) -> Result<(), Failure> {
    let mut table = NewTable::new("word", "One 64-bit word in the cache of one CPU", Unit::Cycles)
        .column("plain", "plain load and store")
        .column("core", "core::sync::atomic")
        .baseline("core");
    let shared = AtomicU64::new(0);
    let mut plain = 0_u64;
    bench.measure(
        &mut table,
        &Row::named("cmpxchg"),
        &mut [
            Candidate::new("plain", |n| {
                for _ in 0..n {
                    let old = black_box(&mut plain);
                    *old = old.wrapping_add(1);
                }
            }),
            Candidate::new("core", |n| {
                let mut old = shared.load(Ordering::Relaxed);
                for _ in 0..n {
                    // ORDERING: SeqCst on success is what the kernel's `cmpxchg` promises; no partner, one thread.
                    match black_box(&shared).compare_exchange(
                        old,
                        old.wrapping_add(1),
                        Ordering::SeqCst,
                        Ordering::Relaxed,
                    ) {
                        Ok(before) => old = before.wrapping_add(1),
                        Err(now) => old = now,
                    }
                }
            }),
        ],
    );
    bench.add(table);
    Ok(())
}
