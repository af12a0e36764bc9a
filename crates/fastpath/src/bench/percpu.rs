// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Per-CPU data beside its alternatives: a word to count in, and a list and a stack to push to and pop from.
//!
//! No result is used on any side. Plain words are read and written with volatile accesses: the loop must really load
//! and store them each time, as the others do and as code that counts between other work does.

use std::cell::Cell;
use std::hint::black_box;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, compiler_fence};

use crossbeam_queue::{ArrayQueue, SegQueue};
use fastpath_percpu::{List, Node, PerCpu, Stack, Word};

use super::harness::{Bound, Candidate, Family, NewTable, Session};
use super::report::{Row, Scale, Unit};
use crate::failure::Failure;

pub(super) const FAMILY: Family =
    Family { name: "percpu", title: "per-CPU operations beside their alternatives", steps: 6, run };

/// Shards of the sharded counter: a power of two above the CPUs of most machines.
const SHARDS: usize = 64;

/// One shard on cache lines of its own.
#[repr(align(128))]
#[derive(Default)]
struct Shard(AtomicU64);

static NEXT_SHARD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The same list as the per-CPU one: the floor, what a thread-caching allocator does.
    static LIST: Cell<*mut Link> = const { Cell::new(ptr::null_mut()) };
    static PLAIN: Cell<u64> = const { Cell::new(0) };
    /// Threads take shards in turn.
    static SHARD: usize = NEXT_SHARD.fetch_add(1, Ordering::Relaxed) % SHARDS;
}

/// Adds 1 in memory.
#[inline(always)]
fn increment(word: *mut u64) {
    // SAFETY: both callers own their word.
    unsafe { word.write_volatile(word.read_volatile().wrapping_add(1)) };
}

/// A node of the lists that are not fastpath's.
struct Link {
    next: *mut Link,
    value: u64,
}

/// Objects that wait in each list and stack, so that no pop finds it empty.
const STOCK: usize = 8;

fn run(bench: &mut Session<'_>) -> Result<(), Failure> {
    let no_memory = |error| Failure::operation("no memory for per-CPU slots", error);
    let backend = fastpath_percpu::backend().name();
    bench.note(&format!("the per-CPU columns run on the {backend} backend"));
    let slots = PerCpu::<Word<u64>>::new().map_err(no_memory)?;
    let shared = AtomicU64::new(0);
    let shards: Vec<Shard> = (0..SHARDS).map(|_| Shard::default()).collect();
    let mut plain = 0_u64;
    black_box((&shared, &shards, &mut plain));

    let percpu = |n: u64| (0..n).for_each(|_| slots.this_cpu_add(1));
    let thread_local = |n: u64| {
        for _ in 0..n {
            PLAIN.with(|word| increment(word.as_ptr()));
        }
    };
    // ORDERING: Relaxed (all of this file): counters that publish nothing.
    let atomic = |n: u64| (0..n).for_each(|_| _ = shared.fetch_add(1, Ordering::Relaxed));
    let sharded =
        |n: u64| (0..n).for_each(|_| _ = shards[SHARD.with(|at| *at)].0.fetch_add(1, Ordering::Relaxed));

    let mut add = NewTable::new("add", "Add 1, the result unused, one thread", Unit::Cycles)
        .column("percpu", "per-CPU (fastpath)")
        .column("plain", "plain word")
        .column("thread-local", "thread-local word")
        .column("atomic", "fetch_add")
        .column("sharded", "sharded fetch_add")
        .baseline("percpu");
    bench.measure(
        &mut add,
        &Row::named("add"),
        &mut [
            Candidate::new("percpu", percpu),
            Candidate::new("plain", |n| {
                for _ in 0..n {
                    plain = plain.wrapping_add(1);
                    compiler_fence(Ordering::SeqCst);
                }
            }),
            Candidate::new("thread-local", thread_local),
            Candidate::new("atomic", atomic),
            Candidate::new("sharded", sharded),
        ],
    );
    let over_plain = add.ratio("add", "percpu", "plain");
    let over_atomic = add.ratio("add", "percpu", "atomic");
    bench.add(add);
    bench.target("add-plain", "a per-CPU add costs at most 1.5 plain adds", over_plain, Bound::AtMost(1.5));
    bench.target(
        "add-atomic",
        "and at most 0.4 of a fetch_add that nobody contends",
        over_atomic,
        Bound::AtMost(0.4),
    );

    let mut threads_table = NewTable::new(
        "add-threads",
        "Add 1 on several threads at once: time of one add on each thread",
        Unit::Cycles,
    )
    .axis("threads", Scale::Linear)
    .column("percpu", "per-CPU (fastpath)")
    .column("thread-local", "thread-local word")
    .column("atomic", "fetch_add on one word")
    .column("sharded", "sharded fetch_add")
    .baseline("percpu");
    let mut counts = bench.thread_counts();
    if bench.cpus().len() == 1 {
        bench.note("one CPU may be used: nothing runs at the same time here");
    } else if !counts.contains(&2) {
        counts.push(2);
    }
    for threads in &counts {
        bench.measure(
            &mut threads_table,
            &Row::number(*threads),
            &mut [
                Candidate::concurrent("percpu", *threads, |_, n| percpu(n)),
                Candidate::concurrent("thread-local", *threads, |_, n| thread_local(n)),
                Candidate::concurrent("atomic", *threads, |_, n| atomic(n)),
                Candidate::concurrent("sharded", *threads, |_, n| sharded(n)),
            ],
        );
    }
    let contended = if counts.contains(&2) { threads_table.ratio("2", "atomic", "percpu") } else { f64::NAN };
    bench.add(threads_table);
    bench.target(
        "add-two-threads",
        "two threads count at least 10 x as fast as on one shared atomic",
        contended,
        Bound::AtLeast(10.0),
    );
    pairs(bench)
}

