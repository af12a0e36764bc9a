// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sound per-CPU data for Linux user space, on restartable sequences.
#![no_std]

pub mod sheaf;
