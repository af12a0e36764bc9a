// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Chains of locks: boosting, deadlocks, the depth limit, changes on the way (K81 to K84, K90, R25, and what users of other
//! kernels have hit).

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex as StdMutex};

use fastpath_rtmutex::kernel::{Key, LockError, Point, RawMutex, Wait, inspect};
use fastpath_testkit::case;

use crate::model::{Event, Machine, Model, T, guard, mark, op};
use crate::mutex_cases::section;

type M = &'static RawMutex<Model>;

const RT: fn(u8) -> Key = Key::realtime;

/// Locks all of `locks` in order and unlocks them in the order of `release` (indices), with a mark before each step:
/// "lock" and "unlock".
fn nest(locks: Vec<M>, release: Vec<usize>) -> impl FnOnce() + Send + 'static {
    move || {
        for lock in &locks {
            mark("lock");
            op(|| lock.lock());
        }
        for i in release {
            mark("unlock");
            // SAFETY: locked above, each once.
            op(|| unsafe { locks[i].unlock() });
        }
    }
}

/// Lets `task` pass `n` marks of `nest`, to where the next step would begin.
#[track_caller]
fn pass(machine: &Machine, task: T, marks: &[&'static str]) {
    for name in marks {
        machine.until(task, Event::Mark(name));
    }
}

/// Changes `task`'s own urgency from a task of its own.
fn change(machine: &'static Machine, task: T, key: Key) {
    let changer = machine.spawn("changer", RT(1), move || {
        task.data().machine().changing.fetch_add(1, Relaxed);
        op(|| task.set_base(key));
        task.data().machine().changing.fetch_sub(1, Relaxed);
    });
    machine.finish(changer);
}

#[test]
fn urgency_travels_along_a_chain_and_each_release_gives_back_exactly_its_part() {
    let machine = Machine::new();
    let [l1, l2, l3] = [(); 3].map(|()| machine.mutex());
    // C owns L2; B owns L1 and waits for L2; A owns L3 and waits for L1.
    let c = machine.spawn("c", RT(70), nest(vec![l2], vec![0]));
    pass(machine, c, &["lock", "unlock"]);
    let b = machine.spawn("b", RT(60), nest(vec![l1, l2], vec![1, 0]));
    pass(machine, b, &["lock", "lock"]);
    machine.park(b);
    let a = machine.spawn("a", RT(50), nest(vec![l3, l1], vec![1, 0]));
    pass(machine, a, &["lock", "lock"]);
    machine.park(a);
    assert_eq!([a, b, c].map(|task| task.effective()), [RT(50), RT(50), RT(50)]);
    let h = machine.spawn("h", RT(10), section(l3));
    machine.park(h);
    assert_eq!([a, b, c].map(|task| task.effective()), [RT(10), RT(10), RT(10)]);
    machine.finish(c);
    assert_eq!([a, b, c].map(|task| task.effective()), [RT(10), RT(10), RT(70)], "c is out of it");
    pass(machine, b, &["unlock", "unlock"]);
    assert_eq!(b.effective(), RT(10), "L2 is given back, L1 is not");
    machine.finish(b);
    assert_eq!([a, b].map(|task| task.effective()), [RT(10), RT(60)]);
    pass(machine, a, &["unlock", "unlock"]);
    assert_eq!(a.effective(), RT(10));
    machine.finish(a);
    assert_eq!(a.effective(), RT(50));
    machine.finish(h);
    machine.assert_at_rest();
    case("K81", "kernel-model");
}

#[test]
fn a_chain_of_six_follows_every_change_of_its_last_waiter() {
    let machine = Machine::new();
    let locks: Vec<M> = (0..6).map(|_| machine.mutex()).collect();
    let mut owners = Vec::new();
    for i in 0..6 {
        let wanted = if i == 0 { vec![locks[0]] } else { vec![locks[i], locks[i - 1]] };
        let release = (0..wanted.len()).rev().collect();
        let task = machine.spawn("owner", Key::NORMAL, nest(wanted, release));
        machine.until(task, Event::Mark("lock"));
        if i == 0 {
            pass(machine, task, &["unlock"]);
        } else {
            pass(machine, task, &["lock"]);
            machine.park(task);
        }
        owners.push(task);
    }
    let last = locks[5];
    let waiter = machine.spawn("waiter", RT(50), move || {
        assert_eq!(op(|| last.lock_with(Wait::interruptible().until(9))), Err(LockError::TimedOut));
    });
    machine.park(waiter);
    assert!(owners.iter().all(|task| task.effective() == RT(50)));
    change(machine, waiter, RT(45));
    assert!(owners.iter().all(|task| task.effective() == RT(45)), "up");
    change(machine, waiter, RT(55));
    assert!(owners.iter().all(|task| task.effective() == RT(55)), "down");
    machine.advance(9);
    machine.finish(waiter);
    assert!(owners.iter().all(|task| task.effective() == Key::NORMAL), "gone");
    for task in owners {
        machine.finish(task);
    }
    machine.assert_at_rest();
    case("K81", "kernel-model");
}

#[test]
fn a_change_of_a_waiters_urgency_reorders_the_queue_and_wakes_the_new_top_of_a_free_lock() {
    let machine = Machine::new();
    let lock = machine.mutex();
    let owner = machine.spawn("owner", Key::NORMAL, section(lock));
    machine.until(owner, Event::Mark("in"));
    let [a, b] = [("a", 20), ("b", 30)].map(|(name, p)| machine.spawn(name, RT(p), section(lock)));
    machine.park(a);
    machine.park(b);
    change(machine, b, RT(15));
    assert_eq!(lock.top_waiter(), Some(RT(15)));
    assert_eq!(owner.effective(), RT(15));
    change(machine, b, RT(30));
    assert_eq!(lock.top_waiter(), Some(RT(20)));
    assert_eq!(owner.effective(), RT(20));
    // The lock is handed to a, which has not run yet and now becomes less urgent than b.
    machine.finish(owner);
    assert!(!machine.runnable(b));
    change(machine, a, RT(40));
    assert!(machine.runnable(b), "the new top waiter of a free lock has to run");
    machine.until(b, Event::Mark("in"));
    machine.park(a);
    machine.finish(b);
    machine.finish(a);
    machine.assert_at_rest();
    case("K82", "kernel-model");
    case("K90", "kernel-model");
}

#[test]
fn when_the_top_sinks_the_walk_wakes_the_new_top_not_the_one_it_moved() {
    // Three waiters; the former top sinks to the end: the new top is neither the moved one nor the last.
    let machine = Machine::new();
    let lock = machine.mutex();
    let owner = machine.spawn("owner", Key::NORMAL, section(lock));
    machine.until(owner, Event::Mark("in"));
    let [a, b, c] =
        [("a", 20), ("b", 30), ("c", 40)].map(|(name, p)| machine.spawn(name, RT(p), section(lock)));
    for task in [a, b, c] {
        machine.park(task);
    }
    machine.finish(owner);
    // a is awake and looks at the lock, but is stopped before it can; then sinks.
    machine.until(a, Event::At(Point::Awake));
    change(machine, a, RT(50));
    assert!(machine.runnable(b) && !machine.runnable(c));
    machine.park(a);
    for task in [b, c, a] {
        machine.until(task, Event::Mark("in"));
        machine.finish(task);
    }
    machine.assert_at_rest();
    case("K90", "kernel-model");
}

/// A ring of `n` tasks, each owning one lock and wanting the next: the last one gets the error.
fn ring(n: usize, detecting: bool) {
    let machine = Machine::new();
    let locks: Vec<M> = (0..n).map(|_| machine.mutex()).collect();
    let mut tasks = Vec::new();
    let done = Arc::new(AtomicU32::new(0));
    for i in 0..n {
        let (mine, next, last) = (locks[i], locks[(i + 1) % n], i == n - 1);
        let done = Arc::clone(&done);
        let task = machine.spawn("ring", RT(20 + i as u8), move || {
            op(|| mine.lock());
            mark("one");
            let wait = if detecting { Wait::uninterruptible().detecting() } else { Wait::uninterruptible() };
            let result = op(|| next.lock_with(wait));
            assert_eq!(result, if last { Err(LockError::Deadlock) } else { Ok(()) });
            if result.is_ok() {
                // SAFETY: locked above.
                op(|| unsafe { next.unlock() });
            }
            // SAFETY: locked above.
            op(|| unsafe { mine.unlock() });
            done.fetch_add(1, Relaxed);
        });
        machine.until(task, Event::Mark("one"));
        tasks.push(task);
    }
    for &task in &tasks[..n - 1] {
        machine.park(task);
    }
    for &task in tasks.iter().rev() {
        machine.finish(task);
    }
    assert_eq!(done.load(Relaxed) as usize, n);
    machine.assert_at_rest();
}

#[test]
fn the_one_who_closes_a_ring_gets_the_error_and_the_others_go_on() {
    for n in [2, 3, 5] {
        ring(n, true);
    }
    case("K83", "kernel-model");
}

#[test]
fn full_detection_finds_a_ring_behind_a_point_where_nothing_changes() {
    // Each owner is more urgent than its waiter, so the walk with minimal detection ends at once and notices nothing.
    let machine = Machine::new();
    let [l0, l1, l2] = [(); 3].map(|()| machine.mutex());
    let a = machine.spawn("a", RT(10), nest(vec![l0, l1], vec![1, 0]));
    pass(machine, a, &["lock", "lock"]);
    let b = machine.spawn("b", RT(20), nest(vec![l1, l2], vec![1, 0]));
    pass(machine, b, &["lock", "lock"]);
    let c = machine.spawn("c", RT(30), move || {
        op(|| l2.lock());
        mark("one");
        let minimal = op(|| l0.lock_with(Wait::interruptible().until(5)));
        assert_eq!(minimal, Err(LockError::TimedOut));
        let full = op(|| l0.lock_with(Wait::interruptible().until(5).detecting()));
        assert_eq!(full, Err(LockError::Deadlock));
        // SAFETY: locked above.
        op(|| unsafe { l2.unlock() });
    });
    machine.until(c, Event::Mark("one"));
    machine.park(a);
    machine.park(b);
    machine.park(c);
    machine.advance(5);
    machine.finish(c);
    for task in [b, a] {
        machine.finish(task);
    }
    machine.assert_at_rest();
    case("K83", "kernel-model");
}

#[test]
fn a_chain_over_the_limit_is_a_deadlock_with_one_message_and_two_locks_at_most() {
    let machine = Machine::new();
    const LIMIT: usize = 20;
    machine.max_depth.store(LIMIT, Relaxed);
    let locks: Vec<M> = (0..LIMIT + 3).map(|_| machine.mutex()).collect();
    let mut owners = Vec::new();
    for i in 0..locks.len() {
        let wanted = if i == 0 { vec![locks[0]] } else { vec![locks[i], locks[i - 1]] };
        let release = (0..wanted.len()).rev().collect();
        let task = machine.spawn("owner", Key::NORMAL, nest(wanted, release));
        pass(machine, task, &["lock"]);
        if i == 0 {
            pass(machine, task, &["unlock"]);
        } else {
            // Equally urgent: no walk, so the chain may be built.
            pass(machine, task, &["lock"]);
            machine.park(task);
        }
        owners.push(task);
    }
    let last = locks[locks.len() - 1];
    let near = locks[LIMIT - 1];
    let tasks: Vec<T> = [(last, true), (last, true), (near, false)]
        .into_iter()
        .map(|(lock, too_long)| {
            machine.spawn("walker", RT(10), move || {
                let result = op(|| lock.lock_with(Wait::interruptible().until(3)));
                assert_eq!(result, Err(if too_long { LockError::Deadlock } else { LockError::TimedOut }));
            })
        })
        .collect();
    machine.finish(tasks[0]);
    assert_eq!(machine.depth_messages.load(Relaxed), 1);
    machine.finish(tasks[1]);
    assert_eq!(machine.depth_messages.load(Relaxed), 1, "one message per limit");
    machine.park(tasks[2]);
    assert_eq!(owners[0].effective(), RT(10), "a chain within the limit is walked to its end");
    machine.advance(3);
    machine.finish(tasks[2]);
    assert!(machine.most_raw_locks.load(Relaxed) <= 2);
    machine.max_depth.store(LIMIT + 1, Relaxed);
    let another = machine.spawn("walker", RT(9), move || {
        assert_eq!(op(|| last.lock_with(Wait::interruptible())), Err(LockError::Deadlock));
    });
    machine.finish(another);
    assert_eq!(machine.depth_messages.load(Relaxed), 2, "another limit, another message");
    for task in owners {
        machine.finish(task);
    }
    machine.assert_at_rest();
    case("K84", "kernel-model");
    case("R25", "kernel-model");
}

#[test]
fn releasing_one_of_several_locks_in_any_order_keeps_what_the_others_are_worth() {
    for release in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let machine = Machine::new();
        let locks: Vec<M> = (0..3).map(|_| machine.mutex()).collect();
        let owner = machine.spawn("owner", Key::NORMAL, nest(locks.clone(), release.into()));
        pass(machine, owner, &["lock", "lock", "lock", "unlock"]);
        let mut waiters = Vec::new();
        for (i, lock) in locks.iter().enumerate() {
            let task = machine.spawn("waiter", RT([30, 10, 20][i]), section(lock));
            machine.park(task);
            waiters.push(task);
        }
        let mut held = vec![0, 1, 2];
        for (n, i) in release.into_iter().enumerate() {
            assert_eq!(
                owner.effective(),
                held.iter().map(|&i| RT([30, 10, 20][i])).reduce(Key::most_urgent).unwrap()
            );
            if n < 2 {
                pass(machine, owner, &["unlock"]);
            } else {
                machine.finish(owner);
            }
            held.retain(|&lock| lock != i);
        }
        assert_eq!(owner.effective(), Key::NORMAL);
        for task in waiters {
            machine.finish(task);
        }
        machine.assert_at_rest();
    }
    case("R25", "kernel-model");
}

