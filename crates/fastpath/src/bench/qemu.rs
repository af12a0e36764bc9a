// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Figures of the bare-metal images: their console output becomes a report.
//!
//! An image prints, anywhere in its output, lines of `key=value` words (values without spaces, `_` shown as a space):
//!
//! ```text
//! bench-machine cpu=ARM926EJ-S arch=arm counter=icount hz=1000000000
//! bench family=rtmutex table=lock-loop row=generic column=fast unit=instructions median=42 min=41 rounds=10 batch=100000
//! ```
//!
//! `unit` is one of the schema's; `min`, `q1`, `q3`, `max` default to `median`, `rounds` and `batch` to 1; `x` places a
//! row of numbers. A column named `baseline=...` on any line of a table is what its ratios refer to. Other lines are
//! ignored, but a `bench` line that cannot be read is an error: a figure must not get lost silently.

use std::collections::BTreeMap;

use super::machine::Machine;
use super::report::{self, Better, Cell, Column, Family, Ratio, Report, Row, Scale, Table, Unit};
use crate::failure::Failure;

/// Reads an image's console output.
///
/// # Errors
/// A line that starts with `bench` and is not as described, or no such line at all.
pub(crate) fn parse(source: &str, text: &str, started: String) -> Result<Report, Failure> {
    let mut machine = unknown_machine();
    let mut families: Vec<Family> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        // Consoles end lines with CR LF, and TAP output indents.
        let mut words = line.trim().split_ascii_whitespace();
        let kind = words.next();
        if kind != Some("bench") && kind != Some("bench-machine") {
            continue;
        }
        let fields: BTreeMap<&str, &str> = words.filter_map(|word| word.split_once('=')).collect();
        let bad = |what: &str| {
            Failure::Operation(format!("{source}, line {}: {what}: {}", number + 1, line.trim()))
        };
        if kind == Some("bench-machine") {
            for (key, value) in fields {
                match key {
                    "cpu" => machine.cpu = spaced(value),
                    "arch" => machine.arch = spaced(value),
                    "counter" => machine.counter = spaced(value),
                    "hz" => machine.counter_hz = value.parse().map_err(|_| bad("hz is no number"))?,
                    _ => return Err(bad("unknown key")),
                }
            }
            continue;
        }
        let text_of = |key: &str| fields.get(key).copied().ok_or_else(|| bad(&format!("{key} is missing")));
        let number_of = |key: &str, default: Option<f64>| match (fields.get(key), default) {
            (Some(value), _) => value
                .parse::<f64>()
                .ok()
                .filter(|value| value.is_finite())
                .ok_or_else(|| bad(&format!("{key} is no number"))),
            (None, Some(default)) => Ok(default),
            (None, None) => Err(bad(&format!("{key} is missing"))),
        };
        let unit: Unit = serde_json::from_value(serde_json::Value::from(text_of("unit")?))
            .map_err(|_| bad("unknown unit"))?;
        let family = entry(&mut families, text_of("family")?, |family| &family.name, new_family);
        let table =
            entry(&mut family.tables, text_of("table")?, |table| &table.name, |name| new_table(name, unit));
        if table.unit != unit {
            return Err(bad("a table has one unit"));
        }
        let row = text_of("row")?;
        let column = text_of("column")?;
        if table.cell(row, column).is_some() {
            return Err(bad("this row and column were given before"));
        }
        let x = fields.get("x").map(|_| number_of("x", None)).transpose()?;
        if x.is_some() {
            table.scale = Scale::Linear;
        }
        entry(&mut table.rows, row, |row| &row.name, |name| Row { name: name.to_owned(), x });
        entry(
            &mut table.columns,
            column,
            |column| &column.name,
            |name| Column { name: name.to_owned(), title: spaced(name), reference: None },
        );
        if let Some(baseline) = fields.get("baseline") {
            table.baseline = Some((*baseline).to_owned());
        }
        let median = number_of("median", None)?;
        let mut cell = Cell::of_one(row, column, median);
        cell.min = number_of("min", Some(median))?;
        cell.q1 = number_of("q1", Some(median))?;
        cell.q3 = number_of("q3", Some(median))?;
        cell.max = number_of("max", Some(median))?;
        cell.spread = if median == 0.0 { 0.0 } else { (cell.q3 - cell.q1) / median };
        cell.rounds = number_of("rounds", Some(1.0))? as u32;
        cell.batch = number_of("batch", Some(1.0))? as u64;
        table.cells.push(cell);
    }
    if families.is_empty() {
        return Err(Failure::Operation(format!(
            "{source}: no line starts with `bench`: is it an image's console output?"
        )));
    }
    for table in families.iter_mut().flat_map(|family| &mut family.tables) {
        fill_ratios(table);
    }
    Ok(Report {
        format: report::FORMAT.to_owned(),
        version: report::VERSION,
        tool: format!("bare-metal image, read by fastpath {}", env!("CARGO_PKG_VERSION")),
        command: std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect(),
        started,
        quick: false,
        machine,
        families,
    })
}

