// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Stack, list, ring, reference count and lock, by their numbered cases.
#![expect(unsafe_code, reason = "declares what slots hold")]

mod support;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use fastpath_percpu::{Counter, Lazy, List, Node, PerCpuRef, RingBuffer, Slot, SpinLock, Stack, slots};
use support::{Ticks, backend, migrate, scale};

static TICKED: Lazy<Counter> = Lazy::new();

extern "C" fn tick(_: libc::c_int) {
    TICKED.add(1);
}

/// Delays inside the sections, where the build has them: more preemptions and signals come exactly there.
fn inject(rounds: u32) {
    #[cfg(fastpath_inject)]
    for point in 0..fastpath_percpu::rseq::inject::POINTS {
        fastpath_percpu::rseq::inject::set_delay(point, rounds);
    }
    #[cfg(not(fastpath_inject))]
    let _ = rounds;
}

#[test]
fn a_list_loses_and_doubles_no_node() {
    inject(30);
    let list = List::<usize>::new().unwrap();
    let nodes = 64;
    for number in 0..nodes {
        list.push(Node::new(number));
    }
    let moves = scale(if cfg!(fastpath_inject) { 100_000 } else { 1_000_000 }) / 8;
    TICKED.add(0);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let list = &list;
            scope.spawn(move || {
                let ticks =
                    Ticks::every(Duration::from_micros(700 + 50 * thread as u64), libc::SIGALRM, tick);
                for round in 0..moves {
                    match list.pop() {
                        Some(node) => {
                            if (round + thread) % 97 == 0 {
                                std::thread::yield_now();
                            }
                            list.push(node);
                        }
                        None => migrate(round + thread),
                    }
                    if (round + 13 * thread) % 5000 == 0 {
                        migrate(round / 5000 + thread);
                    }
                }
                drop(ticks);
            });
        }
    });
    inject(0);
    let mut seen = vec![0; nodes];
    let drained = list.drain(|node| seen[*node.get()] += 1).unwrap();
    assert_eq!(drained, nodes);
    assert!(seen.iter().all(|count| *count == 1), "{seen:?}");
    fastpath_testkit::case("R11", backend());
}

#[test]
fn pop_all_takes_everything_in_order() {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            migrate(0);
            let list = List::<u32>::new().unwrap();
            assert!(list.pop().is_none());
            (0..5).for_each(|number| list.push(Node::new(number)));
            let taken: Vec<u32> = list.pop_all().map(|node| node.into_inner()).collect();
            assert_eq!(taken, [4, 3, 2, 1, 0]);
            assert!(list.pop().is_none());
            list.push(Node::new(9));
            drop(list); // frees the node
        });
    });
}

#[test]
fn a_stack_is_bounded_and_keeps_its_order() {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            migrate(0);
            let stack = Stack::<Box<usize>, 8>::new().unwrap();
            assert!(stack.pop().is_none());
            for number in 0..8 {
                stack.push(Box::new(number)).unwrap();
            }
            assert_eq!(*stack.push(Box::new(8)).unwrap_err(), 8, "full gives the value back");
            for number in (0..8).rev() {
                assert_eq!(*stack.pop().unwrap(), number);
            }
            assert!(stack.pop().is_none());

            // A batch above the capacity: as many as there is room for; the rest stays with the caller.
            stack.push(Box::new(100)).unwrap();
            let mut values: [Option<Box<usize>>; 12] = std::array::from_fn(|number| Some(Box::new(number)));
            assert_eq!(stack.push_batch(&mut values), 7);
            assert!(values[..7].iter().all(Option::is_none));
            assert_eq!(**values[7].as_ref().unwrap(), 7);
            assert_eq!(stack.push_batch(&mut values[7..]), 0);
            let mut popped: [Option<Box<usize>>; 5] = Default::default();
            assert_eq!(stack.pop_batch(&mut popped), 5);
            assert_eq!(popped.map(|value| *value.unwrap()), [2, 3, 4, 5, 6]);
            let mut popped: [Option<Box<usize>>; 5] = Default::default();
            assert_eq!(stack.pop_batch(&mut popped), 3);
            assert_eq!(
                popped.map(|value| value.map(|number| *number)),
                [Some(100), Some(0), Some(1), None, None]
            );
            assert_eq!(stack.pop_batch(&mut []), 0);
        });
    });
}

