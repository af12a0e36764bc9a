// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What real-time threads get from the Linux mutex: order, stealing, inheritance, bounded waiting.
//!
//! Each test needs SCHED_FIFO and is skipped, with the reason, where that is not permitted. Nothing here depends on how
//! fast or how loaded the machine is: ordinary threads do not run on a CPU that a FIFO thread uses, and amounts of work
//! are CPU time. The kernel lets real-time threads have 0.95 s of each second; no test uses more than 0.4 s at a time.
#![cfg(target_os = "linux")]

mod threads;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, mpsc};
use std::time::{Duration, Instant};

use fastpath_rtmutex::linux::priority::{self, Priority, Thread};
use fastpath_rtmutex::linux::word::{WAITERS, owner};
use fastpath_rtmutex::linux::{Builder, LockError, RtCondvar, RtMutex, RtRwLock, TryLockError};
use fastpath_testkit::{case, skip};
use threads::fifo::{alone, become_fifo, burn, cpu_time, cpus, kernel_number};
use threads::{eventually, tid, waits_on_futex, watched};

/// A mutex of either kind, as far as the inversion scheme needs it.
trait Lock: Sync {
    fn with(&self, f: &mut dyn FnMut());
}

impl Lock for RtMutex<()> {
    fn with(&self, f: &mut dyn FnMut()) {
        let _held = self.lock().unwrap();
        f();
    }
}

impl Lock for Mutex<()> {
    fn with(&self, f: &mut dyn FnMut()) {
        let _held = self.lock().unwrap();
        f();
    }
}

impl Lock for RtRwLock<()> {
    fn with(&self, f: &mut dyn FnMut()) {
        let _held = self.write().unwrap();
        f();
    }
}

/// What one run of the inversion scheme showed.
struct Inversion {
    /// CPU time that others used between the strong thread's request and its grant, all on its CPU.
    waited: Duration,
    /// The weak owner's priority while the strong thread waited, and after it had released.
    owner_priority: (i32, i32),
}

/// L (weak) holds the lock and still has 20 ms to do when H (strong) asks for it; M (between) has 300 ms to do and
/// wants no lock. All on one CPU. L runs only while H is blocked, so whatever L sees of itself then is "while H waits".
fn inversion(lock: &dyn Lock, weak: Option<u8>) -> Inversion {
    let cpu = *cpus().last().unwrap();
    let (held, asked) = (AtomicBool::new(false), AtomicBool::new(false));
    // CPU time used so far by L since H asked, and by M, in nanoseconds.
    let (used_by_l, used_by_m) = (AtomicU64::new(0), AtomicU64::new(0));
    let (go_h, start_h) = mpsc::channel::<()>();
    let (go_m, start_m) = mpsc::channel::<()>();
    let (start_h, start_m) = (Mutex::new(start_h), Mutex::new(start_m));
    std::thread::scope(|scope| {
        let l = scope.spawn(|| {
            let me = if let Some(level) = weak {
                become_fifo(level, cpu)
            } else {
                fastpath_sys::sched::pin_to(cpu).unwrap();
                Thread::current()
            };
            let mut boosted = 0;
            lock.with(&mut || {
                held.store(true, Ordering::Release);
                while !asked.load(Ordering::Acquire) {
                    if weak.is_some() {
                        // Asleep, not burning: nothing else may be starved if the others come late.
                        std::thread::sleep(Duration::from_micros(100));
                    } else {
                        // Awake: on PREEMPT_RT the timer of an ordinary thread is the business of a thread of FIFO 1,
                        // which M would starve.
                        std::thread::yield_now();
                    }
                }
                let start = cpu_time();
                boosted = kernel_number(me);
                while cpu_time() - start < 20_000_000 {
                    used_by_l.store(cpu_time() - start, Ordering::Release);
                }
            });
            (boosted, kernel_number(me))
        });
        let m = scope.spawn(|| {
            become_fifo(20, cpu);
            start_m.lock().unwrap().recv().unwrap();
            let start = cpu_time();
            while cpu_time() - start < 300_000_000 {
                used_by_m.store(cpu_time() - start, Ordering::Release);
            }
        });
        let h = scope.spawn(|| {
            become_fifo(30, cpu);
            start_h.lock().unwrap().recv().unwrap();
            // M may run from now on, but not before we block.
            go_m.send(()).unwrap();
            asked.store(true, Ordering::Release);
            let mut others = 0;
            lock.with(&mut || {
                others = used_by_l.load(Ordering::Acquire) + used_by_m.load(Ordering::Acquire);
            });
            Duration::from_nanos(others)
        });
        let coordinator = scope.spawn(|| {
            // Stronger than all of them, and asleep most of the time: it may share their CPU.
            priority::set(Thread::current(), Priority::Fifo(60)).unwrap();
            eventually("L's lock", || held.load(Ordering::Acquire));
            std::thread::sleep(Duration::from_millis(2));
            go_h.send(()).unwrap();
        });
        coordinator.join().unwrap();
        m.join().unwrap();
        Inversion { waited: h.join().unwrap(), owner_priority: l.join().unwrap() }
    })
}

