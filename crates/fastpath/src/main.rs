// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The `fastpath` command: `run`, `bench` and `info`.

mod args;
mod bench;
mod cmd;
mod embed;
mod facts;
mod failure;
mod heap_profile;
mod library;
mod system;
mod terminal;
mod watched;

use std::process::ExitCode;

fn main() -> ExitCode {
    match args::parse().and_then(cmd::dispatch) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
