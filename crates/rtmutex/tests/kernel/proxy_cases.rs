// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Locks taken and waited for on behalf of others (K91, K92).

use fastpath_rtmutex::kernel::{
    Cleanup, Key, LockError, RawMutex, Scheduler, Signal, Started, Wait, Waiter, inspect,
};
use fastpath_testkit::case;

use crate::model::{Event, Machine, Model, T, mark, op, send};
use crate::mutex_cases::section;

const RT: fn(u8) -> Key = Key::realtime;

type M = &'static RawMutex<Model>;

fn waiter() -> &'static Waiter<Model> {
    Box::leak(Box::new(Waiter::new()))
}

/// Starts a proxy wait for `task` from a task of its own.
fn start(
    machine: &'static Machine,
    lock: M,
    waiter: &'static Waiter<Model>,
    task: T,
) -> Result<Started, LockError> {
    let result = std::sync::Arc::new(std::sync::Mutex::new(None));
    let slot = std::sync::Arc::clone(&result);
    let starter = machine.spawn("starter", RT(1), move || {
        // SAFETY: leaked waiters; `task` does nothing meanwhile.
        *slot.lock().unwrap() = Some(op(|| unsafe { lock.proxy().start(waiter, task) }));
        assert!(!Model::current().is_blocked(), "the starter waits for nothing");
    });
    machine.finish(starter);
    let result = *result.lock().unwrap();
    result.expect("it ran")
}

#[test]
fn a_lock_is_made_owned_taken_for_another_and_queued_for_another() {
    let machine = Machine::new();
    let lock = machine.mutex();
    let owner = machine.idle("owner", Key::NORMAL);
    // SAFETY: new and not shared.
    unsafe { lock.proxy().init_locked(owner) };
    assert_eq!(inspect::word(lock), (inspect::address(owner), false));
    let w = waiter();
    let task = machine.spawn("w", RT(20), move || {
        mark("ready");
        // SAFETY: started for this task.
        assert_eq!(op(|| unsafe { lock.proxy().wait(w, Wait::interruptible()) }), Ok(()));
        // SAFETY: acquired above.
        op(|| unsafe { lock.unlock() });
    });
    machine.until(task, Event::Mark("ready"));
    assert_eq!(start(machine, lock, w, task), Ok(Started::Queued));
    assert!(task.is_blocked());
    assert_eq!(owner.effective(), RT(20), "the proxied owner is boosted");
    assert!(std::ptr::eq(lock.proxy().next_owner().unwrap(), task));
    machine.park(task);
    // The owner gives it back (its name is lent to a thread of the model).
    let lend = machine.spawn("lender", Key::NORMAL, move || {
        crate::model::lend(owner, || {
            // SAFETY: the lock was made owned by this task.
            unsafe { lock.unlock() };
        });
    });
    machine.finish(lend);
    assert_eq!(owner.effective(), Key::NORMAL);
    machine.finish(task);
    machine.assert_at_rest();
    // A free lock is taken for the other one at once.
    let w = waiter();
    let other = machine.idle("other", RT(30));
    assert_eq!(start(machine, lock, w, other), Ok(Started::Acquired));
    assert_eq!(inspect::word(lock), (inspect::address(other), false));
    assert!(!other.is_blocked());
    // SAFETY: nobody waits.
    unsafe { lock.proxy().clear_owner() };
    machine.assert_at_rest();
    case("K91", "kernel-model");
}

