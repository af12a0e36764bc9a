// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! A Rust program on the allocator: collections, threads, and every method of `GlobalAlloc` against a model.

#![expect(unsafe_code, reason = "calls the allocator as the compiler does")]
#![expect(clippy::cast_ptr_alignment, reason = "the C library aligns its own symbols and areas")]

use std::alloc::{GlobalAlloc, Layout};
use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc;

use fastpath_sys::libc_symbols;
use fastpath_sys::rseq::thread_pointer;

#[global_allocator]
static HEAP: fastpath_alloc::FastPath = fastpath_alloc::FastPath;

fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// A block and what it must hold.
struct Block {
    pointer: *mut u8,
    layout: Layout,
    pattern: u8,
}

// SAFETY: a block belongs to whoever holds the record.
unsafe impl Send for Block {}

impl Block {
    fn new(state: &mut u64) -> Self {
        let size = match next(state) % 10 {
            0..7 => next(state) % 600,
            7..9 => next(state) % 40_000,
            _ => next(state) % 2_000_000,
        } as usize
            + 1;
        let align = 1 << (next(state) % if next(state).is_multiple_of(4) { 17 } else { 5 });
        let layout = Layout::from_size_align(size, align).unwrap();
        let zeroed = next(state).is_multiple_of(3);
        // SAFETY: the layout is not empty.
        let pointer = unsafe { if zeroed { HEAP.alloc_zeroed(layout) } else { HEAP.alloc(layout) } };
        assert!(!pointer.is_null() && pointer.addr().is_multiple_of(align), "{layout:?}");
        let mut block = Self { pointer, layout, pattern: next(state) as u8 };
        if zeroed {
            assert!(block.bytes().iter().all(|&byte| byte == 0), "{layout:?}");
        }
        block.fill();
        block
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the block is ours, and every byte of it was written or allocated zeroed.
        unsafe { std::slice::from_raw_parts_mut(self.pointer, self.layout.size()) }
    }

    fn fill(&mut self) {
        // SAFETY: the block is ours.
        unsafe { self.pointer.write_bytes(self.pattern, self.layout.size()) };
    }

    fn check(&mut self) {
        let pattern = self.pattern;
        assert!(
            self.bytes().iter().all(|&byte| byte == pattern),
            "{:?} changed under its owner",
            self.layout
        );
    }

    fn resize(&mut self, size: usize) {
        let keep = size.min(self.layout.size());
        // SAFETY: the block is ours with this layout, and the size is not 0.
        self.pointer = unsafe { HEAP.realloc(self.pointer, self.layout, size) };
        assert!(!self.pointer.is_null() && self.pointer.addr().is_multiple_of(self.layout.align()));
        self.layout = Layout::from_size_align(keep, self.layout.align()).unwrap();
        self.check();
        self.layout = Layout::from_size_align(size, self.layout.align()).unwrap();
        self.fill();
    }

    fn free(mut self) {
        self.check();
        // SAFETY: the block is ours, and nobody uses it afterwards.
        unsafe { HEAP.dealloc(self.pointer, self.layout) };
    }
}

#[test]
fn blocks_keep_what_is_in_them_and_do_not_overlap() {
    let mut state = 0x1234_5678_9abc_def1;
    let mut blocks: Vec<Block> = Vec::new();
    for _ in 0..8000 {
        match next(&mut state) % 8 {
            0..4 => blocks.push(Block::new(&mut state)),
            4..6 if !blocks.is_empty() => {
                let at = next(&mut state) as usize % blocks.len();
                blocks.swap_remove(at).free();
            }
            6 if !blocks.is_empty() => {
                let at = next(&mut state) as usize % blocks.len();
                let size = next(&mut state) as usize % 90_000 + 1;
                blocks[at].resize(size);
            }
            _ => {}
        }
        if blocks.len() > 300 {
            let at = next(&mut state) as usize % blocks.len();
            blocks.swap_remove(at).free();
        }
    }
    let mut extents: Vec<(usize, usize)> =
        blocks.iter().map(|block| (block.pointer.addr(), block.layout.size())).collect();
    extents.sort_unstable();
    assert!(extents.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
    blocks.into_iter().for_each(Block::free);
}

#[test]
fn blocks_travel_between_threads() {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| mpsc::channel::<Block>()).unzip();
    std::thread::scope(|scope| {
        for (id, receiver) in receivers.into_iter().enumerate() {
            let senders = senders.clone();
            scope.spawn(move || {
                let mut state = 77 + id as u64;
                for _ in 0..3000 {
                    let to = next(&mut state) as usize % senders.len();
                    let _ = senders[to].send(Block::new(&mut state));
                    while let Ok(block) = receiver.try_recv() {
                        block.free();
                    }
                }
                drop(senders);
                while let Ok(block) = receiver.recv() {
                    block.free();
                }
            });
        }
        drop(senders);
    });
}

#[test]
fn collections_work_and_the_statistics_see_them() {
    let mut map = HashMap::new();
    let mut tree = BTreeMap::new();
    for n in 0..20_000u64 {
        map.insert(n, n.to_string());
        tree.insert(n.to_string(), vec![n; (n % 50) as usize]);
    }
    assert!(map.iter().all(|(n, text)| tree[text].len() as u64 == n % 50));
    let stats = fastpath_alloc::stats();
    assert!(stats.small_objects >= 40_000, "{stats:?}");
    assert!(stats.refilled + stats.direct_allocs >= 40_000, "{stats:?}");
    let big = vec![1u8; 5_000_000];
    assert!(fastpath_alloc::stats().big_bytes >= 5_000_000);
    drop((map, tree, big));
    fastpath_alloc::trim();
    eprintln!("front end: {}", fastpath_alloc::raw::front());
}

/// Where the C library registered this thread, the sections serve: on x86-64 and on AArch64.
#[test]
fn sections_serve_where_the_c_library_registers_threads() {
    let (size, offset) = (libc_symbols::__rseq_size(), libc_symbols::__rseq_offset());
    let registered = !size.is_null() && !offset.is_null() && {
        // SAFETY: the C library's constants, of these types.
        let (size, offset) = unsafe { (size.cast::<u32>().read(), offset.cast::<isize>().read()) };
        // SAFETY: a size says that every thread has an area at the offset; its second word is the CPU number.
        size != 0 && unsafe { thread_pointer().wrapping_offset(offset + 4).cast::<i32>().read() } >= 0
    };
    drop(std::hint::black_box(Box::new(1)));
    let sections = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));
    if std::env::var_os("FASTPATH_FRONT").is_none() {
        let expected = if registered && sections { "sheaf/rseq" } else { "sheaf/trylock" };
        assert_eq!(fastpath_alloc::raw::front(), expected);
    }
}
