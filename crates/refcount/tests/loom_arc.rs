// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Models of the shared pointers: clone against drop, upgrade against the last drop, `get_mut` against `downgrade`.
#![cfg(loom)]
#![expect(unsafe_code, reason = "the payload is plain memory protected by the counts")]

use std::sync::atomic::{AtomicUsize, Ordering as StdOrdering};

use fastpath_refcount::{Arc, weak};
use loom::cell::UnsafeCell;
use loom::thread;

fn explore(name: &str, minimum: usize, model: impl Fn() + Send + Sync + 'static) {
    let executions = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&executions);
    loom::model(move || {
        counted.fetch_add(1, StdOrdering::Relaxed);
        model();
    });
    fastpath_testkit::explored(name, executions.load(StdOrdering::Relaxed), minimum);
}

/// A value whose destructor looks at what all users wrote, and counts itself.
struct Payload {
    words: [UnsafeCell<u32>; 2],
    drops: std::sync::Arc<AtomicUsize>,
}

// SAFETY: word i is written by thread i while it holds a handle, and read by the destructor or under `get_mut`: loom checks that.
unsafe impl Sync for Payload {}
// SAFETY: as above; the words are plain numbers.
unsafe impl Send for Payload {}

impl Payload {
    fn new(drops: &std::sync::Arc<AtomicUsize>) -> Self {
        Self { words: [UnsafeCell::new(0), UnsafeCell::new(0)], drops: std::sync::Arc::clone(drops) }
    }

    fn write(&self, me: usize) {
        // SAFETY: only thread `me` writes this word, while it holds a handle.
        self.words[me].with_mut(|word| unsafe { *word = 7 });
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        for word in &self.words {
            // SAFETY: the last handle is gone: nobody else uses the value.
            word.with_mut(|word| unsafe { *word += 1 });
        }
        self.drops.fetch_add(1, StdOrdering::Relaxed);
    }
}

#[test]
fn clone_and_drop() {
    explore("arc: clone and drop", 6, || {
        let drops = std::sync::Arc::new(AtomicUsize::new(0));
        let one = Arc::new(Payload::new(&drops));
        let two = Arc::clone(&one);
        let other = thread::spawn(move || {
            let three = Arc::clone(&two);
            drop(two);
            three.write(1);
        });
        one.write(0);
        drop(one);
        other.join().unwrap();
        assert_eq!(drops.load(StdOrdering::Relaxed), 1);
    });
}

#[test]
fn get_mut_and_try_unwrap_acquire() {
    explore("arc: get_mut", 4, || {
        let drops = std::sync::Arc::new(AtomicUsize::new(0));
        let mut one = Arc::new(Payload::new(&drops));
        let two = Arc::clone(&one);
        let other = thread::spawn(move || two.write(1));
        if let Some(payload) = Arc::get_mut(&mut one) {
            // SAFETY: `&mut`: the other thread has dropped its handle.
            payload.words[1].with_mut(|word| unsafe { *word += 1 });
        }
        if let Ok(payload) = Arc::try_unwrap(one) {
            // SAFETY: owned: as above.
            payload.words[1].with_mut(|word| unsafe { *word += 1 });
        }
        other.join().unwrap();
        assert_eq!(drops.load(StdOrdering::Relaxed), 1);
    });
}

#[test]
fn upgrade_against_the_last_drop() {
    explore("weak: upgrade", 10, || {
        let drops = std::sync::Arc::new(AtomicUsize::new(0));
        let one = weak::Arc::new(Payload::new(&drops));
        let weak = weak::Arc::downgrade(&one);
        let seen = std::sync::Arc::clone(&drops);
        let other = thread::spawn(move || {
            if let Some(two) = weak.upgrade() {
                assert_eq!(seen.load(StdOrdering::Relaxed), 0, "upgraded after it died");
                two.write(1);
            }
        });
        one.write(0);
        drop(one);
        other.join().unwrap();
        assert_eq!(drops.load(StdOrdering::Relaxed), 1);
    });
}

/// One thread wants `&mut` while another makes a weak reference and drops its handle: the `&mut` must not be given while the weak
/// reference can still become a handle.
#[test]
fn get_mut_against_downgrade() {
    explore("weak: get_mut against downgrade", 20, || {
        let drops = std::sync::Arc::new(AtomicUsize::new(0));
        let mut one = weak::Arc::new(Payload::new(&drops));
        let two = weak::Arc::clone(&one);
        let other = thread::spawn(move || {
            let weak = weak::Arc::downgrade(&two);
            drop(two);
            if let Some(again) = weak.upgrade() {
                again.write(1);
            }
        });
        if let Some(payload) = weak::Arc::get_mut(&mut one) {
            // SAFETY: `&mut`: nobody else can reach the value.
            payload.words[1].with_mut(|word| unsafe { *word += 1 });
        }
        drop(one);
        other.join().unwrap();
        assert_eq!(drops.load(StdOrdering::Relaxed), 1);
    });
}
