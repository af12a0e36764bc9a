// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The abort lane: stops a thread at every instruction of every rseq section of this binary, disturbs it there, lets it
//! go on, and requires that the section was aborted exactly once and the operation took effect exactly once.
//!
//! For each operation of [`operations::ALL`] it first finds out which sections the operation runs through. Then, for
//! each instruction of each of these sections and each [`Disturbance`](shared::Disturbance): stop the thread exactly
//! there by a hardware breakpoint; move it to another CPU, or let another thread (or a signal handler) run an operation
//! on the same slot; resume; count the arrivals at the abort address; compare the state with what the operation means.
//! It ends with `covered = Σ instructions × disturbances` and fails if a section of the binary was never reached.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod lane;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod operations;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod sections;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod shared;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod tracer;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod victim;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn main() -> std::process::ExitCode {
    lane::run()
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn main() {
    eprintln!("SKIP abort-lane: hardware breakpoints are implemented for x86-64 Linux only");
}
