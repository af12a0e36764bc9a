// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The contract of compare-and-exchange: cases K1 to K10 and K15, and every operation of every width against arithmetic.
//!
//! Generic over the backend, for one thread, so that the same functions run under `cargo test` on every backend that
//! exists on the host and inside the bare-metal images. [`cases`] and [`double_cases`] list them for a runner;
//! [`increments`] and [`local_increments`] are the workers of K11 and K12, whose threads and interrupts the runner
//! brings. A case panics where the contract is broken.
#![expect(clippy::missing_panics_doc, reason = "stated once, above: a broken contract panics")]

use fastpath_cmpxchg::raw::{self, MachineWord};
use fastpath_cmpxchg::{
    Atomic, AtomicPair, DoubleOps, DoubleWord, DoubleWordLocal, Integer, LocalDoubleOps, LocalOps, Ops,
    Ordering, Pair, Word,
};

/// Everything a backend under test has, but pairs.
pub trait Full:
    Ops<u8>
    + Ops<u16>
    + Ops<u32>
    + Ops<u64>
    + LocalOps<u8>
    + LocalOps<u16>
    + LocalOps<u32>
    + LocalOps<u64>
    + Ops<<usize as fastpath_cmpxchg::Primitive>::Word>
    + LocalOps<<usize as fastpath_cmpxchg::Primitive>::Word>
{
}
impl<B> Full for B where
    B: Ops<u8>
        + Ops<u16>
        + Ops<u32>
        + Ops<u64>
        + LocalOps<u8>
        + LocalOps<u16>
        + LocalOps<u32>
        + LocalOps<u64>
        + Ops<<usize as fastpath_cmpxchg::Primitive>::Word>
        + LocalOps<<usize as fastpath_cmpxchg::Primitive>::Word>
{
}