/// Counts itself: what is lost or dropped twice shows.
struct Counted(&'static AtomicUsize);

impl Counted {
    fn new(alive: &'static AtomicUsize) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Self(alive)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn a_remote_drain_during_pushes_and_pops_accounts_for_everything() {
    static ALIVE: AtomicUsize = AtomicUsize::new(0);
    inject(30);
    let stack = Stack::<Box<Counted>, 16>::new().unwrap();
    let (pushed, popped, drained) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|thread| {
                let (stack, pushed, popped) = (&stack, &pushed, &popped);
                scope.spawn(move || {
                    let ticks = Ticks::every(Duration::from_micros(900), libc::SIGALRM, tick);
                    let mut batch: [Option<Box<Counted>>; 6] = Default::default();
                    for round in 0..scale(60_000) {
                        if (round * 7 + thread) % 5 < 3 {
                            if stack.push(Box::new(Counted::new(&ALIVE))).is_ok() {
                                pushed.fetch_add(1, Ordering::Relaxed);
                            }
                        } else if round % 11 == 0 {
                            let count = stack.pop_batch(&mut batch[..4]);
                            assert!(batch[..count].iter().all(Option::is_some));
                            popped.fetch_add(count as u64, Ordering::Relaxed);
                            batch.fill_with(|| Some(Box::new(Counted::new(&ALIVE))));
                            let count = stack.push_batch(&mut batch);
                            pushed.fetch_add(count as u64, Ordering::Relaxed);
                            batch.fill_with(|| None);
                        } else if stack.pop().is_some() {
                            popped.fetch_add(1, Ordering::Relaxed);
                        }
                        if round % 4000 == 0 {
                            migrate(round / 4000 + thread);
                        }
                    }
                    drop(ticks);
                })
            })
            .collect();
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for slot in support::allowed_cpus() {
                        let mut stopped = stack.stop(slot).unwrap();
                        let length = stopped.len();
                        let half = length / 2;
                        let taken = stopped.by_ref().take(half).count();
                        assert_eq!(stopped.len(), length - taken);
                        drained.fetch_add(taken as u64, Ordering::Relaxed);
                    }
                    std::thread::yield_now();
                }
            });
        }
        for worker in workers {
            worker.join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    inject(0);
    let live: u64 = (0..=slots()).map(|slot| stack.len_of(slot) as u64).sum();
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
    assert_eq!(count(&drained) + live + count(&popped), count(&pushed));
    assert_eq!(ALIVE.load(Ordering::Relaxed) as u64, live);
    drop(stack);
    assert_eq!(ALIVE.load(Ordering::Relaxed), 0, "dropped with the stack");
    fastpath_testkit::case("R12", backend());
}

#[test]
fn a_stopped_slot_turns_everybody_away() {
    let stack = Stack::<Box<u32>, 4>::new().unwrap();
    let list = List::<u32>::new().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            migrate(0);
            let here = support::allowed_cpus()[0];
            stack.push(Box::new(1)).unwrap();
            list.push(Node::new(1));
            let slot = (0..=slots()).find(|slot| stack.len_of(*slot) == 1).unwrap();
            let mut stopped = stack.stop(slot).unwrap();
            if backend() == "rseq" {
                assert_eq!(slot, here);
            }
            assert!(stack.pop().is_none());
            assert!(stack.push(Box::new(2)).is_err());
            assert_eq!(stack.push_batch(&mut [Some(Box::new(3))]), 0);
            assert_eq!(stack.pop_batch(&mut [None, None]), 0);
            stopped.push(Box::new(4)).unwrap();
            drop(stopped);
            assert_eq!(*stack.pop().unwrap(), 4);
            assert_eq!(*stack.pop().unwrap(), 1);
            assert_eq!(list.pop_all_of(slot).unwrap().count(), 1);
            assert!(list.pop().is_none());
        });
    });
}

#[test]
#[should_panic(expected = "stopped the slot already")]
fn stopping_twice_is_a_panic_and_no_hang() {
    let stack = Stack::<Box<u32>, 4>::new().unwrap();
    let _first = stack.stop(0).unwrap();
    let _second = stack.stop(0);
}

static FROM_HANDLER: AtomicU64 = AtomicU64::new(0);
static HANDLER_RING: std::sync::OnceLock<RingBuffer<1024>> = std::sync::OnceLock::new();

