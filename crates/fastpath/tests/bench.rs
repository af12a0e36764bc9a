// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `fastpath bench` as its users meet it: the files it writes, the exit statuses, the page.
#![cfg(feature = "cli")]

mod command;
mod schema;

use std::path::Path;

use command::{Outcome, fastpath};
use serde_json::{Value, json};

fn documented() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/bench-schema.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// A report with one family of one table: `cost` over `base`, each with the given quartiles.
fn made_up(better: &str, [q1, median, q3]: [f64; 3]) -> Value {
    let cell = |column: &str, [q1, median, q3]: [f64; 3], ratio: Value| {
        json!({ "row": "8", "column": column, "median": median, "min": q1, "q1": q1, "q3": q3, "max": q3,
                "spread": (q3 - q1) / median, "rounds": 9, "batch": 100, "ratio": ratio })
    };
    let one = json!({ "median": 1.0, "q1": 1.0, "q3": 1.0 });
    json!({
        "format": "fastpath-bench", "version": 1, "tool": "made up", "command": ["made-up"],
        "started": "2026-11-30T12:00:00Z", "quick": false,
        "machine": { "cpu": "A", "arch": "x86_64", "online": "0", "allowed": "0", "kernel": "6.0", "virtual_machine": false,
                     "counter": "tsc", "counter_hz": 1e9, "counter_is_cycles": true, "load": 0.0 },
        "families": [{ "name": "slab", "title": "<made> & up", "seconds": 1.0, "targets": [], "notes": [], "tables": [{
            "name": "pair", "title": "A pair", "unit": "cycles", "better": better, "axis": "size", "scale": "log",
            "baseline": "base", "rows": [{ "name": "8", "x": 8.0 }],
            "columns": [{ "name": "base", "title": "base" }, { "name": "cost", "title": "cost" }],
            "cells": [cell("base", [10.0, 10.0, 10.0], one),
                      cell("cost", [q1 * 10.0, median * 10.0, q3 * 10.0], json!({ "median": median, "q1": q1, "q3": q3 }))],
        }] }],
    })
}

/// Compares two made-up reports.
fn compared(better: &str, before: [f64; 3], after: [f64; 3], options: &[&str]) -> Outcome {
    let dir = tempfile::tempdir().unwrap();
    for (name, quartiles) in [("a.json", before), ("b.json", after)] {
        let report = made_up(better, quartiles);
        schema::check(&documented(), &report);
        std::fs::write(dir.path().join(name), report.to_string()).unwrap();
    }
    fastpath(dir.path(), &[&["bench", "compare", "a.json", "b.json"], options].concat())
}

#[test]
fn compare_judges_both_ways() {
    let quiet = [0.99, 1.0, 1.01];
    let slower = [1.29, 1.3, 1.31];
    let noisy = [0.95, 1.3, 1.5];
    for (better, before, after, options, status, word) in [
        ("lower", quiet, slower, &[][..], 1, "WORSE"),
        ("lower", slower, quiet, &[], 0, "better"),
        ("higher", quiet, slower, &[], 0, "better"),
        ("higher", slower, quiet, &[], 1, "WORSE"),
        ("lower", quiet, noisy, &[], 0, "within the noise"),
        ("lower", quiet, quiet, &[], 0, "0 worse"),
        ("lower", quiet, slower, &["--threshold", "50"], 0, "0 worse"),
        ("lower", quiet, slower, &["--threshold", "5%"], 1, "WORSE"),
    ] {
        let run = compared(better, before, after, options);
        assert_eq!(run.status, Some(status), "{better} {before:?} {after:?} {options:?}: {run:?}");
        assert!(run.out.contains(word), "{better} {before:?} {after:?}: {run:?}");
    }
}

#[test]
fn compare_needs_something_in_common() {
    let dir = tempfile::tempdir().unwrap();
    let mut other = made_up("lower", [1.0; 3]);
    std::fs::write(dir.path().join("a.json"), other.to_string()).unwrap();
    other["families"][0]["name"] = "percpu".into();
    std::fs::write(dir.path().join("b.json"), other.to_string()).unwrap();
    let run = fastpath(dir.path(), &["bench", "compare", "a.json", "b.json"]);
    run.failed(1, "have no ratio in common");
    other["version"] = 2.into();
    std::fs::write(dir.path().join("b.json"), other.to_string()).unwrap();
    fastpath(dir.path(), &["bench", "compare", "a.json", "b.json"])
        .failed(1, "its version is 2, this program reads 1");
    std::fs::write(dir.path().join("b.json"), "{}").unwrap();
    fastpath(dir.path(), &["bench", "compare", "a.json", "b.json"])
        .failed(1, "not a result of fastpath bench");
    fastpath(dir.path(), &["bench", "compare", "a.json", "none.json"]).failed(1, "cannot read none.json");
}

