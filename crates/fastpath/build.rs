// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Builds libfastpath.so by a nested cargo call and leaves it in `OUT_DIR`, where `src/embed.rs` picks it up.
//!
//! The nested build has its own target folder under `OUT_DIR` and its own settings: what the outer build was started
//! with (`--cfg loom`, a sanitizer, clippy's wrapper) must not reach a library that is always built the same way.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_CLI").is_none() {
        return;
    }
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let library = root.join("../malloc");
    if !library.join("Cargo.toml").exists() {
        // The packaged crate is alone: the library's sources are a package of their own beside it in the repository.
        // The command is built without the library then, and `fastpath run` says so.
        println!("cargo::warning=no ../malloc here: this build of the command carries no libfastpath.so");
        for file in ["libfastpath.so", "libfastpath.a"] {
            std::fs::write(out.join(file), []).expect("OUT_DIR can be written");
        }
        println!("cargo::rustc-env=FASTPATH_LIBRARY_FOLDER={}", out.display());
        return;
    }
    for watched in ["malloc/src", "malloc/Cargo.toml", "malloc/build.rs", "malloc/Cargo.lock"] {
        watch(&root.join("..").join(watched));
    }
    for dependency in ["alloc", "percpu", "slub", "sys", "cmpxchg"] {
        watch(&root.join("..").join(dependency).join("src"));
        watch(&root.join("..").join(dependency).join("Cargo.toml"));
    }

    let target_folder = out.join("libfastpath");
    let target = env::var("TARGET").expect("cargo sets it");
    let host = env::var("HOST").expect("cargo sets it");
    let mut cargo = Command::new(env::var_os("CARGO").expect("cargo sets it"));
    cargo.arg("build").arg("--quiet").arg("--release").arg("--manifest-path").arg(library.join("Cargo.toml"));
    cargo.arg("--target-dir").arg(&target_folder);
    if target != host {
        cargo.arg("--target").arg(&target);
    }
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        let ours = name.starts_with("CARGO_FEATURE_")
            || name.starts_with("CARGO_CFG_")
            || name.starts_with("CARGO_PKG_");
        let flags = matches!(
            &*name,
            "RUSTFLAGS"
                | "CARGO_ENCODED_RUSTFLAGS"
                | "CARGO_BUILD_RUSTFLAGS"
                | "RUSTC_WRAPPER"
                | "RUSTC_WORKSPACE_WRAPPER"
                | "CARGO_TARGET_DIR"
                | "CARGO_BUILD_TARGET"
                | "CARGO_BUILD_TARGET_DIR"
                | "CLIPPY_ARGS"
                | "RUSTDOCFLAGS"
                | "TARGET"
                | "HOST"
                | "OUT_DIR"
                | "PROFILE"
                | "OPT_LEVEL"
                | "DEBUG"
                | "NUM_JOBS"
                | "CARGO_MANIFEST_DIR"
                | "CARGO_MANIFEST_PATH"
        );
        if ours || flags {
            cargo.env_remove(&*name);
        }
    }
    let status = cargo.status().expect("cargo can be started");
    assert!(status.success(), "building {} failed", library.display());

    let built = if target == host {
        target_folder.join("release")
    } else {
        target_folder.join(&target).join("release")
    };
    for file in ["libfastpath.so", "libfastpath.a"] {
        // Only a library that changed is copied, so that its time stamp says when it changed.
        let (from, to) = (built.join(file), out.join(file));
        let new = std::fs::read(&from).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
        if std::fs::read(&to).ok().as_ref() != Some(&new) {
            std::fs::write(&to, new).unwrap_or_else(|error| panic!("{}: {error}", to.display()));
        }
    }
    println!("cargo::rustc-env=FASTPATH_LIBRARY_FOLDER={}", out.display());
}

fn watch(path: &Path) {
    println!("cargo::rerun-if-changed={}", path.display());
}
