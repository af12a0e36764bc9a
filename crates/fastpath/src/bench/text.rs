// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Results as text: tables that fit the width they are printed at.

use super::report::{Better, Family, Report, Scale, Table, Target};
use crate::terminal;

/// The whole report.
pub(crate) fn report(report: &Report, width: usize) -> String {
    let mut out = String::new();
    for line in report.machine.lines() {
        out.push_str(&terminal::wrap(&line, "", width));
    }
    if report.quick {
        out.push_str(&terminal::wrap("A quick run: a first impression, not a measurement.", "", width));
    }
    for one in &report.families {
        out.push('\n');
        out.push_str(&family(one, width));
    }
    out
}

/// One family with its tables, targets and notes.
pub(crate) fn family(family: &Family, width: usize) -> String {
    let mut out = terminal::bold(&format!("{}: {}", family.name, family.title));
    out.push('\n');
    for one in &family.tables {
        out.push('\n');
        out.push_str(&table(one, width));
    }
    for line in seeds_lines(family) {
        out.push_str(&line);
        out.push('\n');
    }
    if !family.targets.is_empty() {
        out.push_str("\ntargets\n");
        for one in &family.targets {
            out.push_str(&terminal::wrap(&target(one), "  ", width));
        }
    }
    for note in &family.notes {
        out.push_str(&terminal::wrap(&format!("note: {note}"), "  ", width));
    }
    out
}

/// slab_test's figures of the first column as the module itself prints them: whole cycles, rounded down.
fn seeds_lines(family: &Family) -> Vec<String> {
    let table = |name: &str| family.tables.iter().find(|table| table.name == name);
    let (Some(alloc), Some(free), Some(pair)) = (table("test1-alloc"), table("test1-free"), table("test2"))
    else {
        return Vec::new();
    };
    let Some(column) = alloc.columns.first() else { return Vec::new() };
    let cycles = |table: &Table, row: &str| table.cell(row, &column.name).map(|cell| cell.median.floor());
    let mut lines = vec![
        format!("\nSingle thread testing ({})\n=====================", column.title),
        "1. Kmalloc: Repeatedly allocate then free test".to_owned(),
    ];
    for row in &alloc.rows {
        if let (Some(alloc), Some(free)) = (cycles(alloc, &row.name), cycles(free, &row.name)) {
            lines.push(format!("10000 times kmalloc({}) -> {alloc} cycles kfree -> {free} cycles", row.name));
        }
    }
    lines.push("2. Kmalloc: alloc/free test".to_owned());
    for row in &pair.rows {
        if let Some(pair) = cycles(pair, &row.name) {
            lines.push(format!("10000 times kmalloc({})/kfree -> {pair} cycles", row.name));
        }
    }
    lines
}

fn target(target: &Target) -> String {
    let sign = if target.better == Better::Lower { "<=" } else { ">=" };
    let verdict = if target.met { "met   " } else { "MISSED" };
    format!("{verdict} {} (wanted {sign} {}): {}", figure(target.value), figure(target.limit), target.title)
}

/// A table. Names as rows are printed with every statistic, numbers as rows as a matrix of medians and minima.
pub(crate) fn table(table: &Table, width: usize) -> String {
    let title = format!("{} [{}]", table.title, table.unit.symbol());
    let mut out = terminal::wrap(&title, "", width);
    if table.scale == Scale::Category {
        out.push_str(&detailed(table, width));
    } else {
        out.push_str(&matrix(table, width));
    }
    out
}

/// One line per cell: median, minimum, spread, nanoseconds, ratio.
fn detailed(table: &Table, width: usize) -> String {
    let mut grid = vec![vec![
        table.axis.clone(),
        "by".to_owned(),
        "median".into(),
        "min".into(),
        "spread".into(),
        "ns".into(),
        "ratio".into(),
    ]];
    for row in &table.rows {
        let mut name = row.name.as_str();
        for column in &table.columns {
            let Some(cell) = table.cell(&row.name, &column.name) else { continue };
            grid.push(vec![
                name.to_owned(),
                column.title.clone(),
                figure(cell.median),
                figure(cell.min),
                if cell.rounds > 1 { format!("{:.0}%", cell.spread * 100.0) } else { String::new() },
                cell.ns.map_or_else(String::new, figure),
                cell.ratio.map_or_else(String::new, |ratio| format!("{:.2}", ratio.median)),
            ]);
            name = "";
        }
    }
    aligned(&grid, 2, width)
}

