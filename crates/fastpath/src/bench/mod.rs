// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `fastpath bench`: families of measurements that share one harness, one look and one JSON schema.
//! `harness.rs` says how to add a family.

mod arch;
mod clock;
#[expect(unsafe_code, reason = "local forms on words of one thread")]
mod cmpxchg;
pub(crate) mod compare;
mod counters;
#[allow(dead_code, reason = "what the harness offers families, whether or not one uses it in this build")]
pub(crate) mod harness;
pub(crate) mod machine;
mod open_close;
pub(crate) mod page;
#[expect(unsafe_code, reason = "the thread-local list that the per-CPU one is compared with has raw links")]
mod percpu;
pub(crate) mod pin;
mod progress;
pub(crate) mod qemu;
mod refcount;
pub(crate) mod report;
mod rtmutex;
pub(crate) mod seeds;
#[expect(unsafe_code, reason = "calls allocators")]
pub(crate) mod slab;
mod statistics;
pub(crate) mod text;

use harness::{Family, Plan, Session};
use progress::Progress;
use report::Report;

use crate::failure::Failure;

/// Every family, in the order they are run and shown.
pub(crate) const FAMILIES: &[Family] =
    &[cmpxchg::FAMILY, percpu::FAMILY, slab::FAMILY, refcount::FAMILY, rtmutex::FAMILY, open_close::FAMILY];

/// Measures `families` with the calling thread kept on the first of `cpus`.
pub(crate) fn measure(
    families: &[&Family],
    quick: bool,
    cpus: &[usize],
    command: Vec<String>,
) -> Result<Report, Failure> {
    let plan = Plan::new(quick);
    let clock = clock::Clock::calibrate();
    let pinned = pin::to(cpus[0]).then(pin::current);
    let mut report = Report {
        format: report::FORMAT.to_owned(),
        version: report::VERSION,
        tool: concat!("fastpath ", env!("CARGO_PKG_VERSION")).to_owned(),
        command,
        started: utc_now(),
        quick,
        machine: machine::Machine::with_clock(clock, cpus, pinned),
        families: Vec::new(),
    };
    let progress = Progress::new(families.iter().map(|family| family.steps).sum());
    for family in families {
        report.families.push(Session::new(plan, clock, cpus, &progress, family).finish(family)?);
    }
    Ok(report)
}

/// The time now, as in 2026-11-30T12:00:00Z.
pub(crate) fn utc_now() -> String {
    let since =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    utc(since)
}

/// Seconds since 1970 as a date and time (the civil calendar by counting days in 400-year eras that start in March).
fn utc(seconds: u64) -> String {
    let (days, time) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", time / 3600, time / 60 % 60, time % 60)
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn dates() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_796_076_305), "2026-11-30T22:05:05Z");
    }
}
