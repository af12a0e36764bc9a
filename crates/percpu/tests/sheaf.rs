// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The sheaf sections: their contract step by step, and no object lost or doubled when many threads share the CPUs.

#![expect(unsafe_code, reason = "the sections work on raw pointers")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use fastpath_percpu::sheaf::{
    self, Access, Block, CLASSES, MAX_CAPACITY, SHEAF_BYTES, Slot, Top, guard_block, guard_top, is_full,
};

unsafe extern "C" {
    static __rseq_offset: isize;
    static __rseq_size: u32;
}

/// The table of a test: every CPU its own block, or one that is missing.
struct Table {
    entries: Vec<*mut Block>,
}

// SAFETY: the blocks are reached through the sections.
unsafe impl Sync for Table {}

impl Table {
    fn new(fill: impl Fn() -> *mut Block) -> Self {
        let mut entries = vec![guard_block(); 2];
        entries.extend((0..1024).map(|_| fill()));
        Self { entries }
    }

    /// `None` where the C library did not register this thread.
    fn access(&self) -> Option<Access> {
        // SAFETY: the C library's constants.
        let (offset, size) = unsafe { (__rseq_offset, __rseq_size) };
        // SAFETY: a non-zero size says that there is an area at that offset.
        let registered = sheaf::SUPPORTED && size != 0 && unsafe { sheaf::cpu_id(offset) } >= 0;
        if !registered {
            fastpath_testkit::skip("libc-owns-rseq", "this thread is not registered");
        }
        registered.then(|| Access { rseq_offset: offset, table: self.entries[2..].as_ptr() })
    }
}

fn new_block() -> *mut Block {
    Box::into_raw(Box::new(Block { slots: [Slot { main: guard_top(), spare: guard_top() }; CLASSES] }))
}

