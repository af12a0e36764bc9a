// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `fastpath bench`: runs families, or reads results, and writes them where they are wanted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;

use crate::args::{BenchAction, BenchArgs, FamilyName};
use crate::bench::compare::Verdict;
use crate::bench::harness::Family;
use crate::bench::report::{self, Column, Report};
use crate::bench::{self, FAMILIES, compare, page, pin, qemu, seeds, text};
use crate::failure::Failure;
use crate::terminal;

/// Does what the arguments ask for.
pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode, Failure> {
    match &args.action {
        Some(BenchAction::Compare { before, after, threshold, all }) => {
            compare_files(before, after, *threshold, *all)
        }
        Some(BenchAction::Show { file, html, with, json }) => {
            let mut report = read(file)?;
            finish(&mut report, with, json.as_deref(), html.as_deref())
        }
        None => {
            // A file that cannot be written is said before the minutes of measuring, not after.
            for path in [&args.json, &args.html].into_iter().flatten() {
                fs::File::options()
                    .append(true)
                    .create(true)
                    .open(path)
                    .map_err(|error| cannot("write", path, error))?;
            }
            let mut report = if let Some(log) = &args.from_qemu {
                let bytes = fs::read(log).map_err(|error| cannot("read", log, error))?;
                qemu::parse(&log.display().to_string(), &String::from_utf8_lossy(&bytes), bench::utc_now())?
            } else {
                let families = chosen(&args.families)?;
                let cpus = pin::choose(args.cpu)?;
                let command = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
                bench::measure(&families, args.quick, &cpus, command)?
            };
            finish(&mut report, &args.with, args.json.as_deref(), args.html.as_deref())
        }
    }
}

/// Writes the files, then prints the text.
fn finish(
    report: &mut Report,
    with: &[PathBuf],
    to_json: Option<&Path>,
    html: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let json = json(report)?;
    if let Some(path) = to_json {
        write(path, &json)?;
    }
    for path in with {
        add_columns(report, read(path)?);
    }
    if let Some(path) = html {
        let mut shown = report.clone();
        shown.families.push(seeds::family()?);
        write(path, &page::html(&shown, &json)?)?;
    }
    terminal::print(&text::report(report, terminal::width()))?;
    Ok(ExitCode::SUCCESS)
}

/// Shows another run's columns beside ours: a peer's, or this machine's of yesterday.
fn add_columns(report: &mut Report, other: Report) {
    let source = format!("{}, another run, {}, {}", other.tool, other.machine.cpu, other.started);
    for mut family in other.families {
        let Some(ours) = report.families.iter_mut().find(|ours| ours.name == family.name) else {
            family.title = format!("{} ({source})", family.title);
            report.families.push(family);
            continue;
        };
        for mut table in family.tables {
            for column in &mut table.columns {
                column.reference.get_or_insert_with(|| source.clone());
            }
            let Some(known) = ours.tables.iter_mut().find(|known| known.name == table.name) else {
                ours.tables.push(table);
                continue;
            };
            for column in table.columns {
                let taken = known.columns.iter().any(|other| other.name == column.name);
                let name =
                    if taken { format!("{} ({})", column.name, other.started) } else { column.name.clone() };
                let cells = table.cells.iter().filter(|cell| cell.column == column.name);
                let cells: Vec<_> =
                    cells.filter(|cell| known.rows.iter().any(|row| row.name == cell.row)).cloned().collect();
                known.cells.extend(cells.into_iter().map(|mut cell| {
                    cell.column.clone_from(&name);
                    // Its ratio is to the baseline of its own run, which is not on show.
                    cell.ratio = None;
                    cell
                }));
                known.columns.push(Column { name, ..column });
            }
        }
    }
}

/// `bench compare`: status 1 if a ratio got worse.
fn compare_files(before: &Path, after: &Path, threshold: f64, all: bool) -> Result<ExitCode, Failure> {
    let (old, new) = (read(before)?, read(after)?);
    let share = threshold / 100.0;
    let changes = compare::changes(&old, &new, share);
    if !changes.iter().any(|change| !matches!(change.verdict, Verdict::Gone | Verdict::New)) {
        return Err(Failure::Operation(format!(
            "{} and {} have no ratio in common: were the same families measured?",
            before.display(),
            after.display()
        )));
    }
    terminal::print(&compare::text(&old, &new, &changes, share, all, terminal::width()))?;
    let worse = changes.iter().any(|change| change.verdict == Verdict::Worse);
    Ok(ExitCode::from(u8::from(worse)))
}

/// Reads a report.
fn read(path: &Path) -> Result<Report, Failure> {
    let text = fs::read_to_string(path).map_err(|error| cannot("read", path, error))?;
    let what = || path.display().to_string();
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| Failure::operation(what(), error))?;
    if value["format"] != report::FORMAT {
        return Err(Failure::operation(what(), "not a result of fastpath bench --json"));
    }
    if value["version"] != report::VERSION {
        let text = format!("its version is {}, this program reads {}", value["version"], report::VERSION);
        return Err(Failure::operation(what(), text));
    }
    serde_json::from_value(value).map_err(|error| Failure::operation(what(), error))
}

/// The report as JSON text.
fn json(report: &Report) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(report)
        .map_err(|error| Failure::operation("cannot write JSON", error))?;
    Ok(text + "\n")
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| cannot("write", path, error))
}

fn cannot(what: &str, path: &Path, error: std::io::Error) -> Failure {
    Failure::operation(format!("cannot {what} {}", path.display()), error)
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
