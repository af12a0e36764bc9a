// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Threads open, read and close one file of the in-process table for a second.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastpath_example_file_table::{FileTable, Names, live_inodes, live_open_files};

static NAMES: Names = Names::new();

fn main() -> std::io::Result<()> {
    NAMES.create("shared", &[7; 512]).expect("an empty table has room");
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (stop, start) = (AtomicBool::new(false), Instant::now());
    let rounds: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| work(&stop))).collect();
        std::thread::sleep(Duration::from_secs(1));
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().unwrap_or(0)).sum()
    });
    let per_second = rounds as f64 / start.elapsed().as_secs_f64();
    let mut out = std::io::stdout();
    writeln!(out, "{threads} threads: {per_second:.0} times open, read, close a second")?;
    NAMES.remove("shared").expect("it is there");
    writeln!(out, "left over: {} open files, {} inodes", live_open_files(), live_inodes())
}

/// Opens, reads and closes until told to stop, with a table of its own as a process has; says how often.
fn work(stop: &AtomicBool) -> u64 {
    let table = FileTable::new(&NAMES);
    let (mut rounds, mut buffer) = (0, [0; 512]);
    while !stop.load(Ordering::Relaxed) {
        let file = table.open("shared").expect("it is there");
        assert_eq!(table.read(file, &mut buffer), Ok(512));
        table.close(file).expect("it was open");
        rounds += 1;
    }
    rounds
}
