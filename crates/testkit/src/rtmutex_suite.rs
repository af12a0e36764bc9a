// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The contract of a priority-inheriting mutex on a kernel with a scheduler of its own: the same functions run on the
//! host's model and inside the bare-metal images.
//!
//! Each function is one test. It is called by a task that is less urgent than all it makes, and returns when those have
//! ended, or panics. It does not know the lock's insides, only what tasks see.

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The task owns the lock.
    Taken,
    /// The time ran out.
    TimedOut,
    /// Waiting would never have ended.
    Deadlock,
}

/// A kernel under test: tasks with urgencies (lower is more urgent, 99 is the least), locks by number, time in ticks.
pub trait Kernel: 'static {
    /// A name of a task.
    type Task: Copy;
    /// Does exactly one task run at a time, always the most urgent one that is ready? Then inversion can be measured.
    const STRICT: bool;
    /// Urgency at which the suite's functions are called. Less urgent than all tasks they make.
    const CALLER: u8 = 99;

    /// Makes a task that runs `program` with `argument`. It may run before this returns.
    fn spawn(urgency: u8, program: fn(usize), argument: usize) -> Self::Task;
    /// Sleeps until all tasks made by `spawn` have ended.
    fn join_all();
    /// The calling task sleeps this long: others may run.
    fn sleep(ticks: u32);
    /// The calling task.
    fn current() -> Self::Task;
    /// Does the task wait for a lock?
    fn is_blocked(task: Self::Task) -> bool;
    /// The urgency the task runs at.
    fn effective(task: Self::Task) -> u8;
    /// Changes the urgency the task has by itself.
    fn set_base(task: Self::Task, urgency: u8);

    /// Takes lock number `lock`, of 8 that are free when a test begins.
    fn lock(lock: usize);
    /// Takes it, or gives up after so many ticks, or at a deadlock.
    fn lock_within(lock: usize, ticks: u32) -> Outcome;
    /// Takes it if it is free.
    fn try_lock(lock: usize) -> bool;
    /// Gives it back. The calling task owns it.
    fn unlock(lock: usize);
    /// Does somebody own it?
    fn is_locked(lock: usize) -> bool;

    /// Shared words 0 to 15, which are 0 when a test begins.
    fn get(word: usize) -> u32;
    /// Stores into one.
    fn set(word: usize, value: u32);
}