#[test]
fn a_lock_without_waiters_neither_keeps_nor_drops_a_boost() {
    // The uncontended lock is taken while boosted, and given back while boosted, on the fast path.
    let machine = Machine::new();
    let [contended, quiet] = [(); 2].map(|()| machine.mutex());
    let owner = machine.spawn("owner", Key::NORMAL, nest(vec![contended, quiet], vec![1, 0]));
    pass(machine, owner, &["lock", "lock"]);
    let waiter = machine.spawn("waiter", RT(10), section(contended));
    machine.park(waiter);
    pass(machine, owner, &["unlock", "unlock"]);
    assert_eq!(owner.effective(), RT(10));
    machine.finish(owner);
    assert_eq!(owner.effective(), Key::NORMAL);
    machine.finish(waiter);
    machine.assert_at_rest();
    case("R25", "kernel-model");
}

#[test]
fn a_change_of_the_owners_own_urgency_while_boosted_shows_after_the_boost() {
    let machine = Machine::new();
    let lock = machine.mutex();
    let owner = machine.spawn("owner", RT(60), section(lock));
    machine.until(owner, Event::Mark("in"));
    let waiter = machine.spawn("waiter", RT(30), section(lock));
    machine.park(waiter);
    change(machine, owner, RT(80));
    assert_eq!(owner.effective(), RT(30), "less urgent: the boost stays");
    change(machine, owner, RT(20));
    assert_eq!(owner.effective(), RT(20), "more urgent than the boost: at once");
    change(machine, owner, RT(70));
    assert_eq!(owner.effective(), RT(30));
    machine.finish(owner);
    assert_eq!((owner.base(), owner.effective()), (RT(70), RT(70)), "never the boosted value");
    machine.finish(waiter);
    machine.assert_at_rest();
    case("R25", "kernel-model");
}

