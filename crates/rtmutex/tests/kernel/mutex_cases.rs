// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! One mutex: the word, order, boost, time-outs, stealing, spinning (K75 to K80, K85, K86, K88, K89).

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex as StdMutex};

use fastpath_rtmutex::kernel::{Key, LockError, Point, RawMutex, Scheduler, Signal, Wait, Wake, inspect};
use fastpath_testkit::case;

use crate::model::{Event, Machine, Model, Random, T, guard, mark, op, send};

type M = &'static RawMutex<Model>;

/// Locks, marks "in", unlocks.
pub fn section(lock: M) -> impl FnOnce() + Send + 'static {
    move || {
        op(|| lock.lock());
        mark("in");
        // SAFETY: locked above.
        op(|| unsafe { lock.unlock() });
    }
}

/// Where a task leaves the result of its wait.
type Outcome = Arc<StdMutex<Option<Result<(), LockError>>>>;

/// A task that waits for `lock` by `wait` and leaves its result in the returned cell; it keeps the lock on success, until
/// it is let go on from "got".
fn waiting(machine: &'static Machine, name: &'static str, key: Key, lock: M, wait: Wait) -> (T, Outcome) {
    let result = Arc::new(StdMutex::new(None));
    let slot = Arc::clone(&result);
    let task = machine.spawn(name, key, move || {
        let got = op(|| lock.lock_with(wait));
        *guard(&slot) = Some(got);
        mark("got");
        if got.is_ok() {
            // SAFETY: the result says so.
            op(|| unsafe { lock.unlock() });
        }
    });
    (task, result)
}

const RT: fn(u8) -> Key = Key::realtime;

#[test]
fn uncontended_the_word_is_the_owner_then_none_and_no_slow_path_is_entered() {
    let machine = Machine::new();
    let lock = machine.mutex();
    let task = machine.spawn("a", RT(50), move || {
        for _ in 0..100 {
            section(lock)();
        }
    });
    for _ in 0..100 {
        machine.until(task, Event::Mark("in"));
        assert_eq!(inspect::word(lock), (inspect::address(task), false));
    }
    machine.finish(task);
    assert_eq!(machine.slow_locks.load(Relaxed), 0);
    assert_eq!(machine.slow_unlocks.load(Relaxed), 0);
    machine.assert_at_rest();
    case("K75", "kernel-model");
}

#[test]
fn contended_bit_0_is_set_while_held_and_gone_after_the_last_unlock() {
    let machine = Machine::new();
    let lock = machine.mutex();
    let a = machine.spawn("a", RT(50), section(lock));
    let b = machine.spawn("b", RT(40), section(lock));
    let c = machine.spawn("c", RT(60), section(lock));
    machine.until(a, Event::Mark("in"));
    machine.park(b);
    assert_eq!(inspect::word(lock), (inspect::address(a), true));
    machine.park(c);
    machine.finish(a);
    assert_eq!(inspect::word(lock), (std::ptr::null(), true), "handed over");
    machine.until(b, Event::Mark("in"));
    assert_eq!(inspect::word(lock), (inspect::address(b), true), "c still waits");
    machine.finish(b);
    machine.until(c, Event::Mark("in"));
    assert_eq!(inspect::word(lock), (inspect::address(c), false), "nobody waits");
    machine.finish(c);
    machine.assert_at_rest();
    case("K76", "kernel-model");
}

#[test]
fn try_lock_of_a_held_lock_leaves_no_trace_and_a_recursive_lock_is_a_deadlock_at_once() {
    let machine = Machine::new();
    let lock = machine.mutex();
    let a = machine.spawn("a", RT(50), move || {
        op(|| lock.lock());
        assert!(!op(|| lock.try_lock()), "recursive try_lock");
        for wait in [Wait::uninterruptible(), Wait::interruptible().until(0), Wait::killable().detecting()] {
            assert_eq!(op(|| lock.lock_with(wait)), Err(LockError::Deadlock));
            assert!(!Model::current().is_blocked());
        }
        mark("in");
        // SAFETY: locked above.
        op(|| unsafe { lock.unlock() });
    });
    let b = machine.spawn("b", RT(10), move || {
        assert!(!op(|| lock.try_lock()));
        mark("tried");
        assert!(op(|| lock.try_lock()), "free by now");
        // SAFETY: locked above.
        op(|| unsafe { lock.unlock() });
    });
    machine.until(a, Event::Mark("in"));
    let held = (inspect::address(a), false);
    assert_eq!(inspect::word(lock), held, "a failed lock leaves no stray bit");
    machine.until(b, Event::Mark("tried"));
    assert_eq!(inspect::word(lock), held, "a failed try_lock leaves no stray bit");
    assert_eq!(a.effective(), RT(50), "trying boosts nobody");
    machine.finish(a);
    machine.finish(b);
    machine.assert_at_rest();
    case("K77", "kernel-model");
}