/// A case of the suite: its name, which starts with the numbers it covers, and the function to run.
pub type Case = (&'static str, fn());

/// Every case for one thread, on the backend `B`.
#[must_use]
pub fn cases<B: Full>() -> [Case; 13] {
    [
        ("K1 a byte ignores what stands above it", k1::<B>),
        ("K2 a halfword ignores what stands above it", k2::<B>),
        ("K3 a negative word matches its sign-extension", k3::<B>),
        ("K4 a word ignores a byte above it", k4::<B>),
        ("K5 eight bytes are compared in full", k5::<B>),
        ("K6 a mismatch leaves the word and its neighbours", k6::<B>),
        ("K7 xchg truncates and returns the previous value", k7::<B>),
        ("K8 equal old, new and current", k8::<B>),
        ("K10 try_cmpxchg", k10::<B>),
        ("every full operation against arithmetic", full_operations::<B>),
        ("every local operation against arithmetic", local_operations::<B>),
        ("pointers and bool", pointers_and_bool::<B>),
        ("no operation touches a neighbour", neighbours::<B>),
    ]
}

/// The cases on pairs, on the backend `B`. They pass without a check if the processor has no double-word form: ask
/// `B::available` to know.
#[must_use]
pub fn double_cases<B: DoubleOps + LocalDoubleOps>() -> [Case; 2] {
    [("K15 a pair changes as one", k15::<B>), ("K15 a pair changes as one, locally", k15_local::<B>)]
}

/// The local cases on pairs, for a backend that has no full form.
#[must_use]
pub fn local_double_cases<B: LocalDoubleOps>() -> [Case; 1] {
    [("K15 a pair changes as one, locally", k15_local::<B>)]
}

/// The three raw ways to compare and exchange a word: full, local, and the try form, which must agree.
fn raw_cmpxchg<B: Ops<W> + LocalOps<W>, W: MachineWord>(memory: W, old: usize, new: usize) -> (usize, W) {
    let order = Ordering::SeqCst;
    let (mut full, mut local, mut tried, mut tried_locally) = (memory, memory, memory, memory);
    // SAFETY: locals that nobody else uses; their alignment is at least what the targets' instructions need, as words of
    // up to a machine word are aligned to their size.
    unsafe {
        let previous = raw::cmpxchg::<B, W>(&raw mut full, old, new, order);
        assert_eq!(raw::cmpxchg_local::<B, W>(&raw mut local, old, new), previous);
        assert_eq!(local, full);
        let mut expected = old;
        let done = raw::try_cmpxchg::<B, W>(&raw mut tried, &mut expected, new, order);
        assert_eq!(
            expected,
            if done { old } else { previous },
            "`old` is untouched by success, updated by failure"
        );
        assert_eq!(tried, full);
        let mut expected = old;
        assert_eq!(raw::try_cmpxchg_local::<B, W>(&raw mut tried_locally, &mut expected, new), done);
        assert_eq!(expected, if done { old } else { previous });
        assert_eq!(tried_locally, full);
        (previous, full)
    }
}

/// K1: old and new are cut to a byte.
pub fn k1<B: Full>() {
    assert_eq!(raw_cmpxchg::<B, u8>(0x7f, 0x17f, 0x12a), (0x7f, 0x2a));
}

/// K2: old and new are cut to a halfword.
pub fn k2<B: Full>() {
    assert_eq!(raw_cmpxchg::<B, u16>(0xcafe, 0x5f0e_cafe, 0x5f0e_dead), (0xcafe, 0xdead));
}

/// K3: a negative 32-bit value, sign-extended to a machine word, matches.
pub fn k3<B: Full>() {
    let (minus_one, minus_two) = (-1_isize as usize, -2_isize as usize);
    assert_eq!(raw_cmpxchg::<B, u32>(0xffff_ffff, minus_one, minus_two), (0xffff_ffff, 0xffff_fffe));
    assert_eq!(raw_cmpxchg::<B, u16>(0xffff, minus_one, minus_two), (0xffff, 0xfffe));
    assert_eq!(raw_cmpxchg::<B, u8>(0xff, minus_one, minus_two), (0xff, 0xfe));
    let word = Atomic::<i32, B>::new_in(-1);
    assert_eq!(word.cmpxchg(-1, -2, Ordering::SeqCst), -1);
    assert_eq!(word.load(Ordering::Relaxed), -2);
    // SAFETY: nobody else has this word.
    assert_eq!(unsafe { word.cmpxchg_local(-2, i32::MIN) }, -2);
    assert_eq!(word.into_inner(), i32::MIN);
}

/// K4: eight more bits than a word has, all set. On a 32-bit target there are none, and it is K3 again.
pub fn k4<B: Full>() {
    let forty_bits = 0xff_ffff_ffff_u64 as usize;
    assert_eq!(raw_cmpxchg::<B, u32>(0xffff_ffff, forty_bits, 5), (0xffff_ffff, 5));
    assert_eq!(raw_cmpxchg::<B, u32>(1, (1_u64 << 32) as usize | 1, 5), (1, 5));
}

/// K5: eight bytes are never cut, also where a machine word has four.
pub fn k5<B: Full>() {
    let word = Atomic::<u64, B>::new_in(0x1_0000_0001);
    assert_eq!(word.cmpxchg(1, 9, Ordering::SeqCst), 0x1_0000_0001);
    // SAFETY: nobody else has this word.
    assert_eq!(unsafe { word.cmpxchg_local(1, 9) }, 0x1_0000_0001);
    assert_eq!(word.load(Ordering::SeqCst), 0x1_0000_0001);
    // SAFETY: as above.
    assert_eq!(unsafe { word.cmpxchg_local(0x1_0000_0001, 0xfedc_ba98_7654_3210) }, 0x1_0000_0001);
    assert_eq!(word.cmpxchg(0xfedc_ba98_7654_3210, u64::MAX, Ordering::SeqCst), 0xfedc_ba98_7654_3210);
    assert_eq!(word.into_inner(), u64::MAX);
}

/// Eight bytes with an operand in the middle of canaries.
#[repr(C, align(8))]
struct Canaries([u8; 8]);

/// K6: a failed compare leaves the word and its neighbours as they were.
pub fn k6<B: Full>() {
    let mut memory = Canaries([0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7]);
    let before = memory.0;
    let base = memory.0.as_mut_ptr();
    for (offset, found) in before.into_iter().enumerate() {
        // SAFETY: inside `memory`, aligned, used by nobody else.
        let byte = unsafe { Atomic::<u8, B>::from_ptr(base.add(offset)) };
        assert_eq!(byte.cmpxchg(0x11, 0x22, Ordering::SeqCst), found);
        // SAFETY: nobody else has this word.
        assert_eq!(unsafe { byte.cmpxchg_local(0x11, 0x22) }, found);
    }
    // SAFETY: as above.
    let half = unsafe { Atomic::<u16, B>::from_ptr(base.add(2).cast()) };
    half.cmpxchg(0x11, 0x22, Ordering::SeqCst);
    // SAFETY: as above.
    let word = unsafe { Atomic::<u32, B>::from_ptr(base.add(4).cast()) };
    word.cmpxchg(0x11, 0x22, Ordering::SeqCst);
    assert_eq!(memory.0, before);
}

/// K7: `xchg` cuts the new value and returns the old one with its sign.
pub fn k7<B: Full>() {
    let mut byte = 0x80_u8;
    // SAFETY: nobody else uses `byte`.
    unsafe {
        assert_eq!(raw::xchg::<B, u8>(&raw mut byte, 0x1ff, Ordering::SeqCst), 0x80, "zero-extended");
        assert_eq!(byte, 0xff);
        assert_eq!(raw::xchg_local::<B, u8>(&raw mut byte, 0x101), 0xff);
        assert_eq!(byte, 1);
    }
    let half = Atomic::<i16, B>::new_in(-300);
    assert_eq!(half.xchg(-5, Ordering::SeqCst), -300);
    // SAFETY: nobody else has this word.
    assert_eq!(unsafe { half.xchg_local(7) }, -5);
    assert_eq!(half.into_inner(), 7);
}

/// K8: storing what is there already succeeds and changes nothing.
pub fn k8<B: Full>() {
    let word = Atomic::<i64, B>::new_in(-77);
    assert_eq!(word.cmpxchg(-77, -77, Ordering::SeqCst), -77);
    // SAFETY: nobody else has this word.
    assert_eq!(unsafe { word.cmpxchg_local(-77, -77) }, -77);
    assert_eq!(word.into_inner(), -77);
    assert_eq!(raw_cmpxchg::<B, u16>(4, 4, 4), (4, 4));
}

/// K10: failure updates `old`, the next call succeeds and leaves it.
pub fn k10<B: Full>() {
    let word = Atomic::<i32, B>::new_in(-9);
    let mut old = 3;
    assert!(!word.try_cmpxchg(&mut old, 4, Ordering::SeqCst));
    assert_eq!(old, -9);
    assert!(word.try_cmpxchg(&mut old, 4, Ordering::SeqCst));
    assert_eq!((old, word.load(Ordering::SeqCst)), (-9, 4));
    // SAFETY: nobody else has this word.
    unsafe {
        assert!(!word.try_cmpxchg_local(&mut old, 6));
        assert_eq!(old, 4);
        assert!(word.try_cmpxchg_local(&mut old, 6));
    }
    assert_eq!((old, word.into_inner()), (4, 6));
}

/// A seeded sequence of words (xorshift64*), the same on every machine.
struct Words(u64);

impl Words {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        // A tenth of the values are the corners where widths and signs go wrong.
        let word = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d);
        match word % 40 {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << 31,
            3 => 1 << 63,
            _ => word,
        }
    }
}

