// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Delay points between the steps of the sections, for tests. Only in builds with `--cfg fastpath_inject`.
//!
//! | point | where |
//! |---|---|
//! | 0 | registered, slot not yet read |
//! | 1 | slot found |
//! | 2 | the first word loaded or compared |
//! | 3 | before the commit |

use core::sync::atomic::{AtomicU32, Ordering};

/// The number of points.
pub const POINTS: usize = 4;

/// Rounds to wait at each point.
pub(super) static DELAYS: [AtomicU32; POINTS] = [const { AtomicU32::new(0) }; POINTS];

/// Makes every section of the process wait `rounds` rounds (about a cycle each) at point `point`.
///
/// # Panics
///
/// If there is no such point.
pub fn set_delay(point: usize, rounds: u32) {
    // ORDERING: Relaxed: a test's knob; sections read it whenever they come by.
    DELAYS[point].store(rounds, Ordering::Relaxed);
}
