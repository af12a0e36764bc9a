// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Machines without the assembly: their stacks are not unwound yet, so the numbers mean nothing.

pub(crate) const REGISTERS: usize = 17;
pub(crate) const FRAME_POINTER: usize = 6;
pub(crate) const STACK_POINTER: usize = 7;
pub(crate) const RETURN: usize = 16;
pub(crate) const INSTRUCTION: usize = 16;
pub(crate) const SAVED: [usize; 7] = [16, 3, 6, 12, 13, 14, 15];

/// A return address as an address.
pub(crate) fn plain(address: usize) -> usize {
    address
}

/// None.
pub(crate) fn registers() -> Option<[usize; REGISTERS]> {
    None
}