/// The same step on the atomic and on a plain value: every full form of `T`.
fn full_against_arithmetic<B: Ops<T::Word>, T: Integer + PartialEq + core::fmt::Debug>(seed: u64) {
    let orders =
        [Ordering::Relaxed, Ordering::Acquire, Ordering::Release, Ordering::AcqRel, Ordering::SeqCst];
    let mut words = Words(seed);
    let mut next = || T::Word::from_wide(words.next());
    let mut plain = next();
    let word = Atomic::<T, B>::new_in(T::from_word(plain));
    let typed = T::from_word;
    for round in 0..200_usize {
        let (value, order) = (next(), orders[round % 5]);
        let previous = plain;
        let returned = match round % 8 {
            0 => {
                plain = plain.plus(value);
                word.fetch_add(typed(value), order)
            }
            1 => {
                plain = plain.plus(value.negated());
                word.fetch_sub(typed(value), order)
            }
            2 => {
                plain = plain.and(value);
                word.fetch_and(typed(value), order)
            }
            3 => {
                plain = plain.or(value);
                word.fetch_or(typed(value), order)
            }
            4 => {
                plain = plain.xor(value);
                word.fetch_xor(typed(value), order)
            }
            5 => {
                plain = value;
                word.xchg(typed(value), order)
            }
            6 => {
                if value == plain {
                    continue;
                }
                word.cmpxchg(typed(value), typed(value), order)
            }
            _ => {
                plain = value;
                word.cmpxchg(typed(previous), typed(value), order)
            }
        };
        assert_eq!(returned, typed(previous), "round {round}: the result is the value before");
        assert_eq!(word.load(order), typed(plain), "round {round}: the new value");
        plain = next();
        word.store(typed(plain), order);
    }
}

