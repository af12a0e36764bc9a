// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Switching from one stack to another.
//!
//! `kernel_switch(save, to)` pushes what a function must preserve on the stack it is called on, stores that stack's pointer
//! in `*save`, takes the pointer `to`, and returns on that stack to whoever called it there. What an interrupt saved stays
//! on the stack of the task it interrupted.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "arm")]
pub mod arm;
#[cfg(target_arch = "riscv64")]
mod riscv64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64::{FRAME, RETURN};
#[cfg(target_arch = "arm")]
use arm::{FRAME, RETURN};
#[cfg(target_arch = "riscv64")]
use riscv64::{FRAME, RETURN};
#[cfg(target_arch = "x86_64")]
use x86_64::{FRAME, RETURN};

unsafe extern "C" {
    /// See the module. Interrupts are off on both sides.
    ///
    /// # Safety
    /// `save` is writable; `to` was stored by an earlier call and not used since, or comes from [`first_frame`].
    #[link_name = "kernel_switch"]
    pub(crate) fn switch(save: *mut usize, to: usize);
}

/// Prepares a stack so that switching to the returned pointer calls `entry` on it.
///
/// # Safety
/// The stack is unused, aligned to 16 bytes, and larger than the frame.
pub(crate) unsafe fn first_frame(stack: *mut usize, words: usize, entry: extern "C" fn() -> !) -> usize {
    // SAFETY: inside the stack; every word of the frame is written.
    unsafe {
        let frame = stack.add(words - FRAME);
        for at in 0..FRAME {
            frame.add(at).write(0);
        }
        frame.add(RETURN).write(entry as *const () as usize);
        frame.expose_provenance()
    }
}
