// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The kernel half under loom: two or three threads, all interleavings up to a bound on preemptions, and the C11 memory
//! model. The cells of waiters and tasks are loom's, so every access to them is checked for data races (K98).
#![cfg(loom)]
#![expect(
    unsafe_code,
    reason = "the model implements the unsafe traits of the algorithm and unlocks raw locks"
)]

use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use fastpath_rtmutex::kernel::{
    Context, Key, LockError, Native, Policy, RawMutex, RawSpin, RwSemaphore, Scheduler, Signal, SpinLock,
    Task, TaskState, Wait, WaitQueue, WwClass, WwError, WwMutex,
};
use fastpath_testkit::{case, explored};
use loom::cell::UnsafeCell as Checked;
use loom::sync::{Arc, Condvar, Mutex, MutexGuard};

/// A raw lock on loom's mutex, whose guard is kept inside it while it is held.
struct RawLock {
    mutex: Mutex<()>,
    guard: UnsafeCell<Option<MutexGuard<'static, ()>>>,
}

impl std::fmt::Debug for RawLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RawLock")
    }
}

impl RawLock {
    fn keep(&self, guard: MutexGuard<'_, ()>) {
        // SAFETY: the mutex is held, so nobody else touches the slot; the guard is dropped before the mutex, in `unlock`.
        unsafe {
            *self.guard.get() =
                Some(std::mem::transmute::<MutexGuard<'_, ()>, MutexGuard<'static, ()>>(guard))
        };
    }
}

// SAFETY: the slot is accessed while the mutex is held only.
unsafe impl Send for RawLock {}
// SAFETY: as above.
unsafe impl Sync for RawLock {}

// SAFETY: a mutex.
unsafe impl RawSpin for RawLock {
    fn unlocked() -> Self {
        Self { mutex: Mutex::new(()), guard: UnsafeCell::new(None) }
    }
    fn lock(&self) {
        self.keep(self.mutex.lock().unwrap());
    }
    fn try_lock(&self) -> bool {
        self.mutex.try_lock().map(|guard| self.keep(guard)).is_ok()
    }
    unsafe fn unlock(&self) {
        // SAFETY: held by the caller.
        drop(unsafe { (*self.guard.get()).take() });
    }
}

/// A token that `park` waits for.
struct Data {
    token: Mutex<bool>,
    given: Condvar,
}

struct Loom;

loom::thread_local! {
    static CURRENT: Cell<Option<&'static Task<Loom>>> = Cell::new(None);
}

// SAFETY: each thread is its own task; tasks are freed after all threads have ended; a token under a mutex.
unsafe impl Scheduler for Loom {
    type RawLock = RawLock;
    type Owner = Native<Task<Self>>;
    type Irq = ();
    type Data = Data;

    fn current() -> &'static Task<Self> {
        CURRENT.with(Cell::get).expect("a task")
    }
    fn irq_save() {}
    fn irq_restore((): ()) {}
    fn preempt_disable() {}
    fn preempt_enable() {}
    fn park(deadline: Option<u64>) {
        if deadline.is_some() {
            // It has passed: see `now`.
            return;
        }
        let data = Self::current().data();
        let mut token = data.token.lock().unwrap();
        while !*token {
            token = data.given.wait(token).unwrap();
        }
        *token = false;
    }
    fn unpark(task: &'static Task<Self>) {
        *task.data().token.lock().unwrap() = true;
        task.data().given.notify_one();
    }
    fn now() -> u64 {
        1
    }
    fn signal(_: &Task<Self>) -> Signal {
        Signal::None
    }
    fn priority_changed(_: &'static Task<Self>, _: Key) {}
    fn on_cpu(_: &Task<Self>) -> bool {
        false
    }
    fn need_resched() -> bool {
        false
    }
    fn relax() {
        loom::thread::yield_now();
    }
}

/// A thread's program.
type Program = Box<dyn FnOnce() + Send>;

/// Explores all interleavings of the programs that `make` returns, with the urgencies beside them, and requires that at least
/// `minimum` were explored. The first program runs on the first thread.
fn explore(
    name: &str,
    preemptions: usize,
    minimum: usize,
    make: impl Fn() -> Vec<(Key, Program)> + Send + Sync + 'static,
) {
    static EXECUTIONS: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one_at_a_time = EXECUTIONS.lock();
    let executions = std::sync::Arc::new(AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&executions);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(move || {
        count.fetch_add(1, Relaxed);
        let mut tasks = Vec::new();
        let mut programs: Vec<_> = make()
            .into_iter()
            .map(|(key, program)| {
                let data = Data { token: Mutex::new(false), given: Condvar::new() };
                let task = Box::into_raw(Box::new(Task::new(key, data)));
                tasks.push(task);
                // SAFETY: freed at the end of the execution, when no thread is left.
                let task: &'static Task<Loom> = unsafe { &*task };
                move || {
                    CURRENT.with(|current| current.set(Some(task)));
                    program();
                }
            })
            .collect();
        let first = programs.remove(0);
        let threads: Vec<_> = programs.into_iter().map(loom::thread::spawn).collect();
        first();
        for thread in threads {
            thread.join().unwrap();
        }
        for task in tasks {
            // SAFETY: made above; all threads have ended.
            let task = unsafe { Box::from_raw(task) };
            assert_eq!(task.effective(), task.base());
            assert!(!task.is_blocked());
        }
    });
    explored(name, executions.load(Relaxed), minimum);
}

