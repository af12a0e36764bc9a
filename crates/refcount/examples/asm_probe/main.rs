// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Functions for `ci/lanes/23-refcount-asm.sh` to disassemble: what one counting site costs in instructions and bytes.
//!
//! The cold functions of the other forms take the same arguments as ours. Each `*_1` has one site. Each `*_8` has eight on different counters: an eighth of what it has more than an empty function is the cost
//! of a site among other code, with its part of the cold blocks.
#![expect(unsafe_code, reason = "symbols that the lane can find, and the hand-written form")]

#[cfg(target_arch = "x86_64")]
mod arch {
    pub(crate) mod x86_64;
}

use std::sync::atomic::{AtomicU32, Ordering};

use fastpath_refcount::{Event, MAX, RefCount, SATURATED};

/// The compare loop of the kernel's REFCOUNT_FULL before 2019, inline, with its warning out of line as ours is.
#[inline]
fn compare_loop_inc(count: &AtomicU32) {
    let mut old = count.load(Ordering::Relaxed);
    loop {
        if old == 0 || old == u32::MAX {
            return compare_loop_warn(count, old);
        }
        // ORDERING: Relaxed, as every increment here.
        match count.compare_exchange_weak(old, old + 1, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => old = now,
        }
    }
}

/// As our own cold functions: out of line, and unable to unwind.
#[cold]
#[inline(never)]
extern "C" fn compare_loop_warn(count: &AtomicU32, old: u32) {
    std::hint::black_box((count, old));
}

/// A fetch with the checks of ours, and the store of the saturated value and the choice of the message at the site: the form before
/// the warnings were moved out of line.
#[inline]
fn inline_warning_inc(count: &AtomicU32) {
    let old = count.fetch_add(1, Ordering::Relaxed);
    if old == 0 {
        count.store(SATURATED, Ordering::Relaxed);
        let message = Event::AddUseAfterFree.message();
        inline_warning(message.as_ptr(), message.len(), count);
    } else if old >= MAX {
        count.store(SATURATED, Ordering::Relaxed);
        let message = Event::AddOverflow.message();
        inline_warning(message.as_ptr(), message.len(), count);
    }
}

#[cold]
#[inline(never)]
extern "C" fn inline_warning(message: *const u8, length: usize, count: &AtomicU32) {
    std::hint::black_box((message, length, count));
}

macro_rules! probes {
    ($($one:ident, $eight:ident, $counter:ty, $inc:expr;)*) => {$(
        #[unsafe(no_mangle)]
        #[inline(never)]
        extern "Rust" fn $one(count: &$counter) {
            let inc: fn(&$counter) = $inc;
            inc(count);
        }

        #[unsafe(no_mangle)]
        #[inline(never)]
        extern "Rust" fn $eight(counts: &[$counter; 8]) {
            let inc: fn(&$counter) = $inc;
            inc(&counts[0]);
            inc(&counts[1]);
            inc(&counts[2]);
            inc(&counts[3]);
            inc(&counts[4]);
            inc(&counts[5]);
            inc(&counts[6]);
            inc(&counts[7]);
        }
    )*};
}

probes! {
    refcount_inc_1, refcount_inc_8, RefCount, RefCount::inc;
    plain_inc_1, plain_inc_8, AtomicU32, |count| { count.fetch_add(1, Ordering::Relaxed); };
    compare_loop_inc_1, compare_loop_inc_8, AtomicU32, compare_loop_inc;
    inline_warning_inc_1, inline_warning_inc_8, AtomicU32, inline_warning_inc;
}

/// The drop side: one read-modify-write and one comparison for both questions, "last?" and "misused?".
#[unsafe(no_mangle)]
#[inline(never)]
extern "Rust" fn refcount_dec_and_test_1(count: &RefCount) -> bool {
    count.dec_and_test()
}

/// A handle's drop: what `dec_and_test` becomes where its result is branched on.
#[unsafe(no_mangle)]
#[inline(never)]
extern "Rust" fn refcount_put_1(count: &RefCount) {
    if count.dec_and_test() {
        last(count);
    }
}

#[cold]
#[inline(never)]
extern "C" fn last(count: &RefCount) {
    std::hint::black_box(count);
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "Rust" fn refcount_dec_1(count: &RefCount) {
    count.dec();
}

fn main() {
    let (ours, plain) = (RefCount::new(1), AtomicU32::new(1));
    refcount_inc_1(&ours);
    refcount_put_1(&ours);
    refcount_inc_1(&ours);
    refcount_dec_1(&ours);
    plain_inc_1(&plain);
    compare_loop_inc_1(&plain);
    inline_warning_inc_1(&plain);
    refcount_inc_8(&[const { RefCount::new(1) }; 8]);
    let eight = [const { AtomicU32::new(1) }; 8];
    plain_inc_8(&eight);
    compare_loop_inc_8(&eight);
    inline_warning_inc_8(&eight);
    #[cfg(target_arch = "x86_64")]
    arch::x86_64::run(&eight);
    assert_eq!((ours.read(), refcount_dec_and_test_1(&ours)), (1, true));
    assert!(plain.into_inner() == 4 && eight.iter().all(|count| count.load(Ordering::Relaxed) >= 4));
}
