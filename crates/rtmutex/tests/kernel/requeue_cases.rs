// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sleepers that are moved to a mutex (K94).

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex as StdMutex};

use fastpath_rtmutex::kernel::{
    Key, LockError, Point, RawMutex, RequeueError, Scheduler, Signal, Wait, WaitQueue, inspect,
};
use fastpath_testkit::case;

use crate::model::{Event, Machine, Model, Random, T, guard, mark, op, send};

const RT: fn(u8) -> Key = Key::realtime;

type M = &'static RawMutex<Model>;
type Q = &'static WaitQueue<Model>;
type Log = Arc<StdMutex<Vec<(u8, Result<(), LockError>)>>>;

fn queue() -> Q {
    Box::leak(Box::new(WaitQueue::new()))
}

/// A task that sleeps in `queue`, logs what it got, and gives the mutex back.
fn sleeper(machine: &'static Machine, queue: Q, mutex: M, prio: u8, wait: Wait, log: &Log) -> T {
    let log = Arc::clone(log);
    machine.spawn("sleeper", RT(prio), move || {
        op(|| mutex.lock());
        // SAFETY: locked above.
        let result = op(|| unsafe { queue.wait(mutex, wait) });
        assert_eq!(
            inspect::word(mutex).0,
            inspect::address(Model::current()),
            "the mutex is back, whatever happened"
        );
        assert!(!Model::current().is_blocked());
        guard(&log).push((prio, result));
        mark("woken");
        // SAFETY: `wait` took it again.
        op(|| unsafe { mutex.unlock() });
    })
}

fn notify(
    machine: &'static Machine,
    f: impl FnOnce() -> Result<usize, RequeueError> + Send + 'static,
) -> Result<usize, RequeueError> {
    let result = Arc::new(StdMutex::new(None));
    let slot = Arc::clone(&result);
    let task = machine.spawn("notifier", RT(90), move || {
        let got = op(f);
        *guard(&slot) = Some(got);
    });
    machine.finish(task);
    guard(&result).expect("it ran")
}

#[test]
fn one_of_ten_gets_the_mutex_and_nine_queue_for_it_by_urgency() {
    let machine = Machine::new();
    let (mutex, queue) = (machine.mutex(), queue());
    let log = Log::default();
    let prios = [40, 10, 90, 30, 70, 20, 60, 50, 80, 35];
    let tasks = prios.map(|prio| {
        let task = sleeper(machine, queue, mutex, prio, Wait::interruptible(), &log);
        machine.park(task);
        task
    });
    assert_eq!(notify(machine, move || queue.requeue(mutex, 2, 5)), Err(RequeueError::Invalid));
    assert_eq!(notify(machine, move || queue.requeue(mutex, 0, 5)), Err(RequeueError::Invalid));
    let other = machine.mutex();
    assert_eq!(
        notify(machine, move || queue.notify_all(other)),
        Err(RequeueError::Invalid),
        "not their mutex"
    );
    assert!(tasks.iter().all(|task| !machine.runnable(task)));
    assert_eq!(notify(machine, move || queue.requeue(mutex, 1, 9)), Ok(10));
    let first = tasks[1];
    assert_eq!(inspect::word(mutex), (inspect::address(first), true), "the most urgent owns the mutex");
    assert!(
        tasks.iter().all(|&task| machine.runnable(task) == std::ptr::eq(task, first)),
        "only that one is awake"
    );
    while let Some(&task) = tasks.iter().find(|&&task| machine.runnable(task)) {
        machine.finish(task);
    }
    let mut sorted = prios;
    sorted.sort_unstable();
    assert_eq!(*guard(&log), sorted.map(|prio| (prio, Ok(()))));
    machine.assert_at_rest();
    case("K94", "kernel-model");
}

#[test]
fn notifying_with_the_mutex_held_boosts_its_holder_and_wakes_nobody() {
    let machine = Machine::new();
    let (mutex, queue) = (machine.mutex(), queue());
    let log = Log::default();
    let tasks = [30, 20].map(|prio| {
        let task = sleeper(machine, queue, mutex, prio, Wait::interruptible(), &log);
        machine.park(task);
        task
    });
    let notifier = machine.spawn("notifier", Key::NORMAL, move || {
        assert_eq!(op(|| queue.notify_one(mutex)), Ok(true));
        op(|| mutex.lock());
        mark("locked");
        assert_eq!(op(|| queue.notify_one(mutex)), Ok(true));
        assert_eq!(op(|| queue.notify_one(mutex)), Ok(false), "nobody is left");
        mark("notified");
        // SAFETY: locked above.
        op(|| unsafe { mutex.unlock() });
    });
    // The free mutex went to the more urgent sleeper; let it finish.
    machine.park(notifier);
    machine.finish(tasks[1]);
    machine.until(notifier, Event::Mark("locked"));
    machine.until(notifier, Event::Mark("notified"));
    assert!(!machine.runnable(tasks[0]));
    assert_eq!(notifier.effective(), RT(30));
    machine.finish(notifier);
    machine.finish(tasks[0]);
    assert_eq!(*guard(&log), [(20, Ok(())), (30, Ok(()))]);
    machine.assert_at_rest();
    case("K94", "kernel-model");
}

