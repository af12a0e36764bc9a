// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Says which 32-bit ARM this is, because a stable compiler does not show `v6` or `mclass` to `cfg`:
//! `fastpath_arm = "pre_v6"` (ARMv4T, ARMv5: no exclusives, one processor), `"m"` (the M profile, PRIMASK) or `"classic"`.
//! The selection itself is in `src/arch/mod.rs`.

use std::env::var;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(fastpath_arm, values(\"pre_v6\", \"m\", \"classic\"))");
    if var("CARGO_CFG_TARGET_ARCH").as_deref() != Ok("arm") {
        return;
    }
    let target = var("TARGET").unwrap_or_default();
    let features = var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    let has = |wanted: &str| features.split(',').any(|feature| feature == wanted);
    let named = |prefixes: &[&str]| prefixes.iter().any(|prefix| target.starts_with(prefix));
    let kind = if has("mclass") || named(&["thumbv6m", "thumbv7m", "thumbv7em", "thumbv8m"]) {
        "m"
    } else if named(&["armv4t", "armv5te", "thumbv4t", "thumbv5te"]) && !has("v6") {
        "pre_v6"
    } else {
        "classic"
    };
    println!("cargo::rustc-cfg=fastpath_arm=\"{kind}\"");
}