#[test]
fn a_time_out_of_the_top_waiter_leaves_exactly_the_next_ones_boost() {
    let machine = Machine::new();
    let [l1, l2] = [(); 2].map(|()| machine.mutex());
    let far = machine.spawn("far", Key::NORMAL, section(l2));
    machine.until(far, Event::Mark("in"));
    let near = machine.spawn("near", Key::NORMAL, nest(vec![l1, l2], vec![1, 0]));
    pass(machine, near, &["lock", "lock"]);
    machine.park(near);
    let mut waiters = Vec::new();
    for (p, until) in [(10, 1), (20, 2), (30, 3)] {
        let task = machine.spawn("waiter", RT(p), move || {
            assert_eq!(op(|| l1.lock_with(Wait::uninterruptible().until(until))), Err(LockError::TimedOut));
        });
        machine.park(task);
        waiters.push(task);
    }
    for (i, left) in [RT(20), RT(30), Key::NORMAL].into_iter().enumerate() {
        machine.advance(1);
        machine.finish(waiters[i]);
        assert_eq!([near, far].map(|task| task.effective()), [left, left]);
    }
    machine.finish(far);
    machine.finish(near);
    machine.assert_at_rest();
    case("R25", "kernel-model");
}

#[test]
fn a_new_owner_inherits_from_the_waiters_that_remain() {
    let machine = Machine::new();
    let [l1, l2] = [(); 2].map(|()| machine.mutex());
    let other = machine.spawn("other", Key::NORMAL, section(l2));
    machine.until(other, Event::Mark("in"));
    let first = machine.spawn("first", Key::NORMAL, section(l1));
    machine.until(first, Event::Mark("in"));
    // Will own l1 next, then wait for l2: what waits for l1 must reach the owner of l2.
    let second = machine.spawn("second", RT(20), nest(vec![l1, l2], vec![0, 1]));
    machine.until(second, Event::Mark("lock"));
    machine.park(second);
    let third = machine.spawn("third", RT(30), section(l1));
    machine.park(third);
    machine.finish(first);
    pass(machine, second, &["lock"]);
    change(machine, second, RT(90));
    assert_eq!(second.effective(), RT(30));
    machine.park(second);
    assert_eq!(other.effective(), RT(30));
    machine.finish(other);
    machine.finish(second);
    machine.finish(third);
    machine.assert_at_rest();
    case("R25", "kernel-model");
}

