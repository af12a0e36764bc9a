// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The mutex on the machine's scheduler: the suite on one processor, where one task runs at a time; then what only several
//! processors show, on as many as there are.

use crate::Machine;
use crate::sched::{FIRST, LEAST, Setup, T, TASKS, Tasks, on_tasks, table};
use fastpath_cmpxchg::Ordering;
use fastpath_rtmutex::kernel::{Key, LockError, Scheduler, Wait};
use fastpath_testkit::rtmutex_suite::{self as suite, Kernel, Outcome};

impl<M: Machine> Kernel for Tasks<M> {
    type Task = T<M>;
    const STRICT: bool = true;
    const CALLER: u8 = LEAST;

    fn spawn(urgency: u8, program: fn(usize), argument: usize) -> T<M> {
        Self::make(urgency, program, argument)
    }
    fn join_all() {
        Self::all_ended();
    }
    fn sleep(ticks: u32) {
        Self::nap(ticks);
    }
    fn current() -> T<M> {
        <Self as Scheduler>::current()
    }
    fn is_blocked(task: T<M>) -> bool {
        task.is_blocked()
    }
    fn effective(task: T<M>) -> u8 {
        task.effective().prio() as u8
    }
    fn set_base(task: T<M>, urgency: u8) {
        task.set_base(Key::realtime(urgency));
    }
    fn lock(lock: usize) {
        table::<M>().locks[lock].lock();
    }
    fn lock_within(lock: usize, ticks: u32) -> Outcome {
        let wait = Wait::uninterruptible().until(<Self as Scheduler>::now() + u64::from(ticks)).detecting();
        match table::<M>().locks[lock].lock_with(wait) {
            Ok(()) => Outcome::Taken,
            Err(LockError::Deadlock) => Outcome::Deadlock,
            Err(_) => Outcome::TimedOut,
        }
    }
    fn try_lock(lock: usize) -> bool {
        table::<M>().locks[lock].try_lock()
    }
    fn unlock(lock: usize) {
        // SAFETY: the suite unlocks what the calling task locked.
        unsafe { table::<M>().locks[lock].unlock() };
    }
    fn is_locked(lock: usize) -> bool {
        table::<M>().locks[lock].is_locked()
    }
    fn get(word: usize) -> u32 {
        // ORDERING: Relaxed, as in `set`: locks order what the tests share.
        Self::word(word).load(Ordering::Relaxed)
    }
    fn set(word: usize, value: u32) {
        Self::word(word).store(value, Ordering::Relaxed);
    }
}

/// Test number `N` of the suite.
fn nth<M: Machine, const N: usize>() {
    on_tasks::<M>(Setup::ONE, suite::tests::<Tasks<M>>()[N].1);
}

/// A task computes while a more urgent one sleeps and wakes: the handler takes the processor away each time, at whatever
/// instruction that is, and the interrupted task notices nothing.
fn preempted<M: Machine>() {
    fn urgent<M: Machine>(_: usize) {
        for turn in 1..=100 {
            Tasks::<M>::sleep(1);
            Tasks::<M>::lock(0);
            Tasks::<M>::set(0, turn);
            Tasks::<M>::unlock(0);
        }
    }
    fn test<M: Machine>() {
        Tasks::<M>::spawn(10, urgent::<M>, 0);
        let (mut here, mut there) = (1_u64, 1_u64);
        while Tasks::<M>::get(0) < 100 {
            for _ in 0..64 {
                here = here.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            }
            Tasks::<M>::lock(0);
            for _ in 0..64 {
                there = core::hint::black_box(there).wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            }
            Tasks::<M>::unlock(0);
            assert_eq!(here, there);
        }
        assert!(Tasks::<M>::preemptions() >= 50, "{} preemptions", Tasks::<M>::preemptions());
        Tasks::<M>::join_all();
    }
    on_tasks::<M>(Setup::ONE, test::<M>);
}

