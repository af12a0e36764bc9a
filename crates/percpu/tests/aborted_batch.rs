// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! A batch that is aborted after it copied four values, and starts again when one is left, must not keep the other three.
//!
//! Built with `--cfg fastpath_inject` every attempt waits before its commit, and the timer's handler comes exactly there.

#![expect(unsafe_code, reason = "timers and signal handlers of the support module")]

mod support;

use core::num::NonZeroU64;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastpath_percpu::Stack;
use support::Ticks;

type Numbers = Stack<NonZeroU64, 8>;

static STACK: OnceLock<Numbers> = OnceLock::new();
static TAKEN: AtomicU64 = AtomicU64::new(0);

extern "C" fn take_three(_: libc::c_int) {
    let Some(stack) = STACK.get() else { return };
    for _ in 0..3 {
        if let Some(value) = stack.pop() {
            TAKEN.fetch_add(value.get(), Ordering::Relaxed);
        }
    }
}

#[test]
fn an_aborted_batch_keeps_no_values() {
    let stack = STACK.get_or_init(|| Numbers::new().unwrap());
    #[cfg(fastpath_inject)]
    fastpath_percpu::rseq::inject::set_delay(3, 300_000);
    let ticks = Ticks::every(Duration::from_micros(700), libc::SIGALRM, take_three);
    let (mut next, mut pushed, mut popped) = (1, 0, 0);
    for _ in 0..support::scale(400) {
        for _ in 0..4 {
            if stack.push(NonZeroU64::new(next).unwrap()).is_ok() {
                pushed += next;
            }
            next += 1;
        }
        let mut batch = [None; 4];
        let count = stack.pop_batch(&mut batch);
        assert!(batch[count..].iter().all(Option::is_none), "a batch of {count} is {batch:?}");
        popped += batch.iter().flatten().map(|value| value.get()).sum::<u64>();
    }
    drop(ticks);
    let mut left = 0;
    stack.drain(|value| left += value.get()).unwrap();
    assert_eq!(popped + left + TAKEN.load(Ordering::Relaxed), pushed);
}
