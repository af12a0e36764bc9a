// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Heap profiles: what `FASTPATH_PROFILE` has a program write.

mod decode;
pub(crate) mod flame;
mod symbols;

pub(crate) use decode::Profile;
pub(crate) use symbols::stacks;