/// Every full form, every width, signed and unsigned, every order.
pub fn full_operations<B: Full>() {
    full_against_arithmetic::<B, u8>(1);
    full_against_arithmetic::<B, i8>(2);
    full_against_arithmetic::<B, u16>(3);
    full_against_arithmetic::<B, i16>(4);
    full_against_arithmetic::<B, u32>(5);
    full_against_arithmetic::<B, i32>(6);
    full_against_arithmetic::<B, u64>(7);
    full_against_arithmetic::<B, i64>(8);
    full_against_arithmetic::<B, usize>(9);
    full_against_arithmetic::<B, isize>(10);
}

/// The same step on the atomic and on a plain value: every local form of `T`.
fn local_against_arithmetic<
    B: Ops<T::Word> + LocalOps<T::Word>,
    T: Integer + PartialEq + core::fmt::Debug,
>(
    seed: u64,
) {
    let mut words = Words(seed);
    let mut next = || T::Word::from_wide(words.next());
    let mut plain = next();
    let word = Atomic::<T, B>::new_in(T::from_word(plain));
    let typed = T::from_word;
    let one = T::ONE.to_word();
    for round in 0..320_usize {
        let value = next();
        let previous = plain;
        // What is right, and what the operation returned: the value before, the value after, or nothing.
        // SAFETY: nobody else has this word.
        let (expected, returned) = unsafe {
            match round % 16 {
                0 => {
                    plain = plain.plus(value);
                    (Some(previous), Some(word.fetch_add_local(typed(value))))
                }
                1 => {
                    plain = plain.plus(value);
                    (Some(plain), Some(word.add_return_local(typed(value))))
                }
                2 => {
                    plain = plain.plus(value.negated());
                    (Some(plain), Some(word.sub_return_local(typed(value))))
                }
                3 => {
                    plain = plain.plus(one);
                    (Some(plain), Some(word.inc_return_local()))
                }
                4 => {
                    plain = plain.plus(one.negated());
                    (Some(plain), Some(word.dec_return_local()))
                }
                5 => {
                    plain = plain.plus(value);
                    word.add_local(typed(value));
                    (None, None)
                }
                6 => {
                    plain = plain.plus(value.negated());
                    word.sub_local(typed(value));
                    (None, None)
                }
                7 => {
                    word.inc_local();
                    word.inc_local();
                    word.dec_local();
                    plain = plain.plus(one);
                    (None, None)
                }
                8 => {
                    plain = plain.and(value);
                    (Some(previous), Some(word.fetch_and_local(typed(value))))
                }
                9 => {
                    plain = plain.or(value);
                    (Some(previous), Some(word.fetch_or_local(typed(value))))
                }
                10 => {
                    plain = plain.xor(value);
                    (Some(previous), Some(word.fetch_xor_local(typed(value))))
                }
                11 => {
                    plain = plain.and(value);
                    word.and_local(typed(value));
                    (None, None)
                }
                12 => {
                    plain = plain.or(value);
                    word.or_local(typed(value));
                    (None, None)
                }
                13 => {
                    plain = plain.xor(value);
                    word.xor_local(typed(value));
                    (None, None)
                }
                14 => {
                    plain = value;
                    (Some(previous), Some(word.xchg_local(typed(value))))
                }
                _ => {
                    plain = value;
                    (Some(previous), Some(word.cmpxchg_local(typed(previous), typed(value))))
                }
            }
        };
        assert_eq!(returned, expected.map(typed), "round {round}: the result");
        assert_eq!(word.load(Ordering::Relaxed), typed(plain), "round {round}: the new value");
    }
}