/// Ratios of medians: an image reports no rounds to pair.
fn fill_ratios(table: &mut Table) {
    let Some(baseline) = table.baseline.clone() else { return };
    let bases: BTreeMap<String, f64> = table
        .cells
        .iter()
        .filter(|cell| cell.column == baseline)
        .map(|cell| (cell.row.clone(), cell.median))
        .collect();
    for cell in &mut table.cells {
        cell.ratio = bases.get(&cell.row).filter(|base| **base != 0.0).map(|base| Ratio {
            median: cell.median / base,
            q1: cell.q1 / base,
            q3: cell.q3 / base,
        });
    }
}

/// The element called `name`, made if it is not there.
fn entry<'a, T>(
    list: &'a mut Vec<T>,
    name: &str,
    name_of: fn(&T) -> &String,
    new: impl FnOnce(&str) -> T,
) -> &'a mut T {
    let at = list.iter().position(|one| name_of(one) == name).unwrap_or_else(|| {
        list.push(new(name));
        list.len() - 1
    });
    &mut list[at]
}

fn new_family(name: &str) -> Family {
    Family {
        name: name.to_owned(),
        title: "on bare metal".to_owned(),
        seconds: 0.0,
        tables: Vec::new(),
        targets: Vec::new(),
        notes: vec!["Figures of an emulator count its instructions or its time, not a CPU's.".to_owned()],
    }
}

fn new_table(name: &str, unit: Unit) -> Table {
    Table {
        name: name.to_owned(),
        title: spaced(name),
        unit,
        better: if unit == Unit::OperationsPerSecond { Better::Higher } else { Better::Lower },
        axis: "row".to_owned(),
        scale: Scale::Category,
        baseline: None,
        rows: Vec::new(),
        columns: Vec::new(),
        cells: Vec::new(),
    }
}

fn spaced(value: &str) -> String {
    value.replace('_', " ")
}

fn unknown_machine() -> Machine {
    Machine {
        cpu: "not stated".to_owned(),
        arch: "not stated".to_owned(),
        online: "not stated".to_owned(),
        allowed: "not stated".to_owned(),
        pinned: None,
        kernel: "none, bare metal".to_owned(),
        virtual_machine: true,
        counter: "not stated".to_owned(),
        counter_hz: 0.0,
        counter_is_cycles: false,
        governor: None,
        load: 0.0,
        huge_pages: None,
    }
}

#[cfg(test)]
mod tests {
    use super::parse;
    use crate::bench::report::Unit;

    const LOG: &str = "booting\r\nbench-machine cpu=ARM926EJ-S arch=arm counter=icount hz=1000000000\r\nok 1 - something\r\n\
        bench family=cmpxchg table=word row=cmpxchg column=generic unit=instructions median=20 min=19 rounds=10 batch=1000 baseline=native\r\n\
        bench family=cmpxchg table=word row=cmpxchg column=native unit=instructions median=10\r\n";

    #[test]
    fn an_images_console_becomes_a_report() {
        let report = parse("log", LOG, String::new()).unwrap();
        assert_eq!((report.machine.cpu.as_str(), report.machine.counter_hz), ("ARM926EJ-S", 1e9));
        let table = &report.families[0].tables[0];
        assert_eq!((table.name.as_str(), table.unit), ("word", Unit::Instructions));
        let cell = table.cell("cmpxchg", "generic").unwrap();
        assert_eq!((cell.median, cell.min, cell.max, cell.rounds, cell.batch), (20.0, 19.0, 20.0, 10, 1000));
        assert!((cell.ratio.unwrap().median - 2.0).abs() < 1e-12);
    }

    #[test]
    fn a_figure_is_never_lost_silently() {
        for (line, what) in [
            ("bench family=a table=b row=c column=d unit=instructions", "median is missing"),
            ("bench family=a table=b row=c column=d unit=furlongs median=1", "unknown unit"),
            ("bench family=a table=b row=c column=d unit=cycles median=x", "median is no number"),
            ("bench-machine colour=red", "unknown key"),
            ("", "no line starts with"),
        ] {
            let error = format!("{:?}", parse("log", line, String::new()).unwrap_err());
            assert!(error.contains(what), "{error}");
        }
        let twice = format!(
            "{LOG}bench family=cmpxchg table=word row=cmpxchg column=native unit=instructions median=11\n"
        );
        assert!(format!("{:?}", parse("log", &twice, String::new()).unwrap_err()).contains("given before"));
    }
}