/// A value that loom checks for unsynchronised access.
#[derive(Clone)]
struct Value(Arc<Checked<u32>>);

// SAFETY: loom checks each access; that is the point.
unsafe impl Send for Value {}
// SAFETY: as above.
unsafe impl Sync for Value {}

impl Value {
    fn new() -> Self {
        Self(Arc::new(Checked::new(0)))
    }
    fn add(&self) -> u32 {
        self.0.with_mut(|value| {
            // SAFETY: loom panics if anybody else is here, or was without an edge to us.
            unsafe {
                *value += 1;
                *value
            }
        })
    }
    fn read(&self) -> u32 {
        // SAFETY: as above.
        self.0.with(|value| unsafe { *value })
    }
}

fn locker(lock: &Arc<RawMutex<Loom>>, value: &Value) -> Program {
    let (lock, value) = (Arc::clone(lock), value.clone());
    Box::new(move || {
        lock.lock();
        value.add();
        // SAFETY: locked above.
        unsafe { lock.unlock() };
    })
}

#[test]
fn two_threads_exclude_each_other_and_see_each_others_writes() {
    explore("kernel-mutex-2", 8, 2000, || {
        let (lock, value) = (Arc::new(RawMutex::<Loom>::new()), Value::new());
        vec![(Key::NORMAL, locker(&lock, &value)), (Key::realtime(10), locker(&lock, &value))]
    });
    case("K98", "loom");
}

#[test]
fn three_threads_exclude_each_other_and_none_sleeps_for_ever() {
    explore("kernel-mutex-3", 3, 4000, || {
        let (lock, value) = (Arc::new(RawMutex::<Loom>::new()), Value::new());
        [Key::NORMAL, Key::realtime(20), Key::realtime(10)].map(|key| (key, locker(&lock, &value))).into()
    });
    case("K98", "loom");
}

#[test]
fn a_wait_that_fails_races_with_the_unlock() {
    explore("kernel-mutex-timeout", 6, 2000, || {
        let (lock, value) = (Arc::new(RawMutex::<Loom>::new()), Value::new());
        let (late, late_value) = (Arc::clone(&lock), value.clone());
        let waiter: Program = Box::new(move || match late.lock_with(Wait::uninterruptible().until(1)) {
            Ok(()) => {
                late_value.add();
                // SAFETY: locked above.
                unsafe { late.unlock() };
            }
            Err(error) => assert_eq!(error, LockError::TimedOut),
        });
        // Twice: the second fast lock reads the word that the failed waiter left behind.
        let twice: Program = Box::new(move || {
            for _ in 0..2 {
                lock.lock();
                value.add();
                // SAFETY: locked above.
                unsafe { lock.unlock() };
            }
        });
        vec![(Key::NORMAL, twice), (Key::realtime(10), waiter)]
    });
    case("K98", "loom");
}

#[test]
fn try_lock_never_enters_a_held_section() {
    explore("kernel-try-lock", 8, 1000, || {
        let (lock, value) = (Arc::new(RawMutex::<Loom>::new()), Value::new());
        let (tried, tried_value) = (Arc::clone(&lock), value.clone());
        let trier: Program = Box::new(move || {
            if tried.try_lock() {
                tried_value.add();
                // SAFETY: locked above.
                unsafe { tried.unlock() };
            }
        });
        vec![(Key::NORMAL, locker(&lock, &value)), (Key::NORMAL, trier)]
    });
    case("K98", "loom");
}

#[test]
fn spinlocks_steal_and_still_exclude() {
    explore("kernel-spinlock", 8, 2000, || {
        let (lock, value) = (Arc::new(SpinLock::<Loom>::new()), Value::new());
        (0..2)
            .map(|_| {
                let (lock, value) = (Arc::clone(&lock), value.clone());
                let program: Program = Box::new(move || {
                    lock.lock();
                    value.add();
                    // SAFETY: locked above.
                    unsafe { lock.unlock() };
                });
                (Key::NORMAL, program)
            })
            .collect()
    });
    case("K98", "loom");
}