/// A record that proves itself: writer, sequence, filler of a length that the sequence decides, checksum.
fn record(writer: u64, sequence: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(writer.to_le_bytes());
    bytes.extend(sequence.to_le_bytes());
    let length = (sequence * 7 + writer) % 61;
    bytes.extend((0..length).map(|index| (sequence + index) as u8));
    let sum = bytes.iter().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte)));
    bytes.extend(sum.to_le_bytes());
    bytes
}

extern "C" fn push_from_handler(_: libc::c_int) {
    if let Some(ring) = HANDLER_RING.get() {
        let number = FROM_HANDLER.load(Ordering::Relaxed);
        // No allocation in a handler: a record of fixed size.
        let mut bytes = [0_u8; 20];
        bytes[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        let sum =
            bytes[..16].iter().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte)));
        bytes[16..].copy_from_slice(&sum.to_le_bytes());
        if ring.push(&bytes).is_ok() {
            FROM_HANDLER.store(number + 1, Ordering::Relaxed);
        }
    }
}

#[test]
fn ring_records_are_whole_and_in_order() {
    inject(30);
    let ring = HANDLER_RING.get_or_init(|| RingBuffer::new().unwrap());
    let writers = 4;
    let each = scale(40_000) as u64;
    let done = AtomicUsize::new(0);
    let read = AtomicU64::new(0);
    let mut last: HashMap<(u32, u64), u64> = HashMap::new();
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let done = &done;
            scope.spawn(move || {
                // One writer's handler writes too: its sequence is kept by one thread only.
                let ticks = (writer == 0)
                    .then(|| Ticks::every(Duration::from_micros(300), libc::SIGUSR2, push_from_handler));
                for sequence in 0..each {
                    let bytes = record(writer as u64, sequence);
                    while ring.push(&bytes).is_err() {
                        std::thread::yield_now();
                    }
                    if sequence % 4000 == 0 {
                        migrate(sequence as usize / 4000 + writer);
                    }
                }
                drop(ticks);
                done.fetch_add(1, Ordering::Release);
            });
        }
        let mut check = |slot: u32, bytes: &[u8]| {
            let (body, sum) = bytes.split_at(bytes.len() - 4);
            let expected =
                body.iter().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte)));
            assert_eq!(sum, expected.to_le_bytes(), "torn record");
            let writer = u64::from_le_bytes(body[..8].try_into().unwrap());
            let sequence = u64::from_le_bytes(body[8..16].try_into().unwrap());
            if writer != u64::MAX {
                assert_eq!(bytes, record(writer, sequence));
            }
            if let Some(before) = last.insert((slot, writer), sequence) {
                assert!(before < sequence, "slot {slot}: {sequence} after {before}");
            }
            read.fetch_add(1, Ordering::Relaxed);
        };
        while done.load(Ordering::Acquire) < writers {
            ring.read_all(&mut check);
            std::thread::yield_now();
        }
        ring.read_all(&mut check);
    });
    inject(0);
    let expected = writers as u64 * each + FROM_HANDLER.load(Ordering::Relaxed);
    assert_eq!(read.load(Ordering::Relaxed), expected);
    fastpath_testkit::case("R13", backend());
}

#[test]
fn a_ring_says_when_it_is_full() {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            migrate(0);
            let ring = RingBuffer::<8>::new().unwrap(); // 64 bytes
            assert!(ring.push(&[0; 25]).is_err(), "above half the ring");
            ring.push(&[1; 24]).unwrap();
            ring.push(&[2; 24]).unwrap();
            assert!(ring.push(&[]).is_err());
            let mut seen = Vec::new();
            assert_eq!(ring.read_all(|_, record| seen.push(record.to_vec())), 2);
            assert_eq!(seen, [[1; 24], [2; 24]]);
            // 16 bytes, then 32: the second meets the end of the buffer after two rounds and goes round by a padding.
            for round in 0..20_u8 {
                ring.push(&[round; 3]).unwrap();
                ring.push(&[round; 17]).unwrap();
                let mut lengths = Vec::new();
                ring.read_all(|_, record| lengths.push(record.len()));
                assert_eq!(lengths, [3, 17]);
            }
            ring.push(&[]).unwrap();
            assert_eq!(ring.read_all(|_, record| assert!(record.is_empty())), 1);
            // A reader below a reader gets nothing, rather than the same record again.
            ring.push(&[7]).unwrap();
            assert_eq!(ring.read_all(|slot, _| assert_eq!(ring.read(slot, |_| panic!("read twice")), 0)), 1);
        });
    });
}

