// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Machines without the assembly.

/// Stacks are not unwound here yet.
pub(crate) fn registers() -> Option<[usize; 17]> {
    None
}
