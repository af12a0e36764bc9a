// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Several locks in any order (K96).

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex as StdMutex};

use fastpath_rtmutex::kernel::{Context, Key, Policy, TaskState, WwClass, WwError, WwMutex};
use fastpath_testkit::case;

use crate::model::{Event, Machine, Model, Random, T, guard, mark, op};

const RT: fn(u8) -> Key = Key::realtime;

type W = &'static WwMutex<Model>;

/// Takes `first`, then `second`, in a context made at the mark "born"; gives way as often as it is told to. Logs.
fn pair(
    machine: &'static Machine,
    name: &'static str,
    key: Key,
    class: &'static WwClass,
    locks: [W; 2],
    log: &Arc<StdMutex<Vec<(&'static str, &'static str)>>>,
) -> T {
    let log = Arc::clone(log);
    machine.spawn(name, key, move || {
        let context = Context::new(class);
        mark("born");
        let [mut first, mut second] = locks;
        loop {
            // SAFETY: our context, which stays here until all is unlocked.
            op(|| unsafe { first.lock(Some(&context), TaskState::Uninterruptible) })
                .expect("holds nothing: never told");
            mark("one");
            // SAFETY: as above.
            match op(|| unsafe { second.lock(Some(&context), TaskState::Uninterruptible) }) {
                Ok(()) => break,
                Err(error) => {
                    assert_eq!(error, WwError::Deadlock);
                    guard(&log).push((name, "gave way"));
                    // SAFETY: locked above.
                    op(|| unsafe { first.unlock() });
                    std::mem::swap(&mut first, &mut second);
                    mark("again");
                }
            }
        }
        guard(&log).push((name, "both"));
        mark("both");
        // SAFETY: both locked.
        op(|| unsafe {
            second.unlock();
            first.unlock();
        });
        assert_eq!(context.acquired(), 0);
    })
}

fn class(policy: Policy) -> &'static WwClass {
    Box::leak(Box::new(WwClass::new(policy)))
}

#[test]
fn wound_wait_makes_the_younger_holder_give_way() {
    let machine = Machine::new();
    let class = class(Policy::WoundWait);
    let [l1, l2] = [(); 2].map(|()| machine.ww_mutex());
    let log = Arc::default();
    let older = pair(machine, "older", RT(50), class, [l1, l2], &log);
    let younger = pair(machine, "younger", RT(50), class, [l2, l1], &log);
    machine.until(older, Event::Mark("born"));
    machine.until(younger, Event::Mark("born"));
    machine.until(older, Event::Mark("one"));
    machine.until(younger, Event::Mark("one"));
    machine.park(younger);
    machine.park(older);
    assert!(machine.runnable(younger), "wounded in its sleep");
    machine.until(younger, Event::Mark("again"));
    machine.finish(older);
    machine.finish(younger);
    assert_eq!(*guard(&log), [("younger", "gave way"), ("older", "both"), ("younger", "both")]);
    machine.assert_at_rest();
    case("K96", "kernel-model");
}

#[test]
fn wound_wait_lets_a_younger_one_wait_for_an_older() {
    let machine = Machine::new();
    let class = class(Policy::WoundWait);
    let [l1, l2] = [(); 2].map(|()| machine.ww_mutex());
    let log = Arc::default();
    let older = pair(machine, "older", RT(50), class, [l1, l2], &log);
    let younger = pair(machine, "younger", RT(50), class, [l2, l1], &log);
    machine.until(older, Event::Mark("born"));
    machine.until(younger, Event::Mark("born"));
    machine.until(older, Event::Mark("both"));
    machine.park(younger);
    machine.finish(older);
    machine.finish(younger);
    assert_eq!(*guard(&log), [("older", "both"), ("younger", "both")]);
    machine.assert_at_rest();
    case("K96", "kernel-model");
}

#[test]
fn wait_die_makes_the_younger_give_way_only_where_it_would_wait_for_an_older() {
    let machine = Machine::new();
    let class = class(Policy::WaitDie);
    let [l1, l2] = [(); 2].map(|()| machine.ww_mutex());
    let log = Arc::default();
    let older = pair(machine, "older", RT(50), class, [l1, l2], &log);
    let younger = pair(machine, "younger", RT(50), class, [l2, l1], &log);
    machine.until(older, Event::Mark("born"));
    machine.until(younger, Event::Mark("born"));
    machine.until(older, Event::Mark("one"));
    machine.until(younger, Event::Mark("one"));
    // The older one waits for the younger holder.
    machine.park(older);
    assert!(guard(&log).is_empty());
    // The younger one would have to wait for the older: it dies at once.
    machine.until(younger, Event::Mark("again"));
    machine.until(older, Event::Mark("both"));
    machine.finish(older);
    machine.finish(younger);
    assert_eq!(*guard(&log), [("younger", "gave way"), ("older", "both"), ("younger", "both")]);
    machine.assert_at_rest();
    case("K96", "kernel-model");
}

