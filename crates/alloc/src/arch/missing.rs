// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! No silent default.

compile_error!("fastpath-alloc knows x86-64, AArch64 and RISC-V (64 bit)");

/// Stacks are not unwound here yet.
pub(crate) fn registers() -> Option<[usize; 17]> {
    None
}
