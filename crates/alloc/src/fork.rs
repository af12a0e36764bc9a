// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `fork`: every lock is taken before it, in one order (CPU, caches, big records, pages,
//! vacant descriptors, records), and given back after
//! it on both sides. So the child finds every list whole. What a thread that vanished had in its hand, at most one
//! sheaf, is lost in the child. A thread pointer survives `fork`, so the child unlocks as the parent does.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::{big, caches, cpu, live, meta, pages, reap, source, stats};
use fastpath_sys::libc_symbols;

static REGISTERED: AtomicBool = AtomicBool::new(false);

extern "C" fn before() {
    cpu::before_fork();
    caches::before_fork();
    big::before_fork();
    pages::before_fork();
    source::before_fork();
    meta::before_fork();
}

extern "C" fn after_in_parent() {
    meta::after_fork();
    source::after_fork();
    pages::after_fork();
    big::after_fork();
    caches::after_fork();
    cpu::after_fork();
}

extern "C" fn after_in_child() {
    after_in_parent();
    stats::after_fork();
    live::after_fork();
    reap::after_fork();
}

type Handler = extern "C" fn();

/// Registers the handlers with the C library, once it is ready for that.
pub(crate) fn register() {
    // ORDERING: Relaxed: the heap's set-up and the constructor run one after the other.
    if REGISTERED.swap(true, Relaxed) {
        return;
    }
    let glibc = libc_symbols::__register_atfork();
    let posix = libc_symbols::pthread_atfork();
    // SAFETY: the C library's functions of these names and types. The handlers stay valid: the heap's object is never
    // unloaded (and a null object handle keeps the C library from dropping them).
    unsafe {
        if !glibc.is_null() {
            let register: extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int =
                core::mem::transmute(glibc);
            register(before, after_in_parent, after_in_child, core::ptr::null_mut());
        } else if !posix.is_null() {
            let register: extern "C" fn(Handler, Handler, Handler) -> c_int = core::mem::transmute(posix);
            register(before, after_in_parent, after_in_child);
        }
    }
}
