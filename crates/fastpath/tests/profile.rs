// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The heap profile and the leak report, on a workload whose figures are known.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../malloc/tests/programs");

/// The workload, with its symbols in the dynamic table: the leak report names what it finds there.
fn program() -> Option<PathBuf> {
    static BUILT: std::sync::OnceLock<Option<PathBuf>> = std::sync::OnceLock::new();
    BUILT
        .get_or_init(|| {
            let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sampled");
            let mut compiler = Command::new("cc");
            compiler.args(["-O1", "-g", "-w", "-fno-builtin", "-pthread", "-rdynamic", "-o"]).arg(&path);
            let Ok(output) = compiler.arg(format!("{PROGRAMS}/sampled.c")).output() else {
                fastpath_testkit::skip("malloc-no-compiler", "no C or C++ compiler");
                return None;
            };
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(path)
        })
        .clone()
}

#[track_caller]
fn run(program: &Path, arguments: &[&str], settings: &[(&str, &str)]) -> Output {
    let library = Path::new(env!("FASTPATH_LIBRARY_FOLDER")).join("libfastpath.so");
    let mut command = Command::new(program);
    command.args(arguments).env("LD_PRELOAD", library).envs(settings.iter().copied());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output
}

const FRONTS: [&str; 3] = ["sheaf", "trylock", "direct"];

#[test]
fn leaks_are_listed_exactly_with_the_place_that_allocated_them() {
    if cfg!(not(target_arch = "x86_64")) {
        fastpath_testkit::skip("profile-stacks", "stacks are unwound on x86-64");
        return;
    }
    let Some(program) = program() else { return };
    for front in FRONTS {
        let output = run(&program, &["leaks"], &[("FASTPATH_LEAKS", "1"), ("FASTPATH_FRONT", front)]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let places: Vec<&str> = text.split("blocks from").collect();
        assert!(text.contains("95000 bytes in 26 blocks from 2 places were not freed"), "{front}: {text}");
        let place = |bytes: &str, function: &str| {
            let at = places
                .iter()
                .position(|place| place.ends_with(bytes))
                .unwrap_or_else(|| panic!("{bytes}: {text}"));
            let callers: Vec<&str> = places[at + 1].lines().filter(|line| line.contains("0x")).collect();
            assert!(callers[0].contains(&format!(" {function}+0x")), "{front} {function}: {text}");
            assert!(callers[1].contains(" main+0x"), "{front} {function}: {text}");
        };
        place("25000 bytes in 25 ", "site_small");
        place("70000 bytes in 1 ", "site_large");
    }
}

#[test]
fn signals_and_threads_that_allocate_do_not_disturb_the_profile() {
    let Some(program) = program() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profile-%p");
    for front in FRONTS {
        for interval in ["1", "2000"] {
            let settings = [
                ("FASTPATH_PROFILE", file.to_str().unwrap()),
                ("FASTPATH_PROFILE_INTERVAL", interval),
                ("FASTPATH_FRONT", front),
            ];
            let output = run(&program, &["storm"], &settings);
            assert_eq!(output.stdout, b"ok\n", "{output:?}");
        }
    }
    // Each process wrote its own file.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 6);
}
