// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The Linux interface of fastpath: restartable sequences, membarrier, PI futexes, memory and scheduling.
#![no_std]