#[test]
fn a_releaser_that_is_more_urgent_may_take_the_lock_again_before_the_waiter_runs() {
    let machine = Machine::new();
    let lock = machine.mutex();
    let taken = Arc::new(StdMutex::new(Vec::new()));
    let log = Arc::clone(&taken);
    let owner = machine.spawn("owner", RT(10), move || {
        for _ in 0..3 {
            op(|| lock.lock());
            guard(&log).push("owner");
            mark("in");
            // SAFETY: locked above.
            op(|| unsafe { lock.unlock() });
        }
    });
    machine.until(owner, Event::Mark("in"));
    let log = Arc::clone(&taken);
    let waiter = machine.spawn("waiter", RT(20), move || {
        op(|| lock.lock());
        guard(&log).push("waiter");
        // SAFETY: locked above.
        op(|| unsafe { lock.unlock() });
    });
    machine.park(waiter);
    machine.finish(owner);
    machine.finish(waiter);
    assert_eq!(*guard(&taken), ["owner", "owner", "owner", "waiter"]);
    machine.assert_at_rest();
}

#[test]
fn locks_released_in_the_order_they_were_taken_leave_no_trace() {
    let machine = Machine::new();
    let locks: Vec<M> = (0..8).map(|_| machine.mutex()).collect();
    let owner = machine.spawn("owner", Key::NORMAL, nest(locks.clone(), (0..8).collect()));
    pass(machine, owner, &["lock"; 8]);
    pass(machine, owner, &["unlock"]);
    // More waiters than any pool of holders would have.
    let waiters: Vec<T> = (0..24)
        .map(|i| {
            let task = machine.spawn("waiter", RT(40 - i as u8), section(locks[i % 8]));
            machine.park(task);
            task
        })
        .collect();
    assert_eq!(owner.effective(), RT(17));
    machine.finish(owner);
    let mut left = waiters;
    while !left.is_empty() {
        left.retain(|&task| !machine.runnable(task) || machine.step(task, 100_000) != Event::Done);
    }
    machine.assert_at_rest();
}

