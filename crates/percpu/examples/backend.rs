// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Prints the backend of this process; with `--count`, also uses it from several threads and checks the sums.

use fastpath_percpu::{Backend, Counter, Ids, Owner, PerCpuRef, RingBuffer, Stack, backend};

fn main() {
    println!(
        "{}",
        match backend() {
            Backend::Rseq { owner: Owner::Libc, ids: Ids::Cpu } => "rseq",
            Backend::Rseq { owner: Owner::Libc, ids: Ids::MmCid } => "rseq-mm_cid",
            Backend::Rseq { owner: Owner::Own, ids: Ids::Cpu } => "rseq-own",
            Backend::Rseq { owner: Owner::Own, ids: Ids::MmCid } => "rseq-own-mm_cid",
            Backend::Locked => "locked",
        }
    );
    if std::env::args().any(|argument| argument == "--count") {
        count();
    }
}

fn count() {
    let counter = Counter::new().expect("address space");
    let stack = Stack::<Box<u64>, 16>::new().expect("address space");
    let ring = RingBuffer::<256>::new().expect("address space");
    let users = PerCpuRef::new().expect("address space");
    let each = 5000;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for number in 0..each {
                    users.get();
                    counter.add(1);
                    let _ = stack.push(Box::new(number));
                    drop(stack.pop());
                    let _ = ring.push(&number.to_le_bytes());
                    assert!(!users.put(), "the initial reference is there");
                }
            });
        }
    });
    assert_eq!(counter.sum(), 4 * each as i64);
    ring.read_all(|_, record| assert_eq!(record.len(), 8));
    assert!(users.kill().expect("fence"), "the last reference");
    println!("counted {} exactly", counter.sum());
}
