// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The Linux mutex's protocol under loom: the same functions that run on the real futex, on a modelled kernel.
//!
//! The model knows what the real kernel answers (`linux_mutex.rs` holds it to that): it sets WAITERS before it queues
//! anybody, hands over in order of arrival with WAITERS kept, reports a dead owner only while nobody waits. The data
//! under the lock is loom's cell, so two owners at a time, or an owner that does not see its predecessor's writes, fail.
#![cfg(loom)]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize as Executions, Ordering as Plain};

use fastpath_rtmutex::linux::protocol::{self, Grant, Port, Refusal};
use fastpath_rtmutex::linux::word::{self, FREE, OWNER_DIED, WAITERS};
use fastpath_testkit::explored;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// The kernel's side of one futex.
#[derive(Default)]
struct Kernel {
    queue: VecDeque<u32>,
    granted: Option<u32>,
    dead: u32,
    calls: usize,
}

struct Futex {
    word: AtomicU32,
    kernel: Mutex<Kernel>,
    woken: Condvar,
    recovering: AtomicBool,
    sleepers: AtomicUsize,
    data: UnsafeCell<u32>,
}

impl Futex {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            word: AtomicU32::new(FREE),
            kernel: Mutex::new(Kernel::default()),
            woken: Condvar::new(),
            recovering: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            data: UnsafeCell::new(0),
        })
    }

    /// Adds one to the data; loom objects if another thread is at it, or if its writes are not visible.
    #[expect(unsafe_code, reason = "the cell under test")]
    fn count(&self) -> u32 {
        self.data.with_mut(|data| {
            // SAFETY: the lock under test is held; loom checks exactly that.
            unsafe {
                *data += 1;
                *data
            }
        })
    }
}

/// One thread's view of the futex.
struct Side {
    futex: Arc<Futex>,
    me: u32,
    spins: u32,
}

impl Side {
    /// What `RawRtMutex::lock` does.
    fn lock(&self) -> Result<Grant, Refusal> {
        // ORDERING: Acquire pairs with the Release in `unlock`.
        match self.futex.word.compare_exchange(FREE, self.me, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(Grant::Clean),
            Err(_) => protocol::lock(self, self.me, None),
        }
    }

    /// What `RawRtMutex::unlock` does.
    fn unlock(&self) {
        // ORDERING: Release pairs with the Acquire in `lock`.
        if self.futex.word.compare_exchange(self.me, FREE, Ordering::Release, Ordering::Relaxed).is_err() {
            protocol::unlock(self, self.me).unwrap();
        }
    }

    /// The thread ends: the kernel hands what it owns to a waiter, or forgets the thread.
    fn die(&self) {
        let mut kernel = self.futex.kernel.lock().unwrap();
        kernel.dead = self.me;
        if let Some(next) = kernel.queue.pop_front() {
            // ORDERING: SeqCst, as the kernel's own accesses.
            self.futex.word.store(next | WAITERS | OWNER_DIED, Ordering::SeqCst);
            kernel.granted = Some(next);
            self.futex.woken.notify_all();
        }
    }

    fn kernel_lock(&self, wait: bool) -> Result<(), Refusal> {
        let futex = &*self.futex;
        let mut kernel = futex.kernel.lock().unwrap();
        kernel.calls += 1;
        loop {
            // ORDERING: SeqCst here and below, as the kernel's own accesses.
            let seen = futex.word.load(Ordering::SeqCst);
            let swap =
                |new| futex.word.compare_exchange(seen, new, Ordering::SeqCst, Ordering::SeqCst).is_ok();
            if word::owner(seen) == self.me {
                return Err(Refusal::Deadlock);
            }
            if word::owner(seen) == 0 {
                if swap(seen | self.me) {
                    return Ok(());
                }
                continue;
            }
            if !swap(seen | WAITERS) {
                continue;
            }
            if kernel.dead == word::owner(seen) && kernel.queue.is_empty() {
                return Err(Refusal::NoSuchOwner);
            }
            if !wait {
                return Err(Refusal::Again);
            }
            kernel.queue.push_back(self.me);
            while kernel.granted != Some(self.me) {
                kernel = futex.woken.wait(kernel).unwrap();
            }
            kernel.granted = None;
            return Ok(());
        }
    }
}

impl Port for Side {
    type Deadline = ();

