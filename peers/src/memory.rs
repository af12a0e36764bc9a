// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Workloads whose question is memory. Their time says little; what is resident where says it.

use std::sync::{Barrier, mpsc};
use std::time::{Duration, Instant};

use crate::workloads::{Numbers, Outcome, block};
use crate::{mappings, status, trim};

/// Threads that do `work` once and then wait for each other; what is resident while they wait.
fn waiting_threads(threads: usize, work: fn()) -> u64 {
    let (ready, done) = (Barrier::new(threads + 1), Barrier::new(threads + 1));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let spawned = std::thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, || {
                work();
                ready.wait();
                done.wait();
            });
            assert!(spawned.is_ok(), "the system starts {threads} threads");
        }
        ready.wait();
        let resident = status("VmRSS");
        done.wait();
        resident
    })
}

/// Every small size to 7.5 KiB, allocated and freed.
fn every_small_size() {
    for size in (8..=1024).step_by(8).chain((1152..=7680).step_by(128)) {
        drop(block(size));
    }
}

/// What an idle thread costs that allocated and freed all small sizes, and one that never allocated: from the difference between
/// 100 and 400 threads, so that what the process has once does not count.
pub fn idle_threads(percent: usize) -> Outcome {
    let (few, many) = (100 * percent.clamp(10, 100) / 100, 400 * percent.clamp(10, 100) / 100);
    let start = Instant::now();
    waiting_threads(few, every_small_size);
    let slope = |work: fn()| {
        let (low, high) = (waiting_threads(few, work), waiting_threads(many, work));
        (high.saturating_sub(low) as f64 / (many - few) as f64, high)
    };
    // First the threads that do nothing: allocators that keep what a thread had would hand it on to them.
    let (bare, _) = slope(|| {});
    let (used, resident) = slope(every_small_size);
    Outcome {
        operations: 2 * (few + many),
        seconds: start.elapsed().as_secs_f64(),
        rss_kib: resident,
        parts: vec![
            ("bare-thread".into(), bare),
            ("idle-thread".into(), used),
            ("idle-extra".into(), (used - bare).max(0.0)),
        ],
    }
}

/// 200 MB of small blocks, 15 of 16 freed, then as much again in another size, then all: what is resident three seconds after
/// the last free, with no call in between.
pub fn fragmentation(percent: usize) -> Outcome {
    let count = (800_000 * percent / 100).max(1600);
    let start = Instant::now();
    let mut blocks: Vec<Vec<u8>> = (0..count).map(|_| block(256)).collect();
    let mut at = 0;
    blocks.retain(|_| {
        at += 1;
        at % 16 == 0
    });
    let holes = status("VmRSS");
    let live = count / 16 * 256 / 1024 + count * 24 / 1024;
    blocks.extend((0..count / 2).map(|_| block(160)));
    let maps = mappings();
    drop(blocks);
    let seconds = start.elapsed().as_secs_f64();
    std::thread::sleep(Duration::from_secs(3));
    Outcome {
        operations: count + count / 2,
        seconds,
        rss_kib: status("VmRSS"),
        parts: vec![
            ("mappings-in-holes".into(), maps),
            ("holes".into(), holes as f64),
            ("holes-live".into(), live as f64),
        ],
    }
}

/// 200 MB of 1 KiB blocks: resident when they live, at the last free, three seconds later without a call, after a trim.
pub fn give_back(percent: usize) -> Outcome {
    let count = (200_000 * percent / 100).max(1000);
    let start = Instant::now();
    let mut blocks: Vec<Vec<u8>> = Vec::with_capacity(count);
    blocks.extend((0..count).map(|_| block(1024)));
    let live = status("VmRSS");
    blocks.drain(..).for_each(drop);
    let seconds = start.elapsed().as_secs_f64();
    let at_once = status("VmRSS");
    std::thread::sleep(Duration::from_secs(3));
    let later = status("VmRSS");
    trim();
    let trimmed = status("VmRSS");
    drop(blocks);
    Outcome {
        operations: count,
        seconds,
        rss_kib: later,
        parts: [
            ("live", live),
            ("at-last-free", at_once),
            ("3-seconds-later", later),
            ("after-trim", trimmed),
        ]
        .map(|(name, value)| (name.to_string(), value as f64))
        .into(),
    }
}

/// One thread allocates, another keeps a window of blocks alive and frees the oldest, and never allocates. Sizes change
/// as the program goes on. Resident at the end over what is alive then.
pub fn free_only(percent: usize) -> Outcome {
    const WINDOW: usize = 1500;
    let batches = (12_000 * percent / 100).max(2 * WINDOW);
    let (send, receive) = mpsc::sync_channel::<Vec<Vec<u8>>>(8);
    let before = status("VmRSS");
    let start = Instant::now();
    let (resident, live) = std::thread::scope(|scope| {
        let keeper = scope.spawn(move || {
            let mut window = std::collections::VecDeque::with_capacity(WINDOW + 1);
            while let Ok(batch) = receive.recv() {
                window.push_back(batch);
                if window.len() > WINDOW {
                    window.pop_front();
                }
            }
            let bytes: usize = window
                .iter()
                .flat_map(|batch: &Vec<Vec<u8>>| batch.iter())
                .map(|block| block.capacity() + 24)
                .sum();
            (status("VmRSS"), bytes as f64 / 1024.0)
        });
        let mut numbers = Numbers(9);
        for at in 0..batches {
            let most = [60, 250, 1000, 500][at * 4 / batches];
            let batch = (0..100).map(|_| block(most / 2 + numbers.next() % most)).collect();
            if send.send(batch).is_err() {
                break;
            }
        }
        drop(send);
        keeper.join().unwrap_or_default()
    });
    let ratio = resident.saturating_sub(before) as f64 / live;
    Outcome {
        operations: batches * 100,
        seconds: start.elapsed().as_secs_f64(),
        rss_kib: resident,
        parts: vec![("resident-over-live".into(), ratio)],
    }
}