#[test]
fn a_quick_run_fits_its_schema_and_its_page_says_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let run = fastpath(dir.path(), &["bench", "--quick", "cmpxchg", "--json", "r.json", "--html", "r.html"]);
    assert_eq!(run.status, Some(0), "{run:?}");
    assert!(run.err.is_empty(), "no progress bar in a pipe: {run:?}");
    let report = read(&dir.path().join("r.json"));
    schema::check(&documented(), &report);
    assert_eq!(report["quick"], true);
    for cell in cells(&report) {
        let order: Vec<f64> =
            ["min", "q1", "median", "q3", "max"].iter().map(|name| cell[*name].as_f64().unwrap()).collect();
        assert!(order.is_sorted(), "{cell}");
        assert!(order[0] > 0.0, "{cell}");
    }
    page_agrees(&dir.path().join("r.html"), &report);
    // Printing it again says what was printed.
    let again = fastpath(dir.path(), &["bench", "show", "r.json"]);
    assert_eq!(again.out, run.out);
}

#[test]
fn slab_measures_the_tid_front() {
    let dir = tempfile::tempdir().unwrap();
    let run = fastpath(dir.path(), &["bench", "slab", "--quick", "--json", "r.json"]);
    assert_eq!(run.status, Some(0), "{run:?}");
    let report = read(&dir.path().join("r.json"));
    schema::check(&documented(), &report);
    let family = &report["families"][0];
    for column in ["tid", "tid-no-rseq"] {
        // Only the machine can be the reason.
        let notes = family["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap());
        let reason = notes.filter(|note| note.starts_with("left out: tid,")).find(|note| {
            (column == "tid" && note.ends_with("has no rseq")) || note.ends_with("compare-and-exchange")
        });
        if let Some(reason) = reason {
            fastpath_testkit::skip("bench-tid", reason);
            continue;
        }
        for table in family["tables"].as_array().unwrap() {
            let rows = table["rows"].as_array().unwrap();
            let measured: Vec<&Value> =
                table["cells"].as_array().unwrap().iter().filter(|cell| cell["column"] == column).collect();
            for row in rows {
                let cell = measured.iter().find(|cell| cell["row"] == row["name"]);
                let median = cell.and_then(|cell| cell["median"].as_f64());
                assert!(median.is_some_and(|median| median > 0.0), "{column}: {row} of {}", table["name"]);
            }
            assert!(!measured.is_empty(), "{column}: {}", table["name"]);
        }
    }
}

fn cells(report: &Value) -> impl Iterator<Item = &Value> {
    let tables =
        report["families"].as_array().unwrap().iter().flat_map(|family| family["tables"].as_array().unwrap());
    tables.flat_map(|table| table["cells"].as_array().unwrap())
}

/// Every figure of the report stands in the page's table where it belongs, and the report is inside the page.
fn page_agrees(page: &Path, report: &Value) {
    let page = std::fs::read_to_string(page).unwrap();
    let inside = page.split("id=\"report\">").nth(1).unwrap().split("</script>").next().unwrap();
    assert_eq!(&serde_json::from_str::<Value>(inside).unwrap(), report);
    for family in report["families"].as_array().unwrap() {
        for table in family["tables"].as_array().unwrap() {
            let id = format!(
                "id=\"{}-{}-figures\"",
                family["name"].as_str().unwrap(),
                table["name"].as_str().unwrap()
            );
            let body =
                page.split(&id).nth(1).unwrap_or_else(|| panic!("{id}")).split("</table>").next().unwrap();
            for cell in table["cells"].as_array().unwrap() {
                let row =
                    body.split(&format!("<tr><th>{}</th>", cell["row"].as_str().unwrap())).nth(1).unwrap();
                let row = row.split("</tr>").next().unwrap();
                let data = row
                    .split(&format!("data-column=\"{}\">", cell["column"].as_str().unwrap()))
                    .nth(1)
                    .unwrap();
                let shown = data.split('<').next().unwrap();
                same_figure(shown, cell["median"].as_f64().unwrap());
                if let Some(min) = data.split("</td>").next().unwrap().split("min ").nth(1) {
                    same_figure(min.split(',').next().unwrap(), cell["min"].as_f64().unwrap());
                }
            }
        }
    }
    // One file: nothing is loaded from anywhere.
    for loads in ["src=", "@import", "url(", "<link"] {
        assert!(!page.contains(loads), "the page has {loads}");
    }
    assert!(page.matches("<svg").count() >= 2, "plots");
    assert!(page.contains("113 cycles before and 126 after"), "where words and figures differ");
    assert!(page.contains("+14 ns"), "the generic compare-and-exchange on the am335x");
}

/// `shown` is `value` to at least two digits.
fn same_figure(shown: &str, value: f64) {
    let (digits, factor) = match shown.chars().last() {
        Some('M') => (&shown[..shown.len() - 1], 1e6),
        Some('G') => (&shown[..shown.len() - 1], 1e9),
        _ => (shown, 1.0),
    };
    let read: f64 = digits.parse::<f64>().unwrap() * factor;
    assert!((read - value).abs() <= 0.005 * value.abs().max(1.0), "{shown} for {value}");
}

#[test]
fn text_cannot_break_the_page_and_another_runs_columns_stand_beside() {
    let dir = tempfile::tempdir().unwrap();
    let mut report = made_up("lower", [1.0; 3]);
    std::fs::write(dir.path().join("a.json"), report.to_string()).unwrap();
    report["tool"] = "peers 1".into();
    report["families"][0]["notes"] = json!(["</script><b>"]);
    report["families"][0]["tables"][0]["columns"][1] = json!({ "name": "mimalloc", "title": "mimalloc" });
    report["families"][0]["tables"][0]["cells"][1]["column"] = "mimalloc".into();
    report["families"][0]["tables"][0]["cells"][1]["median"] = 77.0.into();
    std::fs::write(dir.path().join("p.json"), report.to_string()).unwrap();
    let run = fastpath(dir.path(), &["bench", "show", "a.json", "--with", "p.json", "--html", "a.html"]);
    assert_eq!(run.status, Some(0), "{run:?}");
    assert!(run.out.contains("mimalloc") && run.out.contains("77"), "{run:?}");
    let page = std::fs::read_to_string(dir.path().join("a.html")).unwrap();
    assert!(page.contains("data-column=\"mimalloc\">77") && page.contains("peers 1, another run"));
    assert!(page.contains("&lt;made&gt; &amp; up") && !page.contains("<made>"));
    page_agrees(&dir.path().join("a.html"), &read(&dir.path().join("a.json")));
    // The hostile note, in its own page.
    let run = fastpath(dir.path(), &["bench", "show", "p.json", "--html", "p.html"]);
    assert_eq!(run.status, Some(0), "{run:?}");
    page_agrees(&dir.path().join("p.html"), &read(&dir.path().join("p.json")));
}

#[test]
fn figures_of_an_image_fit_the_schema() {
    let dir = tempfile::tempdir().unwrap();
    let log = "boot\r\nbench-machine cpu=ARM926 arch=arm counter=icount hz=1e9\r\n\
               bench family=rtmutex table=lock-loop row=lock+unlock column=slow unit=instructions median=400 baseline=slow\r\n\
               bench family=rtmutex table=lock-loop row=lock+unlock column=fast unit=instructions median=100\r\n";
    std::fs::write(dir.path().join("console.log"), log).unwrap();
    let run = fastpath(
        dir.path(),
        &["bench", "--from-qemu", "console.log", "--json", "q.json", "--html", "q.html"],
    );
    assert_eq!(run.status, Some(0), "{run:?}");
    let report = read(&dir.path().join("q.json"));
    schema::check(&documented(), &report);
    assert_eq!(report["families"][0]["tables"][0]["cells"][1]["ratio"]["median"], 0.25);
    page_agrees(&dir.path().join("q.html"), &report);
    std::fs::write(dir.path().join("console.log"), "nothing\n").unwrap();
    fastpath(dir.path(), &["bench", "--from-qemu", "console.log"]).failed(1, "no line starts with `bench`");
    fastpath(dir.path(), &["bench", "--from-qemu", "console.log", "slab"]).failed(2, "cannot be used with");
}

#[test]
fn errors_are_one_line_and_come_before_the_work() {
    let dir = tempfile::tempdir().unwrap();
    fastpath(dir.path(), &["bench", "cmpxchg", "--json", "no/such/folder.json"])
        .failed(1, "cannot write no/such/folder.json");
    fastpath(dir.path(), &["bench", "cmpxchg", "--cpu", "100000"]).failed(2, "may not use that CPU");
    fastpath(dir.path(), &["bench", "slabs"]).failed(2, "invalid value 'slabs'");
    fastpath(dir.path(), &["bench", "--quik"]).failed(2, "--quick");
    fastpath(dir.path(), &["bench", "compare", "a.json"]).failed(2, "required");
    fastpath(dir.path(), &["bench", "compare", "a", "b", "--threshold", "x"]).failed(2, "number of per cent");
    fastpath(dir.path(), &[]).failed(2, "subcommand");
}

#[test]
fn narrow_terminals_get_narrow_tables() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.json"), made_up("lower", [1.0; 3]).to_string()).unwrap();
    let run = command::with(dir.path(), &["bench", "show", "a.json"], &[("COLUMNS", "40")]);
    assert_eq!(run.status, Some(0), "{run:?}");
    assert!(run.out.lines().all(|line| line.chars().count() <= 40), "{}", run.out);
    assert!(!run.out.contains('\u{1b}'), "no colour in a pipe");
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.json"), made_up("lower", [1.0; 3]).to_string()).unwrap();
    let run = command::into_a_closed_pipe(dir.path(), &["bench", "show", "a.json"]);
    assert_eq!((run.status, run.err.as_str()), (Some(141), ""));
}

#[test]
fn help_has_examples() {
    let dir = tempfile::tempdir().unwrap();
    for command in [
        &["--help"][..],
        &["run", "--help"],
        &["bench", "--help"],
        &["bench", "compare", "--help"],
        &["info", "--help"],
    ] {
        let run = fastpath(dir.path(), command);
        assert_eq!(run.status, Some(0));
        assert!(run.out.contains("Examples:") && run.out.ends_with('\n'), "{command:?}: {}", run.out);
    }
    assert!(fastpath(dir.path(), &["--version"]).out.starts_with("fastpath "));
}