/// The suite's tests, and one of the scheduler itself.
pub(crate) fn cases<M: Machine>() -> [(&'static str, fn()); 9] {
    let tests: [fn(); 9] = [
        nth::<M, 0>,
        nth::<M, 1>,
        nth::<M, 2>,
        nth::<M, 3>,
        nth::<M, 4>,
        nth::<M, 5>,
        nth::<M, 6>,
        nth::<M, 7>,
        preempted::<M>,
    ];
    core::array::from_fn(|at| (crate::RTMUTEX_CASES[at], tests[at]))
}

/// All processors, and only what is asked for changes who runs: no turns.
fn everywhere<M: Machine>(test: fn()) {
    on_tasks::<M>(Setup { processors: M::TASK_PROCESSORS, turns: false, handler: None }, test);
}

/// Sleeps until word `word` is at least `value`. Gives up, loudly, after a time in which it comes many times over.
fn until<M: Machine>(word: usize, value: u32, what: &str) {
    let start = <Tasks<M> as Scheduler>::now();
    while Tasks::<M>::get(word) < value {
        assert!(<Tasks<M> as Scheduler>::now() < start + PATIENCE, "{what}");
        Tasks::<M>::sleep(1);
    }
}

/// With one processor a task that waits for another one's step has to let it run.
fn alone<M: Machine>() {
    if M::TASK_PROCESSORS == 1 {
        Tasks::<M>::sleep(1);
    }
}

/// Ticks after which something has gone wrong. Nothing waits for it to end.
const PATIENCE: u64 = 100_000;

/// One more in a word.
fn count<M: Machine>(word: usize) {
    // ORDERING: AcqRel: whoever sees the count sees what was done before.
    Tasks::<M>::word(word).fetch_add(1, Ordering::AcqRel);
}

/// K80 on several processors: the owner, on the last one, is pushed aside by as many busy tasks as there are processors; an
/// urgent task on the first one waits for its lock; then the owner runs at once, since its processor is interrupted, and the
/// urgent one when it unlocks.
fn boost_across<M: Machine>() {
    // Words: the owner is in; the urgent task wants it; it had it; busy tasks that run.
    const IN: usize = 0;
    const GO: usize = 1;
    const HAD: usize = 2;
    const BUSY: usize = 3;
    fn owner<M: Machine>(_: usize) {
        Tasks::<M>::move_to(M::TASK_PROCESSORS - 1);
        Tasks::<M>::lock(0);
        count::<M>(IN);
        while Tasks::<M>::get(GO) == 0 {
            core::hint::spin_loop();
            alone::<M>();
        }
        Tasks::<M>::unlock(0);
    }
    fn busy<M: Machine>(_: usize) {
        count::<M>(BUSY);
        let start = <Tasks<M> as Scheduler>::now();
        while Tasks::<M>::get(HAD) == 0 {
            assert!(<Tasks<M> as Scheduler>::now() < start + PATIENCE, "the owner was never boosted");
        }
    }
    fn urgent<M: Machine>(_: usize) {
        Tasks::<M>::move_to(0);
        for n in 0..M::TASK_PROCESSORS {
            Tasks::<M>::spawn(50, busy::<M>, n);
        }
        until::<M>(BUSY, M::TASK_PROCESSORS as u32, "the busy ones run everywhere");
        Tasks::<M>::set(GO, 1);
        Tasks::<M>::lock(0);
        count::<M>(HAD);
        Tasks::<M>::unlock(0);
    }
    fn test<M: Machine>() {
        for _ in 0..20 {
            for word in [IN, GO, HAD, BUSY] {
                Tasks::<M>::set(word, 0);
            }
            Tasks::<M>::spawn(90, owner::<M>, 0);
            until::<M>(IN, 1, "the owner is in");
            Tasks::<M>::spawn(10, urgent::<M>, 0);
            Tasks::<M>::join_all();
            assert_eq!((Tasks::<M>::get(HAD), Tasks::<M>::is_locked(0)), (1, false));
        }
    }
    everywhere::<M>(test::<M>);
}

/// K81 on several processors: a chain of owners, each waiting for the next; urgency reaches the last one, which runs
/// elsewhere, and leaves it again.
fn chain_across<M: Machine>() {
    const BOOSTED: usize = 0;
    const DONE: usize = 1;
    /// Owns lock 0 and runs until it is boosted.
    fn last<M: Machine>(_: usize) {
        Tasks::<M>::move_to(M::TASK_PROCESSORS - 1);
        Tasks::<M>::lock(0);
        let start = <Tasks<M> as Scheduler>::now();
        while Tasks::<M>::effective(<Tasks<M> as Kernel>::current()) != 15 {
            assert!(<Tasks<M> as Scheduler>::now() < start + PATIENCE, "the urgency never came");
            // Not all the time: who boosts needs the task's lock for it.
            for _ in 0..1000 {
                core::hint::spin_loop();
            }
            alone::<M>();
        }
        count::<M>(BOOSTED);
        Tasks::<M>::unlock(0);
        assert_eq!(Tasks::<M>::effective(<Tasks<M> as Kernel>::current()), 70);
        count::<M>(DONE);
    }
    fn link<M: Machine>(lock: usize) {
        // A waiter spins while its owner runs, so it must not do that on the caller's processor.
        Tasks::<M>::move_to((lock + 1).min(M::TASK_PROCESSORS - 1));
        Tasks::<M>::lock(lock + 1);
        Tasks::<M>::lock(lock);
        Tasks::<M>::unlock(lock);
        Tasks::<M>::unlock(lock + 1);
        count::<M>(DONE);
    }
    fn top<M: Machine>(lock: usize) {
        Tasks::<M>::lock(lock);
        Tasks::<M>::unlock(lock);
        count::<M>(DONE);
    }
    fn waits<M: Machine>(task: T<M>) {
        let start = <Tasks<M> as Scheduler>::now();
        while !task.is_blocked() {
            assert!(<Tasks<M> as Scheduler>::now() < start + PATIENCE, "it waits");
            Tasks::<M>::sleep(1);
        }
    }
    fn test<M: Machine>() {
        for _ in 0..20 {
            Tasks::<M>::set(BOOSTED, 0);
            Tasks::<M>::set(DONE, 0);
            Tasks::<M>::spawn(70, last::<M>, 0);
            let start = <Tasks<M> as Scheduler>::now();
            while !Tasks::<M>::is_locked(0) {
                assert!(<Tasks<M> as Scheduler>::now() < start + PATIENCE, "the last one is in");
                Tasks::<M>::sleep(1);
            }
            for lock in 0..2 {
                waits::<M>(Tasks::<M>::spawn(60 - lock as u8, link::<M>, lock));
            }
            Tasks::<M>::spawn(15, top::<M>, 2);
            Tasks::<M>::join_all();
            assert_eq!((Tasks::<M>::get(BOOSTED), Tasks::<M>::get(DONE)), (1, 4));
        }
    }
    everywhere::<M>(test::<M>);
}

/// Tasks on every processor take two locks in turn, some with a time limit; each lock guards a count that is read and written
/// apart. Nothing is lost, everybody ends, nobody keeps a boost.
fn stress<M: Machine>() {
    const ROUNDS: u32 = 60;
    fn work<M: Machine>(number: usize) {
        let mut taken = [0, 0];
        for round in 0..ROUNDS {
            let lock = (round as usize + number) % 2;
            let got = if (round as usize).is_multiple_of(3) {
                Tasks::<M>::lock_within(lock, 2) == Outcome::Taken
            } else {
                Tasks::<M>::lock(lock);
                true
            };
            if got {
                taken[lock] += 1;
                let before = Tasks::<M>::get(lock);
                for _ in 0..200 {
                    core::hint::spin_loop();
                }
                if round % 16 == 5 {
                    Tasks::<M>::sleep(1);
                }
                Tasks::<M>::set(lock, before + 1);
                Tasks::<M>::unlock(lock);
            }
        }
        for (lock, taken) in taken.into_iter().enumerate() {
            // ORDERING: AcqRel: read after everybody ended.
            Tasks::<M>::word(2 + lock).fetch_add(taken, Ordering::AcqRel);
        }
        assert_eq!(
            Tasks::<M>::effective(<Tasks<M> as Kernel>::current()),
            30 + number as u8,
            "no boost is left"
        );
    }
    fn test<M: Machine>() {
        for number in 0..TASKS - FIRST {
            Tasks::<M>::spawn(30 + number as u8, work::<M>, number);
        }
        Tasks::<M>::join_all();
        for lock in 0..2 {
            assert_eq!(Tasks::<M>::get(lock), Tasks::<M>::get(2 + lock), "lock {lock}");
            assert!(!Tasks::<M>::is_locked(lock));
        }
        assert!(Tasks::<M>::get(0) > 100);
    }
    everywhere::<M>(test::<M>);
}

/// What needs several processors to be more than what came before.
pub(crate) fn several<M: Machine>() -> [(&'static str, fn()); 3] {
    let tests: [fn(); 3] = [boost_across::<M>, chain_across::<M>, stress::<M>];
    core::array::from_fn(|at| (crate::SEVERAL_CASES[at], tests[at]))
}
