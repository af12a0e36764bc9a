// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The model as the algorithm sees it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use fastpath_rtmutex::kernel::{Key, Native, Point, RawSpin, Scheduler, Signal, Task};

use super::{Data, Event, Machine, T, check, guard};

thread_local! {
    static CURRENT: Cell<Option<T>> = const { Cell::new(None) };
    static LENT: Cell<Option<T>> = const { Cell::new(None) };
    /// The invariants are being checked: what that does is not an event.
    static CHECKING: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread is `task` from here on.
pub fn become_task(task: T) {
    CURRENT.set(Some(task));
}

/// See `model::lend`. Events go to the thread's own task.
pub fn lend(task: T, f: impl FnOnce()) {
    LENT.set(Some(task));
    f();
    LENT.set(None);
}

/// The most points one task may pass: more is a livelock.
const LIVELOCK: u64 = 3_000_000;

/// An event of the calling task: checks the invariants, then stops if asked to.
pub fn at(event: Event) {
    let Some(task) = CURRENT.get() else { return };
    if CHECKING.get() {
        return;
    }
    let machine = task.data().machine;
    count(machine, event);
    let mut log = guard(&machine.log);
    if log.len() == 60 {
        log.pop_front();
    }
    let n = machine.points.fetch_add(1, Relaxed);
    log.push_back((n, task.data().name, event));
    drop(log);
    assert!(n < LIVELOCK, "livelock: {:?}", guard(&machine.log));
    CHECKING.set(true);
    check::invariants(machine);
    CHECKING.set(false);
    task.data().reach(event);
}

fn count(machine: &Machine, event: Event) {
    let counter = match event {
        Event::At(Point::SlowLock) => &machine.slow_locks,
        Event::At(Point::SlowUnlock) => &machine.slow_unlocks,
        Event::At(Point::Walk(1)) => &machine.walk_turns,
        _ => return,
    };
    counter.fetch_add(1, Relaxed);
}

/// See `model::op`.
pub fn op<R>(f: impl FnOnce() -> R) -> R {
    let data = CURRENT.get().expect("operations are done by tasks").data();
    data.busy.fetch_add(1, Relaxed);
    let result = f();
    data.busy.fetch_sub(1, Relaxed);
    result
}

/// A raw lock of the model: knows who holds how many, and notices use after death (any value but 0 and 1).
#[derive(Debug)]
pub struct RawLock {
    held: AtomicU8,
}

// SAFETY: only one thread runs at a time, and the turn is handed over by a mutex.
unsafe impl RawSpin for RawLock {
    const UNLOCKED: Self = Self { held: AtomicU8::new(0) };

    fn lock(&self) {
        at(Event::RawLock);
        while !self.try_lock() {
            assert!(CURRENT.get().is_some(), "the controller met a held raw lock");
            at(Event::Contended);
        }
    }

    fn try_lock(&self) -> bool {
        let was = self.held.swap(1, Relaxed);
        assert!(was <= 1, "the memory of a freed lock was touched");
        if was == 1 {
            return false;
        }
        if let Some(task) = CURRENT.get()
            && !CHECKING.get()
        {
            let n = task.data().raw_locks.fetch_add(1, Relaxed) + 1;
            assert!(n <= 2, "never more than two raw locks (5.14, 9)");
            task.data().machine.most_raw_locks.fetch_max(n, Relaxed);
        }
        true
    }

    unsafe fn unlock(&self) {
        assert_eq!(self.held.swap(0, Relaxed), 1, "only a held lock is released");
        if let Some(task) = CURRENT.get()
            && !CHECKING.get()
        {
            task.data().raw_locks.fetch_sub(1, Relaxed);
        }
        at(Event::RawUnlock);
    }
}

/// The model scheduler.
#[derive(Debug)]
pub struct Model;

fn current() -> T {
    LENT.get().or(CURRENT.get()).expect("only tasks use locks")
}

// SAFETY: `current` is the thread's own task; tasks are never freed; interrupts do not exist; `park` consumes a token under
// the task's own mutex.
unsafe impl Scheduler for Model {
    type RawLock = RawLock;
    type Owner = Native<Task<Self>>;
    type Irq = ();
    type Data = Data;

    fn current() -> T {
        current()
    }
    fn irq_save() {}
    fn irq_restore((): ()) {}
    fn preempt_disable() {
        current().data().preempt_off.fetch_add(1, Relaxed);
    }
    fn preempt_enable() {
        current().data().preempt_off.fetch_sub(1, Relaxed);
    }

    fn park(deadline: Option<u64>) {
        let data = current().data();
        assert_eq!(data.raw_locks.load(Relaxed), 0, "nobody sleeps with a raw lock");
        assert_eq!(data.preempt_off.load(Relaxed), 0, "nobody sleeps with preemption off");
        let busy = data.busy.swap(0, Relaxed);
        data.parks.fetch_add(1, Relaxed);
        loop {
            let mut course = guard(&data.course);
            if std::mem::take(&mut course.token) || deadline.is_some_and(|at| data.machine.now() >= at) {
                course.deadline = None;
                course.last = Event::Mark("awake");
                break;
            }
            course.deadline = deadline;
            drop(course);
            at(Event::Parked);
        }
        data.busy.store(busy, Relaxed);
    }

    fn unpark(task: T) {
        guard(&task.data().course).token = true;
    }

    fn now() -> u64 {
        current().data().machine.now()
    }

    fn signal(task: &Task<Self>) -> Signal {
        *guard(&task.data().signal)
    }

    fn priority_changed(task: T, key: Key) {
        *guard(&task.data().runs_at) = key;
    }

    fn on_cpu(task: &Task<Self>) -> bool {
        task.data().on_cpu.load(Relaxed)
    }
    fn need_resched() -> bool {
        current().data().need_resched.load(Relaxed)
    }
    fn relax() {
        at(Event::Relax);
    }

    fn max_depth() -> usize {
        current().data().machine.max_depth.load(Relaxed)
    }
    fn depth_exceeded(task: &Task<Self>, limit: usize) {
        let machine = task.data().machine;
        machine.truncated.store(true, Relaxed);
        if machine.depth_report.first_time(limit) {
            machine.depth_messages.fetch_add(1, Relaxed);
        }
    }
    fn deadlock(task: &Task<Self>) {
        let machine = task.data().machine;
        machine.deadlocks.fetch_add(1, Relaxed);
    }

    fn get_task(task: T) {
        task.data().holds.fetch_add(1, Relaxed);
    }
    fn put_task(task: T) {
        let before = task.data().holds.fetch_sub(1, Relaxed);
        assert!(before > 0, "put_task without get_task");
    }

    fn at(point: Point) {
        at(Event::At(point));
    }
}
