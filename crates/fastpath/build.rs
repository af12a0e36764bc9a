// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Builds libfastpath.so by a nested cargo call and leaves it in `OUT_DIR`, where `src/embed.rs` picks it up.
//!
//! The nested build has its own target folder under `OUT_DIR` and its own settings: what the outer build was started
//! with (`--cfg loom`, a sanitizer, clippy's wrapper) must not reach a library that is always built the same way.

use std::env;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_CLI").is_none() {
        return;
    }
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let library = if root.join("../malloc/Cargo.toml").exists() {
        for watched in ["malloc/src", "malloc/Cargo.toml", "malloc/build.rs", "malloc/Cargo.lock"] {
            watch(&root.join("..").join(watched));
        }
        for dependency in DEPENDENCIES {
            watch(&root.join("..").join(dependency).join("src"));
            watch(&root.join("..").join(dependency).join("Cargo.toml"));
        }
        root.join("../malloc")
    } else {
        unpacked(&root, &out.join("source"))
    };

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

/// The crates of this workspace that the library is made of.
const DEPENDENCIES: [&str; 5] = ["alloc", "percpu", "slub", "sys", "cmpxchg"];

/// The library's own package, for a build from the packaged crate. Its sources came along (`libfastpath/`, which names
/// its manifest otherwise, or cargo would take the folder for a package to be left out); the crates it is made of lie
/// beside this one, wherever cargo unpacks or vendors packages.
fn unpacked(root: &Path, to: &Path) -> PathBuf {
    let from = root.join("libfastpath");
    watch(&from);
    let beside = |name: &str| {
        let (package, version) = (format!("fastpath-{name}"), env!("CARGO_PKG_VERSION"));
        [format!("{package}-{version}"), package]
            .into_iter()
            .map(|folder| root.join("..").join(folder))
            .find(|folder| folder.join("Cargo.toml").exists())
            .unwrap_or_else(|| {
                panic!(
                    "libfastpath.so is built from fastpath-{name}, which should lie beside {}",
                    root.display()
                )
            })
    };
    let manifest = std::fs::read_to_string(from.join("manifest.toml")).expect("packaged with the crate");
    let mut manifest = manifest.replace("../alloc", &beside("alloc").display().to_string());
    manifest.push_str("\n[patch.crates-io]\n");
    for name in &DEPENDENCIES[1..] {
        writeln!(manifest, "fastpath-{name} = {{ path = \"{}\" }}", beside(name).display())
            .expect("a string grows");
    }
    let _ = std::fs::remove_dir_all(to);
    copy(&from.join("src"), &to.join("src"));
    std::fs::write(to.join("Cargo.toml"), manifest).expect("OUT_DIR can be written");
    std::fs::copy(from.join("build.rs"), to.join("build.rs")).expect("packaged with the crate");
    to.to_owned()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("OUT_DIR can be written");
    for entry in std::fs::read_dir(from).expect("packaged with the crate") {
        let path = entry.expect("a folder's entry").path();
        let target = to.join(path.file_name().expect("an entry has a name"));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            std::fs::copy(&path, &target).expect("OUT_DIR can be written");
        }
    }
}

fn watch(path: &Path) {
    println!("cargo::rerun-if-changed={}", path.display());
}
