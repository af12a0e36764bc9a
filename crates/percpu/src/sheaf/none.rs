// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! No sections on this machine: every operation gives up, and the heap keeps to its locks.

use super::{Access, Block, Slot};

pub(super) const SUPPORTED: bool = false;

/// # Safety
///
/// None: it touches nothing.
#[inline(always)]
pub(super) unsafe fn pop<const CLEAR: bool>(_: Access, _: usize) -> *mut u8 {
    core::ptr::null_mut()
}

/// # Safety
///
/// None: it touches nothing.
#[inline(always)]
pub(super) unsafe fn push<const CLEAR: bool>(_: Access, _: usize, _: *mut u8) -> bool {
    false
}

/// # Safety
///
/// None: it touches nothing.
#[inline(always)]
pub(super) unsafe fn exchange(_: Access, _: usize, _: *mut Block, _: Slot, _: &Slot) -> bool {
    false
}

/// # Safety
///
/// None: it touches nothing.
#[inline(always)]
pub(super) unsafe fn cpu_id(_: isize) -> i32 {
    -1
}
