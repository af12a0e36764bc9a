// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Programs in C and C++ under libfastpath: how they are compiled and run.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;

pub const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../malloc/tests/programs");

pub fn library() -> PathBuf {
    Path::new(env!("FASTPATH_LIBRARY_FOLDER")).join("libfastpath.so")
}

pub fn have(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Compiles a program once; the path of the binary. `None` (and a counted skip) without the compiler.
pub fn build(source: &str, name: &str, arguments: &[&str]) -> Option<PathBuf> {
    static BUILT: Mutex<Option<HashMap<String, PathBuf>>> = Mutex::new(None);
    let compiler = if source.contains(".cpp") { "c++" } else { "cc" };
    build_with(&BUILT, compiler, source, name, arguments)
}

pub fn build_with(
    built: &Mutex<Option<HashMap<String, PathBuf>>>,
    compiler: &str,
    source: &str,
    name: &str,
    arguments: &[&str],
) -> Option<PathBuf> {
    if !have(compiler) && compiler != "musl-gcc" {
        fastpath_testkit::skip("malloc-no-compiler", "no C or C++ compiler");
        return None;
    }
    let mut built = built.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let known = built.get_or_insert_default();
    if let Some(path) = known.get(name) {
        return Some(path.clone());
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let output = Command::new(compiler)
        .args(["-O1", "-w", "-fno-builtin", "-pthread", "-o"])
        .arg(&path)
        .arg(Path::new(PROGRAMS).join(source))
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{source}: {}", String::from_utf8_lossy(&output.stderr));
    known.insert(name.to_owned(), path.clone());
    Some(path)
}

pub fn served(program: &Path, arguments: &[&str], settings: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).env("LD_PRELOAD", library()).env("FASTPATH_EXPECTED", "1");
    for (name, value) in settings {
        command.env(name, value);
    }
    command.output().unwrap()
}

#[track_caller]
pub fn passes(program: &Path, arguments: &[&str], settings: &[(&str, &str)]) -> String {
    let output = served(program, arguments, settings);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && text.contains("ok"),
        "{} {arguments:?} with {settings:?}: {:?}\n{text}{}",
        program.display(),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

pub const NO_RSEQ: (&str, &str) = ("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
pub const FRONTS: [&[(&str, &str)]; 8] = [
    &[],
    &[NO_RSEQ],
    &[("FASTPATH_FRONT", "tid")],
    &[("FASTPATH_FRONT", "tid"), NO_RSEQ],
    &[("FASTPATH_FRONT", "trylock")],
    &[("FASTPATH_FRONT", "direct")],
    &[("FASTPATH_STATS", "exact")],
    &[("FASTPATH_HARDENED", "on")],
];

pub fn archive() -> PathBuf {
    Path::new(env!("FASTPATH_LIBRARY_FOLDER")).join("libfastpath.a")
}