/// A test by name.
pub type Test = (&'static str, fn());

/// All tests, in order.
pub fn tests<K: Kernel>() -> [Test; 8] {
    [
        ("uncontended", uncontended::<K>),
        ("exclusion", exclusion::<K>),
        ("order", order::<K>),
        ("boost", boost::<K>),
        ("chain", chain::<K>),
        ("deadlock", deadlock::<K>),
        ("time_out", time_out::<K>),
        ("inversion", inversion::<K>),
    ]
}

/// Sleeps until `ready`.
fn until<K: Kernel>(ready: impl Fn() -> bool) {
    let mut turns = 0_u32;
    while !ready() {
        K::sleep(1);
        turns += 1;
        assert!(turns < 1_000_000, "what is waited for never comes");
    }
}

/// Makes a task and sleeps until it waits for a lock.
fn blocked<K: Kernel>(urgency: u8, program: fn(usize), argument: usize) -> K::Task {
    let task = K::spawn(urgency, program, argument);
    until::<K>(|| K::is_blocked(task));
    task
}

/// Locks and unlocks lock `lock`.
fn section<K: Kernel>(lock: usize) {
    K::lock(lock);
    K::unlock(lock);
}

/// K75, K77: a free lock is taken and given back; a held one is not taken by `try_lock`.
fn uncontended<K: Kernel>() {
    for _ in 0..100 {
        assert!(!K::is_locked(0));
        K::lock(0);
        assert!(K::is_locked(0));
        assert!(!K::try_lock(0), "not twice");
        K::unlock(0);
    }
    assert!(K::try_lock(0));
    K::unlock(0);
    assert!(!K::is_locked(0));
    assert_eq!(K::effective(K::current()), K::CALLER);
}

/// Four tasks count under the lock, with a read and a write of their own, and sleep in the middle.
fn exclusion<K: Kernel>() {
    fn count<K: Kernel>(n: usize) {
        for i in 0..20 {
            K::lock(0);
            let before = K::get(0);
            if (i + n).is_multiple_of(5) {
                K::sleep(1);
            }
            K::set(0, before + 1);
            K::unlock(0);
        }
    }
    for n in 0..4 {
        K::spawn(40 + n as u8, count::<K>, n);
    }
    K::join_all();
    assert_eq!(K::get(0), 80, "an increment was lost");
    assert!(!K::is_locked(0));
}

/// K78: by urgency, then by arrival.
fn order<K: Kernel>() {
    fn write<K: Kernel>(n: usize) {
        K::lock(0);
        let at = K::get(0) as usize;
        K::set(1 + at, n as u32);
        K::set(0, at as u32 + 1);
        K::unlock(0);
    }
    K::lock(0);
    for (n, urgency) in [50, 10, 30, 10, 50].into_iter().enumerate() {
        blocked::<K>(urgency, write::<K>, n);
    }
    assert_eq!(K::effective(K::current()), 10);
    K::unlock(0);
    K::join_all();
    let order = [1, 2, 3, 4, 5].map(K::get);
    assert_eq!(order, [1, 3, 2, 0, 4]);
}

/// K80, R25: the owner of three locks runs at the urgency of those it holds up, whatever it gives back first.
fn boost<K: Kernel>() {
    let me = K::current();
    for lock in 0..3 {
        K::lock(lock);
    }
    for (lock, urgency) in [(0, 30), (1, 10), (2, 20)] {
        blocked::<K>(urgency, section::<K>, lock);
    }
    assert_eq!(K::effective(me), 10);
    K::unlock(0);
    assert_eq!(K::effective(me), 10, "the most urgent one still waits");
    K::unlock(1);
    assert_eq!(K::effective(me), 20);
    K::unlock(2);
    assert_eq!(K::effective(me), K::CALLER);
    K::join_all();
}

/// K81, K82: urgency travels along a chain, and back; a change of the last waiter's urgency travels too.
fn chain<K: Kernel>() {
    fn link<K: Kernel>(lock: usize) {
        K::lock(lock + 1);
        K::lock(lock);
        K::unlock(lock);
        K::unlock(lock + 1);
    }
    K::lock(0);
    let links = [60, 55, 50].map(|urgency| (urgency, usize::from(60 - urgency) / 5));
    let tasks = links.map(|(urgency, lock)| blocked::<K>(urgency, link::<K>, lock));
    let last = blocked::<K>(20, section::<K>, 3);
    let all = |urgency| {
        assert_eq!(tasks.map(K::effective), [urgency; 3]);
        assert_eq!(K::effective(K::current()), urgency);
    };
    all(20);
    K::set_base(last, 10);
    all(10);
    K::set_base(last, 45);
    all(45);
    K::set_base(last, 70);
    assert_eq!(tasks.map(K::effective), [50; 3], "each has its own or the next one's");
    K::unlock(0);
    assert_eq!(K::effective(K::current()), K::CALLER);
    K::join_all();
}

/// K83: whoever closes a ring is told.
fn deadlock<K: Kernel>() {
    fn other<K: Kernel>(_: usize) {
        K::lock(1);
        K::lock(0);
        K::unlock(0);
        K::unlock(1);
    }
    K::lock(0);
    assert_eq!(K::lock_within(0, 1000), Outcome::Deadlock, "its own lock");
    let task = blocked::<K>(30, other::<K>, 0);
    assert_eq!(K::lock_within(1, 1000), Outcome::Deadlock);
    assert!(K::is_blocked(task), "the other one goes on waiting");
    K::unlock(0);
    K::join_all();
    assert!(!K::is_locked(0) && !K::is_locked(1));
}

/// K85: a wait that ends without the lock leaves no boost and no trace.
fn time_out<K: Kernel>() {
    fn late<K: Kernel>(lock: usize) {
        assert_eq!(K::lock_within(lock, 3), Outcome::TimedOut);
        K::set(0, K::get(0) + 1);
    }
    K::lock(0);
    blocked::<K>(20, late::<K>, 0);
    until::<K>(|| K::get(0) == 1);
    assert_eq!(K::effective(K::current()), K::CALLER);
    K::unlock(0);
    assert!(!K::is_locked(0), "nobody is left to hand it to");
    assert_eq!(K::lock_within(0, 0), Outcome::Taken, "a free lock is taken however little time there is");
    K::unlock(0);
    K::join_all();
}

/// The reason for it all: a task in the middle does not delay an urgent one that waits for a lock. Only where one task runs
/// at a time.
fn inversion<K: Kernel>() {
    fn urgent<K: Kernel>(_: usize) {
        K::lock(0);
        K::set(1, K::get(0) + 1);
        K::unlock(0);
    }
    fn middle<K: Kernel>(_: usize) {
        for _ in 0..50_000 {
            core::hint::spin_loop();
        }
        K::set(0, K::get(0) + 1);
    }
    if !K::STRICT {
        return;
    }
    K::lock(0);
    // It preempts the caller, waits for the lock, and lends its urgency.
    let task = K::spawn(10, urgent::<K>, 0);
    assert!(K::is_blocked(task));
    // Ready from here on, and more urgent than the caller by itself.
    K::spawn(50, middle::<K>, 0);
    assert_eq!(K::get(0), 0, "the one in the middle has to wait for the owner");
    K::unlock(0);
    K::join_all();
    assert_eq!(K::get(1), 1, "the urgent one was in before the one in the middle ended");
    assert_eq!(K::get(0), 1);
}
