// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! One file per command.

mod bench;
mod info;
mod metrics;
mod papers;
mod prof;
mod run;
mod top;

use std::process::ExitCode;

use crate::args::{Cli, Command};
use crate::failure::Failure;

/// Runs what the arguments ask for.
pub(crate) fn dispatch(cli: Cli) -> Result<ExitCode, Failure> {
    match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::BenchWorker { allocator, cpus } => {
            crate::bench::slab::serve(&allocator, &cpus).map(|()| ExitCode::SUCCESS)
        }
        Command::Info(args) => info::run(&args),
        Command::Prof(args) => prof::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Metrics(args) => metrics::run(&args),
        Command::Man => papers::man(),
        Command::Completions { shell } => papers::completions(shell),
    }
}
