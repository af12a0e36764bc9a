// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `fastpath bench`: runs families and writes their results where they are wanted.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use clap::ValueEnum;

use crate::args::{BenchArgs, FamilyName};
use crate::bench::harness::Family;
use crate::bench::{self, FAMILIES, pin, report::Report, text};
use crate::failure::Failure;
use crate::terminal;

/// Runs the families that were asked for.
pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode, Failure> {
    let families = chosen(&args.families)?;
    let cpus = pin::choose(args.cpu)?;
    // A file that cannot be written is said before the minutes of measuring, not after.
    if let Some(path) = &args.json {
        write(path, "")?;
    }
    let command = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let report = bench::measure(&families, args.quick, &cpus, command)?;
    if let Some(path) = &args.json {
        write(path, &json(&report)?)?;
    }
    terminal::print(&text::report(&report, terminal::width()))?;
    Ok(ExitCode::SUCCESS)
}

/// The report as JSON text.
fn json(report: &Report) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(report)
        .map_err(|error| Failure::operation("cannot write JSON", error))?;
    Ok(text + "\n")
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text)
        .map_err(|error| Failure::operation(format!("cannot write {}", path.display()), error))
}

/// The families of these names, in the order they are run.
fn chosen(names: &[FamilyName]) -> Result<Vec<&'static Family>, Failure> {
    let all = names.is_empty() || names.contains(&FamilyName::All);
    let wanted: Vec<String> = names
        .iter()
        .filter_map(ValueEnum::to_possible_value)
        .map(|value| value.get_name().to_owned())
        .collect();
    if !all
        && let Some(missing) = wanted.iter().find(|name| !FAMILIES.iter().any(|family| family.name == *name))
    {
        return Err(Failure::Operation(format!("this build has no benchmark {missing}")));
    }
    Ok(FAMILIES.iter().filter(|family| all || wanted.iter().any(|name| name == family.name)).collect())
}
