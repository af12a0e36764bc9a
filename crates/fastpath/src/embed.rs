// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The allocator library, inside the command: one binary that works from any folder.

/// `libfastpath.so`, as the build script built it.
pub(crate) static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libfastpath.so"));