#[test]
fn a_strong_thread_waits_for_the_owner_only() {
    let Some(_alone) = alone() else { return };
    watched("inversion", || {
        let without = inversion(&Mutex::new(()), Some(10));
        assert!(without.waited > Duration::from_millis(250), "{:?}", without.waited);
        assert_eq!(without.owner_priority, (-11, -11));
        let with = inversion(&RtMutex::new(()), Some(10));
        assert!(with.waited < Duration::from_millis(60), "{:?}", with.waited);
        assert_eq!(with.owner_priority, (-31, -11));
        let from_below = inversion(&RtMutex::new(()), None);
        assert!(from_below.waited < Duration::from_millis(60), "{:?}", from_below.waited);
        assert_eq!(from_below.owner_priority, (-31, 20));
        eprintln!(
            "waited without inheritance {:?}, with {:?} and {:?}",
            without.waited, with.waited, from_below.waited
        );
    });
    case("R23", "linux-inversion");
}

#[test]
fn a_writer_inherits_through_the_reader_writer_lock() {
    let Some(_alone) = alone() else { return };
    watched("inversion of writers", || {
        let with = inversion(&RtRwLock::new(()), Some(10));
        assert!(with.waited < Duration::from_millis(60), "{:?}", with.waited);
        assert_eq!(with.owner_priority, (-31, -11));
    });
    // A waiting reader boosts the writer just so.
    let lock = RtRwLock::new(());
    watched("a reader boosts a writer", || {
        let reader = AtomicU32::new(0);
        let cpu = *cpus().last().unwrap();
        let held = lock.write().unwrap();
        let own = kernel_number(Thread::current());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                become_fifo(40, cpu);
                reader.store(tid(), Ordering::Release);
                drop(lock.read().unwrap());
            });
            eventually("the boost", || kernel_number(Thread::current()) == -41);
            drop(held);
            assert_eq!(kernel_number(Thread::current()), own);
        });
    });
}

