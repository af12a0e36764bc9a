// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Saturating reference counts, and an Arc that cannot be overflowed into a use-after-free.
#![no_std]
