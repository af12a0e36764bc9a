// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Random programs in random interleavings: the invariants at each point, the oracle whenever nothing is under way (R25).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::Relaxed};

use fastpath_rtmutex::kernel::{Key, LockError, RawMutex, Scheduler, Signal, SpinLock, Wait, inspect};
use fastpath_testkit::case;

use crate::model::{Machine, Model, Random, T, mark, op, send};

/// Some urgency: of all three classes, with many equals.
fn key(random: &mut Random) -> Key {
    match random.below(8) {
        0 => Key::NORMAL,
        1 => Key::deadline(random.below(3) as u64),
        _ => Key::realtime(random.below(5) as u8 * 10),
    }
}

/// A lock and who says to be inside.
#[derive(Clone, Copy)]
enum Lock {
    Mutex(&'static RawMutex<Model>, &'static AtomicU32),
    Spin(&'static SpinLock<Model>, &'static AtomicU32),
}

impl Lock {
    fn inside(self) -> &'static AtomicU32 {
        match self {
            Self::Mutex(_, inside) | Self::Spin(_, inside) => inside,
        }
    }

    fn owner(self) -> *const () {
        match self {
            Self::Mutex(lock, _) => inspect::word(lock).0,
            Self::Spin(lock, _) => inspect::word(lock).0,
        }
    }

    /// 7: zero means owner, an error means neither owner nor queued.
    fn check(self, taken: bool) {
        let me = Model::current();
        assert_eq!(self.owner() == inspect::address(me), taken, "7: owner if and only if taken");
        assert!(!me.is_blocked(), "7: nobody is queued after a lock call");
        if taken {
            assert_eq!(self.inside().fetch_add(1, Relaxed), 0, "1: at most one owner");
        }
    }

    fn unlock(self) {
        assert_eq!(self.inside().fetch_sub(1, Relaxed), 1, "1: the owner was alone");
        // SAFETY: `check` says that the calling task owns it.
        op(|| unsafe {
            match self {
                Self::Mutex(lock, _) => lock.unlock(),
                Self::Spin(lock, _) => lock.unlock(),
            }
        });
    }
}

/// What happened, over all traces.
#[derive(Default)]
struct Tally {
    taken: AtomicU32,
    timed_out: AtomicU32,
    interrupted: AtomicU32,
    deadlocks: AtomicU32,
    walked: AtomicU32,
    compared: AtomicU32,
}

impl Tally {
    fn count(&self, result: Result<(), LockError>) -> bool {
        let counter = match result {
            Ok(()) => &self.taken,
            Err(LockError::TimedOut) => &self.timed_out,
            Err(LockError::Interrupted) => &self.interrupted,
            Err(LockError::Deadlock) => &self.deadlocks,
        };
        counter.fetch_add(1, Relaxed);
        result.is_ok()
    }
}

/// Takes and gives back random mutexes in random order, holding several; spinlocks only as the innermost.
fn program(seed: u64, locks: Arc<Vec<Lock>>, tally: Arc<Tally>) -> impl FnOnce() + Send + 'static {
    move || {
        let mut random = Random::new(seed);
        let mut held: Vec<usize> = Vec::new();
        for _ in 0..12 {
            let i = random.below(locks.len());
            if held.contains(&i) || random.once_in(4) {
                if !held.is_empty() {
                    let lock = locks[held.swap_remove(random.below(held.len()))];
                    lock.unlock();
                }
                continue;
            }
            let lock = locks[i];
            let taken = match lock {
                Lock::Mutex(mutex, _) if random.once_in(4) => op(|| mutex.try_lock()),
                Lock::Mutex(mutex, _) => {
                    let wait = match random.below(4) {
                        0 => Wait::interruptible(),
                        1 => Wait::killable(),
                        _ => Wait::uninterruptible(),
                    };
                    // Without a deadline a ring must be found, or the trace would never end.
                    let wait = match random.below(3) {
                        0 => wait.until(Model::now() + random.below(12) as u64),
                        1 => wait.until(Model::now() + random.below(12) as u64).detecting(),
                        _ => wait.detecting(),
                    };
                    tally.count(op(|| mutex.lock_with(wait)))
                }
                Lock::Spin(spin, _) => {
                    if random.once_in(4) {
                        op(|| spin.try_lock())
                    } else {
                        op(|| spin.lock());
                        true
                    }
                }
            };
            lock.check(taken);
            if taken {
                mark("in");
                match lock {
                    Lock::Mutex(..) => held.push(i),
                    Lock::Spin(..) => lock.unlock(),
                }
            }
        }
        for i in held {
            locks[i].unlock();
        }
    }
}

/// Changes urgencies, sends signals, lets time pass, until all others are done.
fn weather(seed: u64, victims: Vec<T>, over: Arc<AtomicBool>) -> impl FnOnce() + Send + 'static {
    move || {
        let mut random = Random::new(seed);
        let machine = Model::current().data().machine();
        while !over.load(Relaxed) {
            let task = victims[random.below(victims.len())];
            match random.below(6) {
                0 | 1 => {
                    let key = key(&mut random);
                    machine.changing.fetch_add(1, Relaxed);
                    op(|| task.set_base(key));
                    machine.changing.fetch_sub(1, Relaxed);
                }
                2 => op(|| send(task, [Signal::None, Signal::Pending, Signal::Fatal][random.below(3)])),
                3 => machine.advance(1),
                _ => {}
            }
            for _ in 0..random.below(30) {
                mark("weather");
            }
        }
    }
}

