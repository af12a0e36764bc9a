// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! A deterministic scheduler: each task is a thread, exactly one of which runs, and a controller, the test itself, says
//! which and how far. Tasks stop only at named points: each step of the algorithm, each raw lock taken or released, each
//! sleep. The invariants are checked at each of them, by whoever runs, while everybody else stands still.
//!
//! Which task runs next is the test's choice, not that of priorities: the model has as many processors as tasks, and all
//! interleavings at the points are possible. What urgency a task has is observed, not acted upon.

mod check;
mod sched;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use fastpath_rtmutex::kernel::{
    Key, Point, RawMutex, RwLock, RwSemaphore, Signal, SpinLock, Task, WwMutex, inspect,
};

pub use check::Watched;
pub use sched::Model;

/// A place where a task can stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A point inside the algorithm.
    At(Point),
    /// Just before a raw lock is taken.
    RawLock,
    /// A raw lock is held by another: nothing to do but to wait.
    Contended,
    /// Just after a raw lock was released.
    RawUnlock,
    /// A turn of a spinning loop.
    Relax,
    /// Asleep.
    Parked,
    /// A place the test's own program names.
    Mark(&'static str),
    /// The program has ended.
    Done,
}

/// How far a task may run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Leash {
    /// So many points.
    Points(u32),
    /// To this event, or to where it cannot go on.
    Until(Event),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    Controller,
    Task,
}

#[derive(Debug)]
struct Course {
    turn: Turn,
    leash: Leash,
    last: Event,
    deadline: Option<u64>,
    token: bool,
    panic: Option<String>,
}

/// What the model keeps in each task.
pub struct Data {
    pub name: &'static str,
    machine: &'static Machine,
    course: Mutex<Course>,
    turned: Condvar,
    signal: Mutex<Signal>,
    pub on_cpu: AtomicBool,
    pub need_resched: AtomicBool,
    raw_locks: AtomicU32,
    preempt_off: AtomicU32,
    holds: AtomicU32,
    /// In the middle of a lock operation and not asleep in it.
    busy: AtomicU32,
    /// How often it slept.
    pub parks: AtomicU32,
    /// The urgency the scheduler was last told.
    runs_at: Mutex<Key>,
}

/// A task of the model.
pub type T = &'static Task<Model>;

/// The machine: tasks, locks, time.
pub struct Machine {
    tasks: Mutex<Vec<T>>,
    watched: Mutex<Vec<Watched>>,
    clock: AtomicU64,
    pub max_depth: AtomicUsize,
    pub depth_report: fastpath_rtmutex::kernel::DepthReport,
    pub depth_messages: AtomicU32,
    pub deadlocks: AtomicU32,
    /// Points passed, all tasks together.
    pub points: AtomicU64,
    /// Slow paths entered.
    pub slow_locks: AtomicU32,
    pub slow_unlocks: AtomicU32,
    /// Turns of chain walks.
    pub walk_turns: AtomicU32,
    /// Most raw locks one task held.
    pub most_raw_locks: AtomicU32,
    /// Changes of urgency under way, whose walks the oracle has to wait for.
    pub changing: AtomicU32,
    /// The depth limit or a deadlock cut a walk short: boosts may rightly be missing.
    pub truncated: AtomicBool,
    /// Oracle comparisons made.
    pub compared: AtomicU64,
    pub log: Mutex<VecDeque<(u64, &'static str, Event)>>,
    /// For the suite: words and locks.
    pub words: [AtomicU32; 16],
    pub locks: Mutex<Vec<&'static RawMutex<Model>>>,
}

/// A lock that must not fail because a test thread panicked elsewhere.
pub fn guard<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Machine {
    /// An empty machine. Machines and what they own are never freed: blocked threads may refer to them for ever.
    pub fn new() -> &'static Self {
        Box::leak(Box::new(Self {
            tasks: Mutex::default(),
            watched: Mutex::default(),
            clock: AtomicU64::new(0),
            max_depth: AtomicUsize::new(1024),
            depth_report: fastpath_rtmutex::kernel::DepthReport::new(),
            depth_messages: AtomicU32::new(0),
            deadlocks: AtomicU32::new(0),
            points: AtomicU64::new(0),
            slow_locks: AtomicU32::new(0),
            slow_unlocks: AtomicU32::new(0),
            walk_turns: AtomicU32::new(0),
            most_raw_locks: AtomicU32::new(0),
            changing: AtomicU32::new(0),
            truncated: AtomicBool::new(false),
            compared: AtomicU64::new(0),
            log: Mutex::default(),
            words: Default::default(),
            locks: Mutex::default(),
        }))
    }

