// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The fast paths as functions with a symbol each, for `ci/golden-asm.py`: it compiles this file for every target and
//! compares the instructions with `ci/golden/cmpxchg.txt`. Not a program.
#![no_std]
#![allow(unused_unsafe, reason = "some paths are safe")]

use fastpath_cmpxchg::raw;
use fastpath_cmpxchg::{Atomic, Native, Ops, Ordering};

/// `unsafe extern "C" fn name(arguments) -> result { expression }` with the symbol `name`.
macro_rules! paths {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? = $body:expr;)*) => {$(
        // SAFETY: the names are unique in the program: there is none.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
            // SAFETY: the caller's guarantee is that of the operation.
            unsafe { $body }
        }
    )*};
}

paths! {
    arch_cmpxchg_u8(p: *mut u8, old: usize, new: usize) -> usize = raw::arch_cmpxchg(p, old, new);
    arch_cmpxchg_u32(p: *mut u32, old: usize, new: usize) -> usize = raw::arch_cmpxchg(p, old, new);
    arch_cmpxchg_acquire_u32(p: *mut u32, old: usize, new: usize) -> usize = raw::arch_cmpxchg_acquire(p, old, new);
    arch_cmpxchg_release_u32(p: *mut u32, old: usize, new: usize) -> usize = raw::arch_cmpxchg_release(p, old, new);
    arch_cmpxchg_relaxed_u32(p: *mut u32, old: usize, new: usize) -> usize = raw::arch_cmpxchg_relaxed(p, old, new);
    arch_xchg_u32(p: *mut u32, new: usize) -> usize = raw::arch_xchg(p, new);
    arch_cmpxchg_local_u8(p: *mut u8, old: usize, new: usize) -> usize = raw::arch_cmpxchg_local(p, old, new);
    arch_cmpxchg_local_u32(p: *mut u32, old: usize, new: usize) -> usize = raw::arch_cmpxchg_local(p, old, new);
    arch_xchg_local_u32(p: *mut u32, new: usize) -> usize = raw::arch_xchg_local(p, new);
    arch_cmpxchg64_local(p: *mut u64, old: u64, new: u64) -> u64 = raw::arch_cmpxchg64_local(p, old, new);
    fetch_add_u32(p: &Atomic<u32>, value: u32) -> u32 = p.fetch_add(value, Ordering::SeqCst);
    fetch_add_relaxed_u32(p: &Atomic<u32>, value: u32) -> u32 = p.fetch_add(value, Ordering::Relaxed);
    fetch_add_local_u32(p: &Atomic<u32>, value: u32) -> u32 = p.fetch_add_local(value);
    add_local_u32(p: &Atomic<u32>, value: u32) = p.add_local(value);
    inc_local_u8(p: &Atomic<u8>) = p.inc_local();
    try_cmpxchg_i32(p: &Atomic<i32>, old: &mut i32, new: i32) -> bool = p.try_cmpxchg(old, new, Ordering::AcqRel);
    load_acquire_u32(p: *const u32) -> u32 = <Native as Ops<u32>>::load(p, Ordering::Acquire);
}

// Paths that not every target has.
#[cfg(any(
    target_arch = "x86_64",
    target_arch = "x86",
    target_arch = "aarch64",
    all(target_arch = "arm", target_has_atomic = "64"),
    not(target_has_atomic = "ptr"),
    target_feature = "zacas"
))]
paths! {
    arch_cmpxchg_double(p: *mut fastpath_cmpxchg::Pair, o1: usize, o2: usize, n1: usize, n2: usize) -> bool =
        raw::arch_cmpxchg_double(p, o1, o2, n1, n2);
}

// Paths that not every target has.
#[cfg(any(target_os = "none", target_arch = "x86_64", target_arch = "x86"))]
paths! {
    arch_cmpxchg_double_local(p: *mut fastpath_cmpxchg::Pair, o1: usize, o2: usize, n1: usize, n2: usize) -> bool =
        raw::arch_cmpxchg_double_local(p, o1, o2, n1, n2);
}

// Interrupts off, by the processor's own flag.
#[cfg(target_os = "none")]
paths! {
    generic_cmpxchg_local_u32(p: *mut u32, old: usize, new: usize) -> usize =
        raw::generic_cmpxchg_local::<fastpath_cmpxchg::interrupt::Interrupts, u32>(p, old, new);
    generic_xchg_u8(p: *mut u8, new: usize) -> usize =
        raw::generic_xchg::<fastpath_cmpxchg::interrupt::Interrupts, u8>(p, new);
}
