// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The priority-inheriting mutex, for Linux threads and for kernels.
#![no_std]
