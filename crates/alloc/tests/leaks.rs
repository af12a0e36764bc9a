// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The leak report of a Rust program: blocks are freed by their size here, and a followed one is found all the same.

use std::hint::black_box;
use std::process::Command;

#[global_allocator]
static HEAP: fastpath_alloc::FastPath = fastpath_alloc::FastPath;

const CHILD: &str = "FASTPATH_TEST_CHILD";

/// What the child does: many blocks come and go, by every way in; ten stay.
fn allocate() {
    for round in 0..2000usize {
        let mut numbers = black_box(Vec::<u64>::with_capacity(6));
        numbers.extend(0..black_box(40));
        drop(black_box(numbers));
        drop(black_box(vec![0u8; 100 + round % 500]));
        drop(black_box(vec![0u8; 40_000]));
        drop(black_box(Box::new(Aligned([round as u8; 64]))));
    }
    println!("function {:x}", keep as *const () as usize);
    for _ in 0..black_box(10) {
        keep();
    }
}

#[inline(never)]
fn keep() {
    Box::leak(black_box(vec![1u8; 3001].into_boxed_slice()));
}

#[repr(align(64))]
struct Aligned(#[expect(dead_code, reason = "only its size matters")] [u8; 64]);

#[test]
fn blocks_that_are_freed_by_their_size_are_not_leaks() {
    if std::env::var_os(CHILD).is_some() {
        allocate();
        return;
    }
    for front in ["sheaf", "trylock", "direct"] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "blocks_that_are_freed_by_their_size_are_not_leaks",
                "--test-threads=1",
                "--nocapture",
            ])
            .envs([(CHILD, "1"), ("FASTPATH_LEAKS", "1"), ("FASTPATH_FRONT", front)])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("30010 bytes in 10 blocks from"), "{front}: {text}");
        if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            let said = String::from_utf8_lossy(&output.stdout);
            let (_, rest) = said.split_once("function ").unwrap();
            let hex = |text: &str| {
                let end = text.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(text.len());
                usize::from_str_radix(&text[..end], 16).unwrap()
            };
            let keep = hex(rest);
            let place = text.split("blocks from").find(|place| place.contains("30010 bytes")).unwrap();
            let after = &text[place.as_ptr().addr() - text.as_ptr().addr() + place.len()..];
            let callers: Vec<usize> = after.split("0x").skip(1).take(16).map(hex).collect();
            assert!(
                callers.iter().any(|caller| (keep..keep + 512).contains(caller)),
                "{front}: {keep:x} {text}"
            );
        }
        let total = text.lines().find(|line| line.contains("were not freed")).unwrap();
        let bytes: u64 =
            total.split(' ').find_map(|word| word.parse().ok()).unwrap_or_else(|| panic!("{total}"));
        // The test harness leaves a little too.
        assert!((30_010..90_000).contains(&bytes), "{front}: {text}");
    }
}
