// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The slab allocator with per-CPU fast paths, for any memory source and without an operating system.
#![no_std]
