// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Compare-and-exchange on words that nobody else uses: what the LOCK prefix costs, and what disabling interrupts costs.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, compiler_fence};

use fastpath_cmpxchg::backend::Generic;
use fastpath_cmpxchg::interrupt::InterruptControl;
use fastpath_cmpxchg::{Atomic, AtomicPair, DoubleWord, DoubleWordLocal, Ordering, Pair};

use super::harness::{Bound, Candidate, Family, NewTable, Session};
use super::report::{Row, Unit};
use crate::failure::Failure;

pub(super) const FAMILY: Family = Family {
    name: "cmpxchg",
    title: "compare-and-exchange and its family on one word, nobody else using it",
    steps: 4,
    run,
};

/// An interrupt flag in memory, saved and cleared and restored as a status register would be. A program may not disable
/// real interrupts; this has their shape and a lower bound of their cost.
struct FlagInMemory;

thread_local! {
    static FLAG: Cell<u64> = const { Cell::new(1) };
}

// SAFETY: the words that use it belong to the measuring thread alone, so there is nobody to exclude.
unsafe impl InterruptControl for FlagInMemory {
    type State = u64;
    const EXCLUDES_OTHER_PROCESSORS: bool = true;

    #[inline(always)]
    fn disable() -> u64 {
        FLAG.with(|flag| {
            // SAFETY: this thread's own.
            let before = unsafe { flag.as_ptr().read_volatile() };
            // SAFETY: this thread's own. Volatile: a status register is really written, too.
            unsafe { flag.as_ptr().write_volatile(before & !1) };
            compiler_fence(Ordering::SeqCst);
            before
        })
    }

    #[inline(always)]
    unsafe fn restore(before: u64) {
        compiler_fence(Ordering::SeqCst);
        // SAFETY: this thread's own.
        FLAG.with(|flag| unsafe { flag.as_ptr().write_volatile(before) });
    }
}

/// All signals blocked: the nearest thing to interrupts off that a program really has. Two system calls.
struct SignalsBlocked;

// SAFETY: as for `FlagInMemory`; signal handlers are kept away in earnest.
unsafe impl InterruptControl for SignalsBlocked {
    type State = libc::sigset_t;
    const EXCLUDES_OTHER_PROCESSORS: bool = true;

