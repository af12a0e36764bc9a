// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The results of one run, as they are written to JSON: `docs/bench-schema.json` describes exactly these types.
//!
//! A report holds families, a family tables, a table one cell per row and column. Readers key on the names, which are
//! stable; titles and notes are for people. Additions keep [`VERSION`]; anything a reader could trip over raises it.

use serde::{Deserialize, Serialize};

use super::machine::Machine;

/// The `format` of every report.
pub(crate) const FORMAT: &str = "fastpath-bench";
/// The schema's version.
pub(crate) const VERSION: u32 = 1;

/// One run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Report {
    /// [`FORMAT`].
    pub(crate) format: String,
    /// [`VERSION`].
    pub(crate) version: u32,
    /// Program and version that measured.
    pub(crate) tool: String,
    /// The command, argument by argument.
    pub(crate) command: Vec<String>,
    /// Start of the run, UTC, as in 2026-11-30T12:00:00Z.
    pub(crate) started: String,
    /// True if rounds were few and short.
    pub(crate) quick: bool,
    /// Where it ran and in what state that was.
    pub(crate) machine: Machine,
    /// What was measured.
    pub(crate) families: Vec<Family>,
}

/// One benchmark family.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Family {
    /// Stable name, as on the command line.
    pub(crate) name: String,
    /// For people.
    pub(crate) title: String,
    /// Seconds it took.
    pub(crate) seconds: f64,
    /// The figures.
    pub(crate) tables: Vec<Table>,
    /// What the figures should reach.
    pub(crate) targets: Vec<Target>,
    /// What a reader should know.
    pub(crate) notes: Vec<String>,
}

/// The unit of a table's values.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    /// Ticks of the machine's counter per operation.
    Cycles,
    /// Nanoseconds per operation.
    Nanoseconds,
    /// Instructions per operation, as an emulator counts them.
    Instructions,
    /// Operations a second.
    OperationsPerSecond,
    /// Per cent.
    Percent,
    /// Seconds of a whole program.
    Seconds,
    /// Memory, in units of 1024 bytes.
    Kibibytes,
    /// Anything counted, and ratios.
    Count,
}

impl Unit {
    /// As it stands beside a figure.
    pub(crate) const fn symbol(self) -> &'static str {
        match self {
            Self::Cycles => "cycles",
            Self::Nanoseconds => "ns",
            Self::Instructions => "instructions",
            Self::OperationsPerSecond => "ops/s",
            Self::Percent => "%",
            Self::Seconds => "s",
            Self::Kibibytes => "KiB",
            Self::Count => "",
        }
    }
}

/// Which direction is an improvement.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Better {
    /// Costs.
    Lower,
    /// Throughput.
    Higher,
}

/// How the rows lie on a plot's x axis.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scale {
    /// Names without an order.
    Category,
    /// Numbers.
    Linear,
    /// Numbers, each step a factor.
    Log,
}

/// Rows by columns.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Table {
    /// Stable name, unique in the family.
    pub(crate) name: String,
    /// For people.
    pub(crate) title: String,
    /// Of all values.
    pub(crate) unit: Unit,
    /// Which direction is an improvement.
    pub(crate) better: Better,
    /// What the rows are: "size", "threads", "operation".
    pub(crate) axis: String,
    /// How the rows lie on a plot.
    pub(crate) scale: Scale,
    /// The column that ratios refer to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) baseline: Option<String>,
    /// In order.
    pub(crate) rows: Vec<Row>,
    /// In order.
    pub(crate) columns: Vec<Column>,
    /// At most one per row and column.
    pub(crate) cells: Vec<Cell>,
}

/// One row.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Row {
    /// Stable name, unique in the table.
    pub(crate) name: String,
    /// Where it lies on the x axis, unless the scale is `category`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) x: Option<f64>,
}

/// One column: a candidate, or figures of another machine.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Column {
    /// Stable name, unique in the table.
    pub(crate) name: String,
    /// For people.
    pub(crate) title: String,
    /// Where the figures come from, if they were not measured in this run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) reference: Option<String>,
}

/// One figure with its noise.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Cell {
    /// A row's name.
    pub(crate) row: String,
    /// A column's name.
    pub(crate) column: String,
    /// The median of the rounds.
    pub(crate) median: f64,
    /// The smallest round.
    pub(crate) min: f64,
    /// The first quartile of the rounds.
    pub(crate) q1: f64,
    /// The third quartile of the rounds.
    pub(crate) q3: f64,
    /// The largest round.
    pub(crate) max: f64,
    /// (q3 - q1) / median.
    pub(crate) spread: f64,
    /// Rounds measured; 1 for a figure of another machine.
    pub(crate) rounds: u32,
    /// Operations timed together in one round.
    pub(crate) batch: u64,
    /// The median in nanoseconds, where the unit is cycles of this machine.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) ns: Option<f64>,
    /// This column's value over the baseline's in the same round.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) ratio: Option<Ratio>,
}

/// A ratio of two candidates, taken round by round.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Ratio {
    /// The median of the rounds' ratios.
    pub(crate) median: f64,
    /// First quartile.
    pub(crate) q1: f64,
    /// Third quartile.
    pub(crate) q3: f64,
}

/// What a figure should reach.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Target {
    /// Stable name, unique in the family.
    pub(crate) name: String,
    /// For people.
    pub(crate) title: String,
    /// What was reached, usually the median of a ratio.
    pub(crate) value: f64,
    /// The bound.
    pub(crate) limit: f64,
    /// Whether the value must stay under the bound (`lower`) or reach it (`higher`).
    pub(crate) better: Better,
    /// Whether it does.
    pub(crate) met: bool,
}

impl Table {
    /// The cell of `row` and `column`.
    pub(crate) fn cell(&self, row: &str, column: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.row == row && cell.column == column)
    }
}

impl Cell {
    /// A figure without rounds: of another machine, or of an image that reports one.
    pub(crate) fn of_one(row: &str, column: &str, value: f64) -> Self {
        Self {
            row: row.to_owned(),
            column: column.to_owned(),
            median: value,
            min: value,
            q1: value,
            q3: value,
            max: value,
            spread: 0.0,
            rounds: 1,
            batch: 1,
            ns: None,
            ratio: None,
        }
    }
}