#[test]
fn urgency_comes_before_age() {
    let machine = Machine::new();
    let class = class(Policy::WoundWait);
    let [l1, l2] = [(); 2].map(|()| machine.ww_mutex());
    let log = Arc::default();
    let old = pair(machine, "old", RT(50), class, [l1, l2], &log);
    let urgent = pair(machine, "urgent", RT(10), class, [l2, l1], &log);
    machine.until(old, Event::Mark("born"));
    machine.until(urgent, Event::Mark("born"));
    machine.until(old, Event::Mark("one"));
    machine.until(urgent, Event::Mark("one"));
    machine.park(old);
    machine.park(urgent);
    machine.until(old, Event::Mark("again"));
    machine.finish(urgent);
    machine.finish(old);
    assert_eq!(*guard(&log), [("old", "gave way"), ("urgent", "both"), ("old", "both")]);
    machine.assert_at_rest();
    case("K96", "kernel-model");
}

#[test]
fn locking_twice_is_said_and_try_lock_and_no_context_work_too() {
    let machine = Machine::new();
    let class = class(Policy::WoundWait);
    let lock = machine.ww_mutex();
    let task = machine.spawn("a", RT(20), move || {
        let context = Context::new(class);
        // SAFETY: our context; unlocked by the one who locked, in all that follows.
        unsafe {
            op(|| lock.lock(Some(&context), TaskState::Uninterruptible)).unwrap();
            assert_eq!(context.acquired(), 1);
            assert_eq!(op(|| lock.lock(Some(&context), TaskState::Uninterruptible)), Err(WwError::Already));
            assert!(!op(|| lock.try_lock(Some(&context))));
            op(|| lock.unlock());
            assert!(op(|| lock.try_lock(Some(&context))));
            op(|| lock.unlock());
            op(|| lock.lock(None, TaskState::Uninterruptible)).unwrap();
            mark("plain");
            op(|| lock.unlock());
        }
    });
    machine.until(task, Event::Mark("plain"));
    let other = machine.spawn("b", RT(10), move || {
        let context = Context::new(class);
        // SAFETY: as above.
        unsafe {
            op(|| lock.lock(Some(&context), TaskState::Uninterruptible)).unwrap();
            op(|| lock.unlock());
        }
    });
    machine.park(other);
    assert_eq!(task.effective(), RT(10), "priorities are inherited here too");
    machine.finish(task);
    machine.finish(other);
    machine.assert_at_rest();
    case("K96", "kernel-model");
}

#[test]
fn random_sets_of_locks_always_come_through() {
    for seed in 1..=120 {
        let mut random = Random::new(seed);
        let machine = Machine::new();
        let class = class(if seed % 2 == 0 { Policy::WoundWait } else { Policy::WaitDie });
        let locks: Vec<W> = (0..3).map(|_| machine.ww_mutex()).collect();
        let inside: &'static [AtomicU32; 3] = Box::leak(Box::default());
        let mut tasks = Vec::new();
        for _ in 0..4 {
            let mut order: Vec<usize> = vec![0, 1, 2];
            for i in (1..3).rev() {
                order.swap(i, random.below(i + 1));
            }
            let locks = locks.clone();
            let key = if random.once_in(2) { Key::NORMAL } else { RT(random.below(3) as u8 * 10) };
            tasks.push(machine.spawn("w", key, move || {
                for _ in 0..2 {
                    let context = Context::new(class);
                    'again: loop {
                        for (n, &i) in order.iter().enumerate() {
                            // SAFETY: our context, which stays here until all is unlocked; each is unlocked once.
                            match op(|| unsafe { locks[i].lock(Some(&context), TaskState::Uninterruptible) })
                            {
                                Ok(()) => assert_eq!(inside[i].fetch_add(1, Relaxed), 0, "one owner"),
                                Err(error) => {
                                    assert_eq!(error, WwError::Deadlock);
                                    for &j in &order[..n] {
                                        inside[j].fetch_sub(1, Relaxed);
                                        // SAFETY: as above.
                                        op(|| unsafe { locks[j].unlock() });
                                    }
                                    continue 'again;
                                }
                            }
                        }
                        break;
                    }
                    mark("all");
                    for &i in &order {
                        inside[i].fetch_sub(1, Relaxed);
                        // SAFETY: as above.
                        op(|| unsafe { locks[i].unlock() });
                    }
                }
            }));
        }
        machine.random_run(&mut random, &tasks);
        machine.assert_at_rest();
    }
    case("K96", "kernel-model");
}