    fn load(&self) -> u32 {
        self.futex.word.load(Ordering::Relaxed)
    }
    fn load_acquire(&self) -> u32 {
        // ORDERING: Acquire, as the real port.
        self.futex.word.load(Ordering::Acquire)
    }
    fn cmpxchg_acquire(&self, old: u32, new: u32) -> bool {
        // ORDERING: Acquire, as the real port.
        self.futex.word.compare_exchange(old, new, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
    fn cmpxchg_release(&self, old: u32, new: u32) -> bool {
        // ORDERING: Release, as the real port.
        self.futex.word.compare_exchange(old, new, Ordering::Release, Ordering::Relaxed).is_ok()
    }
    fn note_death(&self) {
        self.futex.word.fetch_and(word::death_noted(u32::MAX), Ordering::Relaxed);
    }
    fn lock_pi(&self, _deadline: Option<()>) -> Result<(), Refusal> {
        self.kernel_lock(true)
    }
    fn trylock_pi(&self) -> Result<(), Refusal> {
        self.kernel_lock(false)
    }
    fn unlock_pi(&self) -> Result<(), Refusal> {
        let mut kernel = self.futex.kernel.lock().unwrap();
        kernel.calls += 1;
        // ORDERING: SeqCst, as the kernel's own accesses.
        let seen = self.futex.word.load(Ordering::SeqCst);
        if word::owner(seen) != self.me {
            return Err(Refusal::NotOurs);
        }
        let Some(next) = kernel.queue.pop_front() else {
            // ORDERING: SeqCst, as above.
            let freed = self.futex.word.compare_exchange(seen, FREE, Ordering::SeqCst, Ordering::SeqCst);
            return freed.map(drop).map_err(|_| Refusal::Again);
        };
        // ORDERING: SeqCst, as above.
        self.futex.word.store(next | WAITERS, Ordering::SeqCst);
        kernel.granted = Some(next);
        self.futex.woken.notify_all();
        Ok(())
    }
    fn spin_limit(&self) -> u32 {
        self.spins
    }
    fn owner_is_on_this_cpu(&self, _owner: u32) -> bool {
        false
    }
    fn has_sleepers_beside(&self, _owner: u32) -> bool {
        self.futex.sleepers.load(Ordering::Relaxed) > 0
    }
    fn count_sleeper(&self, sleeps: bool) {
        if sleeps {
            self.futex.sleepers.fetch_add(1, Ordering::Relaxed);
        } else {
            self.futex.sleepers.fetch_sub(1, Ordering::Relaxed);
        }
    }
    fn pause(&self) {
        thread::yield_now();
    }
    fn give_way(&self, _attempt: u32) {
        thread::yield_now();
    }
    fn begin_recovery(&self) -> bool {
        // ORDERING: Acquire, as the real port.
        !self.futex.recovering.swap(true, Ordering::Acquire)
    }
    fn end_recovery(&self) {
        // ORDERING: Release, as the real port.
        self.futex.recovering.store(false, Ordering::Release);
    }
    fn fresh_tid(&self) -> u32 {
        self.me
    }
}

/// Explores `model` with at most three preemptions; prints how often it ran.
fn explore(name: &str, minimum: usize, model: impl Fn() + Sync + Send + 'static) {
    static RUNS: Executions = Executions::new(0);
    static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    RUNS.store(0, Plain::Relaxed);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        RUNS.fetch_add(1, Plain::Relaxed);
        model();
    });
    explored(name, RUNS.load(Plain::Relaxed), minimum);
}

#[test]
fn two_threads_exclude_each_other_and_leave_the_word_free() {
    for spins in [0, 1] {
        explore("linux mutex, two threads", 20, move || {
            let futex = Futex::new();
            let run = move |me: u32, futex: Arc<Futex>| {
                let side = Side { futex, me, spins };
                assert_eq!(side.lock(), Ok(Grant::Clean));
                side.futex.count();
                side.unlock();
            };
            let there = Arc::clone(&futex);
            let other = thread::spawn(move || run(2, there));
            run(1, Arc::clone(&futex));
            other.join().unwrap();
            assert_eq!(futex.word.load(Ordering::Relaxed), FREE);
            assert_eq!(futex.count(), 3);
        });
    }
}

#[test]
fn a_dead_owner_has_one_heir_at_a_time() {
    explore("linux mutex, dead owner", 50, || {
        let futex = Futex::new();
        // Owned by a thread that is gone.
        let dead = Side { futex: Arc::clone(&futex), me: 9, spins: 0 };
        assert_eq!(dead.lock(), Ok(Grant::Clean));
        dead.die();
        let heir = |me: u32, futex: Arc<Futex>| {
            let side = Side { futex, me, spins: 0 };
            let grant = side.lock().unwrap();
            side.futex.count();
            side.unlock();
            usize::from(grant == Grant::OwnerDied)
        };
        let there = Arc::clone(&futex);
        let other = thread::spawn(move || heir(2, there));
        let told = heir(1, Arc::clone(&futex)) + other.join().unwrap();
        assert_eq!(told, 1, "the death is reported once; the poison flag beside the word does the rest");
        assert_eq!(futex.word.load(Ordering::Relaxed), FREE);
    });
}

#[test]
fn an_owner_that_dies_while_others_come_is_reported_once() {
    explore("linux mutex, dying owner", 50, || {
        let futex = Futex::new();
        let dying = Side { futex: Arc::clone(&futex), me: 9, spins: 0 };
        assert_eq!(dying.lock(), Ok(Grant::Clean));
        let heirs = [2, 3].map(|me| {
            let futex = Arc::clone(&futex);
            thread::spawn(move || {
                let side = Side { futex, me, spins: 0 };
                let grant = side.lock().unwrap();
                side.futex.count();
                side.unlock();
                usize::from(grant == Grant::OwnerDied)
            })
        });
        futex.count();
        dying.die();
        let told: usize = heirs.map(|heir| heir.join().unwrap()).iter().sum();
        assert_eq!(told, 1);
        assert_eq!(futex.word.load(Ordering::Relaxed), FREE);
    });
}

#[test]
fn a_try_neither_waits_nor_takes_what_is_held() {
    explore("linux mutex, try", 20, || {
        let futex = Futex::new();
        let there = Arc::clone(&futex);
        let other = thread::spawn(move || {
            let side = Side { futex: there, me: 2, spins: 0 };
            assert_eq!(side.lock(), Ok(Grant::Clean));
            side.futex.count();
            side.unlock();
        });
        let side = Side { futex: Arc::clone(&futex), me: 1, spins: 0 };
        match protocol::try_lock(&side, 1) {
            Ok(grant) => {
                assert_eq!(grant, Grant::Clean);
                futex.count();
                side.unlock();
            }
            Err(refusal) => assert_eq!(refusal, Refusal::Again),
        }
        other.join().unwrap();
        assert_eq!(futex.word.load(Ordering::Relaxed), FREE);
    });
}