/// Pop and push of the same object.
fn pairs(bench: &mut Session<'_>) -> Result<(), Failure> {
    let no_memory = |error| Failure::operation("no memory for per-CPU slots", error);
    let list = List::<u64>::new().map_err(no_memory)?;
    let stack = Stack::<Box<u64>, 62>::new().map_err(no_memory)?;
    let (unbounded, bounded) = (SegQueue::new(), ArrayQueue::new(64));
    let (locked, mut plain) = (Mutex::new(Vec::new()), Vec::new());
    for value in 0..STOCK as u64 {
        unbounded.push(Box::new(value));
        let _ = bounded.push(Box::new(value));
        locked.lock().map_err(|error| Failure::operation("a list", error))?.push(Box::new(value));
        plain.push(Box::new(value));
    }
    // Whoever finds its CPU's list empty makes an object; all of them are dropped in the end.
    let per_cpu_list = |n: u64| {
        for value in 0..n {
            let node = list.pop().unwrap_or_else(|| Node::new(value));
            list.push(node);
        }
    };
    let per_cpu_stack = |n: u64| {
        for value in 0..n {
            let object = stack.pop().unwrap_or_else(|| Box::new(value));
            drop(stack.push(object));
        }
    };
    let segments = |n: u64| {
        for value in 0..n {
            unbounded.push(unbounded.pop().unwrap_or_else(|| Box::new(value)));
        }
    };
    let mutex = |n: u64| {
        for value in 0..n {
            let object =
                locked.lock().ok().and_then(|mut list| list.pop()).unwrap_or_else(|| Box::new(value));
            if let Ok(mut list) = locked.lock() {
                list.push(object);
            }
        }
    };
    black_box(&mut plain);

    let mut table = NewTable::new("pair", "Pop an object and push it back, one thread", Unit::Cycles)
        .column("percpu", "per-CPU (fastpath)")
        .column("thread-local", "thread-local list")
        .column("plain", "plain Vec")
        .column("crossbeam", "crossbeam queue")
        .column("mutex", "Vec in a std Mutex")
        .baseline("percpu");
    bench.measure(
        &mut table,
        &Row::named("list"),
        &mut [
            Candidate::new("percpu", per_cpu_list),
            Candidate::new("thread-local", thread_local_list),
            Candidate::new("crossbeam", segments),
            Candidate::new("mutex", mutex),
        ],
    );
    bench.measure(
        &mut table,
        &Row::named("stack"),
        &mut [
            Candidate::new("percpu", per_cpu_stack),
            Candidate::new("thread-local", thread_local_list),
            Candidate::new("plain", |n| {
                for value in 0..n {
                    let object = plain.pop().unwrap_or_else(|| Box::new(value));
                    compiler_fence(Ordering::SeqCst);
                    plain.push(object);
                    compiler_fence(Ordering::SeqCst);
                }
            }),
            Candidate::new("crossbeam", |n| {
                for value in 0..n {
                    drop(bounded.push(bounded.pop().unwrap_or_else(|| Box::new(value))));
                }
            }),
        ],
    );
    let list_ratio = table.ratio("list", "percpu", "thread-local");
    let stack_ratio = table.ratio("stack", "percpu", "thread-local");
    bench.add(table);
    bench.target(
        "list-pair",
        "a per-CPU list pair costs at most 1.5 x the same list in thread-local storage",
        list_ratio,
        Bound::AtMost(1.5),
    );
    bench.target(
        "stack-pair",
        "a per-CPU stack pair costs at most 1.5 x a list in thread-local storage",
        stack_ratio,
        Bound::AtMost(1.5),
    );

    let mut table = NewTable::new(
        "pair-threads",
        "Pop and push on several threads at once: time of one pair on each thread",
        Unit::Cycles,
    )
    .axis("threads", Scale::Linear)
    .column("percpu", "per-CPU list (fastpath)")
    .column("percpu-stack", "per-CPU stack (fastpath)")
    .column("thread-local", "thread-local list")
    .column("crossbeam", "crossbeam SegQueue")
    .column("mutex", "Vec in a std Mutex")
    .baseline("percpu");
    let threads = bench.thread_counts().last().copied().unwrap_or(1);
    bench.measure(
        &mut table,
        &Row::number(threads),
        &mut [
            Candidate::concurrent("percpu", threads, |_, n| per_cpu_list(n)),
            Candidate::concurrent("percpu-stack", threads, |_, n| per_cpu_stack(n)),
            Candidate::concurrent("thread-local", threads, |_, n| thread_local_list(n)),
            Candidate::concurrent("crossbeam", threads, |_, n| segments(n)),
            Candidate::concurrent("mutex", threads, |_, n| mutex(n)),
        ],
    );
    bench.add(table);
    Ok(())
}

