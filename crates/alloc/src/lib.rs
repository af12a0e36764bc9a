// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The per-CPU slab allocator as a Rust global allocator.
#![no_std]