#[test]
fn readers_see_what_the_writer_wrote_and_the_writer_waits_for_them() {
    explore("kernel-rw", 5, 1000, || {
        let (lock, value) = (Arc::new(RwSemaphore::<Loom>::new()), Value::new());
        let writer: Program = {
            let (lock, value) = (Arc::clone(&lock), value.clone());
            Box::new(move || {
                lock.write(Wait::uninterruptible()).unwrap();
                value.add();
                value.add();
                // SAFETY: the writer.
                unsafe { lock.write_unlock() };
            })
        };
        let reader: Program = {
            let (lock, value) = (Arc::clone(&lock), value);
            Box::new(move || {
                lock.read(Wait::uninterruptible()).unwrap();
                assert_ne!(value.read(), 1, "half a write");
                // SAFETY: a reader.
                unsafe { lock.read_unlock() };
            })
        };
        vec![(Key::NORMAL, writer), (Key::realtime(10), reader)]
    });
    case("K95", "loom");
}

#[test]
fn two_contexts_in_opposite_order_both_get_through() {
    for policy in [Policy::WoundWait, Policy::WaitDie] {
        explore("kernel-ww", 3, 5000, move || {
            let locks = Arc::new([(); 2].map(|()| WwMutex::<Loom>::new()));
            let class = Arc::new(WwClass::new(policy));
            let value = Value::new();
            (0..2)
                .map(|i| {
                    let (locks, class, value) = (Arc::clone(&locks), Arc::clone(&class), value.clone());
                    let program: Program = Box::new(move || {
                        let context = Context::new(&class);
                        let (mut a, mut b) = (i, 1 - i);
                        loop {
                            // SAFETY: our context, which stays until all is unlocked; what is locked is unlocked once.
                            unsafe {
                                locks[a].lock(Some(&context), TaskState::Uninterruptible).unwrap();
                                match locks[b].lock(Some(&context), TaskState::Uninterruptible) {
                                    Ok(()) => break,
                                    Err(error) => assert_eq!(error, WwError::Deadlock),
                                }
                                locks[a].unlock();
                            }
                            (a, b) = (b, a);
                        }
                        value.add();
                        // SAFETY: both locked.
                        unsafe {
                            locks[b].unlock();
                            locks[a].unlock();
                        }
                    });
                    (Key::NORMAL, program)
                })
                .collect()
        });
    }
    case("K96", "loom");
}

#[test]
fn a_notification_reaches_a_sleeper_that_is_just_going_to_sleep() {
    for outside in [false, true] {
        explore("kernel-wait-queue", 4, 3000, move || {
            let shared = Arc::new((RawMutex::<Loom>::new(), WaitQueue::<Loom>::new()));
            let value = Value::new();
            let sleeper: Program = {
                let (shared, value) = (Arc::clone(&shared), value.clone());
                Box::new(move || {
                    let (mutex, queue) = &*shared;
                    mutex.lock();
                    while value.read() == 0 {
                        // SAFETY: locked above, and again by each wait.
                        unsafe { queue.wait(mutex, Wait::uninterruptible()) }.unwrap();
                    }
                    value.add();
                    // SAFETY: locked.
                    unsafe { mutex.unlock() };
                })
            };
            let notifier: Program = Box::new(move || {
                let (mutex, queue) = &*shared;
                mutex.lock();
                value.add();
                if !outside {
                    queue.notify_one(mutex).unwrap();
                }
                // SAFETY: locked above.
                unsafe { mutex.unlock() };
                if outside {
                    queue.notify_one(mutex).unwrap();
                }
            });
            vec![(Key::realtime(10), sleeper), (Key::NORMAL, notifier)]
        });
    }
    case("K94", "loom");
}

#[test]
fn a_sleeper_that_leaves_races_with_the_one_who_moves_it() {
    explore("kernel-wait-queue-timeout", 4, 10_000, || {
        let shared = Arc::new((RawMutex::<Loom>::new(), WaitQueue::<Loom>::new()));
        let value = Value::new();
        let sleeper: Program = {
            let (shared, value) = (Arc::clone(&shared), value.clone());
            Box::new(move || {
                let (mutex, queue) = &*shared;
                mutex.lock();
                // SAFETY: locked above, and again by the wait. The deadline has passed.
                let result = unsafe { queue.wait(mutex, Wait::uninterruptible().until(1)) };
                assert!(matches!(result, Ok(()) | Err(LockError::TimedOut)));
                value.add();
                // SAFETY: locked.
                unsafe { mutex.unlock() };
            })
        };
        let notifier: Program = Box::new(move || {
            let (mutex, queue) = &*shared;
            queue.notify_all(mutex).unwrap();
            mutex.lock();
            value.add();
            // SAFETY: locked above.
            unsafe { mutex.unlock() };
        });
        vec![(Key::realtime(10), sleeper), (Key::NORMAL, notifier)]
    });
    case("K94", "loom");
}