/// Rows by columns, `median` and the minimum behind it where there is more than one round.
fn matrix(table: &Table, width: usize) -> String {
    let mut grid = vec![
        std::iter::once(table.axis.clone())
            .chain(table.columns.iter().map(|column| column.title.clone()))
            .collect::<Vec<_>>(),
    ];
    for row in &table.rows {
        let cells = table.columns.iter().map(|column| match table.cell(&row.name, &column.name) {
            Some(cell) if cell.rounds > 1 => format!("{} ({})", figure(cell.median), figure(cell.min)),
            Some(cell) => figure(cell.median),
            None => "-".to_owned(),
        });
        grid.push(std::iter::once(row.name.clone()).chain(cells).collect());
    }
    let mut out = aligned(&grid, 1, width);
    let spreads: Vec<f64> =
        table.cells.iter().filter(|cell| cell.rounds > 1).map(|cell| cell.spread).collect();
    if let Some(worst) = spreads.iter().copied().max_by(f64::total_cmp) {
        let typical = super::statistics::Summary::of(&spreads).median;
        let text = format!(
            "median (min) of the rounds; spread {:.0}% typically, {:.0}% at worst",
            typical * 100.0,
            worst * 100.0
        );
        out.push_str(&terminal::wrap(&text, "  ", width));
    }
    out
}

/// A grid as lines: the first `left` columns left-aligned and repeated where the table is broken because it is wider
/// than `width`, the others right-aligned. The first line is a heading, folded to the width of its column.
pub(crate) fn aligned(grid: &[Vec<String>], left: usize, width: usize) -> String {
    let columns = grid.first().map_or(0, Vec::len);
    let len = |text: &str| text.chars().count();
    let body = |column: usize| grid[1..].iter().map(|line| len(&line[column])).max().unwrap_or(0);
    let heads: Vec<Vec<String>> = (0..columns)
        .map(|column| {
            let longest_word = grid[0][column].split(' ').map(len).max().unwrap_or(0);
            terminal::wrap(&grid[0][column], "", body(column).max(longest_word).max(8))
                .lines()
                .map(str::to_owned)
                .collect()
        })
        .collect();
    let widths: Vec<usize> = (0..columns)
        .map(|column| heads[column].iter().map(|line| len(line)).max().unwrap_or(0).max(body(column)))
        .collect();
    let fixed: usize = 2 + widths[..left].iter().map(|width| width + 2).sum::<usize>();
    // Which columns share a block of lines.
    let mut blocks: Vec<Vec<usize>> = Vec::new();
    let mut room = 0;
    for (column, &needed) in widths.iter().enumerate().skip(left) {
        if blocks.is_empty() || room < needed + 2 {
            blocks.push(Vec::new());
            room = width.saturating_sub(fixed).max(needed + 2);
        }
        room -= needed + 2;
        if let Some(block) = blocks.last_mut() {
            block.push(column);
        }
    }
    let mut out = String::new();
    for block in blocks {
        let shown: Vec<usize> = (0..left).chain(block).collect();
        let height = shown.iter().map(|column| heads[*column].len()).max().unwrap_or(0);
        let head_lines = (0..height).map(|line| {
            let text = |column: usize| {
                (line + heads[column].len()).checked_sub(height).and_then(|at| heads[column].get(at))
            };
            shown.iter().map(|column| text(*column).cloned().unwrap_or_default()).collect::<Vec<_>>()
        });
        let body_lines =
            grid[1..].iter().map(|line| shown.iter().map(|column| line[*column].clone()).collect());
        for line in head_lines.chain(body_lines) {
            let mut text = String::from("  ");
            for (cell, column) in line.iter().zip(&shown) {
                let pad = " ".repeat(widths[*column] - len(cell));
                text.extend(if *column < left { [cell, pad.as_str(), "  "] } else { [&pad, cell, "  "] });
            }
            out.push_str(text.trim_end());
            out.push('\n');
        }
    }
    out
}

/// A value with about three digits that matter.
pub(crate) fn figure(value: f64) -> String {
    let size = value.abs();
    if value.is_nan() {
        "-".to_owned()
    } else if size >= 1e9 {
        format!("{:.2}G", value / 1e9)
    } else if size >= 1e6 {
        format!("{:.2}M", value / 1e6)
    } else if size >= 100.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::{aligned, figure};

    #[test]
    fn figures_have_about_three_digits() {
        let shown: Vec<String> =
            [0.5, 4.567, 45.67, 456.7, 12345.0, 2.5e6, 3e9, f64::NAN].into_iter().map(figure).collect();
        assert_eq!(shown, ["0.50", "4.57", "45.7", "457", "12345", "2.50M", "3.00G", "-"]);
    }

    #[test]
    fn a_wide_table_is_broken_into_blocks_that_fit() {
        let grid: Vec<Vec<String>> =
            (0..3).map(|row| (0..9).map(|column| format!("r{row}c{column}")).collect()).collect();
        let narrow = aligned(&grid, 1, 30);
        assert!(narrow.lines().all(|line| line.chars().count() <= 30), "{narrow}");
        for column in 0..9 {
            assert!(narrow.contains(&format!("r2c{column}")), "column {column} is there");
        }
        assert!(
            narrow.lines().filter(|line| line.contains("r1c0")).count() > 1,
            "each block repeats the row's name"
        );
        assert_eq!(aligned(&grid, 1, 200).lines().count(), 3);
    }
}
