// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The page that the tracer and the traced process share.
//!
//! Ordering: the tracer writes only while the traced thread is stopped, and reads only after `waitpid` reported a stop;
//! the kernel orders both. Only the helper thread's two words are used while it runs, and they carry their own.

#![expect(unsafe_code, reason = "a shared anonymous mapping")]

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What the traced thread should do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Command {
    /// Set up, run the operation once, check it.
    Run = 1,
    /// End the process.
    Quit = 2,
}

/// What happens to the thread while it is stopped inside a section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Disturbance {
    /// Nothing but the stop itself (which already aborts the section).
    Stop = 0,
    /// The thread is moved to another CPU.
    Migrate = 1,
    /// Another thread on the same CPU runs an operation on the same slot.
    Thread = 2,
    /// A signal arrives whose handler runs an operation on the same slot.
    Signal = 3,
}

impl Disturbance {
    pub(crate) const ALL: [Self; 4] = [Self::Stop, Self::Migrate, Self::Thread, Self::Signal];

    pub(crate) fn from_word(word: u32) -> Self {
        Self::ALL[word as usize]
    }

    /// Whether a second operation runs on the slot in between.
    pub(crate) fn runs_another(self) -> bool {
        matches!(self, Self::Thread | Self::Signal)
    }
}

/// Room for a message about a failed check.
const MESSAGE: usize = 512;

#[repr(C)]
pub(crate) struct Shared {
    pub(crate) command: AtomicU32,
    pub(crate) operation: AtomicU32,
    pub(crate) disturbance: AtomicU32,
    /// How often the disturbing operation ran.
    pub(crate) disturbed: AtomicU32,
    /// 1: the helper thread shall run the disturbing operation; 0: it has.
    pub(crate) helper: AtomicU32,
    /// 0: the check passed.
    pub(crate) failed: AtomicU32,
    pub(crate) message_length: AtomicU64,
    message: core::cell::UnsafeCell<[u8; MESSAGE]>,
}

// SAFETY: `message` is written by the traced thread between two stops and read by the tracer while it is stopped.
unsafe impl Sync for Shared {}

impl Shared {
    /// A zeroed page that children of this process share.
    pub(crate) fn map() -> &'static Self {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping aliases nothing.
        let page = unsafe { libc::mmap(core::ptr::null_mut(), size_of::<Self>(), protection, flags, -1, 0) };
        assert!(page != libc::MAP_FAILED, "no memory for the shared page");
        // SAFETY: the mapping is page-aligned, zeroed (a valid `Shared`), large enough, and never unmapped.
        unsafe { &*page.cast::<Self>() }
    }

    /// Called by the traced thread: the check's result.
    pub(crate) fn report(&self, result: Result<(), String>) {
        let text = result.err();
        self.failed.store(u32::from(text.is_some()), Ordering::Relaxed);
        let text = text.unwrap_or_default();
        let length = text.len().min(MESSAGE);
        // SAFETY: the tracer does not read before this thread's next stop, and no other thread writes.
        unsafe { (&mut *self.message.get())[..length].copy_from_slice(&text.as_bytes()[..length]) };
        self.message_length.store(length as u64, Ordering::Relaxed);
    }

    /// Called by the tracer while the thread is stopped: what failed, if anything.
    pub(crate) fn outcome(&self) -> Result<(), String> {
        if self.failed.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let length = self.message_length.load(Ordering::Relaxed) as usize;
        // SAFETY: the traced thread is stopped, so nobody writes.
        let text = unsafe { &(&*self.message.get())[..length] };
        Err(String::from_utf8_lossy(text).into_owned())
    }
}
