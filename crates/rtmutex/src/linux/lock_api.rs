// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What both versions of `lock_api` need: answers where their traits have no words for an error.

use std::io::Write as _;
use std::thread;
use std::time::Instant;

use super::backend::Deadline;
use super::error::LockError;
use super::protocol::Refusal;
use super::raw::RawRtMutex;
#[cfg(feature = "lock_api_0_4")]
use super::{protocol::Port as _, tid, word};

impl RawRtMutex {
    /// Stops the calling thread for ever, with one line on standard error: it asked for a lock it can never have, by a
    /// call that can only return with the lock.
    #[cold]
    pub(super) fn stop(&self, refusal: Refusal) -> ! {
        let why = LockError::<()>::from_refusal(refusal);
        // If nobody can read it, there is nobody to tell.
        let _ = writeln!(std::io::stderr(), "fastpath-rtmutex: {why}: the thread stops here ({self:?})");
        loop {
            thread::park();
        }
    }

    /// Locks until `deadline`. An error that is no time-out is waited out: the traits allow no early failure.
    pub(super) fn lock_or_wait_out(&self, deadline: Instant) -> Option<u32> {
        match self.lock_until(Deadline::Monotonic(deadline)) {
            Ok(me) => Some(me),
            Err(Refusal::TimedOut) => None,
            Err(_) => {
                while let Some(left) =
                    deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
                {
                    thread::sleep(left);
                }
                None
            }
        }
    }

    /// The id under which the calling thread, whose id is `me`, owns this lock.
    #[cfg(feature = "lock_api_0_4")]
    #[inline]
    pub(super) fn id_of_owner(&self, me: u32) -> u32 {
        let owner = word::owner(self.load());
        if owner == me || owner != tid::before_fork() { me } else { owner }
    }
}