#[test]
fn references_are_counted_through_every_switch() {
    inject(30);
    for round in 0..scale(40) {
        let reference = PerCpuRef::new().unwrap();
        let released = AtomicUsize::new(0);
        let threads = 4;
        std::thread::scope(|scope| {
            for thread in 0..threads {
                reference.get(); // passed on to the thread
                let (reference, released) = (&reference, &released);
                scope.spawn(move || {
                    for step in 0..2000 {
                        if reference.try_get_live() && reference.put() {
                            released.fetch_add(1, Ordering::Relaxed);
                        }
                        if step % 500 == 0 {
                            migrate(step / 500 + thread);
                        }
                    }
                    if reference.put() {
                        released.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            reference.switch_to_atomic().unwrap();
            if round % 2 == 0 {
                assert!(reference.switch_to_per_cpu());
            }
            if reference.kill().unwrap() {
                released.fetch_add(1, Ordering::Relaxed);
            }
            assert!(!reference.kill().unwrap(), "once only");
            assert!(reference.is_dying() && !reference.try_get_live());
        });
        assert_eq!(released.load(Ordering::Relaxed), 1, "round {round}: released exactly once");
        assert!(!reference.try_get());
    }
    inject(0);
}

struct Pair {
    one: u64,
    two: u64,
}
// SAFETY: plain integers, changed only through the lock.
unsafe impl Slot for Pair {}

#[test]
fn a_lock_per_cpu_excludes_local_and_remote_owners() {
    inject(30);
    let lock = SpinLock::<Pair>::new().unwrap();
    let rounds = scale(20_000);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let lock = &lock;
            scope.spawn(move || {
                for round in 0..rounds {
                    let mut pair = if thread == 3 && round % 8 == 0 {
                        let cpus = support::allowed_cpus();
                        lock.lock(cpus[round / 8 % cpus.len()]).unwrap()
                    } else {
                        lock.lock_this_cpu()
                    };
                    pair.one += 1;
                    if round % 512 == 0 {
                        // The guard goes with its thread to another CPU.
                        migrate(round / 512 + thread);
                        std::thread::yield_now();
                    }
                    pair.two += 1;
                }
            });
        }
    });
    inject(0);
    let (mut one, mut two) = (0, 0);
    for slot in 0..=slots() {
        let pair = lock.lock(slot).unwrap();
        assert_eq!(pair.slot(), slot);
        one += pair.one;
        two += pair.two;
        assert_eq!(pair.one, pair.two);
    }
    assert_eq!((one, two), (4 * rounds as u64, 4 * rounds as u64));
    let held = lock.lock_this_cpu();
    std::thread::scope(|scope| {
        let slot = held.slot();
        let _ = scope.spawn(move || slot).join();
    });
}

static SAME_SLOT: Lazy<Counter> = Lazy::new();
static ARMED_IN_HANDLER: AtomicU64 = AtomicU64::new(0);
static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn add_on_the_same_slot(_: libc::c_int) {
    // The kernel has cleared rseq_cs before it called us, whatever the thread was doing inside a section.
    // Outside of one it may still be armed from before the commit's disarming store, which is harmless.
    ARMED_IN_HANDLER.fetch_or(fastpath_sys::rseq::armed_section(), Ordering::Relaxed);
    SAME_SLOT.add(1000);
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn a_handler_may_use_the_slot_of_the_section_it_interrupted() {
    inject(200);
    SAME_SLOT.add(0);
    let rounds = scale(if cfg!(fastpath_inject) { 60_000 } else { 3_000_000 }) as i64;
    let ticks = Ticks::every(Duration::from_micros(150), libc::SIGXCPU, add_on_the_same_slot);
    // A few signals at least, however fast the machine is.
    let mut done = 0;
    while done < rounds || HANDLED.load(Ordering::Relaxed) < 3 {
        SAME_SLOT.add(1);
        done += 1;
    }
    drop(ticks);
    inject(0);
    let handled = HANDLED.load(Ordering::Relaxed) as i64;
    assert_eq!(SAME_SLOT.sum(), done + 1000 * handled);
    if backend().starts_with("rseq") {
        assert_eq!(ARMED_IN_HANDLER.load(Ordering::Relaxed), 0, "rseq_cs was not cleared before the handler");
    }
    fastpath_testkit::case("R14", backend());
}
