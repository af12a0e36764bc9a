// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reader/writer locks, and locks taken in the middle of another wait (K95, K97).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use fastpath_rtmutex::kernel::{
    Key, LockError, RwLock, RwSemaphore, Scheduler, Signal, TaskState, Wait, Wake,
};
use fastpath_testkit::case;

use crate::model::{Event, Machine, Model, T, mark, op, send};

const RT: fn(u8) -> Key = Key::realtime;
const IDLE: u32 = 0x8000_0000;
const WRITER: u32 = 0x4000_0000;

type Rw = &'static RwSemaphore<Model>;

fn reader(machine: &'static Machine, lock: Rw, key: Key) -> T {
    machine.spawn("reader", key, move || {
        op(|| lock.read(Wait::uninterruptible())).unwrap();
        mark("read");
        // SAFETY: a reader.
        op(|| unsafe { lock.read_unlock() });
    })
}

fn writer(machine: &'static Machine, lock: Rw, key: Key) -> T {
    machine.spawn("writer", key, move || {
        op(|| lock.write(Wait::uninterruptible())).unwrap();
        mark("write");
        // SAFETY: the writer.
        op(|| unsafe { lock.write_unlock() });
    })
}

#[test]
fn readers_share_and_a_waiting_writer_does_not_shut_them_out() {
    let machine = Machine::new();
    let lock = machine.rw_semaphore();
    let readers = [(); 3].map(|()| reader(machine, lock, RT(30)));
    for (i, task) in readers.into_iter().enumerate() {
        machine.until(task, Event::Mark("read"));
        assert_eq!(lock.base().count(), IDLE + i as u32 + 1);
    }
    let w = writer(machine, lock, RT(20));
    machine.park(w);
    assert_eq!(lock.base().count(), 3, "the bias is gone");
    let late = reader(machine, lock, RT(50));
    machine.until(late, Event::Mark("read"));
    assert_eq!(lock.base().count(), 4, "late readers come in as long as the writer only waits");
    for task in readers.into_iter().chain([late]) {
        assert!(!machine.runnable(w));
        machine.finish(task);
    }
    machine.until(w, Event::Mark("write"));
    assert_eq!(lock.base().count(), WRITER);
    let blocked = reader(machine, lock, RT(10));
    machine.park(blocked);
    assert_eq!(w.effective(), RT(10), "a reader that waits boosts the writer");
    let second = writer(machine, lock, RT(40));
    machine.park(second);
    machine.finish(w);
    assert_eq!(w.effective(), RT(20));
    machine.until(blocked, Event::Mark("read"));
    machine.park(second);
    machine.finish(blocked);
    machine.finish(second);
    assert_eq!(lock.base().count(), IDLE);
    machine.assert_at_rest();
    case("K95", "kernel-model");
}

#[test]
fn an_interrupted_writer_puts_the_bias_back() {
    let machine = Machine::new();
    let lock = machine.rw_semaphore();
    let r = reader(machine, lock, RT(30));
    machine.until(r, Event::Mark("read"));
    for (wait, error) in [
        (Wait::interruptible(), LockError::Interrupted),
        (Wait::killable().until(machine.now() + 5), LockError::TimedOut),
    ] {
        let w = machine.spawn("writer", RT(20), move || {
            assert_eq!(op(|| lock.write(wait)), Err(error));
            assert_eq!(Model::current().state(), TaskState::Running);
        });
        machine.park(w);
        if error == LockError::Interrupted {
            let sender = machine.spawn("sender", RT(1), move || send(w, Signal::Pending));
            machine.finish(sender);
        } else {
            machine.advance(5);
        }
        machine.finish(w);
        assert_eq!(lock.base().count(), IDLE + 1);
    }
    // A writer that fails while waiting for the mutex inside.
    let w = writer(machine, lock, RT(20));
    machine.park(w);
    let until = machine.now() + 1;
    let second = machine.spawn("second", RT(25), move || {
        assert_eq!(op(|| lock.write(Wait::uninterruptible().until(until))), Err(LockError::TimedOut));
    });
    machine.park(second);
    machine.advance(1);
    machine.finish(second);
    assert_eq!(lock.base().count(), 1, "the first writer still waits");
    machine.finish(r);
    machine.finish(w);
    assert_eq!(lock.base().count(), IDLE);
    machine.assert_at_rest();
    case("K95", "kernel-model");
}

