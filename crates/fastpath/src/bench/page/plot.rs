// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Plots as SVG, drawn by `plotters`.
//!
//! The page is light or dark after its reader's wish, so colours cannot be drawn into the SVG. We draw with stand-ins,
//! `#0101NN` for series NN and `#0202NN` for ink and grid, and the page's style sheet says what each of them is.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::bench::report::{Column, Scale, Table};
use crate::bench::text::figure;
use crate::failure::Failure;

/// Series that the style sheet has colours for; more share them with another mark.
pub(super) const COLOURS: usize = 8;
const INK: RGBColor = RGBColor(2, 2, 1);
const GRID: RGBColor = RGBColor(2, 2, 2);

/// The stand-in of series `at`.
const fn series(at: usize) -> RGBColor {
    RGBColor(1, 1, (at % COLOURS) as u8 + 1)
}

/// The table's `columns` as a plot of `width` pixels: lines where the rows are numbers, bars where they are names.
///
/// # Errors
/// Whatever the library reports, as one line.
pub(super) fn svg(table: &Table, columns: &[&Column], width: u32) -> Result<String, Failure> {
    let mut out = String::new();
    let drawn = if bars(table) {
        let bars: usize = table.rows.iter().map(|row| bars_of(table, &row.name, columns).len()).sum();
        let height = (bars * BAR + table.rows.len() * (HEAD + GAP)) as u32 + 8;
        draw_bars(
            &SVGBackend::with_string(&mut out, (width, height)).into_drawing_area(),
            table,
            columns,
            width,
        )
    } else {
        let height = (width * 9 / 16).clamp(280, 420);
        draw_lines(&SVGBackend::with_string(&mut out, (width, height)).into_drawing_area(), table, columns)
    };
    drawn.map_err(|reason| Failure::operation(format!("cannot draw {}", table.name), reason))?;
    Ok(out)
}

/// True for tables that are drawn as bars: rows that are names, or one row, which makes no line.
pub(super) fn bars(table: &Table) -> bool {
    table.scale == Scale::Category || table.rows.len() == 1
}

/// Pixels of a bar with its label, of a group's heading, between groups.
const BAR: usize = 22;
const HEAD: usize = 20;
const GAP: usize = 10;

/// Columns that have a figure in this row, with their position.
fn bars_of<'a>(table: &'a Table, row: &str, columns: &[&'a Column]) -> Vec<(usize, f64)> {
    columns
        .iter()
        .enumerate()
        .filter_map(|(at, column)| Some((at, table.cell(row, &column.name)?.median)))
        .collect()
}

type Drawn = Result<(), String>;

fn text_style(size: i32) -> TextStyle<'static> {
    ("system-ui, sans-serif", size).into_font().color(&INK)
}

/// One group of horizontal bars per row, each bar with its figure at its end.
fn draw_bars(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    table: &Table,
    columns: &[&Column],
    width: u32,
) -> Drawn {
    let draw = |error: DrawingAreaErrorKind<_>| error.to_string();
    let largest = table
        .cells
        .iter()
        .filter(|cell| columns.iter().any(|column| column.name == cell.column))
        .map(|cell| cell.median);
    let largest = largest.fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    // The longest bar leaves room for its figure.
    let room = f64::from(width) - 90.0;
    let mut top = 0_i32;
    for row in &table.rows {
        area.draw(&Text::new(row.name.clone(), (0, top + 4), text_style(17))).map_err(draw)?;
        top += HEAD as i32;
        for (at, value) in bars_of(table, &row.name, columns) {
            let length = (value / largest * room).round().max(1.0) as i32;
            let bar = Rectangle::new([(0, top + 2), (length, top + BAR as i32 - 3)], series(at).filled());
            area.draw(&bar).map_err(draw)?;
            let label = text_style(16).pos(Pos::new(HPos::Left, VPos::Center));
            area.draw(&Text::new(figure(value), (length + 6, top + BAR as i32 / 2), label)).map_err(draw)?;
            top += BAR as i32;
        }
        top += GAP as i32;
    }
    area.present().map_err(draw)
}

