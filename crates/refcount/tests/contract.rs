// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The numbered cases of the counter, on one thread: the suite of the testkit with this crate under it.
#![cfg(not(loom))]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use fastpath_refcount::{Event, Warning, clear_warn_once, set_warn_hook};
use fastpath_testkit::refcount_suite as suite;

fastpath_testkit::refcount_backend!(Ours, fastpath_refcount);

/// Warnings are reported once per process, so the cases run one after the other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
static SEEN: [AtomicU32; 6] = [const { AtomicU32::new(0) }; 6];

struct Seen;

impl suite::Warnings for Seen {
    fn clear() {
        set_warn_hook(Some(|warning: &Warning| {
            assert!(!warning.counter().is_null());
            SEEN[warning.event() as usize].fetch_add(1, Ordering::Relaxed);
        }));
        for seen in &SEEN {
            seen.store(0, Ordering::Relaxed);
        }
        clear_warn_once();
    }

    fn seen() -> [u32; 6] {
        std::array::from_fn(|i| SEEN[i].load(Ordering::Relaxed))
    }
}

macro_rules! contract {
    ($($name:ident = $id:literal),* $(,)?) => {
        $(#[test]
        fn $name() {
            let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
            let (_, case) = suite::cases::<Ours, Seen>().into_iter().find(|(id, _)| *id == $id).expect("in the suite");
            case();
            fastpath_testkit::case($id, "core");
        })*

        #[test]
        fn every_case_of_the_suite_is_run() {
            let run = [$($id),*];
            assert!(suite::cases::<Ours, Seen>().iter().map(|(id, _)| *id).eq(run));
        }
    };
}

contract! {
    k57_inc_saturates_past_max = "K57",
    k58_add_saturates_past_max = "K58",
    k59_not_zero_saturates_at_max = "K59",
    k60_dec_never_shows_zero = "K60",
    k61_underflow_saturates = "K61",
    k62_not_zero_leaves_zero_alone = "K62",
    k63_saturated_stays_saturated = "K63",
    k64_last_reference = "K64",
    k65_nothing_from_nothing = "K65",
    k66_dec_if_one = "K66",
    k67_dec_not_one = "K67",
    k68_dec_and_lock = "K68",
    k69_limited = "K69",
    k70_acquire_saturates_too = "K70",
    k72_one_warning_per_kind = "K72",
    k74_balanced_on_one_thread = "K74",
}

/// The messages are an interface: people search logs for them.
#[test]
fn messages_and_kinds() {
    let all: Vec<_> = Event::ALL.iter().map(|event| event.message()).collect();
    assert_eq!(
        all,
        [
            "saturated; leaking memory",
            "saturated; leaking memory",
            "addition on 0; use-after-free",
            "underflow; use-after-free",
            "decrement hit 0; leaking memory",
            "underflow; use-after-free",
        ]
    );
    assert_eq!(Event::ALL.map(|event| event as usize), [0, 1, 2, 3, 4, 5]);
}
