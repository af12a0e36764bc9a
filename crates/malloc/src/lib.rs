// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! libfastpath: the C library's allocation functions and C++'s operators on the per-CPU slab allocator.
//!
//! No `std`, no thread-local storage, no library needed: what the C library may lack is looked up weakly, so the same
//! object works before `main`, under musl, and by `dlopen` into a running program.
#![no_std]
#![allow(unsafe_code, reason = "every function here is a C entry point")]

#[allow(non_snake_case, reason = "C++'s mangled names")]
mod arch;
#[allow(non_snake_case, reason = "C++'s mangled names")]
mod cxx;
mod export;
mod introspection;
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux"))]
mod vfork;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    fastpath_alloc::raw::abort()
}
