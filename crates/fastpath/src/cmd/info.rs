// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `fastpath info`: what this machine supports.

use std::process::ExitCode;

use crate::args::InfoArgs;
use crate::facts::Facts;
use crate::failure::Failure;
use crate::terminal;

/// Prints the facts.
pub(crate) fn run(args: &InfoArgs) -> Result<ExitCode, Failure> {
    let facts = Facts::gather();
    if args.json {
        let text = serde_json::to_string_pretty(&facts)
            .map_err(|error| Failure::operation("cannot write JSON", error))?;
        terminal::print(&format!("{text}\n"))?;
    } else {
        terminal::print(&facts.text(terminal::width()))?;
    }
    Ok(ExitCode::SUCCESS)
}