/// One line per column; sizes on a logarithmic axis, figures too where they span more than a factor of eight.
fn draw_lines(area: &DrawingArea<SVGBackend<'_>, Shift>, table: &Table, columns: &[&Column]) -> Drawn {
    let draw = |error: DrawingAreaErrorKind<_>| error.to_string();
    let place = |x: f64| if table.scale == Scale::Log { x.log2() } else { x };
    let lines: Vec<Vec<(f64, f64)>> = columns
        .iter()
        .map(|column| {
            let points = table
                .rows
                .iter()
                .filter_map(|row| Some((place(row.x?), table.cell(&row.name, &column.name)?.median)));
            points.collect()
        })
        .collect();
    let points: Vec<(f64, f64)> = lines.iter().flatten().copied().collect();
    let (low, high) =
        points.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), (_, y)| (low.min(*y), high.max(*y)));
    let (left, right) =
        points.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, r), (x, _)| (l.min(*x), r.max(*x)));
    if points.is_empty() {
        return Ok(());
    }
    let pad = if right > left { (right - left) * 0.03 } else { 0.5 };
    let logarithmic = low > 0.0 && high / low > 8.0;
    let mut builder = ChartBuilder::on(area);
    builder.margin(6).margin_right(14).x_label_area_size(46).y_label_area_size(60);
    let x_label = |x: &f64| short(if table.scale == Scale::Log { x.exp2() } else { *x });
    // At powers of two where the axis is logarithmic, and no more labels than fit.
    let most = if area.dim_in_pixel().0 > 500 { 13 } else { 6 };
    let steps =
        if table.scale == Scale::Log { (right - left) as usize + 1 } else { table.rows.len() }.min(most);
    let x_range = left - pad..right + pad;
    // The two kinds of y axis are two types; what is done with them is the same.
    macro_rules! chart {
        ($y_range:expr) => {{
            let mut chart = builder.build_cartesian_2d(x_range, $y_range).map_err(draw)?;
            chart
                .configure_mesh()
                .light_line_style(TRANSPARENT)
                .bold_line_style(GRID)
                .axis_style(INK)
                .x_labels(steps)
                .x_label_formatter(&x_label)
                .y_labels(7)
                .y_label_formatter(&|y: &f64| short(*y))
                .x_desc(table.axis.clone())
                .y_desc(table.unit.symbol())
                .label_style(text_style(16))
                .axis_desc_style(text_style(16))
                .draw()
                .map_err(draw)?;
            for (at, line) in lines.iter().enumerate() {
                let series_of_line = LineSeries::new(line.iter().copied(), series(at).stroke_width(2));
                chart.draw_series(series_of_line).map_err(draw)?;
                // Marks tell lines apart where colours do not: printed, or seen by other eyes.
                let fill = series(at).filled();
                let marks = line.iter().copied();
                match at % 3 {
                    0 => chart.draw_series(marks.map(|point| Circle::new(point, 3, fill).into_dyn())),
                    1 => chart.draw_series(marks.map(|point| TriangleMarker::new(point, 4, fill).into_dyn())),
                    _ => chart.draw_series(
                        marks.map(|point| Cross::new(point, 3, series(at).stroke_width(2)).into_dyn()),
                    ),
                }
                .map_err(draw)?;
            }
        }};
    }
    if logarithmic {
        let (low, high) = (low * 0.8, high * 1.25);
        // The library's own labels start at the first power of ten, which may be far up.
        chart!((low..high).log_scale().with_key_points(one_two_five(low, high)));
    } else {
        chart!(low.min(0.0)..high * 1.08);
    }
    area.present().map_err(draw)
}

/// The numbers 1, 2 and 5 times a power of ten between `low` and `high`.
fn one_two_five(low: f64, high: f64) -> Vec<f64> {
    let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let all = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power)));
    all.filter(|number| (low..=high).contains(number)).collect()
}

/// An axis label: 512, 4K, 2.5M.
fn short(value: f64) -> String {
    let size = value.abs();
    let trim = |value: f64| {
        let text =
            if value.abs() >= 10.0 || value == 0.0 { format!("{value:.0}") } else { format!("{value:.1}") };
        text.trim_end_matches(".0").to_owned()
    };
    // Sizes are powers of two: 4096 is 4K there, as people write it.
    if size >= 1024.0 && value % 1024.0 == 0.0 {
        format!("{}K", trim(value / 1024.0))
    } else if size >= 1e6 {
        format!("{}M", trim(value / 1e6))
    } else if size >= 1e4 {
        format!("{}k", trim(value / 1e3))
    } else {
        trim(value)
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn axis_labels_are_short() {
        let labels: Vec<String> =
            [0.0, 0.5, 8.0, 512.0, 4096.0, 16384.0, 20_000.0, 2.5e6].into_iter().map(short).collect();
        assert_eq!(labels, ["0", "0.5", "8", "512", "4K", "16K", "20k", "2.5M"]);
    }
}
