// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The workloads. Each takes a scale in per cent and says how many operations took how long, and what was resident where that is the question.

use std::hint::black_box;
use std::sync::mpsc;
use std::time::Instant;

use crate::{memory, micro};

/// What a workload took.
pub struct Outcome {
    /// Allocations (each with its free), or what the workload counts.
    pub operations: usize,
    /// Wall time of the part that counts.
    pub seconds: f64,
    /// Resident memory at the point that the workload is about, in KiB.
    pub rss_kib: u64,
    /// Further figures that the workload is about, by name.
    pub parts: Vec<(String, f64)>,
}

type Workload = (&'static str, fn(usize) -> Outcome);

/// Every workload, by name.
pub const ALL: [Workload; 13] = [
    ("pairs", micro::pairs),
    ("batch", micro::batch),
    ("producer-consumer", producer_consumer),
    ("all-to-all", all_to_all),
    ("server", server),
    ("survival", survival),
    ("growth", growth),
    ("large", large),
    ("idle-threads", memory::idle_threads),
    ("fragmentation", memory::fragmentation),
    ("give-back", memory::give_back),
    ("free-only", memory::free_only),
    ("hello", hello),
];

/// A block of that many bytes whose first byte is written, as every program does.
pub fn block(size: usize) -> Vec<u8> {
    let mut block = Vec::with_capacity(size);
    block.push(1);
    black_box(block)
}

/// A small generator (xorshift): the same numbers for every allocator.
pub struct Numbers(pub u64);

impl Numbers {
    /// The next one.
    pub fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize
    }

    /// Sizes as programs have them: mostly small.
    fn size(&mut self) -> usize {
        match self.next() % 16 {
            0..=9 => 8 + self.next() % 120,
            10..=13 => 128 + self.next() % 896,
            14 => 1024 + self.next() % 7168,
            _ => 8192 + self.next() % 24576,
        }
    }
}

/// Times `work`.
pub fn timed(operations: usize, work: impl FnOnce()) -> Outcome {
    let start = Instant::now();
    work();
    Outcome {
        operations,
        seconds: start.elapsed().as_secs_f64(),
        rss_kib: super::status("VmRSS"),
        parts: Vec::new(),
    }
}

/// Next to nothing: what a process costs in which the allocator has served a few small blocks.
fn hello(_percent: usize) -> Outcome {
    timed(1, || eprint!("{}", &"hello"[usize::from(block(100)[0]) * 5..]))
}

/// One thread allocates, another frees.
fn producer_consumer(percent: usize) -> Outcome {
    let batches = (40_000 * percent / 100).max(1);
    let (send, receive) = mpsc::sync_channel::<Vec<Vec<u8>>>(16);
    timed(batches * 100, || {
        std::thread::scope(|scope| {
            scope.spawn(move || receive.into_iter().for_each(drop));
            let mut numbers = Numbers(1);
            for _ in 0..batches {
                let blocks = (0..100).map(|_| block(8 + numbers.next() % 500)).collect();
                if send.send(blocks).is_err() {
                    break;
                }
            }
            drop(send);
        });
    })
}

/// Four threads, each of which frees what the other three allocated.
fn all_to_all(percent: usize) -> Outcome {
    const THREADS: usize = 4;
    let batches = (1_500 * percent / 100).max(1);
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..THREADS).map(|_| mpsc::channel::<Vec<Vec<u8>>>()).unzip();
    timed(THREADS * batches * THREADS * 50, || {
        std::thread::scope(|scope| {
            for (me, receiver) in receivers.into_iter().enumerate() {
                let senders = senders.clone();
                scope.spawn(move || {
                    let mut numbers = Numbers(me as u64 + 1);
                    for _ in 0..batches {
                        for sender in &senders {
                            let _ = sender.send((0..50).map(|_| block(8 + numbers.next() % 500)).collect());
                        }
                        receiver.try_iter().for_each(drop);
                    }
                    drop(senders);
                    receiver.into_iter().for_each(drop);
                });
            }
            drop(senders);
        });
    })
}

/// A server: threads that replace random blocks of a table of their own and then hand it to a new thread.
fn server(percent: usize) -> Outcome {
    let (generations, replacements) = (8, (50_000 * percent / 100).max(1));
    timed(4 * generations * replacements, || {
        std::thread::scope(|scope| {
            for lane in 0..4_u64 {
                scope.spawn(move || {
                    let mut numbers = Numbers(lane + 1);
                    let mut table: Vec<Vec<u8>> = (0..1000).map(|_| block(numbers.size())).collect();
                    for generation in 0..generations as u64 {
                        let next = std::thread::spawn(move || {
                            let mut numbers = Numbers(lane * 100 + generation + 7);
                            for _ in 0..replacements {
                                let at = numbers.next() % table.len();
                                table[at] = block(numbers.size());
                            }
                            table
                        });
                        table = next.join().unwrap_or_default();
                    }
                });
            }
        });
    })
}

/// Random sizes; one block in eight survives for long, the others for a moment.
fn survival(percent: usize) -> Outcome {
    let rounds = (2_000_000 * percent / 100).max(1);
    let mut numbers = Numbers(3);
    let mut old: Vec<Vec<u8>> = (0..20_000).map(|_| block(numbers.size())).collect();
    let mut young: Vec<Vec<u8>> = (0..64).map(|_| block(numbers.size())).collect();
    timed(rounds, || {
        for round in 0..rounds {
            let fresh = block(numbers.size());
            if round % 8 == 0 {
                let at = numbers.next() % old.len();
                old[at] = fresh;
            } else {
                young[round % 64] = fresh;
            }
        }
        black_box((&old, &young));
    })
}

/// Vectors that grow by one byte at a time to 16 KiB and more: `realloc`.
fn growth(percent: usize) -> Outcome {
    let rounds = (400 * percent / 100).max(1);
    timed(rounds * 16, || {
        for _ in 0..rounds {
            let mut vectors: Vec<Vec<u64>> = (0..4).map(|_| Vec::new()).collect();
            for n in 0..20_000 {
                for vector in &mut vectors {
                    vector.push(n);
                }
            }
            black_box(&vectors);
        }
    })
}

/// Blocks of 5 to 25 MiB, written at one byte per page, four alive at a time.
fn large(percent: usize) -> Outcome {
    let rounds = (160 * percent / 100).max(8);
    let mut numbers = Numbers(5);
    timed(rounds, || {
        let mut alive: [Vec<u8>; 4] = Default::default();
        for round in 0..rounds {
            let size = (5 << 20) + numbers.next() % (20 << 20);
            let mut fresh: Vec<u8> = Vec::with_capacity(size);
            for page in fresh.spare_capacity_mut().iter_mut().step_by(4096) {
                page.write(1);
            }
            alive[round % 4] = black_box(fresh);
        }
    })
}
