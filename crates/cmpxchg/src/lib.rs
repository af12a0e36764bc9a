// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Compare-and-exchange and its family on every CPU, also on CPUs that have none.
#![no_std]
