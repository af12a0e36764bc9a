// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The parts of fastpath under one roof.
#![no_std]

#[doc(inline)]
pub use fastpath_cmpxchg as cmpxchg;
#[doc(inline)]
pub use fastpath_percpu as percpu;
