// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The `this_cpu_*` operations and the counter, by their numbered cases.
#![expect(unsafe_code, reason = "declares what slots hold")]

mod support;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use fastpath_percpu::{Counter, Integer, Lazy, PerCpu, Slot, Word, aborts};
use support::{backend, migrate, scale};

static SHARED: Lazy<PerCpu<Word<u64>>> = Lazy::new();
static FROM_HANDLER: AtomicU64 = AtomicU64::new(0);

extern "C" fn compare_and_exchange_once(_: libc::c_int) {
    let mut seen = SHARED.this_cpu_read();
    loop {
        let next = seen + 1;
        if SHARED.this_cpu_try_cmpxchg(&mut seen, next) {
            break;
        }
    }
    FROM_HANDLER.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn a_signal_handler_on_the_same_word_loses_nothing() {
    let _ = SHARED.get().unwrap();
    let rounds = scale(400_000) as u64;
    let ticks = support::Ticks::every(Duration::from_micros(200), libc::SIGUSR1, compare_and_exchange_once);
    let mut done = 0;
    while done < rounds {
        let mut seen = SHARED.this_cpu_read();
        loop {
            let next = seen + 1;
            if SHARED.this_cpu_try_cmpxchg(&mut seen, next) {
                break;
            }
        }
        done += 1;
    }
    drop(ticks);
    let sum: u64 = SHARED.iter().map(|(_, word)| word.load()).sum();
    assert_eq!(sum, rounds + FROM_HANDLER.load(Ordering::Relaxed));
    fastpath_testkit::case("K12", backend());
}

#[test]
fn migrating_threads_sum_exactly() {
    let hits = PerCpu::<Word<u64>>::new().unwrap();
    let threads = 6;
    let each = scale(1_000_000);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let hits = &hits;
            scope.spawn(move || {
                for round in 0..each {
                    hits.this_cpu_add(1);
                    if round % 20_000 == 0 {
                        migrate(thread + round / 20_000);
                    }
                }
            });
        }
    });
    assert_eq!(hits.iter().map(|(_, word)| word.load()).sum::<u64>(), (threads * each) as u64);
    fastpath_testkit::case("K13", backend());
}

/// Runs `operation` on one slot only, and gives what that slot holds afterwards.
fn on_one_cpu<I: Integer + PartialEq + Default>(operation: impl FnOnce(&PerCpu<Word<I>>) + Send) -> Vec<I> {
    let slots = PerCpu::<Word<I>>::new().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            migrate(0);
            operation(&slots);
        });
    });
    slots.iter().map(|(_, word)| word.load()).filter(|value| *value != I::default()).collect()
}

#[test]
fn arithmetic_wraps_in_the_words_own_type() {
    assert_eq!(on_one_cpu::<u8>(|slots| slots.this_cpu_sub(1)), [255]);
    assert_eq!(on_one_cpu::<u16>(PerCpu::this_cpu_dec), [u16::MAX]);
    // A 32-bit delta for a 64-bit word is converted first, then negated: no 2^32 - 1 on the way.
    let delta: u32 = 1;
    assert_eq!(on_one_cpu::<u64>(|slots| slots.this_cpu_sub(u64::from(delta))), [u64::MAX]);
    assert_eq!(on_one_cpu::<i64>(|slots| slots.this_cpu_sub(i64::from(delta))), [-1]);
    assert_eq!(on_one_cpu::<i8>(|slots| slots.this_cpu_add(i8::MIN)), [i8::MIN]);
    assert_eq!(on_one_cpu::<i32>(|slots| assert_eq!(slots.this_cpu_sub_return(5), -5)), [-5]);
    fastpath_testkit::case("K14", backend());
}

#[test]
fn every_operation_at_every_width() {
    fn check<I: Integer + PartialEq + Default + std::fmt::Debug>() {
        let number = |bits: u64| I::from_bits(bits);
        let last = on_one_cpu::<I>(|slots| {
            slots.this_cpu_write(number(0x7f));
            assert_eq!(slots.this_cpu_read(), number(0x7f));
            slots.this_cpu_add(number(3));
            assert_eq!(slots.this_cpu_xchg(number(0x55)), number(0x82));
            slots.this_cpu_and(number(0x0f));
            slots.this_cpu_or(number(0x30));
            assert_eq!(slots.this_cpu_read(), number(0x35));
            assert_eq!(slots.this_cpu_add_return(number(u64::MAX)), number(0x34));
            assert_eq!(slots.this_cpu_sub_return(number(4)), number(0x30));
            assert_eq!(slots.this_cpu_cmpxchg(number(0x31), number(1)), number(0x30));
            assert_eq!(slots.this_cpu_cmpxchg(number(0x30), number(1)), number(0x30));
            let mut expected = number(2);
            assert!(!slots.this_cpu_try_cmpxchg(&mut expected, number(9)));
            assert_eq!(expected, number(1));
            assert!(slots.this_cpu_try_cmpxchg(&mut expected, number(9)));
            assert_eq!(expected, number(1));
            slots.this_cpu_inc();
            slots.this_cpu_dec();
            slots.this_cpu_sub(number(1));
        });
        assert_eq!(last, [number(8)]);
    }
    check::<u8>();
    check::<i8>();
    check::<u16>();
    check::<i16>();
    check::<u32>();
    check::<i32>();
    check::<u64>();
    check::<i64>();
    check::<usize>();
    check::<isize>();
}

