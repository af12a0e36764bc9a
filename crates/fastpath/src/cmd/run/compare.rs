// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `run --compare`: the program in turn on the system's allocator and on ours.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::process::{Command, Stdio};

use super::child::{Carried, Costs, End, Output, run_captured};
use super::statistics::StatsFile;
use crate::bench::text::aligned;
use crate::failure::Failure;
use crate::library::Library;
use crate::terminal;

/// One run.
struct Run {
    end: End,
    costs: Costs,
    carried: [Carried; 2],
}

/// Runs the program `times` times on each, prints the table, and returns its end and whether anything differed.
pub(super) fn run(
    program: &[OsString],
    times: u32,
    library: &Library,
    stats: Option<&StatsFile>,
) -> Result<(End, bool), Failure> {
    let input = Input::take()?;
    let mut runs: [Vec<Run>; 2] = [Vec::new(), Vec::new()];
    for time in 0..times {
        // Whichever comes second finds warmer caches, so they take turns at that too.
        for side in if time % 2 == 0 { [0, 1] } else { [1, 0] } {
            let mut command = if side == 0 {
                super::on_systems(program)
            } else {
                // Statistics are those of one run.
                super::on_ours(program, library, stats.filter(|_| runs[1].is_empty()))
            };
            input.give(&mut command)?;
            let output = if runs[0].is_empty() { Output::Show } else { Output::Discard };
            let (end, costs, carried) = run_captured(&mut command, &program[0], output)?;
            runs[side].push(Run { end, costs, carried });
        }
    }
    super::say_all(&table(&runs, terminal::width_of_stderr()));
    let differences = differences(&runs);
    for difference in &differences {
        super::say(difference);
    }
    Ok((runs[0][0].end, !differences.is_empty()))
}

/// What every run reads: the same bytes. A terminal cannot be read twice, so nothing then.
struct Input(Option<File>);

impl Input {
    fn take() -> Result<Self, Failure> {
        let mut stdin = io::stdin().lock();
        if stdin.is_terminal() {
            return Ok(Self(None));
        }
        let mut keep = || {
            let mut file = File::from(rustix::fs::memfd_create("input", rustix::fs::MemfdFlags::CLOEXEC)?);
            match io::copy(&mut stdin, &mut file) {
                // A stdin that cannot be read (a folder, a write-only file) is as good as none.
                Err(error) if error.raw_os_error().is_none() => return Err(error),
                _ => {}
            }
            file.flush()?;
            Ok(file)
        };
        let kept: io::Result<File> = keep();
        kept.map(|file| Self(Some(file)))
            .map_err(|error| Failure::operation("cannot keep the input for all runs", error))
    }

    fn give(&self, command: &mut Command) -> Result<(), Failure> {
        let Some(file) = &self.0 else {
            command.stdin(Stdio::null());
            return Ok(());
        };
        // Opened anew: each run has a position of its own.
        let again = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()));
        command
            .stdin(again.map_err(|error| Failure::operation("cannot give the input to the program", error))?);
        Ok(())
    }
}

/// What differed, one line each.
fn differences(runs: &[Vec<Run>; 2]) -> Vec<String> {
    type Seen = (&'static str, fn(&Run, &Run) -> bool);
    let kinds: [Seen; 3] = [
        ("exit status", |a, b| a.end == b.end),
        ("standard output", |a, b| a.carried[0] == b.carried[0]),
        ("standard error", |a, b| a.carried[1] == b.carried[1]),
    ];
    let mut found = Vec::new();
    for (what, same) in kinds {
        let first = &runs[0][0];
        if runs[0].iter().any(|run| !same(first, run)) {
            found.push(format!("the {what} differs between runs on the system's allocator alone: the program varies by itself"));
        } else if runs[1].iter().any(|run| !same(first, run)) {
            found.push(format!("the {what} differs between the system's allocator and ours"));
        }
    }
    found
}

/// Medians of both sides with the ratio.
fn table(runs: &[Vec<Run>; 2], width: usize) -> String {
    type Cost = (&'static str, fn(&Costs) -> f64, fn(f64) -> String);
    let rows: [Cost; 5] = [
        ("wall", |costs| costs.wall.as_secs_f64(), time),
        ("user", |costs| costs.usage.user.as_secs_f64(), time),
        ("sys", |costs| costs.usage.system.as_secs_f64(), time),
        (
            "peak RSS",
            |costs| costs.usage.peak_kib as f64,
            |kib| if kib < 10240.0 { format!("{kib:.0} KiB") } else { format!("{:.1} MiB", kib / 1024.0) },
        ),
        ("page faults", |costs| costs.usage.faults as f64, |count| format!("{count:.0}")),
    ];
    let mut grid = vec![["", "system", "fastpath", "ratio"].map(str::to_owned).to_vec()];
    for (name, cost, shown) in rows {
        let [system, ours] = [&runs[0], &runs[1]].map(|side| {
            let mut costs: Vec<f64> = side.iter().map(|run| cost(&run.costs)).collect();
            costs.sort_by(f64::total_cmp);
            f64::midpoint(costs[(costs.len() - 1) / 2], costs[costs.len() / 2])
        });
        let ratio = if system > 0.0 { format!("{:.2}", ours / system) } else { "-".to_owned() };
        grid.push(vec![name.to_owned(), shown(system), shown(ours), ratio]);
    }
    let times = runs[0].len();
    let what = if times == 1 {
        "one run each".to_owned()
    } else {
        format!("medians of {times} runs each, taking turns")
    };
    format!("\nfastpath: {what}\n{}", aligned(&grid, 1, width))
}

fn time(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.1} ms", seconds * 1e3) } else { format!("{seconds:.3} s") }
}