/// Every local form, every width, signed and unsigned.
pub fn local_operations<B: Full>() {
    local_against_arithmetic::<B, u8>(11);
    local_against_arithmetic::<B, i8>(12);
    local_against_arithmetic::<B, u16>(13);
    local_against_arithmetic::<B, i16>(14);
    local_against_arithmetic::<B, u32>(15);
    local_against_arithmetic::<B, i32>(16);
    local_against_arithmetic::<B, u64>(17);
    local_against_arithmetic::<B, i64>(18);
    local_against_arithmetic::<B, usize>(19);
    local_against_arithmetic::<B, isize>(20);
}

/// Pointers keep their address, `bool` its two values.
pub fn pointers_and_bool<B: Full>() {
    let (mut one, mut two) = (1_u32, 2_u32);
    let (one, two) = (&raw mut one, &raw mut two);
    let pointer = Atomic::<*mut u32, B>::new_in(one);
    assert_eq!(pointer.cmpxchg(two, core::ptr::null_mut(), Ordering::SeqCst), one);
    assert_eq!(pointer.cmpxchg(one, two, Ordering::SeqCst), one);
    // SAFETY: nobody else has this word; the pointer is to a live local.
    assert_eq!(unsafe { *pointer.xchg_local(core::ptr::null_mut()) }, 2);
    assert!(pointer.load(Ordering::Acquire).is_null());
    let constant = Atomic::<*const u8, B>::new_in(core::ptr::null());
    let mut expected = constant.load(Ordering::Relaxed);
    assert!(constant.try_cmpxchg(&mut expected, one.cast_const().cast(), Ordering::AcqRel));

    let flag = Atomic::<bool, B>::new_in(false);
    assert!(!flag.xchg(true, Ordering::SeqCst));
    assert!(flag.fetch_and(false, Ordering::SeqCst));
    assert!(!flag.fetch_or(true, Ordering::SeqCst));
    assert!(flag.fetch_xor(true, Ordering::SeqCst));
    assert!(!flag.cmpxchg(false, true, Ordering::SeqCst));
    // SAFETY: nobody else has this word.
    assert!(unsafe { flag.cmpxchg_local(true, false) });
    assert!(!flag.into_inner());
}

/// Every byte of eight in turn, and every halfword: the others stay.
pub fn neighbours<B: Full>() {
    let mut memory = Canaries([0xff; 8]);
    let base = memory.0.as_mut_ptr();
    for offset in 0..8 {
        // SAFETY: inside `memory`, aligned, used by nobody else.
        let byte = unsafe { Atomic::<u8, B>::from_ptr(base.add(offset)) };
        // Each wraps, and a carry would reach the neighbour.
        byte.fetch_add(2, Ordering::SeqCst);
        // SAFETY: nobody else has this word.
        unsafe {
            byte.add_local(0xff);
            byte.sub_local(1);
            byte.fetch_add_local(0xff);
        }
        byte.xchg(offset as u8, Ordering::SeqCst);
    }
    assert_eq!(memory.0, [0, 1, 2, 3, 4, 5, 6, 7]);
    let base = memory.0.as_mut_ptr();
    for offset in [0, 2, 4, 6] {
        // SAFETY: as above.
        let half = unsafe { Atomic::<u16, B>::from_ptr(base.add(offset).cast()) };
        half.store(0xffff, Ordering::SeqCst);
        half.fetch_add(3, Ordering::SeqCst);
        // SAFETY: nobody else has this word.
        unsafe {
            half.sub_local(3);
            half.add_local(0x8002);
            half.or_local(0x8000);
        }
        assert_eq!(half.load(Ordering::SeqCst), 0x8001);
    }
    let half = 0x8001_u16.to_ne_bytes();
    for chunk in memory.0.chunks(2) {
        assert_eq!(chunk, half);
    }
}