struct Neighbours {
    before: Word<u8>,
    middle: Word<u8>,
    after: Word<u8>,
    wide: Word<u64>,
}
// SAFETY: words only.
unsafe impl Slot for Neighbours {}

#[test]
fn a_narrow_word_leaves_its_neighbours_alone() {
    let slots = PerCpu::<Neighbours>::new().unwrap();
    slots.word(|slot| &slot.middle).sub(1);
    slots.word(|slot| &slot.middle).inc();
    slots.word(|slot| &slot.middle).write(0x5a);
    assert_eq!(slots.word(|slot| &slot.middle).cmpxchg(0x5a, 0xff), 0x5a);
    assert_eq!(slots.word(|slot| &slot.middle).xchg(0xa5), 0xff);
    for (_, slot) in slots.iter() {
        assert_eq!((slot.before.load(), slot.after.load(), slot.wide.load()), (0, 0, 0));
    }
}

static ELSEWHERE: Lazy<PerCpu<Word<u64>>> = Lazy::new();

#[test]
#[should_panic(expected = "not part of the slot")]
fn a_word_from_elsewhere_is_refused() {
    let slots = PerCpu::<Word<u64>>::new().unwrap();
    slots.word(|_| ELSEWHERE.per_slot(0)).inc();
}

#[test]
fn large_slots_have_stripes_of_their_own() {
    let slots = PerCpu::<[Word<u64>; 6000]>::new().unwrap();
    slots.word(|slot| &slot[0]).add(7);
    slots.word(|slot| &slot[5999]).add(9);
    assert_eq!(slots.iter().map(|(_, slot)| slot[0].load() + slot[5999].load()).sum::<u64>(), 16);
}

/// A remote store may be lost against a local change, and that is allowed: nothing is asserted about the total.
#[test]
fn remote_stores_may_lose_and_are_therefore_not_offered() {
    // There is no method of `Word` that writes: the only way to do it is an atomic of one's own in the slot, which the
    // operations of this crate do not touch.
    struct Mixed {
        local: Word<u64>,
        remote: AtomicI64,
    }
    // SAFETY: a word and an atomic; zero is valid for both.
    unsafe impl Slot for Mixed {}
    let slots = PerCpu::<Mixed>::new().unwrap();
    slots.word(|slot| &slot.local).inc();
    for (_, slot) in slots.iter() {
        slot.remote.fetch_add(1, Ordering::Relaxed);
    }
    assert!(slots.iter().all(|(_, slot)| slot.remote.load(Ordering::Relaxed) == 1));
    fastpath_testkit::case("K16", backend());
}

static TICKED: Lazy<Counter> = Lazy::new();

extern "C" fn count_a_tick(_: libc::c_int) {
    TICKED.add(1);
}

#[test]
fn counters_are_exact_under_a_storm_of_signals() {
    let requests = Counter::new().unwrap();
    TICKED.add(0);
    let threads = 6 * support::allowed_cpus().len();
    let each = scale(100_000);
    let aborted = aborts();
    // A section is a few instructions: whether a signal ever finds one open is a matter of luck, so count until it did.
    let mut rounds = 0;
    while rounds == 0 || (backend().starts_with("rseq") && aborts() == aborted && rounds < 400) {
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let ticks = support::Ticks::every(Duration::from_millis(1), libc::SIGALRM, count_a_tick);
                    (0..each).for_each(|_| requests.add(1));
                    drop(ticks);
                });
            }
        });
        rounds += 1;
    }
    assert_eq!(requests.sum(), (rounds * threads * each) as i64);
    assert_eq!(requests.sum_fenced().unwrap(), requests.sum());
    if backend().starts_with("rseq") {
        assert!(aborts() > aborted, "no section was ever aborted in {rounds} rounds");
    }
    fastpath_testkit::case("R1", backend());
}