#[test]
fn who_leaves_early_is_not_moved_and_who_leaves_while_being_moved_waits_for_the_outcome() {
    for (held, signal) in [(false, false), (true, false), (false, true)] {
        let machine = Machine::new();
        let (mutex, queue) = (machine.mutex(), queue());
        let log = Log::default();
        // Leaves before anybody notifies.
        let early = sleeper(machine, queue, mutex, 20, Wait::interruptible().until(5), &log);
        machine.park(early);
        machine.advance(5);
        machine.finish(early);
        assert_eq!(*guard(&log), [(20, Err(LockError::TimedOut))]);
        assert_eq!(notify(machine, move || queue.notify_all(mutex)), Ok(0));
        guard(&log).clear();

        // Leaves while it is being moved.
        let late = sleeper(machine, queue, mutex, 20, Wait::interruptible().until(9), &log);
        machine.park(late);
        let holder = machine.spawn("holder", RT(40), move || {
            op(|| mutex.lock());
            mark("holds");
            // SAFETY: locked above.
            op(|| unsafe { mutex.unlock() });
        });
        if held {
            machine.until(holder, Event::Mark("holds"));
        }
        let mover =
            machine.spawn("mover", RT(50), move || assert_eq!(op(|| queue.notify_one(mutex)), Ok(true)));
        machine.until(mover, Event::At(Point::Requeue));
        if signal {
            let sender = machine.spawn("sender", RT(1), move || send(late, Signal::Pending));
            machine.finish(sender);
        } else {
            machine.advance(9);
        }
        // It cannot leave: it waits for the mover.
        machine.park(late);
        assert!(!machine.runnable(late));
        machine.finish(mover);
        assert!(machine.runnable(late), "told the outcome");
        if held {
            machine.park(late);
            assert_eq!(holder.effective(), RT(20), "it is queued for the mutex");
            machine.finish(holder);
        }
        machine.finish(late);
        machine.finish(holder);
        assert_eq!(*guard(&log), [(20, Ok(()))], "it was notified");
        machine.assert_at_rest();
    }
    case("K94", "kernel-model");
}

#[test]
fn a_sleeper_that_cannot_be_moved_sleeps_on() {
    // The sleeper s owns `other`; y owns `mutex` and waits for `other`: to queue s for `mutex` closes a ring.
    for leaves in [false, true] {
        let machine = Machine::new();
        let (mutex, other, queue) = (machine.mutex(), machine.mutex(), queue());
        let s = machine.spawn("s", RT(20), move || {
            op(|| other.lock());
            op(|| mutex.lock());
            // SAFETY: locked above.
            let result = op(|| unsafe { queue.wait(mutex, Wait::interruptible().until(5)) });
            assert_eq!(result, Err(LockError::TimedOut));
            // SAFETY: `wait` took it again.
            op(|| unsafe { mutex.unlock() });
            // SAFETY: locked above.
            op(|| unsafe { other.unlock() });
        });
        machine.park(s);
        let y = machine.spawn("y", RT(30), move || {
            op(|| mutex.lock());
            assert_eq!(op(|| other.lock_with(Wait::interruptible().until(7))), Err(LockError::TimedOut));
            mark("gave up");
            // SAFETY: locked above.
            op(|| unsafe { mutex.unlock() });
        });
        machine.park(y);
        let mover = machine.spawn("mover", RT(50), move || {
            assert_eq!(op(|| queue.notify_one(mutex)), Err(RequeueError::Deadlock));
        });
        machine.until(mover, Event::At(Point::Requeue));
        if leaves {
            machine.advance(5);
            machine.park(s);
        }
        machine.finish(mover);
        assert_eq!(machine.runnable(s), leaves);
        machine.advance(7);
        machine.finish(y);
        machine.finish(s);
        machine.assert_at_rest();
    }
    case("K94", "kernel-model");
}

#[test]
fn random_producers_and_consumers_lose_no_item_and_no_notification() {
    for seed in 1..=150 {
        let mut random = Random::new(seed);
        let machine = Machine::new();
        let (mutex, queue) = (machine.mutex(), queue());
        let (items, taken): (&'static AtomicU32, &'static AtomicU32) =
            (Box::leak(Box::default()), Box::leak(Box::default()));
        let mut tasks = Vec::new();
        for n in 0..3_u64 {
            let key = RT(random.below(3) as u8 * 10);
            tasks.push(machine.spawn("consumer", key, move || {
                let mut random = Random::new(seed * 7 + n);
                for _ in 0..4 {
                    op(|| mutex.lock());
                    while items.load(Relaxed) == 0 {
                        let wait = Wait::interruptible();
                        let wait = if random.once_in(3) { wait.until(Model::now() + 3) } else { wait };
                        // SAFETY: locked above, and again after each wait.
                        let _ = op(|| unsafe { queue.wait(mutex, wait) });
                        assert_eq!(inspect::word(mutex).0, inspect::address(Model::current()));
                    }
                    items.fetch_sub(1, Relaxed);
                    taken.fetch_add(1, Relaxed);
                    // SAFETY: locked.
                    op(|| unsafe { mutex.unlock() });
                }
            }));
        }
        for n in 0..2_u64 {
            tasks.push(machine.spawn("producer", Key::NORMAL, move || {
                let mut random = Random::new(seed * 11 + n);
                for _ in 0..6 {
                    op(|| mutex.lock());
                    items.fetch_add(1, Relaxed);
                    let outside = random.once_in(2);
                    if !outside {
                        op(|| queue.notify_one(mutex)).unwrap();
                    }
                    // SAFETY: locked above.
                    op(|| unsafe { mutex.unlock() });
                    if outside {
                        let all = random.once_in(2);
                        op(|| {
                            if all {
                                queue.notify_all(mutex)
                            } else {
                                queue.notify_one(mutex).map(usize::from)
                            }
                        })
                        .unwrap();
                    }
                }
            }));
        }
        machine.random_run(&mut random, &tasks);
        assert_eq!((taken.load(Relaxed), items.load(Relaxed)), (12, 0));
        machine.assert_at_rest();
    }
    case("K94", "kernel-model");
}
