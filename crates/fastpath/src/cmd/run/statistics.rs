// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the allocator did in every process of the tree. A shared file has one entry per process, written as things
//! happen, so that processes count that end by `_exit` or a signal.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use fastpath_alloc::shared_stats::{self, Entry, Front};
use serde_json::{Value, json};

use crate::bench::text::{aligned, figure};
use crate::failure::Failure;
use crate::library::Library;

/// Processes there is room for; the file is sparse.
const PROCESSES: u32 = 16 << 10;
/// Processes that the text shows.
const SHOWN: usize = 20;

/// The file, beside the library.
#[derive(Debug)]
pub(super) struct StatsFile {
    path: PathBuf,
}

/// Its content.
#[derive(Debug)]
pub(super) struct Statistics {
    processes: Vec<Entry>,
    left_out: u64,
}

impl StatsFile {
    pub(super) fn new(library: &Library) -> Result<Self, Failure> {
        let path = library.file_beside("stats");
        let (header, length) = shared_stats::new_file(PROCESSES);
        let create = || {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
            file.write_all(&header)?;
            file.set_len(length as u64)
        };
        create()
            .map_err(|error: std::io::Error| Failure::operation("cannot make the statistics file", error))?;
        Ok(Self { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn read(&self) -> Result<Statistics, Failure> {
        let broken = || Failure::Operation("the statistics file was overwritten by somebody".to_owned());
        let bytes =
            fs::read(&self.path).map_err(|error| Failure::operation("cannot read the statistics", error))?;
        let mut processes: Vec<Entry> = shared_stats::entries(&bytes).ok_or_else(broken)?.collect();
        processes.sort_by_key(|entry| std::cmp::Reverse(entry.allocations_at_least()));
        Ok(Statistics { processes, left_out: shared_stats::left_out(&bytes) })
    }
}

impl Drop for StatsFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

const fn front(entry: &Entry) -> &'static str {
    match entry.front {
        Front::SheafRseq => "sheaf/rseq",
        Front::SheafTryLock => "sheaf/trylock",
        Front::Direct => "direct",
        Front::Tid => "tid/locked",
        Front::Unknown => "unknown",
    }
}

fn bytes(count: u64) -> String {
    match count {
        0..10_240 => format!("{count} B"),
        10_240..10_485_760 => format!("{} KiB", count >> 10),
        _ => format!("{} MiB", count >> 20),
    }
}

/// The statistics as a table, the busiest processes first.
pub(super) fn text(statistics: &Statistics, width: usize) -> String {
    let processes = &statistics.processes;
    if processes.is_empty() {
        return "fastpath: no process was served: the program allocates nothing, or has a malloc of its own\n".to_owned();
    }
    let head = [
        "process",
        "front",
        "allocations, at least",
        "sheaf refills",
        "sheaf flushes",
        "direct",
        "big",
        "peak",
        "given back",
    ];
    let mut grid = vec![head.map(str::to_owned).to_vec()];
    for entry in processes.iter().take(SHOWN) {
        grid.push(vec![
            format!("{} {}", entry.pid, entry.name()),
            front(entry).to_owned(),
            entry.allocations_at_least().to_string(),
            entry.refills.to_string(),
            entry.flushes.to_string(),
            entry.direct_allocs.to_string(),
            entry.big_allocs.to_string(),
            bytes(entry.peak),
            bytes(entry.purged),
        ]);
    }
    let mut out = format!(
        "\nfastpath: {} served\n{}",
        if processes.len() == 1 {
            "one process".to_owned()
        } else {
            format!("{} processes", processes.len())
        },
        aligned(&grid, 1, width)
    );
    if processes.len() > SHOWN {
        let total: u64 = processes.iter().map(Entry::allocations_at_least).sum();
        let _ = writeln!(
            out,
            "  and {} more; all together {} allocations at least",
            processes.len() - SHOWN,
            figure(total as f64)
        );
    }
    if statistics.left_out > 0 {
        let _ = writeln!(out, "  {} processes found no room in the statistics", statistics.left_out);
    }
    out
}

/// The statistics as JSON.
pub(super) fn json(statistics: &Statistics) -> Result<String, Failure> {
    let processes: Vec<Value> = statistics
        .processes
        .iter()
        .map(|entry| {
            json!({
                "pid": entry.pid, "parent": entry.parent, "name": entry.name(), "front": front(entry),
                "allocations_at_least": entry.allocations_at_least(),
                "refills": entry.refills, "refilled": entry.refilled, "flushes": entry.flushes, "flushed": entry.flushed,
                "direct_allocs": entry.direct_allocs, "direct_frees": entry.direct_frees,
                "big_allocs": entry.big_allocs, "big_frees": entry.big_frees,
                "exact_allocs": entry.exact_allocs, "exact_frees": entry.exact_frees,
                "used": entry.used, "peak": entry.peak, "reserved": entry.reserved, "purged": entry.purged,
                "reentered": entry.reentered,
            })
        })
        .collect();
    let value = json!({
        "format": "fastpath-stats", "version": 1, "left_out": statistics.left_out, "processes": processes,
    });
    let text = serde_json::to_string_pretty(&value)
        .map_err(|error| Failure::operation("cannot write JSON", error))?;
    Ok(text + "\n")
}