    fn disable() -> libc::sigset_t {
        // SAFETY: both sets are ours; `sigfillset` makes a full one of any memory, zero included.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            before
        }
    }

    unsafe fn restore(before: libc::sigset_t) {
        // SAFETY: `before` is the set that `disable` was given.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the type that every family has")]
fn run(bench: &mut Session<'_>) -> Result<(), Failure> {
    let mut table =
        NewTable::new("word", "One 64-bit word in this CPU's cache; the pair: two words", Unit::Cycles)
            .column("core", "core::sync::atomic")
            .column("native", "fastpath, native")
            .column("local", "fastpath, local form (no LOCK)")
            .column("plain", "plain load, compare, store")
            .column("generic", "generic, flag in memory")
            .column("signals", "generic, signals blocked")
            .baseline("core");
    let standard = AtomicU64::new(0);
    let native = Atomic::<u64>::new(0);
    let flag = Atomic::<u64, Generic<FlagInMemory>>::new_in(0);
    let signals = Atomic::<u64, Generic<SignalsBlocked>>::new_in(0);
    let mut plain = 0_u64;
    // From here on the optimizer must believe that others know these words.
    black_box((&standard, &native, &flag, &signals, &mut plain));

    // ORDERING (all of this file): SeqCst and AcqRel are asked for because the kernel's `cmpxchg` promises them and
    // their cost is what is measured; one thread runs, nothing pairs with them.
    macro_rules! row {
        ($name:literal, $n:ident, $standard:expr, $local:expr, $plain:expr, |$word:ident| $ours:expr) => {
            bench.measure(
                &mut table,
                &Row::named($name),
                &mut [
                    Candidate::new("core", |$n| $standard),
                    Candidate::new("native", |$n| {
                        let $word = &native;
                        $ours
                    }),
                    Candidate::new("local", |$n| $local),
                    Candidate::new("plain", |$n| $plain),
                    Candidate::new("generic", |$n| {
                        let $word = &flag;
                        $ours
                    }),
                    Candidate::new("signals", |$n| {
                        let $word = &signals;
                        $ours
                    })
                    .batch(200),
                ],
            );
        };
    }
    // Every batch goes on where the word is, so that every comparison succeeds.
    row!(
        "cmpxchg",
        n,
        for i in after(standard.load(Ordering::Relaxed), n) {
            let _ = standard.compare_exchange(i, i.wrapping_add(1), Ordering::SeqCst, Ordering::Relaxed);
        },
        for i in after(native.load(Ordering::Relaxed), n) {
            // SAFETY: the word is this thread's alone, so the CPU it runs on does not matter.
            unsafe { native.cmpxchg_local(i, i.wrapping_add(1)) };
        },
        for i in after(plain, n) {
            // SAFETY: the word is this function's. Volatile: the loop must really load and store it.
            unsafe {
                if (&raw const plain).read_volatile() == i {
                    (&raw mut plain).write_volatile(i.wrapping_add(1));
                }
            }
        },
        |word| for i in after(word.load(Ordering::Relaxed), n) {
            word.cmpxchg(i, i.wrapping_add(1), Ordering::SeqCst);
        }
    );
    row!(
        "xchg",
        n,
        (0..n).for_each(|i| _ = black_box(standard.swap(i, Ordering::SeqCst))),
        // SAFETY: as above.
        (0..n).for_each(|i| _ = black_box(unsafe { native.xchg_local(i) })),
        (0..n).for_each(|i| {
            // SAFETY: as above.
            black_box(unsafe { (&raw mut plain).read_volatile() });
            // SAFETY: as above.
            unsafe { (&raw mut plain).write_volatile(i) };
        }),
        |word| (0..n).for_each(|i| _ = black_box(word.xchg(i, Ordering::SeqCst)))
    );
    row!(
        "add, result unused",
        n,
        (0..n).for_each(|_| _ = standard.fetch_add(1, Ordering::Relaxed)),
        // SAFETY: as above.
        (0..n).for_each(|_| unsafe { native.add_local(1) }),
        (0..n).for_each(|_| {
            // SAFETY: as above.
            unsafe { (&raw mut plain).write_volatile((&raw const plain).read_volatile().wrapping_add(1)) };
        }),
        |word| (0..n).for_each(|_| _ = word.fetch_add(1, Ordering::Relaxed))
    );
    pair(bench, &mut table);
    let generic = table.ratio("cmpxchg", "generic", "native");
    let local = table.ratio("cmpxchg", "local", "native");
    bench.note(&format!(
        "The generic compare-and-exchange costs {generic:.2} x the native one here with its interrupt flag in memory, the \
         local form {local:.2} x. A flag in memory is a lower bound: a status register is slower, and only bare metal may \
         use it (`bench --from-qemu` shows such figures)."
    ));
    bench.note("The local form is for data of one CPU with preemption excluded; a program's threads migrate, so only rseq may rely on it there.");
    let same = table.ratio("cmpxchg", "native", "core");
    bench.target("native", "our native cmpxchg costs what core's does", same, Bound::AtMost(1.1));
    bench.add(table);
    Ok(())
}

/// `n` numbers from `start`.
fn after(start: u64, n: u64) -> std::ops::Range<u64> {
    start..start + n
}

/// Two words at once, where the CPU can.
fn pair(bench: &mut Session<'_>, table: &mut NewTable) {
    let native = AtomicPair::new(Pair { first: 0, second: 0 });
    let flag = AtomicPair::<Generic<FlagInMemory>>::new_in(Pair { first: 0, second: 0 });
    black_box((&native, &flag));
    let step = |i: u64| Pair { first: i as usize, second: i as usize };
    let (native, flag) = (&native, &flag);
    let mut candidates = Vec::new();
    if let Some(wide) = DoubleWord::detect() {
        candidates.push(Candidate::new("native", move |n| {
            for i in after(native.load(wide).first as u64, n) {
                native.cmpxchg_double(wide, step(i), step(i + 1), Ordering::SeqCst);
            }
        }));
    }
    if let (Some(wide), Some(local)) = (DoubleWord::detect(), DoubleWordLocal::detect()) {
        candidates.push(Candidate::new("local", move |n| {
            for i in after(native.load(wide).first as u64, n) {
                // SAFETY: the pair is this thread's alone.
                unsafe { native.cmpxchg_double_local(local, step(i), step(i + 1)) };
            }
        }));
    }
    if let Some(wide) = DoubleWord::detect() {
        candidates.push(Candidate::new("generic", move |n| {
            for i in after(flag.load(wide).first as u64, n) {
                flag.cmpxchg_double(wide, step(i), step(i + 1), Ordering::SeqCst);
            }
        }));
    }
    bench.measure(table, &Row::named("cmpxchg, a pair of words"), &mut candidates);
}