#[test]
fn the_chain_may_change_while_the_walk_has_no_lock() {
    // h blocks on l1, whose owner a is blocked on l2. The walk is stopped between its turns; meanwhile a times out on l2 and
    // blocks on another lock, l3. The walk must notice (step 3), and the boost must reach l3's owner by a's own wait.
    let machine = Machine::new();
    let [l1, l2, l3] = [(); 3].map(|()| machine.mutex());
    let c = machine.spawn("c", Key::NORMAL, section(l2));
    let d = machine.spawn("d", Key::NORMAL, section(l3));
    machine.until(c, Event::Mark("in"));
    machine.until(d, Event::Mark("in"));
    let a = machine.spawn("a", Key::NORMAL, move || {
        op(|| l1.lock());
        assert_eq!(op(|| l2.lock_with(Wait::interruptible().until(1))), Err(LockError::TimedOut));
        op(|| l3.lock());
        // SAFETY: locked above.
        op(|| unsafe { l3.unlock() });
        // SAFETY: locked above.
        op(|| unsafe { l1.unlock() });
    });
    machine.park(a);
    let h = machine.spawn("h", RT(10), section(l1));
    // It boosted a, gave back the locks, and is about to begin the walk.
    machine.until(h, Event::At(Point::Queued));
    while machine.step(h, 1) != Event::RawLock {}
    while machine.last(h) != Event::At(Point::Walk(1)) {
        machine.step(h, 1);
        if !inspect::is_quiet_task(a) {
            continue;
        }
        if inspect::is_quiet(l1) && a.effective() == RT(10) {
            break;
        }
    }
    machine.advance(1);
    machine.park(a);
    machine.park(h);
    assert_eq!([a, c, d].map(|task| task.effective()), [RT(10), Key::NORMAL, RT(10)]);
    for task in [d, c, a, h] {
        machine.finish(task);
    }
    machine.assert_at_rest();
}

