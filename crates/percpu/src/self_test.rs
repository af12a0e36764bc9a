// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The start-up self-test: does the kernel really abort a section?
//!
//! Emulators and sandboxes have accepted registrations and then never aborted anything. The test runs once per
//! process: a helper thread fences this one (membarrier) while it waits inside a section. The helper is a bare kernel
//! thread on a page of its own, with all signals blocked, that runs a few instructions and no libc code: start-up may
//! happen where libc's thread functions must not be called.

use crate::{rseq, thread};

/// What the self-test found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Verdict {
    /// The section was aborted, as promised.
    Aborts = 0,
    /// The helper fenced the section three times and it went on undisturbed: rseq must not be used here.
    NoAbort = 1,
    /// The test could not run: no membarrier, or no new thread is permitted. The kernel is trusted.
    NotTested = 2,
}

impl Verdict {
    pub(crate) const fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Aborts),
            1 => Some(Self::NoAbort),
            2 => Some(Self::NotTested),
            _ => None,
        }
    }
}

/// Runs the self-test now, in the calling thread.
///
/// ```
/// use fastpath_percpu::{self_test, Backend};
/// if let Backend::Rseq { .. } = fastpath_percpu::backend() {
///     assert_ne!(self_test::abort_happens(), self_test::Verdict::NoAbort);
/// }
/// ```
pub fn abort_happens() -> Verdict {
    if !thread::is_registered() {
        return Verdict::NotTested;
    }
    run(fastpath_sys::rseq::area_offset())
}

/// The self-test on the area at `area` from the thread pointer.
pub(crate) fn run(area: isize) -> Verdict {
    rseq::abort_probe(area)
        .map_or(Verdict::NotTested, |aborted| if aborted { Verdict::Aborts } else { Verdict::NoAbort })
}
