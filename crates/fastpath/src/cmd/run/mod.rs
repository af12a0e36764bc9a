// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `fastpath run`: a program on the per-CPU allocator.

mod child;
mod compare;
mod program;
mod statistics;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use child::{Child, End};
use program::Program;
use statistics::StatsFile;

use crate::args::RunArgs;
use crate::failure::Failure;
use crate::library::Library;

/// Runs the program and ends as it ends.
pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    let program = Program::find(&args.program[0])?;
    if let Some(note) = program.note() {
        say(&note);
    }
    let wants_stats = args.stats || args.stats_json.is_some();
    if let Some(path) = &args.stats_json {
        // Said before the program runs, not after.
        std::fs::File::options()
            .append(true)
            .create(true)
            .open(path)
            .map_err(|error| Failure::operation(format!("cannot write {}", path.display()), error))?;
    }
    // Everything that was placed goes before this function returns or ends the process.
    let (end, differ) = {
        let library = Library::place()?;
        let stats = wants_stats.then(|| StatsFile::new(&library)).transpose()?;
        let outcome = if let Some(times) = args.compare {
            compare::run(&args.program, times, &library, stats.as_ref())?
        } else {
            (
                Child::start(&mut on_ours(&args.program, &library, stats.as_ref()), &args.program[0])?
                    .wait()?,
                false,
            )
        };
        if let Some(stats) = &stats {
            let entries = stats.read()?;
            if args.stats {
                say_all(&statistics::text(&entries, crate::terminal::width_of_stderr()));
            }
            if let Some(path) = &args.stats_json {
                std::fs::write(path, statistics::json(&entries)?)
                    .map_err(|error| Failure::operation(format!("cannot write {}", path.display()), error))?;
            }
        }
        outcome
    };
    if differ {
        return Ok(ExitCode::from(1));
    }
    match end {
        End::Status(status) => Ok(ExitCode::from(status)),
        End::Signal(signal) => Ok(crate::system::end_by(signal)),
    }
}

/// The program as a command, on the system's allocator.
fn on_systems(program: &[OsString]) -> Command {
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]).env_remove(fastpath_alloc::shared_stats::VARIABLE);
    command
}

/// The program as a command, on ours. Its children inherit it.
fn on_ours(program: &[OsString], library: &Library, stats: Option<&StatsFile>) -> Command {
    let mut command = on_systems(program);
    let mut preload = OsString::from(library.path());
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    command.env("LD_PRELOAD", preload);
    if let Some(stats) = stats {
        command.env(fastpath_alloc::shared_stats::VARIABLE, stats.path());
    }
    command
}

/// A line on stderr; stdout is the program's.
fn say(line: &str) {
    say_all(&format!("fastpath: {line}\n"));
}

fn say_all(text: &str) {
    // A closed stderr is no reason to fail: the program's status still counts.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// How a program is called in messages.
fn shown(program: &std::ffi::OsStr) -> String {
    Path::new(program).display().to_string()
}