/// Pop and push on this thread's own list, which holds [`STOCK`] nodes of this call's.
fn thread_local_list(n: u64) {
    let mut nodes: Vec<Link> = (0..STOCK as u64).map(|value| Link { next: ptr::null_mut(), value }).collect();
    let first = nodes.as_mut_ptr();
    for at in 0..STOCK {
        // SAFETY: `at` is below the vector's length; nobody else knows the nodes.
        unsafe { push(first.add(at)) };
    }
    for _ in 0..n {
        let Some(node) = pop() else { break };
        // SAFETY: it was popped from the list, whose nodes live until the end of this function.
        unsafe { push(node) };
    }
    LIST.set(ptr::null_mut());
    black_box(nodes.iter().map(|node| node.value).sum::<u64>());
}

/// # Safety
/// `node` is valid and in no list, and stays valid while the list holds it.
#[inline(always)]
unsafe fn push(node: *mut Link) {
    LIST.with(|head| {
        // SAFETY: the caller's promise; the head is this thread's own.
        unsafe {
            (&raw mut (*node).next).write_volatile(head.as_ptr().read_volatile());
            head.as_ptr().write_volatile(node);
        }
    });
}

#[inline(always)]
fn pop() -> Option<*mut Link> {
    LIST.with(|head| {
        // SAFETY: the head is this thread's own.
        let node = unsafe { head.as_ptr().read_volatile() };
        if node.is_null() {
            return None;
        }
        // SAFETY: nodes of the list are valid (`push`).
        unsafe { head.as_ptr().write_volatile((&raw const (*node).next).read_volatile()) };
        Some(node)
    })
}
