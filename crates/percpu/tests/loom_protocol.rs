// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The Rust-side state machines under loom: slot lock, stop and resume, switch and kill.
//!
//! A section is modelled by what the kernel makes of it: it loads, computes, and commits with one store unless a fence came
//! in between, in which case it starts again. The mutex stands for "commit or abort, not both": the fence takes it
//! and marks every section that is open; the commit takes it and looks for the mark. loom keeps no
//! coherence between a plain store and a concurrent exchange (a thread reads the exchange's value after its own later
//! store), so commits and loads of sections are exchanges here; on hardware one word is coherent.
#![cfg(loom)]
#![expect(unsafe_code, reason = "loom's cells give raw pointers")]

use std::sync::atomic::{AtomicUsize, Ordering as StdOrdering};

use fastpath_percpu::protocol::{self, Central, SlotLock};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// The kernel's part: which sections are open, and whether a fence came.
struct Kernel {
    /// One generation for all: a fence changes it, a commit checks that it is still the one from the section's start.
    generation: Mutex<u64>,
}

impl Kernel {
    fn new() -> Self {
        Self { generation: Mutex::new(0) }
    }

    fn fence(&self) -> Result<(), ()> {
        *self.generation.lock().unwrap() += 1;
        Ok(())
    }

    /// Runs a section on `word`: `step` gives the new value for the loaded one, or `None` for a mismatch.
    fn section(&self, word: &AtomicU64, step: impl Fn(u64) -> Option<u64>) -> bool {
        for _ in 0..3 {
            let (start, loaded) = {
                let generation = self.generation.lock().unwrap();
                (*generation, word.fetch_or(0, Ordering::AcqRel))
            };
            let Some(new) = step(loaded) else { return false };
            thread::yield_now();
            let generation = self.generation.lock().unwrap();
            if *generation == start {
                word.swap(new, Ordering::AcqRel);
                return true;
            }
        }
        false
    }
}

fn explore(name: &str, minimum: usize, model: impl Fn() + Send + Sync + 'static) {
    let executions = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = executions.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        counted.fetch_add(1, StdOrdering::Relaxed);
        model();
    });
    fastpath_testkit::explored(name, executions.load(StdOrdering::Relaxed), minimum);
}

const MARKER: u64 = 99;

fn stopping() {
    // A counter stands for a stack's count: pushes add one, and no push may be lost or happen while it is stopped.
    explore("stop", 50, || {
        let word = Arc::new(AtomicU64::new(5));
        let kernel = Arc::new(Kernel::new());
        let owner = {
            let (word, kernel) = (word.clone(), kernel.clone());
            thread::spawn(move || {
                let push = |count: u64| (count != MARKER).then_some(count + 1);
                u64::from(kernel.section(&word, push)) + u64::from(kernel.section(&word, push))
            })
        };
        let found = protocol::stop(&word, MARKER, || kernel.fence()).unwrap();
        // Stopped: nobody else changes it now.
        assert_eq!(word.load(Ordering::Relaxed), MARKER);
        thread::yield_now();
        assert_eq!(word.load(Ordering::Relaxed), MARKER);
        // Take one out while it is stopped.
        protocol::resume(&word, found - 1);
        let pushed = owner.join().unwrap();
        assert_eq!(
            word.fetch_add(0, Ordering::AcqRel),
            5 + pushed - 1,
            "every push counted once; stopped at {found}"
        );
    });
}

fn a_failed_fence_gives_the_word_back() {
    explore("stop, fence fails", 2, || {
        let word = Arc::new(AtomicU64::new(5));
        let kernel = Arc::new(Kernel::new());
        let owner = {
            let (word, kernel) = (word.clone(), kernel.clone());
            thread::spawn(move || kernel.section(&word, |count| (count != MARKER).then_some(count + 1)))
        };
        assert_eq!(protocol::stop(&word, MARKER, || Err::<(), u8>(7)), Err(7));
        let pushed = owner.join().unwrap();
        assert_eq!(word.load(Ordering::Relaxed), 5 + u64::from(pushed));
    });
}

