// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! One self-contained HTML page of a report: per table a plot and the figures, the machine, the command. It loads
//! nothing, is readable on a phone and on paper, light or dark. The report's JSON is inside it, so a page that was
//! passed on can be compared later.

mod plot;

use std::fmt::Write as _;

use super::report::{Better, Column, Family, Report, Table};
use super::text::figure;
use crate::failure::Failure;

/// Widths at which plots are drawn: for a screen, for a phone.
const WIDTHS: [(u32, &str); 2] = [(880, "wide"), (360, "narrow")];

/// The page.
///
/// # Errors
/// If a plot cannot be drawn.
pub(crate) fn html(report: &Report, json: &str) -> Result<String, Failure> {
    let mut out = String::with_capacity(256 << 10);
    let names: Vec<&str> = report.families.iter().map(|family| family.name.as_str()).collect();
    let title = format!("fastpath bench: {}", names.join(", "));
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n<h1>{}</h1>\n",
        escape(&title),
        include_str!("page.css"),
        escape(&title)
    );
    machine(&mut out, report);
    out.push_str("<nav>");
    for name in &names {
        let _ = write!(out, "<a href=\"#{0}\">{0}</a>", escape(name));
    }
    out.push_str("</nav>\n<main>\n");
    for one in &report.families {
        family(&mut out, one)?;
    }
    // In JSON a `<` can only stand in a string; written as an escape it cannot end the script element.
    let _ = write!(
        out,
        "</main>\n<script type=\"application/json\" id=\"report\">{}</script>\n</body>\n</html>\n",
        json.trim_end().replace('<', "\\u003c")
    );
    Ok(out)
}