#[test]
fn a_chain_of_six_runs_as_its_strongest_waiter() {
    let Some(_alone) = alone() else { return };
    let cpu = *cpus().last().unwrap();
    let seen = |thread: &AtomicU32| kernel_number(Thread::from_id(thread.load(Ordering::Acquire)));
    watched("chain", || {
        // The waiter has to be seen at 50 and at 55 before its time is over; on a machine that stalls, again with more.
        let complete = [500, 2000, 8000].into_iter().any(|milliseconds| {
            let locks: Vec<RtMutex<()>> = (0..6).map(|_| RtMutex::new(())).collect();
            let owners: Vec<AtomicU32> = (0..6).map(|_| AtomicU32::new(0)).collect();
            let waiter = AtomicU32::new(0);
            let (all_hold, finish) = (Barrier::new(7), Barrier::new(2));
            let timed_out = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for n in 0..6 {
                    let (locks, owners, all_hold, finish) = (&locks, &owners, &all_hold, &finish);
                    scope.spawn(move || {
                        become_fifo(n as u8 + 1, cpu);
                        let _mine = locks[n].lock().unwrap();
                        owners[n].store(tid(), Ordering::Release);
                        all_hold.wait();
                        if n + 1 < locks.len() {
                            drop(locks[n + 1].lock().unwrap());
                        } else {
                            finish.wait();
                        }
                    });
                }
                all_hold.wait();
                for owner in &owners[..5] {
                    eventually("the chain", || waits_on_futex(owner.load(Ordering::Acquire)));
                }
                for (n, owner) in owners.iter().enumerate() {
                    // Owner 5 (of the last lock) is the strongest already; its waiters are weaker.
                    assert_eq!(seen(owner), -(n as i32 + 2));
                }
                scope.spawn(|| {
                    become_fifo(50, cpu);
                    waiter.store(tid(), Ordering::Release);
                    let result = locks[0].try_lock_for(Duration::from_millis(milliseconds));
                    assert!(matches!(result, Err(LockError::TimedOut)));
                    timed_out.store(true, Ordering::Release);
                });
                let all_reach = |number: i32| {
                    while !timed_out.load(Ordering::Acquire) {
                        if owners.iter().all(|owner| seen(owner) == number) {
                            return true;
                        }
                        std::thread::sleep(Duration::from_micros(200));
                    }
                    false
                };
                let mut complete = all_reach(-51);
                let thread = Thread::from_id(waiter.load(Ordering::Acquire));
                complete = complete && priority::set(thread, Priority::Fifo(55)).is_ok() && all_reach(-56);
                eventually("the timeout", || timed_out.load(Ordering::Acquire));
                for (n, owner) in owners.iter().enumerate() {
                    eventually("the return to the own priority", || seen(owner) == -(n as i32 + 2));
                }
                finish.wait();
                complete
            })
        });
        assert!(complete, "not all six were seen at 50 and then at 55");
    });
    case("R23", "linux-chain");
}

/// Starts FIFO threads of these levels one after the other, each once the one before it sleeps in `wait`; then runs
/// `release` and returns the order in which the threads came through.
fn order(levels: &[u8], wait: &(dyn Fn(&mut dyn FnMut()) + Sync), release: &mut dyn FnMut()) -> Vec<u8> {
    let cpu = *cpus().last().unwrap();
    let arrived: Vec<AtomicU32> = levels.iter().map(|_| AtomicU32::new(0)).collect();
    let order = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (level, arrived) in levels.iter().zip(&arrived) {
            let order = &order;
            scope.spawn(move || {
                become_fifo(*level, cpu);
                arrived.store(tid(), Ordering::Release);
                wait(&mut || order.lock().unwrap().push(*level));
            });
            eventually("the wait", || waits_on_futex(arrived.load(Ordering::Acquire)));
        }
        release();
    });
    order.into_inner().unwrap()
}

#[test]
fn waiters_get_the_lock_in_order_of_priority_and_then_of_arrival() {
    let Some(_alone) = alone() else { return };
    watched("order", || {
        let lock = RtMutex::new(());
        let mut held = Some(lock.lock().unwrap());
        let wait = |note: &mut dyn FnMut()| {
            let _guard = lock.lock().unwrap();
            note();
        };
        assert_eq!(order(&[10, 40, 20, 30], &wait, &mut || drop(held.take())), [40, 30, 20, 10]);
        assert_eq!(lock.raw().word(), 0);
        // Equals in order of arrival.
        let arrival = Mutex::new(Vec::new());
        let numbered = AtomicU32::new(0);
        let wait = |_: &mut dyn FnMut()| {
            let me = numbered.fetch_add(1, Ordering::Relaxed);
            let _guard = lock.lock().unwrap();
            arrival.lock().unwrap().push(me);
        };
        let mut held = Some(lock.lock().unwrap());
        order(&[20, 20, 20], &wait, &mut || drop(held.take()));
        assert_eq!(arrival.into_inner().unwrap(), [0, 1, 2]);
    });
    case("R22", "linux-order");
}

