// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! A counter for C: what the program beside this needs to see own registration at work.
#![no_std]

use fastpath_percpu::{Backend, Counter, Lazy, Owner};

static HITS: Lazy<Counter> = Lazy::new();

/// Adds one on this CPU.
#[unsafe(no_mangle)]
pub extern "C" fn hits_add() {
    HITS.add(1);
}

/// The sum of all slots.
#[unsafe(no_mangle)]
pub extern "C" fn hits_sum() -> i64 {
    HITS.sum()
}

/// What threads counted that could not run sections.
#[unsafe(no_mangle)]
pub extern "C" fn hits_outside() -> i64 {
    HITS.slots().per_slot(fastpath_percpu::slots()).load()
}

/// 1 if each thread registers its own area, 0 if something else was chosen.
#[unsafe(no_mangle)]
pub extern "C" fn hits_own() -> i32 {
    i32::from(matches!(fastpath_percpu::backend(), Backend::Rseq { owner: Owner::Own, .. }))
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    unsafe extern "C" {
        safe fn abort() -> !;
    }
    abort()
}