fn machine(out: &mut String, report: &Report) {
    out.push_str("<dl>");
    let mut fact = |name: &str, value: &str| {
        let _ = write!(out, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
    };
    let machine = &report.machine;
    let kind = if machine.virtual_machine { ", virtual machine" } else { "" };
    fact("machine", &format!("{} ({}{kind})", machine.cpu, machine.arch));
    fact("kernel", &machine.kernel);
    let pinned = machine.pinned.map_or_else(|| "not pinned".to_owned(), |cpu| format!("pinned to CPU {cpu}"));
    fact("CPUs", &format!("{} online, {} allowed, {pinned}", machine.online, machine.allowed));
    fact("counter", &format!("{} at {:.3} MHz", machine.counter, machine.counter_hz / 1e6));
    let governor = machine.governor.as_deref().unwrap_or("none to see");
    let huge_pages = machine.huge_pages.as_deref().unwrap_or("unknown");
    fact(
        "state",
        &format!("load {:.2}, frequency governor {governor}, huge pages {huge_pages}", machine.load),
    );
    let effort = if report.quick { " (quick: a first impression, not a measurement)" } else { "" };
    fact("run", &format!("{}, {}{effort}", report.started, report.tool));
    let _ = write!(out, "</dl>\n<pre>{}</pre>\n", escape(&command(&report.command)));
}

/// The command as it can be pasted into a shell, without the folder of its program.
fn command(words: &[String]) -> String {
    let quoted = words.iter().enumerate().map(|(at, word)| {
        let word = if at == 0 { word.rsplit('/').next().unwrap_or(word) } else { word };
        let plain =
            !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c));
        if plain { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

fn family(out: &mut String, family: &Family) -> Result<(), Failure> {
    let _ = write!(
        out,
        "<section id=\"{0}\">\n<h2>{0}</h2>\n<p>{1}</p>\n",
        escape(&family.name),
        escape(&family.title)
    );
    if !family.targets.is_empty() {
        out.push_str("<ul class=\"targets\">");
        for target in &family.targets {
            let (class, word) = if target.met { ("met", "met") } else { ("missed", "missed") };
            let sign = if target.better == Better::Lower { "≤" } else { "≥" };
            let _ = write!(
                out,
                "<li><b class=\"{class}\">{word}</b> {} (wanted {sign} {}): {}</li>",
                figure(target.value),
                figure(target.limit),
                escape(&target.title)
            );
        }
        out.push_str("</ul>\n");
    }
    for one in &family.tables {
        table(out, &family.name, one)?;
    }
    if !family.notes.is_empty() {
        out.push_str("<ul class=\"notes\">");
        for note in &family.notes {
            let _ = write!(out, "<li>{}</li>", escape(note));
        }
        out.push_str("</ul>\n");
    }
    out.push_str("</section>\n");
    Ok(())
}

fn table(out: &mut String, family: &str, table: &Table) -> Result<(), Failure> {
    let id = format!("{family}-{}", table.name);
    let _ = writeln!(out, "<h3 id=\"{}\">{}</h3>", escape(&id), escape(&table.title));
    // Measured here and measured elsewhere are two plots: nobody should compare their heights.
    let (measured, elsewhere): (Vec<&Column>, Vec<&Column>) =
        table.columns.iter().partition(|column| column.reference.is_none());
    for (columns, what) in [(measured, "measured in this run"), (elsewhere, "from elsewhere")] {
        if !columns.is_empty() {
            figure_of(out, table, &columns, what)?;
        }
    }
    let unit = table.unit.symbol();
    let _ = write!(
        out,
        "<div class=\"scroll\" tabindex=\"0\"><table id=\"{}-figures\"><thead><tr><th>{}</th>",
        escape(&id),
        escape(&table.axis)
    );
    for column in &table.columns {
        let class = if column.reference.is_some() { " class=\"other\"" } else { "" };
        let _ = write!(out, "<th{class}>{}</th>", escape(&column.title));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        let _ = write!(out, "<tr><th>{}</th>", escape(&row.name));
        for column in &table.columns {
            let Some(cell) = table.cell(&row.name, &column.name) else {
                out.push_str("<td>-</td>");
                continue;
            };
            let _ = write!(out, "<td data-column=\"{}\">{}", escape(&column.name), figure(cell.median));
            if cell.rounds > 1 {
                let ratio =
                    cell.ratio.map_or_else(String::new, |ratio| format!(", ×{}", figure(ratio.median)));
                let _ = write!(
                    out,
                    "<small>min {}, ±{:.0}%{ratio}</small>",
                    figure(cell.min),
                    cell.spread * 50.0
                );
            }
            out.push_str("</td>");
        }
        out.push_str("</tr>\n");
    }
    let _ = write!(out, "</tbody></table></div>\n<p class=\"notes\">Medians in {unit}");
    if table.cells.iter().any(|cell| cell.rounds > 1) {
        out.push_str("; below them the smallest round and half the distance of the quartiles");
    }
    if let Some(baseline) =
        table.baseline.as_ref().and_then(|name| table.columns.iter().find(|column| column.name == *name))
    {
        let _ = write!(out, "; × is the ratio to “{}” in the same rounds", escape(&baseline.title));
    }
    out.push_str(".</p>\n");
    let sources: Vec<&Column> = table.columns.iter().filter(|column| column.reference.is_some()).collect();
    if !sources.is_empty() {
        out.push_str("<details><summary>Columns from elsewhere</summary><ul>");
        for column in sources {
            let source = column.reference.as_deref().unwrap_or_default();
            let _ = write!(out, "<li>{}: {}</li>", escape(&column.title), escape(source));
        }
        out.push_str("</ul></details>\n");
    }
    Ok(())
}

/// A plot at both widths with its key.
fn figure_of(out: &mut String, table: &Table, columns: &[&Column], what: &str) -> Result<(), Failure> {
    let _ = write!(
        out,
        "<figure><figcaption class=\"notes\">{}, {what}</figcaption>",
        escape(table.unit.symbol())
    );
    let label = escape(&format!("{}, {what}: the table below has its figures", table.title));
    for (width, class) in WIDTHS {
        let drawn = plot::svg(table, columns, width)?;
        // The library writes a whole document; inside a page only the element itself is wanted.
        let element = drawn.find("<svg").map_or("", |start| &drawn[start..]);
        out.push_str(&element.replacen(
            "<svg",
            &format!("<svg class=\"{class}\" role=\"img\" aria-label=\"{label}\""),
            1,
        ));
    }
    out.push_str("<ul class=\"key\">");
    for (at, column) in columns.iter().enumerate() {
        let mark = if plot::bars(table) { "■" } else { ["●", "▲", "✕"][at % 3] };
        let _ = write!(
            out,
            "<li><i class=\"c{}\">{mark}</i>{}</li>",
            at % plot::COLOURS + 1,
            escape(&column.title)
        );
    }
    out.push_str("</ul></figure>\n");
    Ok(())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::{command, escape};

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escape("<a href=\"x\">&"), "&lt;a href=&quot;x&quot;&gt;&amp;");
    }

    #[test]
    fn the_command_can_be_pasted() {
        let words = ["/home/me/bin/fastpath", "bench", "--json", "it's here.json", ""].map(str::to_owned);
        assert_eq!(command(&words), r"fastpath bench --json 'it'\''s here.json' ''");
    }
}
