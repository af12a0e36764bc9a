// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The exported `malloc` and `free`, and what else must be written in assembly.

#[cfg_attr(all(target_arch = "x86_64", target_os = "linux"), path = "x86_64.rs")]
#[cfg_attr(not(all(target_arch = "x86_64", target_os = "linux")), path = "portable.rs")]
mod machine;

pub use machine::malloc;
pub(crate) use machine::throw_by_parts;
