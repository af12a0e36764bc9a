// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! How the shared object is linked: never unloaded, because threads may hold addresses of its restartable sequences.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libfastpath.so");
    println!("cargo:rerun-if-changed=build.rs");
}