    fn watch<L: inspect::Inspect<Model> + Sync>(&self, lock: &'static L) {
        guard(&self.watched).push(Watched::new(lock));
    }

    /// Watches no lock any more: for tests that free one.
    pub fn forget_locks(&self) {
        guard(&self.watched).clear();
    }

    pub fn mutex(&self) -> &'static RawMutex<Model> {
        let lock = Box::leak(Box::new(RawMutex::new()));
        self.watch(lock);
        lock
    }

    pub fn spinlock(&self) -> &'static SpinLock<Model> {
        let lock = Box::leak(Box::new(SpinLock::new()));
        self.watch(lock);
        lock
    }

    pub fn rw_semaphore(&self) -> &'static RwSemaphore<Model> {
        let lock: &'static RwSemaphore<Model> = Box::leak(Box::new(RwSemaphore::new()));
        self.watch(lock.base());
        lock
    }

    pub fn rw_lock(&self) -> &'static RwLock<Model> {
        let lock: &'static RwLock<Model> = Box::leak(Box::new(RwLock::new()));
        self.watch(lock.base());
        lock
    }

    pub fn ww_mutex(&self) -> &'static WwMutex<Model> {
        let lock = Box::leak(Box::new(WwMutex::new()));
        self.watch(lock);
        lock
    }

    /// A task that runs nothing: for proxy locking, or as an owner by name.
    pub fn idle(&'static self, name: &'static str, key: Key) -> T {
        let data = Data {
            name,
            machine: self,
            course: Mutex::new(Course {
                turn: Turn::Controller,
                leash: Leash::Points(0),
                last: Event::Mark("new"),
                deadline: None,
                token: false,
                panic: None,
            }),
            turned: Condvar::new(),
            signal: Mutex::new(Signal::None),
            on_cpu: AtomicBool::new(false),
            need_resched: AtomicBool::new(false),
            raw_locks: AtomicU32::new(0),
            preempt_off: AtomicU32::new(0),
            holds: AtomicU32::new(0),
            busy: AtomicU32::new(0),
            parks: AtomicU32::new(0),
            runs_at: Mutex::new(key),
        };
        let task: T = Box::leak(Box::new(Task::new(key, data)));
        guard(&self.tasks).push(task);
        task
    }

    /// A task with a program, which begins when it is first let run.
    pub fn spawn(&'static self, name: &'static str, key: Key, program: impl FnOnce() + Send + 'static) -> T {
        let task = self.idle(name, key);
        std::thread::Builder::new()
            .name(name.into())
            .stack_size(256 * 1024)
            .spawn(move || {
                sched::become_task(task);
                task.data().wait_turn();
                let result = catch_unwind(AssertUnwindSafe(program));
                if let Err(panic) = result {
                    let text = panic.downcast_ref::<String>().cloned();
                    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_string()));
                    guard(&task.data().course).panic = Some(text.unwrap_or_else(|| "a panic".into()));
                }
                let mut course = guard(&task.data().course);
                course.last = Event::Done;
                course.turn = Turn::Controller;
                task.data().turned.notify_all();
            })
            .expect("a thread can be made");
        task
    }

    /// Time now.
    pub fn now(&self) -> u64 {
        self.clock.load(Relaxed)
    }

    /// Lets time pass.
    pub fn advance(&self, by: u64) {
        self.clock.fetch_add(by, Relaxed);
    }

    /// Lets `task` go on for `points` points, or less if it cannot. Returns where it is.
    pub fn step(&self, task: T, points: u32) -> Event {
        task.data().resume(Leash::Points(points))
    }

    /// Lets `task` go on until `event`, and requires that it gets there.
    #[track_caller]
    pub fn until(&self, task: T, event: Event) {
        let got = task.data().resume(Leash::Until(event));
        assert_eq!(got, event, "{} was to reach this", task.data().name);
    }

    /// Lets `task` run to its end.
    #[track_caller]
    pub fn finish(&self, task: T) {
        self.until(task, Event::Done);
    }

    /// Lets `task` run until it sleeps.
    #[track_caller]
    pub fn park(&self, task: T) {
        self.until(task, Event::Parked);
    }

    /// Where `task` is.
    pub fn last(&self, task: T) -> Event {
        guard(&task.data().course).last
    }

    /// Could `task` go on?
    pub fn runnable(&self, task: T) -> bool {
        let course = guard(&task.data().course);
        match course.last {
            Event::Done => false,
            Event::Parked => course.token || course.deadline.is_some_and(|at| self.now() >= at),
            _ => true,
        }
    }

    /// The earliest deadline of a sleeper.
    pub fn next_deadline(&self) -> Option<u64> {
        let tasks = guard(&self.tasks);
        let courses = tasks.iter().map(|task| guard(&task.data().course));
        courses.filter(|course| course.last == Event::Parked).filter_map(|course| course.deadline).min()
    }

    /// All tasks.
    pub fn tasks(&self) -> Vec<T> {
        guard(&self.tasks).clone()
    }

    /// Lets `tasks` run to their ends in an order that `random` chooses; time passes when nobody can run otherwise.
    #[track_caller]
    pub fn random_run(&self, random: &mut Random, tasks: &[T]) {
        self.random_run_with(random, tasks, None);
    }

    /// The same with one more task beside, whose end nobody waits for.
    #[track_caller]
    pub fn random_run_beside(&self, random: &mut Random, tasks: &[T], beside: T) {
        self.random_run_with(random, tasks, Some(beside));
    }

    #[track_caller]
    fn random_run_with(&self, random: &mut Random, tasks: &[T], beside: Option<T>) {
        loop {
            let mut able: Vec<T> = tasks.iter().copied().filter(|task| self.runnable(task)).collect();
            if tasks.iter().all(|task| self.last(task) == Event::Done) {
                return;
            }
            let midway = |task: &T| self.runnable(task) && task.data().busy.load(Relaxed) > 0;
            if let Some(beside) = beside.filter(|task| !able.is_empty() || midway(task)) {
                able.push(beside);
            }
            if able.is_empty() {
                let Some(at) = self.next_deadline() else {
                    let places: Vec<_> =
                        tasks.iter().map(|task| (task.data().name, self.last(task))).collect();
                    panic!("nobody can run: {places:?}; the way here: {:?}", guard(&self.log));
                };
                self.clock.fetch_max(at, Relaxed);
                continue;
            }
            let task = able[random.below(able.len())];
            // Mostly a few points, sometimes many: both tight races and long runs.
            let points = if random.once_in(8) { 60 } else { 1 + random.below(8) as u32 };
            self.step(task, points);
            if random.once_in(16) {
                self.advance(1);
            }
        }
    }

    /// All tasks are back where they began: not boosted, not queued, nothing held on to.
    #[track_caller]
    pub fn assert_at_rest(&self) {
        for task in self.tasks() {
            let data = task.data();
            assert_eq!(task.effective(), task.base(), "{} is back to normal", data.name);
            assert!(!task.is_blocked(), "{} waits for nothing", data.name);
            assert_eq!(data.holds.load(Relaxed), 0, "{}: as many put_task as get_task", data.name);
            assert_eq!(data.preempt_off.load(Relaxed), 0, "{}: preemption is on", data.name);
        }
        for watched in guard(&self.watched).iter() {
            assert_eq!(watched.word(), (std::ptr::null(), false), "a free lock's word is 0");
        }
    }
}

