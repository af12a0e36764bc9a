// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `fastpath run`: a program on the per-CPU allocator.

use std::process::ExitCode;

use crate::args::RunArgs;
use crate::failure::Failure;

/// Runs the program.
pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    let _ = (args.stats, &args.stats_json, args.compare, &args.program);
    Err(Failure::Operation("this build does not carry the allocator library yet".to_owned()))
}
