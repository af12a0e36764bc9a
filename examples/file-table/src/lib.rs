// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

#![doc = include_str!("../README.md")]

mod names;
mod object;
mod slab;
mod table;

pub use names::{Inode, Names};
pub use object::{Count, Ref};
pub use slab::{live_inodes, live_open_files};
pub use table::{Fd, FileTable};

/// Why an operation on files failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No file has that name, or no open file that number.
    NotFound,
    /// A file of that name exists.
    Exists,
    /// The name or the contents are too long.
    TooLong,
    /// No memory, no free number, or no room for another name.
    Full,
}

/// The largest contents of a file, in bytes.
pub const MAX_CONTENTS: usize = 512;
/// The longest name, in bytes.
pub const MAX_NAME: usize = 31;