#[test]
fn downgrading_lets_readers_in_and_trying_to_write_leaves_no_trace() {
    let machine = Machine::new();
    let lock = machine.rw_semaphore();
    let w = machine.spawn("writer", RT(20), move || {
        assert!(op(|| lock.try_write()));
        mark("write");
        // SAFETY: the writer.
        op(|| unsafe { lock.downgrade() });
        mark("read");
        // SAFETY: a reader now.
        op(|| unsafe { lock.read_unlock() });
    });
    machine.until(w, Event::Mark("write"));
    assert_eq!(lock.base().count(), WRITER);
    let r = reader(machine, lock, RT(30));
    machine.park(r);
    machine.until(w, Event::Mark("read"));
    machine.until(r, Event::Mark("read"));
    assert_eq!(lock.base().count(), IDLE + 2);
    machine.finish(w);
    assert_eq!(lock.base().count(), IDLE + 1);
    let tries = machine.spawn("tries", RT(10), move || {
        assert!(!op(|| lock.try_write()));
        assert!(op(|| lock.try_read()));
        // SAFETY: a reader.
        op(|| unsafe { lock.read_unlock() });
    });
    machine.finish(tries);
    assert_eq!(lock.base().count(), IDLE + 1);
    machine.finish(r);
    machine.assert_at_rest();
    case("K95", "kernel-model");
}

/// What a task does between saying that it will sleep and sleeping: take a lock that is held.
fn inner_lock(inner: u8, machine: &'static Machine) -> (T, T, Arc<AtomicBool>) {
    let spin = machine.spinlock();
    let rw: &'static RwLock<Model> = machine.rw_lock();
    let lock = move || match inner {
        0 => spin.lock(),
        1 => rw.write(),
        _ => rw.read(),
    };
    // SAFETY: called after `lock` by the same task.
    let unlock = move || unsafe {
        match inner {
            0 => spin.unlock(),
            1 => rw.write_unlock(),
            _ => rw.read_unlock(),
        }
    };
    let holder = machine.spawn("holder", Key::NORMAL, move || {
        op(|| if inner == 0 { spin.lock() } else { rw.write() });
        mark("in");
        // SAFETY: locked above.
        op(|| unsafe { if inner == 0 { spin.unlock() } else { rw.write_unlock() } });
    });
    machine.until(holder, Event::Mark("in"));
    let condition = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&condition);
    let sleeper = machine.spawn("sleeper", RT(20), move || {
        let me = Model::current();
        loop {
            me.set_state(TaskState::Interruptible);
            op(lock);
            let ready = flag.load(Relaxed);
            op(unlock);
            if ready {
                break;
            }
            mark("before schedule");
            me.schedule(None);
        }
        me.set_state(TaskState::Running);
    });
    machine.park(sleeper);
    assert_eq!(sleeper.state(), TaskState::LockWait);
    (sleeper, holder, condition)
}

#[test]
fn a_wake_up_that_comes_while_an_inner_lock_is_waited_for_is_not_lost() {
    for inner in 0..3 {
        // No wake-up meanwhile: the outer state is back afterwards, and the task sleeps in it.
        let machine = Machine::new();
        let (sleeper, holder, condition) = inner_lock(inner, machine);
        machine.finish(holder);
        machine.until(sleeper, Event::Mark("before schedule"));
        assert_eq!(sleeper.state(), TaskState::Interruptible);
        machine.park(sleeper);
        condition.store(true, Relaxed);
        let waker = machine.spawn("waker", RT(1), move || assert!(sleeper.wake(Wake::Normal)));
        machine.finish(waker);
        machine.finish(sleeper);
        machine.assert_at_rest();

        // The wake-up for the outer wait comes first: it does not end the inner one, and is found afterwards.
        let machine = Machine::new();
        let (sleeper, holder, condition) = inner_lock(inner, machine);
        let waker = machine.spawn("waker", RT(1), move || {
            assert!(sleeper.wake(Wake::Normal));
            assert!(!sleeper.wake(Wake::Normal), "once");
        });
        machine.finish(waker);
        assert!(!machine.runnable(sleeper), "an ordinary wake-up does not end the wait for a lock");
        machine.finish(holder);
        machine.until(sleeper, Event::Mark("before schedule"));
        assert_eq!(sleeper.state(), TaskState::Running);
        condition.store(true, Relaxed);
        machine.finish(sleeper);
        machine.assert_at_rest();

        // A signal for the outer wait likewise.
        let machine = Machine::new();
        let (sleeper, holder, condition) = inner_lock(inner, machine);
        let sender = machine.spawn("sender", RT(1), move || send(sleeper, Signal::Pending));
        machine.finish(sender);
        assert!(!machine.runnable(sleeper));
        machine.finish(holder);
        machine.until(sleeper, Event::Mark("before schedule"));
        assert_eq!(sleeper.state(), TaskState::Running);
        condition.store(true, Relaxed);
        machine.finish(sleeper);
        machine.assert_at_rest();
    }
    case("K97", "kernel-model");
}
