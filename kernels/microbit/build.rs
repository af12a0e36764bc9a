// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Links the image by this machine's memory map.

fn main() {
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    println!("cargo::rerun-if-changed=linker.ld");
    println!("cargo::rustc-link-arg-bins=-T{here}/linker.ld");
    println!("cargo::rustc-link-arg-bins=--no-pie");
}