#[test]
fn rolling_back_a_deadlock_clears_the_waiters_task_not_the_callers() {
    let machine = Machine::new();
    let [l1, l2, l3] = [(); 3].map(|()| machine.mutex());
    // w owns l1; x owns l2 and waits for l1. To queue w for l2 closes a ring.
    let w_task = machine.spawn("w", RT(20), move || {
        op(|| l1.lock());
        mark("ready");
        // SAFETY: locked above.
        op(|| unsafe { l1.unlock() });
    });
    machine.until(w_task, Event::Mark("ready"));
    let x = machine.spawn("x", RT(30), move || {
        op(|| l2.lock());
        op(|| l1.lock());
        // SAFETY: both locked above.
        op(|| unsafe {
            l1.unlock();
            l2.unlock();
        });
    });
    machine.park(x);
    // The caller itself is blocked on l3 in another proxy wait of its own: that must survive.
    let l3_owner = machine.spawn("l3 owner", Key::NORMAL, section(l3));
    machine.until(l3_owner, Event::Mark("in"));
    let (w, own) = (waiter(), waiter());
    let caller = machine.spawn("caller", RT(40), move || {
        let me = Model::current();
        // SAFETY: leaked waiters; this task waits right after.
        assert_eq!(op(|| unsafe { l3.proxy().start(own, me) }), Ok(Started::Queued));
        // SAFETY: as above; w's task does nothing meanwhile.
        assert_eq!(op(|| unsafe { l2.proxy().start(w, w_task) }), Err(LockError::Deadlock));
        assert!(!w_task.is_blocked(), "rolled back");
        assert!(me.is_blocked(), "the caller's own wait is untouched");
        // SAFETY: started above.
        assert_eq!(op(|| unsafe { l3.proxy().wait(own, Wait::uninterruptible()) }), Ok(()));
        // SAFETY: acquired above.
        op(|| unsafe { l3.unlock() });
    });
    machine.park(caller);
    machine.finish(l3_owner);
    machine.finish(caller);
    machine.finish(w_task);
    machine.finish(x);
    machine.assert_at_rest();
    case("K91", "kernel-model");
}

#[test]
fn a_waiter_that_was_never_queued_is_left_alone() {
    let machine = Machine::new();
    let lock = machine.mutex();
    let task = machine.spawn("a", RT(20), move || {
        op(|| lock.lock());
        let w = Waiter::new();
        // Its own lock: the error comes before queueing.
        // SAFETY: the waiter outlives what follows.
        assert_eq!(op(|| unsafe { lock.proxy().start(&w, Model::current()) }), Err(LockError::Deadlock));
        // SAFETY: never queued.
        assert_eq!(op(|| unsafe { lock.proxy().cleanup(&w) }), Cleanup::Removed);
        mark("in");
        // SAFETY: locked above.
        op(|| unsafe { lock.unlock() });
    });
    machine.until(task, Event::Mark("in"));
    assert_eq!(inspect::word(lock), (inspect::address(task), false));
    machine.finish(task);
    machine.assert_at_rest();
    case("K91", "kernel-model");
}

#[test]
fn a_time_out_is_void_if_the_lock_came_before_the_cleanup() {
    for (handed_over, signal) in [(true, false), (false, false), (true, true)] {
        let machine = Machine::new();
        let lock = machine.mutex();
        let owner = machine.spawn("owner", Key::NORMAL, section(lock));
        machine.until(owner, Event::Mark("in"));
        let w = waiter();
        let task = machine.spawn("w", RT(20), move || {
            mark("ready");
            // SAFETY: started for this task.
            let result = op(|| unsafe { lock.proxy().wait(w, Wait::interruptible().until(5)) });
            assert_eq!(result, Err(if signal { LockError::Interrupted } else { LockError::TimedOut }));
            mark("failed");
            // SAFETY: as above, and the wait failed.
            let cleanup = op(|| unsafe { lock.proxy().cleanup(w) });
            assert_eq!(cleanup, if handed_over { Cleanup::Acquired } else { Cleanup::Removed });
            if handed_over {
                // SAFETY: acquired above.
                op(|| unsafe { lock.unlock() });
            }
        });
        machine.until(task, Event::Mark("ready"));
        assert_eq!(start(machine, lock, w, task), Ok(Started::Queued));
        machine.park(task);
        if signal {
            let sender = machine.spawn("sender", RT(1), move || send(task, Signal::Pending));
            machine.finish(sender);
        } else {
            machine.advance(5);
        }
        machine.until(task, Event::Mark("failed"));
        if handed_over {
            machine.finish(owner);
        }
        machine.finish(task);
        machine.finish(owner);
        machine.assert_at_rest();
    }
    case("K92", "kernel-model");
}
