// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Where we know no counter: the monotonic clock, in nanoseconds.

use std::sync::OnceLock;
use std::time::Instant;

/// What the counter is called.
pub(in crate::bench) const NAME: &str = "clock_monotonic";

/// Nanoseconds since the first call.
pub(in crate::bench) fn read() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// False: a tick is a nanosecond.
pub(in crate::bench) const fn reads_cycles() -> bool {
    false
}