#[test]
fn only_a_stronger_thread_takes_a_lock_on_its_way_to_a_waiter() {
    let Some(_alone) = alone() else { return };
    let cpus = cpus();
    let [first, .., last] = cpus[..] else {
        skip("rtmutex-fifo-two-cpus", "one CPU: the hand-over cannot be observed from outside");
        return;
    };
    let lock = RtMutex::new(());
    let (releaser, waiter) = (AtomicU32::new(0), AtomicU32::new(0));
    let released = AtomicBool::new(false);
    let tried = AtomicBool::new(false);
    watched("steal", || {
        std::thread::scope(|scope| {
            // On one CPU: the releaser, and the waiter that cannot run while the releaser does.
            scope.spawn(|| {
                become_fifo(60, last);
                let held = lock.lock().unwrap();
                releaser.store(tid(), Ordering::Release);
                eventually("the wait", || waits_on_futex(waiter.load(Ordering::Acquire)));
                drop(held);
                released.store(true, Ordering::Release);
                let start = Instant::now();
                while !tried.load(Ordering::Acquire) && start.elapsed() < Duration::from_secs(20) {
                    std::hint::spin_loop();
                }
            });
            eventually("the lock", || releaser.load(Ordering::Acquire) != 0);
            scope.spawn(|| {
                become_fifo(40, last);
                waiter.store(tid(), Ordering::Release);
                drop(lock.lock().unwrap());
            });
            // On the other: an equal, and then a stronger one.
            scope.spawn(|| {
                become_fifo(40, first);
                eventually("the release", || released.load(Ordering::Acquire));
                let handed_over = waiter.load(Ordering::Acquire) | WAITERS;
                assert_eq!(lock.raw().word(), handed_over, "the word names the waiter before it runs");
                let equal = lock.try_lock().map(drop);
                let after_equal = lock.raw().word();
                priority::set(Thread::current(), Priority::Fifo(50)).unwrap();
                let stronger = lock.try_lock();
                let after_stronger = lock.raw().word();
                let stronger = stronger.map(drop);
                tried.store(true, Ordering::Release);
                assert!(matches!(equal, Err(TryLockError::WouldBlock)), "{equal:?}");
                assert_eq!(after_equal, handed_over);
                assert!(stronger.is_ok(), "{stronger:?}");
                assert_eq!(owner(after_stronger), tid());
            });
        });
    });
    assert_eq!(lock.raw().word(), 0);
    case("R22", "linux-steal");
}

#[test]
fn notified_threads_wake_in_order_of_priority_each_owning_the_mutex() {
    let Some(_alone) = alone() else { return };
    watched("condvar order", || {
        let (lock, condvar) = (RtMutex::new(()), RtCondvar::new());
        let wait = |note: &mut dyn FnMut()| {
            let guard = condvar.wait(lock.lock().unwrap()).unwrap();
            assert_eq!(owner(lock.raw().word()), tid());
            note();
            drop(guard);
        };
        let mut all = || {
            let guard = lock.lock().unwrap();
            assert_eq!(condvar.try_notify_all(), Ok(4));
            drop(guard);
        };
        assert_eq!(order(&[10, 40, 20, 30], &wait, &mut all), [40, 30, 20, 10]);
        // With the mutex free, and one at a time.
        let mut each = || (0..4).for_each(|_| assert_eq!(condvar.try_notify_one(), Ok(1)));
        assert_eq!(order(&[10, 40, 20, 30], &wait, &mut each), [40, 30, 20, 10]);
        assert_eq!(lock.raw().word(), 0);
    });
    case("R24", "linux-order");
}

