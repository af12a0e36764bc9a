// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The calling thread's id, cached, and right after fork.
//!
//! Asking the kernel costs a system call (200 ns), so each thread keeps its id in thread-local storage. A child made by
//! fork has one thread, with a new id and its parent's thread-local storage: a cache that only looks there would lock
//! under the parent's id. So the cache is valid only while its epoch equals the process's, and the process's epoch lives
//! on a page of its own that the kernel hands to a child filled with zeroes (`MADV_WIPEONFORK`, Linux 4.14). That also
//! covers a bare `fork`, `clone` or `clone3` system call that no library knows of. Where the kernel refuses the advice,
//! a `pthread_atfork` handler resets the epoch instead, and a bare system call is not noticed.
//!
//! | thread's epoch | process's epoch | meaning |
//! |---|---|---|
//! | never | 0 | nobody has asked yet |
//! | never | n | this thread has not asked yet |
//! | n | n | the cached id is right |
//! | n | 0 | this is a forked child, and nobody has asked in it yet |
//! | n | m > n | this thread lived through a fork, and another thread of the child has asked before it |
//!
//! Epochs come from a counter in ordinary memory, which a child inherits: along each line of descent they only grow, so
//! an epoch that a thread keeps from an ancestor is never handed out again.
//!
//! Not covered: a child that shares its parent's memory (`vfork`, `CLONE_VM` without new thread-local storage) and locks
//! before it calls exec. It may only call async-signal-safe functions, and locking is none.

#![expect(unsafe_code, reason = "registers a page and a handler with the kernel and the C library")]

use core::cell::Cell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicIsize, AtomicU32, Ordering};
use std::thread_local;

use super::backend;

/// What a forked child must not inherit, alone on its page. Zero-initialised statics lie in anonymous private memory,
/// page for page; the alignment is the largest page size of the architectures Linux runs on in practice.
#[cfg_attr(
    any(target_arch = "aarch64", target_arch = "powerpc64", target_arch = "loongarch64"),
    repr(C, align(65536))
)]
#[cfg_attr(
    not(any(target_arch = "aarch64", target_arch = "powerpc64", target_arch = "loongarch64")),
    repr(C, align(4096))
)]
struct Page {
    /// The process's epoch, 0 before anybody asked.
    epoch: AtomicU32,
    /// Where threads have their rseq area. The same in a child, but here it costs the fast path no other address.
    rseq_area: AtomicIsize,
}

static PAGE: Page = Page { epoch: AtomicU32::new(0), rseq_area: AtomicIsize::new(0) };

/// The last epoch handed out in this line of descent.
static LAST_EPOCH: AtomicU32 = AtomicU32::new(0);

/// The epoch of a thread that has not asked yet. No process ever has it, so one comparison serves for everything.
const NEVER: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Cached {
    epoch: u32,
    tid: u32,
    /// The id this thread had before the last fork it lived through, else 0.
    before_fork: u32,
}

thread_local! {
    static CACHED: Cell<Cached> = const { Cell::new(Cached { epoch: NEVER, tid: 0, before_fork: 0 }) };
}

/// The calling thread's id: one comparison when it is cached.
#[inline(always)]
pub(super) fn current() -> u32 {
    let cached = CACHED.get();
    // ORDERING: Relaxed, a thread compares it with what it read itself, with Acquire, when it asked.
    if cached.epoch != PAGE.epoch.load(Ordering::Relaxed) {
        return ask();
    }
    cached.tid
}

/// The CPU the calling thread runs on, if restartable sequences tell it for free: two loads.
#[inline(always)]
pub(super) fn cpu() -> Option<u32> {
    let cpu = unchecked_cpu();
    (cpu.cast_signed() >= 0).then_some(cpu)
}

/// As [`cpu`], and some huge number if nothing tells it. The calling thread has asked for its id before.
#[inline(always)]
pub(super) fn unchecked_cpu() -> u32 {
    // ORDERING: Relaxed, this thread has read the epoch with Acquire when it asked for its id.
    let offset = PAGE.rseq_area.load(Ordering::Relaxed);
    // SAFETY: in a process whose epoch is set this comes from `rseq_area`, and the caller has seen the epoch. If a signal
    // handler forked since, the child reads 0 here: the words at its thread pointer, which are mapped too, as a wrong hint.
    unsafe { backend::cpu_by(offset) }
}

/// The id the calling thread had before the last fork it lived through, 0 if there was none.
pub(super) fn before_fork() -> u32 {
    current();
    CACHED.get().before_fork
}

#[cold]
#[inline(never)]
fn ask() -> u32 {
    prepare();
    let tid = backend::gettid();
    let epoch = process_epoch();
    let old = CACHED.get();
    let before_fork = if old.epoch == NEVER { 0 } else { old.tid };
    CACHED.set(Cached { epoch, tid, before_fork });
    tid
}

/// The process's epoch; the first caller in a process sets it.
fn process_epoch() -> u32 {
    // ORDERING: Acquire pairs with the Release below: with the epoch comes the place of the rseq area.
    let epoch = PAGE.epoch.load(Ordering::Acquire);
    if epoch != 0 {
        return epoch;
    }
    // ORDERING: Relaxed, the epoch below publishes it.
    PAGE.rseq_area.store(backend::rseq_area(), Ordering::Relaxed);
    // ORDERING: Relaxed, the counter orders nothing; only its values matter.
    let mine = LAST_EPOCH.fetch_add(1, Ordering::Relaxed).wrapping_add(1).clamp(1, NEVER - 1);
    // ORDERING: Release, and Acquire if another thread was first, as above.
    match PAGE.epoch.compare_exchange(0, mine, Ordering::Release, Ordering::Acquire) {
        Ok(_) => mine,
        Err(other) => other,
    }
}

/// Makes sure that a fork will be noticed. Runs before the first id is cached, so no cached id escapes it.
///
/// Two threads may both do it, which is harmless; a `Once` would leave a child hanging that was forked meanwhile.
fn prepare() {
    static PREPARED: AtomicBool = AtomicBool::new(false);
    // ORDERING: Acquire pairs with the Release below: whoever skips the preparation knows that it is complete.
    if PREPARED.load(Ordering::Acquire) {
        return;
    }
    let page = NonNull::from(&PAGE).cast();
    // SAFETY: the range is a static of its own, whole pages, and its bytes have no meaning but the epoch's, whose
    // value 0 is valid: a child that finds it wiped asks again.
    let wiped = unsafe { backend::wipe_on_fork(page, size_of::<Page>()) };
    if !wiped {
        // If the C library has no memory for its list, nothing is left to try: a fork goes unnoticed.
        backend::at_fork_in_child(reset);
    }
    // ORDERING: Release, see above.
    PREPARED.store(true, Ordering::Release);
}

/// Runs in a forked child where the kernel does not wipe the page.
///
/// # Safety
///
/// None is needed; the C library wants such a type.
unsafe extern "C" fn reset() {
    // ORDERING: Relaxed, the child has one thread.
    PAGE.epoch.store(0, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cached_id_is_the_kernels_in_every_thread() {
        assert_eq!(current(), backend::gettid());
        assert_eq!(current(), backend::gettid());
        let other = std::thread::spawn(|| (current(), backend::gettid())).join().unwrap();
        assert_eq!(other.0, other.1);
        assert_ne!(other.0, current());
    }

    #[test]
    fn the_epoch_has_its_pages_for_itself() {
        assert_eq!(core::mem::align_of::<Page>(), core::mem::size_of::<Page>());
        assert_eq!((&raw const PAGE).addr() % core::mem::size_of::<Page>(), 0);
    }
}