impl Data {
    /// Where the task lives.
    pub fn machine(&self) -> &'static Machine {
        self.machine
    }

    fn wait_turn(&self) {
        let mut course = guard(&self.course);
        while course.turn != Turn::Task {
            course = self.turned.wait(course).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn resume(&self, leash: Leash) -> Event {
        let mut course = guard(&self.course);
        if course.last == Event::Done {
            return Event::Done;
        }
        course.leash = leash;
        course.turn = Turn::Task;
        self.turned.notify_all();
        while course.turn != Turn::Controller {
            course = self.turned.wait(course).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(panic) = course.panic.take() {
            drop(course);
            panic!("task {}: {panic}", self.name);
        }
        course.last
    }

    /// The task is at `event`: hands over to the controller if that is where it was to stop.
    fn reach(&self, event: Event) {
        let mut course = guard(&self.course);
        course.last = event;
        let stop = match &mut course.leash {
            Leash::Points(left) => {
                *left = left.saturating_sub(1);
                *left == 0
            }
            Leash::Until(wanted) => *wanted == event,
        };
        if stop || matches!(event, Event::Contended | Event::Parked) {
            course.turn = Turn::Controller;
            self.turned.notify_all();
            while course.turn != Turn::Task {
                course = self.turned.wait(course).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// Runs `f` under the name of `task`, which has no thread of its own.
pub fn lend(task: T, f: impl FnOnce()) {
    sched::lend(task, f);
}

/// A named place in a test's program.
pub fn mark(name: &'static str) {
    sched::at(Event::Mark(name));
}

/// Runs a lock operation: tells the oracle that the task's state is in motion until it returns, except while it sleeps.
pub fn op<R>(f: impl FnOnce() -> R) -> R {
    sched::op(f)
}

/// Signals `task`: call it from a task of the model, or while none holds raw locks.
pub fn send(task: T, signal: Signal) {
    *guard(&task.data().signal) = signal;
    task.interrupt();
}

/// A small generator: the same trace for the same seed, on every machine.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % n as u64) as usize
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}
