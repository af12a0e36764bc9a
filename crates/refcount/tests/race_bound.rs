// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Invariant 3 of the counter, exactly: how many threads must be stopped between their read-modify-write and their store
//! of the saturated value before a bad counter looks good again.
//!
//! A search through every state of a counter of few bits, with the thresholds placed as in the real one. A state is the word and
//! how many threads owe it a store. The arithmetic then carries the bound to 32 bits and to the kernel's limits.
#![cfg(not(loom))]

use fastpath_refcount::{MAX, SATURATED};

/// Searches all states of a word of `bits` bits that starts saturated, with at most `threads` threads owing a store at
/// once, each changing the word by up to `batch` in either direction. Returns whether the word ever left the bad values.
fn escapes(bits: u32, threads: usize, batch: u32) -> bool {
    let (size, max) = (1_u32 << bits, (1_u32 << (bits - 1)) - 1);
    let saturated = saturated(bits);
    let mut seen = vec![false; size as usize * (threads + 1)];
    let mut todo = vec![(saturated, 0)];
    while let Some((word, owing)) = todo.pop() {
        if word <= max {
            return true;
        }
        let index = word as usize * (threads + 1) + owing;
        if std::mem::replace(&mut seen[index], true) {
            continue;
        }
        if owing > 0 {
            // One of them gets to its store.
            todo.push((saturated, owing - 1));
        }
        if owing < threads {
            // One more thread changes the word. It finds a bad value, so it owes a store.
            for step in [1, batch] {
                todo.push((word.wrapping_add(step) % size, owing + 1));
                todo.push((word.wrapping_sub(step) % size, owing + 1));
            }
        }
    }
    false
}

/// Where a word of `bits` bits saturates: three quarters up, as in the real one.
fn saturated(bits: u32) -> u32 {
    3 << (bits - 2)
}

#[test]
fn thresholds_are_the_real_ones() {
    assert_eq!(saturated(32), SATURATED);
    assert_eq!((1_u32 << 31) - 1, MAX);
}

/// With single steps the bound is 2^(bits - 2) threads upwards (and one more downwards), neither less nor more.
#[test]
fn single_steps() {
    for bits in 4..=10 {
        let distance = 1 << (bits - 2);
        assert!(!escapes(bits, distance - 1, 1), "{bits} bits, {} threads", distance - 1);
        assert!(escapes(bits, distance, 1), "{bits} bits, {distance} threads");
    }
}

/// With batches it shrinks by the batch: the reason why large batches take a compare loop.
#[test]
fn batches() {
    for batch in [2_u32, 3, 7, 16] {
        let distance = (1_u32 << 8).div_ceil(batch) as usize;
        assert!(!escapes(10, distance - 1, batch), "batch {batch}");
        assert!(escapes(10, distance, batch), "batch {batch}");
    }
}

/// The figures the documentation states.
#[test]
fn documented_figures() {
    let up = u32::MAX - SATURATED + 1;
    assert_eq!(up, 1 << 30, "single steps up to zero");
    assert_eq!(SATURATED - MAX, (1 << 30) + 1, "single steps down to MAX");
    assert_eq!(up.div_ceil(0xffff), (1 << 14) + 1, "threads with the largest batch");
    assert_eq!(up / 0x40_0000, 256, "nested steps of each of the kernel's largest number of tasks");
}
