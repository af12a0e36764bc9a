// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Restarting the sections that other threads are in the middle of.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use fastpath_sys::membarrier;

static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Tells the kernel that this process will ask for restarts; false if the kernel cannot.
pub(crate) fn register() -> bool {
    // ORDERING: Relaxed: registering twice is harmless.
    if !REGISTERED.load(Relaxed) {
        if membarrier::register_rseq().is_err() {
            return false;
        }
        REGISTERED.store(true, Relaxed);
    }
    true
}

/// Makes every thread of the process that is inside a section start it again; false if the kernel cannot.
pub(crate) fn restart_all_sections() -> bool {
    register() && membarrier::rseq_all().is_ok()
}
