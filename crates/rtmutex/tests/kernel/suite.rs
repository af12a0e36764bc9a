// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The suite that also runs on bare metal, on the model: in many interleavings.

use std::sync::atomic::Ordering::Relaxed;

use fastpath_rtmutex::kernel::{Key, LockError, RawMutex, Scheduler, Wait};
use fastpath_testkit::rtmutex_suite::{Kernel, Outcome, tests};

use crate::model::{Event, Machine, Model, Random, T, guard, op};

/// The model as a kernel: any ready task may run, whatever its urgency.
struct Any;

fn machine() -> &'static Machine {
    Model::current().data().machine()
}

fn mutex(lock: usize) -> &'static RawMutex<Model> {
    guard(&machine().locks)[lock]
}

impl Kernel for Any {
    type Task = T;
    const STRICT: bool = false;

    fn spawn(urgency: u8, program: fn(usize), argument: usize) -> T {
        machine().spawn("task", Key::realtime(urgency), move || program(argument))
    }
    fn join_all() {
        let me = Model::current();
        while machine()
            .tasks()
            .iter()
            .any(|&task| !std::ptr::eq(task, me) && machine().last(task) != Event::Done)
        {
            Self::sleep(1);
        }
    }
    fn sleep(ticks: u32) {
        Model::park(Some(Model::now() + u64::from(ticks)));
    }
    fn current() -> T {
        Model::current()
    }
    fn is_blocked(task: T) -> bool {
        task.is_blocked()
    }
    fn effective(task: T) -> u8 {
        task.effective().prio() as u8
    }
    fn set_base(task: T, urgency: u8) {
        machine().changing.fetch_add(1, Relaxed);
        op(|| task.set_base(Key::realtime(urgency)));
        machine().changing.fetch_sub(1, Relaxed);
    }
    fn lock(lock: usize) {
        op(|| mutex(lock).lock());
    }
    fn lock_within(lock: usize, ticks: u32) -> Outcome {
        let wait = Wait::uninterruptible().until(Model::now() + u64::from(ticks)).detecting();
        match op(|| mutex(lock).lock_with(wait)) {
            Ok(()) => Outcome::Taken,
            Err(LockError::Deadlock) => Outcome::Deadlock,
            Err(_) => Outcome::TimedOut,
        }
    }
    fn try_lock(lock: usize) -> bool {
        op(|| mutex(lock).try_lock())
    }
    fn unlock(lock: usize) {
        // SAFETY: the suite's.
        op(|| unsafe { mutex(lock).unlock() });
    }
    fn is_locked(lock: usize) -> bool {
        mutex(lock).is_locked()
    }
    fn get(word: usize) -> u32 {
        machine().words[word].load(Relaxed)
    }
    fn set(word: usize, value: u32) {
        machine().words[word].store(value, Relaxed);
    }
}

#[test]
fn the_suite_on_the_model_in_many_interleavings() {
    for (name, test) in tests::<Any>() {
        for seed in 1..=12 {
            let machine = Machine::new();
            *guard(&machine.locks) = (0..8).map(|_| machine.mutex()).collect();
            machine.spawn(name, Key::realtime(Any::CALLER), test);
            let mut random = Random::new(seed);
            loop {
                let tasks = machine.tasks();
                if tasks.iter().all(|&task| machine.last(task) == Event::Done) {
                    break;
                }
                let able: Vec<T> = tasks.into_iter().filter(|&task| machine.runnable(task)).collect();
                if able.is_empty() {
                    machine.advance(1);
                } else {
                    machine.step(able[random.below(able.len())], 1 + random.below(40) as u32);
                }
            }
            machine.assert_at_rest();
        }
    }
    for case in ["K75", "K77", "K78", "K80", "K81", "K82", "K83", "K85"] {
        fastpath_testkit::case(case, "kernel-suite-model");
    }
}