/// Both halves change or neither, and the result is the pair before, for every way to miss.
fn pair_cases(mut exchange: impl FnMut(&mut Pair, Pair, Pair) -> Pair) {
    let pair = |first, second| Pair { first, second };
    let mut memory = pair(usize::MAX, 1);
    for wrong in [pair(0, 1), pair(usize::MAX, 0), pair(1, usize::MAX), pair(0, 0)] {
        assert_eq!(exchange(&mut memory, wrong, pair(7, 8)), pair(usize::MAX, 1));
        assert_eq!(memory, pair(usize::MAX, 1), "neither half changes");
    }
    assert_eq!(exchange(&mut memory, pair(usize::MAX, 1), pair(3, usize::MAX - 1)), pair(usize::MAX, 1));
    assert_eq!(memory, pair(3, usize::MAX - 1), "both halves change");
    assert_eq!(exchange(&mut memory, memory_of(3), memory_of(3)), memory_of(3));
    assert_eq!(memory, memory_of(3));
}

/// What `pair_cases` has put there last.
fn memory_of(first: usize) -> Pair {
    Pair { first, second: usize::MAX - 1 }
}

/// The alignment: two adjacent pairs, and the address between them, which is refused.
fn misaligned_is_refused<B>() {
    let mut pairs = [Pair::default(); 2];
    let base = pairs.as_mut_ptr().cast::<usize>();
    // SAFETY: inside `pairs`, used by nobody else.
    unsafe {
        assert!(AtomicPair::<B>::from_ptr(base).is_some());
        assert!(AtomicPair::<B>::from_ptr(base.add(1)).is_none(), "half a pair further");
        assert!(AtomicPair::<B>::from_ptr(base.cast::<u8>().add(4).cast()).is_none());
        assert!(AtomicPair::<B>::from_ptr(base.add(2)).is_some());
    }
}

/// K15 on the full form.
pub fn k15<B: DoubleOps>() {
    misaligned_is_refused::<B>();
    let Some(proof) = DoubleWord::<B>::detect() else { return };
    for order in [Ordering::Relaxed, Ordering::Acquire, Ordering::Release, Ordering::AcqRel, Ordering::SeqCst]
    {
        pair_cases(|memory, old, new| {
            let pair = AtomicPair::<B>::new_in(*memory);
            let previous = pair.cmpxchg_double(proof, old, new, order);
            let mut expected = old;
            let tried = AtomicPair::<B>::new_in(*memory);
            let done = tried.try_cmpxchg_double(proof, &mut expected, new, order);
            assert_eq!((done, expected), (previous == old, previous));
            assert_eq!(tried.into_inner(), pair.load(proof));
            *memory = pair.into_inner();
            previous
        });
    }
}

/// K15 on the local form.
pub fn k15_local<B: LocalDoubleOps>() {
    misaligned_is_refused::<B>();
    let Some(proof) = DoubleWordLocal::<B>::detect() else { return };
    pair_cases(|memory, old, new| {
        let pair = AtomicPair::<B>::new_in(*memory);
        // SAFETY: nobody else has this pair.
        let previous = unsafe { pair.cmpxchg_double_local(proof, old, new) };
        let tried = AtomicPair::<B>::new_in(*memory);
        let mut expected = old;
        // SAFETY: as above.
        let done = unsafe { tried.try_cmpxchg_double_local(proof, &mut expected, new) };
        assert_eq!((done, expected), (previous == old, previous));
        *memory = pair.into_inner();
        assert_eq!(tried.into_inner(), *memory);
        previous
    });
}

/// The worker of K11: `count` increments of `word`, each a compare-and-exchange loop of full forms.
pub fn increments<B: Ops<u32>>(word: &Atomic<i32, B>, count: u32) {
    let mut old = word.load(Ordering::Relaxed);
    for _ in 0..count {
        loop {
            let new = old.wrapping_add(1);
            // ORDERING: Relaxed: the count is all there is.
            if word.try_cmpxchg(&mut old, new, Ordering::Relaxed) {
                old = new;
                break;
            }
        }
    }
}

/// The worker of K12: `count` increments of `word`, each a compare-and-exchange loop of local forms.
///
/// # Safety
///
/// The same-processor rule of the local forms.
pub unsafe fn local_increments<B: LocalOps<u32> + Ops<u32>>(word: &Atomic<u32, B>, count: u32) {
    let mut old = word.load(Ordering::Relaxed);
    for _ in 0..count {
        loop {
            let new = old.wrapping_add(1);
            // SAFETY: the caller's guarantee is the same.
            if unsafe { word.try_cmpxchg_local(&mut old, new) } {
                old = new;
                break;
            }
        }
    }
}