#[test]
fn leaving_an_unnoticed_ring_takes_the_whole_boost_back() {
    // t waits for l1 with a deadline; its owner a then waits for l2, which t owns. Minimal detection sees no change of
    // urgency (a is boosted by t already), so nobody notices the ring. a is queued with t's urgency. When t gives up, a's
    // own urgency has to reach l2's queue and what t inherits, although t is the one who leaves and owns l2.
    let machine = Machine::new();
    let [l1, l2] = [(); 2].map(|()| machine.mutex());
    let t = machine.spawn("t", RT(30), move || {
        op(|| l2.lock());
        mark("one");
        assert_eq!(op(|| l1.lock_with(Wait::interruptible().until(1))), Err(LockError::TimedOut));
        mark("gave up");
        // SAFETY: locked above.
        op(|| unsafe { l2.unlock() });
    });
    machine.until(t, Event::Mark("one"));
    let a = machine.spawn("a", RT(40), nest(vec![l1, l2], vec![1, 0]));
    pass(machine, a, &["lock", "lock"]);
    machine.park(t);
    assert_eq!(a.effective(), RT(30));
    machine.park(a);
    assert_eq!(l2.top_waiter(), Some(RT(30)));
    machine.advance(1);
    machine.until(t, Event::Mark("gave up"));
    assert_eq!(a.effective(), RT(40));
    assert_eq!(l2.top_waiter(), Some(RT(40)), "a is queued as urgent as it is now");
    change(machine, t, RT(60));
    assert_eq!(t.effective(), RT(40), "not what it once lent to a");
    machine.finish(t);
    machine.finish(a);
    machine.assert_at_rest();
    case("R25", "kernel-model");
}
