// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Who allocated and who freed an object (`U`).

use core::fmt;

/// Return addresses that a [`Track`] keeps.
#[doc(alias = "TRACK_ADDRS_COUNT")]
pub const TRACK_FRAMES: usize = 8;

/// Which of an object's two records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "track_item")]
pub enum TrackKind {
    /// Who allocated it last.
    Alloc,
    /// Who freed it last.
    Free,
}

/// Who did something to an object, and when: filled in by [`Host::track`](crate::Host::track).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Track {
    /// Return addresses, innermost first; 0 ends them.
    pub frames: [usize; TRACK_FRAMES],
    /// The processor it ran on.
    pub cpu: usize,
    /// The thread.
    pub pid: usize,
    /// The time, in the host's units (the kernel's are jiffies).
    pub when: usize,
}

impl Track {
    /// Whether nothing is recorded.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Track {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cpu={} pid={} when={}", self.cpu, self.pid, self.when)?;
        for frame in self.frames.iter().take_while(|frame| **frame != 0) {
            write!(f, "\n    {frame:#x}")?;
        }
        Ok(())
    }
}
