// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What changed between two runs.
//!
//! Judged are ratios: a candidate's cost over its table's baseline, measured in the same rounds, so a machine that was
//! slower that day changes nothing. A ratio counts as changed if it moved by more than the given share *and* the
//! middle halves of its rounds (first to third quartile) do not overlap. Absolute figures are shown, not judged.

use super::report::{Better, Cell, Ratio, Report, Table};
use super::text::{aligned, figure};
use crate::terminal;

/// How a figure moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// By more than the share, in the bad direction, beyond the noise.
    Worse,
    /// By more than the share, in the good direction, beyond the noise.
    Better,
    /// Less than the share.
    Same,
    /// By more than the share, but within the noise.
    Noise,
    /// Only in the first run.
    Gone,
    /// Only in the second run.
    New,
}

/// One figure in both runs.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// family/table/row/column.
    pub(crate) name: String,
    /// The first run's ratio.
    pub(crate) before: f64,
    /// The second run's ratio.
    pub(crate) after: f64,
    pub(crate) verdict: Verdict,
}

/// Every ratio of both runs, in the order of the first, then what is new in the second.
pub(crate) fn changes(before: &Report, after: &Report, share: f64) -> Vec<Change> {
    let old = ratios(before);
    let new = ratios(after);
    let mut changes: Vec<Change> = old
        .iter()
        .map(|(name, better, ratio)| match new.iter().find(|(other, ..)| other == name) {
            Some((.., now)) => {
                let verdict = judge(*better, *ratio, *now, share);
                Change { name: name.clone(), before: ratio.median, after: now.median, verdict }
            }
            None => {
                Change { name: name.clone(), before: ratio.median, after: f64::NAN, verdict: Verdict::Gone }
            }
        })
        .collect();
    let added = new.iter().filter(|(name, ..)| !old.iter().any(|(other, ..)| other == name));
    changes.extend(added.map(|(name, _, ratio)| Change {
        name: name.clone(),
        before: f64::NAN,
        after: ratio.median,
        verdict: Verdict::New,
    }));
    changes
}

/// The named ratios of a report: those of cells that are not their table's baseline.
fn ratios(report: &Report) -> Vec<(String, Better, Ratio)> {
    let tables =
        report.families.iter().flat_map(|family| family.tables.iter().map(move |table| (family, table)));
    let cells = tables.flat_map(|(family, table)| table.cells.iter().map(move |cell| (family, table, cell)));
    cells
        .filter(|(_, table, cell)| table.baseline.as_ref() != Some(&cell.column))
        .filter_map(|(family, table, cell)| {
            Some((path(&family.name, table, cell), table.better, cell.ratio?))
        })
        .collect()
}

fn path(family: &str, table: &Table, cell: &Cell) -> String {
    format!("{family}/{}/{}/{}", table.name, cell.row, cell.column)
}

fn judge(better: Better, before: Ratio, after: Ratio, share: f64) -> Verdict {
    // As if lower were better: for throughput a smaller ratio is the worse one.
    let (grew, beyond) = match better {
        Better::Lower => (after.median / before.median, after.q1 > before.q3),
        Better::Higher => (before.median / after.median, after.q3 < before.q1),
    };
    let shrank_beyond = match better {
        Better::Lower => after.q3 < before.q1,
        Better::Higher => after.q1 > before.q3,
    };
    if grew > 1.0 + share {
        if beyond { Verdict::Worse } else { Verdict::Noise }
    } else if grew < 1.0 / (1.0 + share) {
        if shrank_beyond { Verdict::Better } else { Verdict::Noise }
    } else {
        Verdict::Same
    }
}

/// The comparison as text: everything that moved (all of it if `all`), then a summary.
pub(crate) fn text(
    before: &Report,
    after: &Report,
    changes: &[Change],
    share: f64,
    all: bool,
    width: usize,
) -> String {
    let mut out = String::new();
    if before.machine.cpu != after.machine.cpu || before.machine.kernel != after.machine.kernel {
        let [a, b] =
            [before, after].map(|report| format!("{}, Linux {}", report.machine.cpu, report.machine.kernel));
        out.push_str(&terminal::wrap(&format!("Different machines: {a} and {b}."), "", width));
    }
    if before.quick || after.quick {
        out.push_str(&terminal::wrap("A quick run is among them: expect noise.", "", width));
    }
    let mut grid =
        vec![["ratio to the baseline", "before", "after", "change", ""].map(str::to_owned).to_vec()];
    for change in changes {
        let word = match change.verdict {
            Verdict::Worse => "WORSE",
            Verdict::Better => "better",
            Verdict::Noise => "within the noise",
            Verdict::Gone => "gone",
            Verdict::New => "new",
            Verdict::Same if all => "",
            Verdict::Same => continue,
        };
        let moved = (change.after / change.before - 1.0) * 100.0;
        let moved = if moved.is_nan() { String::new() } else { format!("{moved:+.0}%") };
        grid.push(vec![
            change.name.clone(),
            figure(change.before),
            figure(change.after),
            moved,
            word.to_owned(),
        ]);
    }
    if grid.len() > 1 {
        out.push_str(&aligned(&grid, 1, width));
    }
    let count = |verdict| changes.iter().filter(|change| change.verdict == verdict).count();
    let summary = format!(
        "{} ratios compared: {} worse and {} better by more than {:.0}%, {} within the noise, {} gone, {} new",
        changes.len() - count(Verdict::Gone) - count(Verdict::New),
        count(Verdict::Worse),
        count(Verdict::Better),
        share * 100.0,
        count(Verdict::Noise),
        count(Verdict::Gone),
        count(Verdict::New),
    );
    out.push_str(&terminal::wrap(&summary, "", width));
    out
}

#[cfg(test)]
mod tests {
    use super::{Verdict, judge};
    use crate::bench::report::{Better, Ratio};

    const fn ratio(q1: f64, median: f64, q3: f64) -> Ratio {
        Ratio { median, q1, q3 }
    }

    #[test]
    fn both_directions_are_judged_with_the_noise() {
        let quiet = ratio(0.99, 1.0, 1.01);
        let slower = ratio(1.19, 1.2, 1.21);
        let noisy = ratio(0.9, 1.2, 1.4);
        for (before, after, verdict) in [
            (quiet, slower, Verdict::Worse),
            (slower, quiet, Verdict::Better),
            (quiet, noisy, Verdict::Noise),
            (noisy, quiet, Verdict::Noise),
            (quiet, ratio(1.04, 1.05, 1.06), Verdict::Same),
        ] {
            assert_eq!(judge(Better::Lower, before, after, 0.1), verdict, "{before:?} to {after:?}");
            let mirrored = match verdict {
                Verdict::Worse => Verdict::Better,
                Verdict::Better => Verdict::Worse,
                other => other,
            };
            assert_eq!(
                judge(Better::Higher, before, after, 0.1),
                mirrored,
                "throughput, {before:?} to {after:?}"
            );
        }
        // The share decides.
        assert_eq!(judge(Better::Lower, quiet, slower, 0.25), Verdict::Same);
    }
}