fn trace(seed: u64, tally: &Arc<Tally>) {
    let mut random = Random::new(seed);
    let machine = Machine::new();
    let mut locks: Vec<Lock> = Vec::new();
    for _ in 0..2 + random.below(4) {
        locks.push(Lock::Mutex(machine.mutex(), Box::leak(Box::default())));
    }
    locks.push(Lock::Spin(machine.spinlock(), Box::leak(Box::default())));
    let locks = Arc::new(locks);
    let tasks: Vec<T> = (0..3 + random.below(3) as u64)
        .map(|n| {
            let key = key(&mut random);
            let task =
                machine.spawn("task", key, program(seed * 100 + n, Arc::clone(&locks), Arc::clone(tally)));
            task.data().on_cpu.store(random.once_in(3), Relaxed);
            task
        })
        .collect();
    let over = Arc::new(AtomicBool::new(false));
    let god = machine.spawn("weather", Key::realtime(0), weather(seed, tasks.clone(), Arc::clone(&over)));
    machine.random_run_beside(&mut random, &tasks, god);
    over.store(true, Relaxed);
    machine.finish(god);
    machine.assert_at_rest();
    for lock in locks.iter() {
        assert_eq!(lock.inside().load(Relaxed), 0);
    }
    tally.walked.fetch_add(machine.walk_turns.load(Relaxed), Relaxed);
    tally.compared.fetch_add(machine.compared.load(Relaxed) as u32, Relaxed);
}

#[test]
fn random_traces_keep_the_invariants_and_agree_with_the_oracle() {
    let tally = Arc::new(Tally::default());
    for seed in 1..=250 {
        let result = std::panic::catch_unwind(|| trace(seed, &tally));
        assert!(result.is_ok(), "seed {seed}");
    }
    let n = |counter: &AtomicU32| counter.load(Relaxed);
    let [taken, late, interrupted] = [&tally.taken, &tally.timed_out, &tally.interrupted].map(n);
    let [deadlocks, walked, compared] = [&tally.deadlocks, &tally.walked, &tally.compared].map(n);
    println!(
        "{taken} taken, {late} late, {interrupted} interrupted, {deadlocks} deadlocks, {walked} turns of walks"
    );
    println!("{compared} comparisons with the oracle");
    assert!(
        taken > 1000 && late > 50 && interrupted > 50 && deadlocks > 20 && walked > 200 && compared > 1000
    );
    case("R25", "kernel-model");
}

#[test]
fn random_readers_and_writers_never_meet() {
    let mut writes = 0;
    for seed in 1..=120 {
        let mut random = Random::new(seed);
        let machine = Machine::new();
        let semaphore = machine.rw_semaphore();
        let lock = machine.rw_lock();
        // Positive: readers; -1: the writer. Of each lock.
        let inside: &'static [AtomicI32; 2] = Box::leak(Box::default());
        let written: &'static AtomicU32 = Box::leak(Box::default());
        let tasks: Vec<T> = (0..4_u64)
            .map(|n| {
                let key = key(&mut random);
                machine.spawn("task", key, move || {
                    let mut random = Random::new(seed * 10 + n);
                    for _ in 0..8 {
                        let read = !random.once_in(3);
                        let spin = random.once_in(2);
                        let inside = &inside[usize::from(spin)];
                        let wait = match random.below(3) {
                            0 => Wait::interruptible(),
                            1 => Wait::killable().until(Model::now() + random.below(9) as u64),
                            _ => Wait::uninterruptible(),
                        };
                        let taken = op(|| match (spin, read, random.once_in(5)) {
                            (true, true, true) => lock.try_read(),
                            (true, false, true) => lock.try_write(),
                            (false, true, true) => semaphore.try_read(),
                            (false, false, true) => semaphore.try_write(),
                            (true, true, false) => {
                                lock.read();
                                true
                            }
                            (true, false, false) => {
                                lock.write();
                                true
                            }
                            (false, true, false) => semaphore.read(wait).is_ok(),
                            (false, false, false) => semaphore.write(wait).is_ok(),
                        });
                        assert!(!Model::current().is_blocked());
                        if !taken {
                            continue;
                        }
                        if read {
                            assert!(inside.fetch_add(1, Relaxed) >= 0, "11: a reader beside the writer");
                            mark("read");
                            inside.fetch_sub(1, Relaxed);
                        } else {
                            assert_eq!(inside.swap(-1, Relaxed), 0, "11: the writer is alone");
                            written.fetch_add(1, Relaxed);
                            mark("write");
                            inside.store(0, Relaxed);
                        }
                        // SAFETY: taken above, in this way.
                        op(|| unsafe {
                            match (spin, read) {
                                (true, true) => lock.read_unlock(),
                                (true, false) => lock.write_unlock(),
                                (false, true) => semaphore.read_unlock(),
                                (false, false) if random.once_in(3) => {
                                    inside.fetch_add(1, Relaxed);
                                    semaphore.downgrade();
                                    mark("downgraded");
                                    inside.fetch_sub(1, Relaxed);
                                    semaphore.read_unlock();
                                }
                                (false, false) => semaphore.write_unlock(),
                            }
                        });
                    }
                })
            })
            .collect();
        let over = Arc::new(AtomicBool::new(false));
        let god = machine.spawn("weather", Key::realtime(0), weather(seed, tasks.clone(), Arc::clone(&over)));
        machine.random_run_beside(&mut random, &tasks, god);
        over.store(true, Relaxed);
        machine.finish(god);
        assert_eq!(
            [semaphore.base().count(), lock.base().count()],
            [0x8000_0000; 2],
            "seed {seed}: idle again"
        );
        machine.assert_at_rest();
        writes += written.load(Relaxed);
    }
    assert!(writes > 300);
    case("K95", "kernel-model");
}
