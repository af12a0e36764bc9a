// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The measuring half of `bench slab`: a process of its own per column, because which allocator answers `malloc`, and
//! how, is decided once per process.
//!
//! It reads lines `TEST SIZE COUNT` from stdin and answers each with the ticks per operation of the parts of the test.
//! The loops are those of slab_test: test 1 allocates COUNT objects of one size, writes one byte to each and keeps
//! them in an array, then writes another byte to each and frees it, in the order of allocation; test 2 frees each
//! object at once, untouched. The others are the same module's tests on all CPUs.

use std::ffi::c_void;
use std::hint::black_box;
use std::io::{BufRead as _, Write as _};
use std::ptr;
use std::sync::Barrier;

use crate::bench::{arch, pin};
use crate::failure::Failure;

use super::base;
use super::tid::Tid;

/// An allocator under test.
pub(super) trait Heap: Sync {
    /// A block of `size` bytes, or null.
    fn alloc(&self, size: usize) -> *mut u8;
    /// # Safety
    /// `block` came from `alloc(size)` and is not used any more.
    unsafe fn free(&self, block: *mut u8, size: usize);
    /// Gives free memory back, between sizes.
    fn trim(&self) {
        trim();
    }
}

/// Whatever answers `malloc` in this process. Called through pointers that the optimizer cannot see through: it knows
/// `malloc` and `free` and would remove a pair of them.
struct Malloc {
    malloc: unsafe extern "C" fn(usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
}

impl Heap for Malloc {
    #[inline(always)]
    fn alloc(&self, size: usize) -> *mut u8 {
        // SAFETY: `malloc` may be called with any size.
        unsafe { (self.malloc)(size) }.cast()
    }

    #[inline(always)]
    unsafe fn free(&self, block: *mut u8, _size: usize) {
        // SAFETY: the caller's promise.
        unsafe { (self.free)(block.cast()) };
    }
}

/// fastpath-alloc as a Rust program has it: no exported symbol in between, the size known when it is freed.
struct Rust;

impl Heap for Rust {
    #[inline(always)]
    fn alloc(&self, size: usize) -> *mut u8 {
        fastpath_alloc::raw::malloc(black_box(size))
    }

    #[inline(always)]
    unsafe fn free(&self, block: *mut u8, _size: usize) {
        // SAFETY: the caller's promise.
        unsafe { fastpath_alloc::raw::free(block) };
    }
}

/// Serves the parent until it closes stdin. `which` is `malloc`, `rust`, `base`, `tid` or `tid-no-rseq`; `cpus` are those
/// to use, the first for tests of one thread.
pub(crate) fn serve(which: &str, cpus: &[usize]) -> Result<(), Failure> {
    match which {
        "malloc" => answer(&Malloc { malloc: black_box(libc::malloc), free: black_box(libc::free) }, cpus),
        "rust" => answer(&Rust, cpus),
        "base" => answer(&base::Locked::new(), cpus),
        "tid" => answer_or_say(Tid::with_rseq(), cpus),
        "tid-no-rseq" => answer_or_say(Tid::without_rseq(), cpus),
        other => Err(Failure::Usage(format!("no allocator {other}"))),
    }
}

/// Tells the parent why there is no such heap here, if so.
fn answer_or_say(heap: Result<impl Heap, String>, cpus: &[usize]) -> Result<(), Failure> {
    match heap {
        Ok(heap) => answer(&heap, cpus),
        Err(reason) => Ok(writeln!(std::io::stdout(), "cannot {reason}")?),
    }
}

fn answer(heap: &impl Heap, cpus: &[usize]) -> Result<(), Failure> {
    pin::to(cpus[0]);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut out = std::io::stdout().lock();
    writeln!(out, "ready {}", if maps.contains("libfastpath") { "fastpath" } else { "system" })?;
    out.flush()?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let mut words = line.split(' ');
        let test = words.next().unwrap_or_default();
        let mut number =
            || words.next().and_then(|word| word.parse::<usize>().ok()).filter(|number| *number > 0);
        let (Some(size), Some(count)) = (number(), number()) else {
            return Err(Failure::Usage(format!("not a request: {line}")));
        };
        let parts = match test {
            "serial" => serial(heap, size, count).to_vec(),
            "pair" => vec![pair(heap, size, count)],
            "all-serial" => average(&everywhere(cpus, |_| serial(heap, size, count))).to_vec(),
            "all-pair" => vec![average(&everywhere(cpus, |_| [pair(heap, size, count), 0.0]))[0]],
            "remote-free" => remote_free(heap, cpus, size, count).to_vec(),
            "spread" => spread(heap, cpus, size, count).to_vec(),
            "trim" => {
                heap.trim();
                vec![0.0]
            }
            other => return Err(Failure::Usage(format!("no test {other}"))),
        };
        let text: Vec<String> = parts.iter().map(f64::to_string).collect();
        writeln!(out, "{}", text.join(" "))?;
        out.flush()?;
    }
    Ok(())
}