/// An empty sheaf for `capacity` objects: its top.
fn new_sheaf(capacity: usize) -> Top {
    #[repr(align(2048))]
    struct Sheaf(#[expect(dead_code, reason = "reached by its address")] [*mut u8; SHEAF_BYTES / 8]);
    let words = Box::into_raw(Box::new(Sheaf([std::ptr::null_mut(); SHEAF_BYTES / 8]))).cast::<*mut u8>();
    words.wrapping_add(MAX_CAPACITY - capacity)
}

fn object(number: usize) -> *mut u8 {
    std::ptr::without_provenance_mut(number * 16)
}

/// A thread that stays where it is, so that one block can be looked at.
fn pinned<R>(test: impl FnOnce() -> R) -> R {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    let mut one = rustix::thread::CpuSet::new();
    one.set((0..1024).find(|&cpu| set.is_set(cpu)).unwrap());
    rustix::thread::sched_setaffinity(None, &one).unwrap();
    let result = test();
    rustix::thread::sched_setaffinity(None, &set).unwrap();
    result
}

#[test]
fn the_guard_gives_nothing_and_takes_nothing() {
    let table = Table::new(guard_block);
    let Some(access) = table.access() else { return };
    for class in [0, 1, 7, CLASSES - 1] {
        // SAFETY: the table has an entry for every CPU, and the guard is a valid block.
        unsafe {
            assert!(sheaf::pop::<true>(access, class * 2).is_null());
            assert!(!sheaf::push::<true>(access, class * 2, object(1)));
        }
    }
    assert!(is_full(guard_top()));
}

#[test]
fn a_stack_holds_its_capacity_and_gives_it_back_in_reverse() {
    let block = new_block();
    let table = Table::new(|| block);
    let Some(access) = table.access() else { return };
    pinned(|| {
        for (class, capacity) in [(1, MAX_CAPACITY), (2, 3), (3, 1)] {
            // SAFETY: as above; the block is this test's and the thread is pinned.
            unsafe {
                (*block).slots[class].main = new_sheaf(capacity);
                assert!(sheaf::pop::<false>(access, class * 2).is_null());
                for number in 1..=capacity {
                    assert!(sheaf::push::<false>(access, class * 2, object(number)));
                }
                assert!(is_full((*block).slots[class].main));
                assert!(!sheaf::push::<false>(access, class * 2, object(999)));
                for number in (1..=capacity).rev() {
                    assert_eq!(sheaf::pop::<false>(access, class * 2), object(number));
                }
                assert!(sheaf::pop::<false>(access, class * 2).is_null());
            }
        }
    });
    fastpath_testkit::case("R12", "sheaf");
}

#[test]
fn an_exchange_wants_the_block_and_the_pair_it_was_told() {
    let block = new_block();
    let other = new_block();
    let table = Table::new(|| block);
    let Some(access) = table.access() else { return };
    pinned(|| {
        let (first, second, third) = (new_sheaf(3), new_sheaf(3), new_sheaf(3));
        let old = Slot { main: first, spare: second };
        let new = Slot { main: second, spare: third };
        // SAFETY: as above.
        unsafe {
            (*block).slots[5] = old;
            assert!(!sheaf::exchange(access, 10, other, old, &new));
            assert!(!sheaf::exchange(access, 10, block, Slot { main: second, ..old }, &new));
            assert!(!sheaf::exchange(access, 10, block, Slot { spare: third, ..old }, &new));
            assert_eq!((*block).slots[5], old);
            assert!(sheaf::exchange(access, 10, block, old, &new));
            assert_eq!((*block).slots[5], new);
        }
    });
}

/// Sheaves that nobody else has: full ones, part-filled ones, empty ones.
struct Store(Vec<Top>);
// SAFETY: tops in the store belong to the store.
unsafe impl Send for Store {}
/// What all threads use.
struct Shared(Access);
// SAFETY: the offset and the table are the same for all threads.
unsafe impl Sync for Shared {}

/// Threads pop and push tokens on their CPUs' sheaves, trade whole sheaves with a common store, and are moved about.
/// At the end every token must be there once.
#[test]
fn no_token_is_lost_or_doubled() {
    const TOKENS: usize = 4000;
    const CAPACITY: usize = 31;
    let table = Table::new(new_block);
    let Some(access) = table.access() else { return };
    let shared = Shared(access);
    let store = Mutex::new(Store(Vec::new()));
    let mut next = 1;
    while next <= TOKENS {
        let mut top = new_sheaf(CAPACITY);
        // SAFETY: a new sheaf with room.
        unsafe {
            for _ in 0..CAPACITY.min(TOKENS + 1 - next) {
                top = top.add(1);
                top.write(object(next));
                next += 1;
            }
        }
        store.lock().unwrap().0.push(top);
    }
    let held: Vec<AtomicU32> = (0..=TOKENS).map(|_| AtomicU32::new(0)).collect();
    let take = |token: *mut u8| {
        let number = token.addr() / 16;
        assert_eq!(held[number].fetch_add(1, Relaxed), 0, "token {number} has two owners");
    };
    let give = |token: *mut u8| assert_eq!(held[token.addr() / 16].fetch_sub(1, Relaxed), 1);
    let work = |seed: u64| {
        let access = { &shared }.0;
        let mut state = seed * 2 + 1;
        let mut mine: Vec<*mut u8> = Vec::new();
        for round in 0..300_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if round % 1000 == 0 {
                std::thread::yield_now();
            }
            // SAFETY: every CPU has a block; tokens are never followed as pointers.
            unsafe {
                let full = if state >> 40 & 1 == 0 && mine.len() < 200 {
                    let token = sheaf::pop::<true>(access, 2);
                    if !token.is_null() {
                        take(token);
                        mine.push(token);
                        continue;
                    }
                    false
                } else if let Some(token) = mine.pop() {
                    give(token);
                    if sheaf::push::<true>(access, 2, token) {
                        continue;
                    }
                    take(token);
                    mine.push(token);
                    true
                } else {
                    continue;
                };
                // Trade this CPU's pair, whatever it is, for what the store has.
                let cpu = sheaf::cpu_id(access.rseq_offset);
                let block = *access.table.add(cpu as usize);
                let slot = (&raw const (*block).slots[1]).read_volatile();
                let wanted = {
                    let mut store = store.lock().unwrap();
                    let at = store.0.iter().position(|&top| is_full(top) != full);
                    at.map_or_else(|| new_sheaf(CAPACITY), |at| store.0.swap_remove(at))
                };
                let new = Slot { main: wanted, spare: slot.main };
                let back = if sheaf::exchange(access, 2, block, slot, &new) { slot.spare } else { wanted };
                if back != guard_top() {
                    store.lock().unwrap().0.push(back);
                }
            }
        }
        // What this thread still holds: for the count at the end.
        mine.iter().map(|token| token.addr() / 16).collect::<Vec<usize>>()
    };
    let kept: Vec<usize> = std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..6).map(|seed| scope.spawn(move || work(seed))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let mut seen = vec![0; TOKENS + 1];
    for number in kept {
        seen[number] += 1;
    }
    let mut count = |top: Top| {
        if top != guard_top() {
            let sentinel =
                top.wrapping_byte_sub(top.addr() % SHEAF_BYTES).wrapping_add(MAX_CAPACITY - CAPACITY);
            let mut at = top;
            while at != sentinel {
                // SAFETY: no thread is left; the words between sentinel and top hold tokens.
                unsafe {
                    seen[at.read().addr() / 16] += 1;
                    at = at.sub(1);
                }
            }
        }
    };
    store.lock().unwrap().0.iter().for_each(|&top| count(top));
    for &block in &table.entries[2..] {
        // SAFETY: no thread is left.
        let slot = unsafe { (*block).slots[1] };
        count(slot.main);
        count(slot.spare);
    }
    let wrong: Vec<_> = seen.iter().enumerate().skip(1).filter(|&(_, &times)| times != 1).collect();
    assert!(wrong.is_empty(), "tokens and in how many places they are: {wrong:?}");
}