fn locking() {
    explore("slot lock", 10, || {
        let lock = Arc::new(SlotLock::new());
        let value = Arc::new(UnsafeCell::new(0_u64));
        let body = |token: u64, lock: &SlotLock, value: &UnsafeCell<u64>| {
            // loom checks that nobody else is in here.
            // SAFETY: the lock gives exclusive access.
            lock.with(token, || value.with_mut(|number| unsafe { *number += 1 })).is_some()
        };
        let other = {
            let (lock, value) = (lock.clone(), value.clone());
            thread::spawn(move || body(1, &lock, &value))
        };
        let mine = body(2, &lock, &value);
        let theirs = other.join().unwrap();
        let mut reached = 0;
        // SAFETY: as above.
        lock.with(3, || reached = value.with(|number| unsafe { *number }));
        assert_eq!(reached, u64::from(mine) + u64::from(theirs));
        assert!(mine || theirs);
        // Below a signal handler: the owner finds itself and does without.
        assert_eq!(lock.with(4, || lock.with(4, || ())), Some(None));
    });
}

/// A per-CPU reference count: the slot of each thread, its sections, and the shared half.
struct Reference {
    central: Central,
    slots: [AtomicI64; 2],
    kernel: Mutex<()>,
}

impl Reference {
    fn new() -> Self {
        Self {
            central: Central::new(),
            slots: [AtomicI64::new(0), AtomicI64::new(0)],
            kernel: Mutex::new(()),
        }
    }

    /// The guarded section: check the mode, then add. The fence cannot come in between, as it would start it again.
    fn add(&self, slot: usize, delta: i64) -> bool {
        let _section = self.kernel.lock().unwrap();
        if !self.central.is_per_cpu() {
            return false;
        }
        self.slots[slot].store(self.slots[slot].load(Ordering::Relaxed) + delta, Ordering::Relaxed);
        true
    }

    fn get(&self, slot: usize) {
        if !self.add(slot, 1) {
            self.central.get();
        }
    }

    fn put(&self, slot: usize) -> bool {
        !self.add(slot, -1) && self.central.put()
    }

    fn try_get_live(&self, slot: usize) -> bool {
        self.add(slot, 1) || (!self.central.is_dying() && self.central.try_get())
    }

    fn switch(&self) {
        let fence = || {
            drop(self.kernel.lock().unwrap());
            Ok::<(), ()>(())
        };
        let sum = || self.slots.iter().map(|slot| slot.load(Ordering::Relaxed)).sum();
        self.central.switch_to_atomic(fence, sum).unwrap();
    }

    fn kill(&self) -> bool {
        self.switch();
        self.central.mark_dead() && self.central.put()
    }
}

fn killing() {
    explore("kill", 100, || {
        let reference = Arc::new(Reference::new());
        // The object, reached by users and freed by whoever sees the last reference go: loom checks the ordering.
        let object = Arc::new(UnsafeCell::new(0_u64));
        reference.get(1);
        let user = {
            let (reference, object) = (reference.clone(), object.clone());
            thread::spawn(move || {
                // SAFETY: we hold a reference, so nobody has freed it.
                object.with(|value| unsafe { assert_eq!(*value, 0) });
                let extra = reference.try_get_live(1);
                let mut last = extra && reference.put(1);
                last |= reference.put(1);
                if last {
                    // SAFETY: the last reference: ours alone.
                    object.with_mut(|value| unsafe { *value += 1 });
                }
                last
            })
        };
        let mine = reference.kill();
        if mine {
            // SAFETY: the last reference: ours alone.
            object.with_mut(|value| unsafe { *value += 1 });
        }
        let theirs = user.join().unwrap();
        assert!(mine != theirs, "exactly one sees the last reference go");
        assert!(!reference.try_get_live(0));
    });
}

fn switching_there_and_back() {
    explore("switch", 50, || {
        let reference = Arc::new(Reference::new());
        let user = {
            let reference = reference.clone();
            thread::spawn(move || {
                reference.get(1);
                assert!(!reference.put(1), "the initial one is there");
            })
        };
        reference.switch();
        assert!(!reference.add(0, 1), "counts centrally now");
        let back = reference.central.switch_to_per_cpu(|| {
            for slot in &reference.slots {
                slot.store(0, Ordering::Relaxed);
            }
        });
        assert!(back && reference.central.is_per_cpu());
        user.join().unwrap();
        assert!(reference.kill(), "only the initial one is left");
    });
}

#[test]
fn stop_and_resume() {
    stopping();
    a_failed_fence_gives_the_word_back();
}

#[test]
fn slot_lock() {
    locking();
}

#[test]
fn reference_kill() {
    killing();
}

#[test]
fn reference_switch() {
    switching_there_and_back();
}
