// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Last words: a message on standard error without allocation, formatting or locks.

use crate::arch;

/// Writes `bytes` to standard error in one `write(2)`. Errors and short writes are ignored: there is nobody to tell.
///
/// ```
/// fastpath_sys::message::to_stderr(b"");
/// ```
pub fn to_stderr(bytes: &[u8]) {
    // SAFETY: the kernel reads `bytes.len()` bytes from `bytes`.
    let _ = unsafe { arch::syscall6(arch::NR_WRITE, [2, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0]) };
}