#[test]
fn a_waiter_that_was_moved_boosts_the_owner() {
    let Some(_alone) = alone() else { return };
    watched("requeue boost", || {
        let (lock, condvar) = (RtMutex::new(()), RtCondvar::new());
        let cpu = *cpus().last().unwrap();
        let waiter = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                become_fifo(35, cpu);
                let guard = lock.lock().unwrap();
                waiter.store(tid(), Ordering::Release);
                drop(condvar.wait(guard).unwrap());
            });
            eventually("the wait", || waits_on_futex(waiter.load(Ordering::Acquire)));
            let me = Thread::current();
            let own = kernel_number(me);
            let guard = lock.lock().unwrap();
            assert_eq!(kernel_number(me), own, "it does not want the mutex yet");
            assert_eq!(condvar.try_notify_one(), Ok(1));
            assert_eq!(kernel_number(me), -36);
            drop(guard);
            assert_eq!(kernel_number(me), own);
        });
    });
}

/// On one CPU a thread that spins for an owner of the same priority would never see it run.
#[test]
fn equals_on_one_cpu_do_not_spin_for_each_other() {
    let Some(_alone) = alone() else { return };
    let cpu = *cpus().last().unwrap();
    watched("equals", || {
        for spin in [true, false] {
            let lock = Builder::new().spin(spin).build(0_u32);
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        become_fifo(20, cpu);
                        for _ in 0..200 {
                            let mut guard = lock.lock().unwrap();
                            *guard += 1;
                            // Lets an equal run while we own the lock.
                            std::thread::yield_now();
                        }
                    });
                }
            });
            assert_eq!(*lock.lock().unwrap(), 600);
            assert_eq!(lock.raw().word(), 0);
        }
    });
}

/// As `pi_stress`: groups in which a weak thread holds a lock that a strong one wants while a middle one runs. Without
/// inheritance a group stops for good; the watchdog says so.
#[test]
fn inversions_in_a_row_all_end() {
    let Some(_alone) = alone() else { return };
    let cpu = *cpus().last().unwrap();
    let lock = RtMutex::new(0_u64);
    let (holding, asking, done) = (AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false));
    let rounds = 300;
    watched("soak", || {
        std::thread::scope(|scope| {
            // The weak one holds the lock until the strong one has asked, whom the middle one keeps from running.
            scope.spawn(|| {
                become_fifo(10, cpu);
                for round in 1..=rounds {
                    let mut guard = lock.lock().unwrap();
                    holding.store(round, Ordering::Release);
                    while asking.load(Ordering::Acquire) < round {
                        std::thread::sleep(Duration::from_micros(20));
                    }
                    burn(50_000);
                    *guard += 1;
                    drop(guard);
                    while *lock.lock().unwrap() < u64::from(round) * 2 {
                        std::thread::sleep(Duration::from_micros(20));
                    }
                }
            });
            // Without inheritance this one would starve the weak one for as long as the strong one waits.
            scope.spawn(|| {
                become_fifo(20, cpu);
                while !done.load(Ordering::Acquire) {
                    let round = asking.load(Ordering::Acquire);
                    if holding.load(Ordering::Acquire) == round && round != 0 {
                        burn(50_000);
                    }
                    std::thread::sleep(Duration::from_micros(50));
                }
            });
            scope.spawn(|| {
                become_fifo(30, cpu);
                for round in 1..=rounds {
                    while holding.load(Ordering::Acquire) < round {
                        std::thread::sleep(Duration::from_micros(20));
                    }
                    asking.store(round, Ordering::Release);
                    *lock.lock().unwrap() += 1;
                }
                done.store(true, Ordering::Release);
            });
        });
        assert_eq!(*lock.lock().unwrap(), u64::from(rounds) * 2);
    });
}