fn trim() {
    core::cfg_select! {
        // SAFETY: gives free memory back; nothing to go wrong.
        target_env = "gnu" => unsafe { libc::malloc_trim(0); },
        _ => {}
    }
    fastpath_alloc::raw::trim();
}

/// An array for `count` blocks, its pages touched before anybody times.
fn array(count: usize) -> Vec<*mut u8> {
    vec![ptr::without_provenance_mut(1); count]
}

/// Allocates and touches: ticks per block.
fn fill(heap: &impl Heap, size: usize, blocks: &mut [*mut u8]) -> f64 {
    let start = arch::read();
    for slot in &mut *blocks {
        let block = heap.alloc(size);
        // SAFETY: at least one byte, ours. (Null ends the program right here: there is nothing to measure then.)
        unsafe { block.write_volatile(22) };
        *slot = block;
    }
    (arch::read() - start) as f64 / blocks.len() as f64
}

/// Touches and frees, in the order of allocation: ticks per block.
fn drain(heap: &impl Heap, size: usize, blocks: &[*mut u8]) -> f64 {
    let start = arch::read();
    for block in blocks {
        // SAFETY: allocated by `fill` with this size and not freed yet.
        unsafe {
            block.write_volatile(23);
            heap.free(*block, size);
        }
    }
    (arch::read() - start) as f64 / blocks.len() as f64
}

/// Test 1: both halves.
fn serial(heap: &impl Heap, size: usize, count: usize) -> [f64; 2] {
    let mut blocks = array(count);
    let alloc = fill(heap, size, &mut blocks);
    [alloc, drain(heap, size, &blocks)]
}

/// Test 2: ticks per pair.
fn pair(heap: &impl Heap, size: usize, count: usize) -> f64 {
    let start = arch::read();
    for _ in 0..count {
        let block = black_box(heap.alloc(size));
        // SAFETY: just allocated with this size.
        unsafe { heap.free(block, size) };
    }
    (arch::read() - start) as f64 / count as f64
}

/// Runs `work(position)` on every CPU at once.
fn everywhere<T: Send>(cpus: &[usize], work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let start = Barrier::new(cpus.len());
    std::thread::scope(|scope| {
        let threads: Vec<_> = cpus
            .iter()
            .enumerate()
            .map(|(at, cpu)| {
                let (work, start) = (&work, &start);
                scope.spawn(move || {
                    pin::to(*cpu);
                    start.wait();
                    work(at)
                })
            })
            .collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    })
}

fn average(parts: &[[f64; 2]]) -> [f64; 2] {
    let sum = parts.iter().fold([0.0, 0.0], |sum, part| [sum[0] + part[0], sum[1] + part[1]]);
    sum.map(|sum| sum / parts.len().max(1) as f64)
}

/// Blocks on their way to another thread.
struct Blocks(Vec<*mut u8>);
// SAFETY: blocks of a heap that any thread may free; each is in one list only.
unsafe impl Send for Blocks {}

/// Every other CPU allocates, then the first frees all of it.
fn remote_free(heap: &impl Heap, cpus: &[usize], size: usize, count: usize) -> [f64; 2] {
    let filled = everywhere(&cpus[1..], |_| {
        let mut blocks = array(count);
        let ticks = fill(heap, size, &mut blocks);
        (ticks, Blocks(blocks))
    });
    let alloc = filled.iter().map(|(ticks, _)| ticks).sum::<f64>() / filled.len().max(1) as f64;
    let all: Vec<*mut u8> = filled.into_iter().flat_map(|(_, blocks)| blocks.0).collect();
    [alloc, drain(heap, size, &all)]
}

/// The first CPU allocates for all the others, then each of them frees its share.
fn spread(heap: &impl Heap, cpus: &[usize], size: usize, count: usize) -> [f64; 2] {
    let consumers = &cpus[1..];
    let mut blocks = array(count * consumers.len());
    let alloc = fill(heap, size, &mut blocks);
    let shares = Blocks(blocks);
    let shares = &shares;
    let freed = everywhere(consumers, |at| {
        let share = shares.share(at * count, count);
        [drain(heap, size, share), 0.0]
    });
    [alloc, average(&freed)[0]]
}

// SAFETY: a list that is only read, by threads that each use their own part of it.
unsafe impl Sync for Blocks {}

impl Blocks {
    fn share(&self, from: usize, count: usize) -> &[*mut u8] {
        &self.0[from..from + count]
    }
}