#[test]
fn a_lock_that_cannot_fail_sleeps_for_ever_on_a_deadlock_instead_of_entering() {
    let machine = Machine::new();
    let lock = machine.mutex();
    let a = machine.spawn("a", RT(50), move || {
        lock.lock();
        mark("in");
        lock.lock();
        unreachable!("a section that is not owned was entered");
    });
    machine.until(a, Event::Mark("in"));
    machine.park(a);
    assert_eq!(machine.deadlocks.load(Relaxed), 1);
    let waker = machine.spawn("waker", RT(1), move || assert!(a.wake(Wake::Normal)));
    machine.finish(waker);
    machine.park(a);
    assert_eq!(inspect::word(lock), (inspect::address(a), false));
    assert!(!a.is_blocked());
}

/// Lets `names` queue in this order behind an owner, and returns the order in which they get the lock.
fn grant_order(waiters: &[(&'static str, Key)]) -> Vec<&'static str> {
    let machine = Machine::new();
    let lock = machine.mutex();
    let order = Arc::new(StdMutex::new(Vec::new()));
    let owner = machine.spawn("owner", Key::NORMAL, section(lock));
    machine.until(owner, Event::Mark("in"));
    let mut tasks = Vec::new();
    for &(name, key) in waiters {
        let order = Arc::clone(&order);
        let task = machine.spawn(name, key, move || {
            op(|| lock.lock());
            guard(&order).push(name);
            // SAFETY: locked above.
            op(|| unsafe { lock.unlock() });
        });
        machine.park(task);
        tasks.push(task);
    }
    machine.finish(owner);
    // Whoever was woken runs; nobody else can.
    while let Some(&task) = tasks.iter().find(|&&task| machine.runnable(task)) {
        machine.finish(task);
    }
    machine.assert_at_rest();
    let order = guard(&order).clone();
    assert_eq!(order.len(), waiters.len());
    order
}

#[test]
fn waiters_are_served_by_urgency_then_by_arrival() {
    assert_eq!(grant_order(&[("50", RT(50)), ("10", RT(10)), ("30", RT(30))]), ["10", "30", "50"]);
    assert_eq!(grant_order(&[("a", RT(20)), ("b", RT(20)), ("c", RT(20))]), ["a", "b", "c"]);
    // Nice levels: 139 is nice 19, 100 is nice -20.
    let nice = [("nice 19", Key::from_prio(139)), ("nice -20", Key::from_prio(100)), ("nice 0", Key::NORMAL)];
    assert_eq!(grant_order(&nice), ["nice 19", "nice -20", "nice 0"]);
    case("K78", "kernel-model");
}

#[test]
fn deadline_tasks_go_by_deadline_also_around_the_wrap() {
    let at = Key::deadline;
    assert_eq!(grant_order(&[("300", at(300)), ("100", at(100)), ("200", at(200))]), ["100", "200", "300"]);
    let wrap = [
        ("after", at(5)),
        ("before", at(u64::MAX - 5)),
        ("at", at(0)),
        ("rt", RT(0)),
        ("normal", Key::NORMAL),
    ];
    assert_eq!(grant_order(&wrap), ["before", "at", "after", "rt", "normal"]);
    case("K79", "kernel-model");
}

#[test]
fn the_owner_runs_at_the_urgency_of_its_top_waiter_and_falls_back_exactly() {
    let machine = Machine::new();
    let lock = machine.mutex();
    let low = machine.spawn("low", Key::NORMAL, section(lock));
    machine.until(low, Event::Mark("in"));
    let (high, high_got) = waiting(machine, "high", RT(10), lock, Wait::interruptible().until(100));
    machine.park(high);
    assert_eq!(low.effective(), RT(10));
    machine.advance(100);
    machine.finish(high);
    assert_eq!(*guard(&high_got), Some(Err(LockError::TimedOut)));
    assert_eq!(low.effective(), Key::NORMAL, "nobody waits any more");
    // The same with another one waiting too.
    let medium = machine.spawn("medium", RT(50), section(lock));
    machine.park(medium);
    assert_eq!(low.effective(), RT(50));
    let (high, _) = waiting(machine, "high again", RT(10), lock, Wait::interruptible().until(200));
    machine.park(high);
    assert_eq!(low.effective(), RT(10));
    machine.advance(100);
    machine.finish(high);
    assert_eq!(low.effective(), RT(50));
    machine.finish(low);
    machine.finish(medium);
    machine.assert_at_rest();
    case("K80", "kernel-model");
}

#[test]
fn deboost_comes_before_the_wake_up() {
    let machine = Machine::new();
    let lock = machine.mutex();
    let low = machine.spawn("low", Key::NORMAL, section(lock));
    machine.until(low, Event::Mark("in"));
    let high = machine.spawn("high", RT(10), section(lock));
    machine.park(high);
    machine.until(low, Event::At(Point::BeforeWake));
    assert_eq!(low.effective(), Key::NORMAL, "the waiter is not awake yet, and the boost is gone");
    assert!(!machine.runnable(high));
    machine.finish(low);
    machine.finish(high);
    machine.assert_at_rest();
}

#[test]
fn time_outs_and_signals_end_the_waits_they_should_and_leave_nothing_behind() {
    let owner_and = |wait: Wait, signal: Signal, time: u64| {
        let machine = Machine::new();
        let lock = machine.mutex();
        let owner = machine.spawn("owner", Key::NORMAL, section(lock));
        machine.until(owner, Event::Mark("in"));
        let (waiter, got) = waiting(machine, "waiter", RT(20), lock, wait);
        machine.until(waiter, Event::At(Point::Queued));
        // To its sleep, or, with a deadline that has passed, to its end.
        if machine.step(waiter, 1) != Event::Done {
            while !matches!(machine.step(waiter, 1), Event::Parked | Event::Mark("got")) {}
        }
        machine.advance(time);
        if signal != Signal::None {
            let sender = machine.spawn("sender", RT(1), move || send(waiter, signal));
            machine.finish(sender);
        }
        if machine.runnable(waiter) {
            while !matches!(machine.step(waiter, 1), Event::Parked | Event::Done) {}
        }
        let early = *guard(&got);
        if early.is_some() {
            assert_eq!(
                inspect::word(lock),
                (inspect::address(owner), false),
                "bit 0 is gone with the waiter"
            );
            assert_eq!(owner.effective(), Key::NORMAL);
        }
        machine.finish(owner);
        machine.finish(waiter);
        machine.assert_at_rest();
        early
    };
    let timed_out = Some(Err(LockError::TimedOut));
    let interrupted = Some(Err(LockError::Interrupted));
    let [any, fatal, none] = [Wait::interruptible(), Wait::killable(), Wait::uninterruptible()];
    assert_eq!(owner_and(any.until(0), Signal::None, 0), timed_out, "a deadline that has passed");
    assert_eq!(owner_and(none.until(7), Signal::None, 6), None, "not yet");
    assert_eq!(owner_and(none.until(7), Signal::None, 7), timed_out);
    assert_eq!(owner_and(any, Signal::Pending, 0), interrupted);
    assert_eq!(owner_and(any, Signal::Fatal, 0), interrupted);
    assert_eq!(owner_and(fatal, Signal::Pending, 0), None);
    assert_eq!(owner_and(fatal, Signal::Fatal, 0), interrupted);
    assert_eq!(owner_and(none, Signal::Pending, 0), None);
    assert_eq!(owner_and(none, Signal::Fatal, 0), None);
    assert_eq!(owner_and(any.until(5), Signal::Pending, 5), timed_out, "the deadline beats the signal");
    case("K85", "kernel-model");
}

#[test]
fn a_grant_that_races_with_the_time_out_wins() {
    let machine = Machine::new();
    let lock = machine.mutex();
    let owner = machine.spawn("owner", Key::NORMAL, section(lock));
    machine.until(owner, Event::Mark("in"));
    let (waiter, got) = waiting(machine, "waiter", RT(20), lock, Wait::interruptible().until(10));
    machine.park(waiter);
    machine.advance(10);
    machine.until(waiter, Event::At(Point::Awake));
    machine.finish(owner);
    let sender = machine.spawn("sender", RT(1), move || send(waiter, Signal::Pending));
    machine.finish(sender);
    machine.until(waiter, Event::Mark("got"));
    assert_eq!(*guard(&got), Some(Ok(())), "taking beats both");
    assert_eq!(inspect::word(lock), (inspect::address(waiter), false));
    machine.finish(waiter);
    machine.assert_at_rest();
    case("K85", "kernel-model");
}

/// An owner hands a lock to a waiter at `waiter`; before that one runs, a task at `stealer` tries. Does it get the lock?
fn steals(spin: bool, waiter: Key, stealer: Key) -> bool {
    let machine = Machine::new();
    let mutex = machine.mutex();
    let spinlock = machine.spinlock();
    let lock = move || if spin { spinlock.lock() } else { mutex.lock() };
    let try_lock = move || if spin { spinlock.try_lock() } else { mutex.try_lock() };
    // SAFETY: called by the owner only.
    let unlock = move || unsafe { if spin { spinlock.unlock() } else { mutex.unlock() } };
    let section = move || {
        op(lock);
        mark("in");
        op(unlock);
    };
    let owner = machine.spawn("owner", Key::NORMAL, section);
    machine.until(owner, Event::Mark("in"));
    let waiting = machine.spawn("waiter", waiter, section);
    machine.park(waiting);
    machine.finish(owner);
    let got = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&got);
    let thief = machine.spawn("stealer", stealer, move || {
        let taken = op(try_lock);
        flag.store(taken, Relaxed);
        mark("tried");
        if taken {
            op(unlock);
        }
    });
    machine.until(thief, Event::Mark("tried"));
    if got.load(Relaxed) {
        // The robbed one comes too late, waits again, and boosts the thief if it is more urgent.
        machine.park(waiting);
    }
    machine.finish(thief);
    machine.finish(waiting);
    machine.assert_at_rest();
    got.load(Relaxed)
}

#[test]
fn who_may_take_a_lock_that_was_handed_to_another() {
    assert!(steals(false, RT(30), RT(10)), "strictly more urgent");
    assert!(!steals(false, RT(30), RT(30)), "equal");
    assert!(!steals(false, RT(30), RT(40)), "less urgent");
    assert!(!steals(false, Key::NORMAL, Key::NORMAL), "equal, not real-time, but a mutex");
    assert!(steals(true, RT(30), RT(10)));
    assert!(steals(true, Key::NORMAL, Key::NORMAL), "equal, not real-time, a spinlock");
    assert!(!steals(true, RT(30), RT(30)), "equal, real-time");
    assert!(!steals(true, Key::deadline(5), Key::deadline(5)), "equal deadlines");
    assert!(!steals(true, RT(30), Key::NORMAL));
    case("K86", "kernel-model");
}

#[test]
fn the_stealer_takes_over_the_waiters_it_passed() {
    let machine = Machine::new();
    let lock = machine.mutex();
    let owner = machine.spawn("owner", Key::NORMAL, section(lock));
    machine.until(owner, Event::Mark("in"));
    let waiters: Vec<T> = [40, 30, 35].map(|p| machine.spawn("w", RT(p), section(lock))).into();
    for waiter in &waiters {
        machine.park(waiter);
    }
    machine.finish(owner);
    let thief = machine.spawn("thief", RT(20), section(lock));
    machine.until(thief, Event::Mark("in"));
    // Its own urgency drops now: the waiters it took over keep it up.
    let changer = machine.spawn("changer", RT(1), move || thief.set_base(Key::NORMAL));
    machine.finish(changer);
    assert_eq!(thief.effective(), RT(30));
    machine.finish(thief);
    for i in [1, 2, 0] {
        machine.until(waiters[i], Event::Mark("in"));
        machine.finish(waiters[i]);
    }
    machine.assert_at_rest();
}

/// Two waiters time out while the owner unlocks, in many interleavings.
#[test]
fn leaving_the_queue_never_brings_back_a_former_owner() {
    let mut stopped_in_window = 0;
    for seed in 1..=600 {
        let mut random = Random::new(seed);
        let machine = Machine::new();
        let lock = machine.mutex();
        let owner = machine.spawn("owner", Key::NORMAL, section(lock));
        machine.until(owner, Event::Mark("in"));
        let (a, got_a) = waiting(machine, "a", RT(20), lock, Wait::interruptible().until(1));
        let (b, got_b) = waiting(machine, "b", RT(30), lock, Wait::interruptible().until(1));
        machine.park(a);
        machine.park(b);
        machine.advance(1);
        // The owner finds bit 0 set.
        machine.until(owner, Event::At(Point::SlowUnlock));
        let mut left = vec![a, b, owner];
        while !left.is_empty() {
            let i = random.below(left.len());
            let event = machine.step(left[i], 1 + random.below(6) as u32);
            stopped_in_window += u32::from(event == Event::At(Point::UnlockWindow));
            left.retain(|&task| machine.last(task) != Event::Done);
        }
        for got in [got_a, got_b] {
            assert!(guard(&got).is_some());
        }
        machine.assert_at_rest();
    }
    assert!(stopped_in_window > 10, "the window between the cleared bit and the cleared owner was hit");
    case("K88", "kernel-model");
}

#[test]
fn a_waiter_spins_as_long_as_the_owner_runs_and_it_is_the_top_one() {
    // The owner runs: taken without sleep.
    let machine = Machine::new();
    let lock = machine.mutex();
    let owner = machine.spawn("owner", Key::NORMAL, section(lock));
    owner.data().on_cpu.store(true, Relaxed);
    machine.until(owner, Event::Mark("in"));
    let waiter = machine.spawn("waiter", RT(20), section(lock));
    for _ in 0..5 {
        machine.until(waiter, Event::At(Point::Spin));
    }
    machine.finish(owner);
    machine.until(waiter, Event::Mark("in"));
    assert_eq!(waiter.data().parks.load(Relaxed), 0, "it never slept");
    machine.finish(waiter);
    machine.assert_at_rest();

    // The owner is descheduled; somebody more urgent comes; another task is due; the deadline passes.
    let stop: [fn(&'static Machine, T, T, M); 4] = [
        |_, owner, _, _| owner.data().on_cpu.store(false, Relaxed),
        |machine, _, _, lock| {
            let first = machine.spawn("more urgent", RT(10), section(lock));
            machine.until(first, Event::At(Point::Spin));
        },
        |_, _, waiter, _| waiter.data().need_resched.store(true, Relaxed),
        |machine, _, _, _| machine.advance(50),
    ];
    for (i, stop) in stop.into_iter().enumerate() {
        let machine = Machine::new();
        let lock = machine.mutex();
        let owner = machine.spawn("owner", Key::NORMAL, section(lock));
        owner.data().on_cpu.store(true, Relaxed);
        machine.until(owner, Event::Mark("in"));
        let (waiter, got) = waiting(machine, "waiter", RT(20), lock, Wait::interruptible().until(50));
        machine.until(waiter, Event::At(Point::Spin));
        stop(machine, owner, waiter, lock);
        if i == 3 {
            machine.finish(waiter);
            assert_eq!(*guard(&got), Some(Err(LockError::TimedOut)));
        } else {
            machine.park(waiter);
        }
        owner.data().on_cpu.store(false, Relaxed);
        for task in machine.tasks() {
            if machine.runnable(task) {
                machine.finish(task);
            }
        }
        for task in machine.tasks() {
            machine.finish(task);
        }
        machine.assert_at_rest();
    }
    case("K89", "kernel-model");
}

#[test]
fn after_the_hand_over_nothing_touches_the_lock() {
    // The releaser is stopped where it has done all it may do to the lock; the lock is then taken, given back and freed by
    // others; the releaser goes on.
    for waiters in 0..2_u8 {
        let machine = Machine::new();
        let lock = machine.mutex();
        let a = machine.spawn("a", RT(50), section(lock));
        machine.until(a, Event::Mark("in"));
        let b = machine.spawn("b", RT(40), section(lock));
        if waiters == 1 {
            machine.park(b);
            machine.until(a, Event::At(Point::BeforeWake));
            // b wakes by itself, takes the lock, gives it back.
            let waker = machine.spawn("waker", RT(1), move || assert!(b.wake(Wake::Normal)));
            machine.finish(waker);
        } else {
            // Somebody looked at the lock, so the unlock takes the slow path; it is stopped before its last store.
            let c = machine.spawn("c", RT(45), move || {
                let _ = op(|| lock.lock_with(Wait::interruptible().until(0)));
            });
            machine.until(c, Event::At(Point::Queued));
            machine.until(a, Event::RawLock);
            machine.finish(c);
            machine.until(a, Event::At(Point::UnlockWindow));
            assert_eq!(machine.step(a, 1), Event::Done, "nothing comes after that store");
        }
        machine.finish(b);
        machine.forget_locks();
        let memory = std::ptr::from_ref(lock).cast_mut().cast::<u8>();
        // SAFETY: leaked above, and nobody uses it as a lock any more; raw locks notice the pattern.
        unsafe { memory.write_bytes(0xa5, size_of_val(lock)) };
        machine.finish(a);
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(memory, size_of_val(lock)) };
        assert!(bytes.iter().all(|&byte| byte == 0xa5), "freed memory was written");
    }
}
