// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The kernel half on a deterministic model scheduler: the numbered cases, scripted interleavings, random traces.
#![cfg(not(loom))]
#![expect(
    unsafe_code,
    reason = "the model implements the unsafe traits of the algorithm and unlocks raw locks"
)]
#![expect(unreachable_pub, reason = "the modules of one test program")]
#![expect(clippy::redundant_closure_for_method_calls, clippy::items_after_statements, reason = "short tests")]
#![expect(clippy::unused_self, reason = "methods of a machine, also where its tasks know all that is needed")]
#![allow(dead_code, reason = "the model is there before all who use it")]

mod chain_cases;
mod model;
mod mutex_cases;
mod proxy_cases;
mod random;
mod requeue_cases;
mod rw_cases;
mod suite;
mod ww_cases;
