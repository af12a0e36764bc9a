// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The heap profile and the leak report, on a workload whose figures are known.

mod programs;

use programs::{build, library};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The workload, with its symbols in the dynamic table: the leak report names what it finds there.
fn program() -> Option<PathBuf> {
    build("sampled.c", "sampled", &["-g", "-rdynamic"])
}

#[track_caller]
fn run(program: &Path, arguments: &[&str], settings: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).env("LD_PRELOAD", library()).envs(settings.iter().copied());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output
}

const FRONTS: [&str; 3] = ["sheaf", "trylock", "direct"];

#[test]
fn leaks_are_listed_exactly_with_the_place_that_allocated_them() {
    if cfg!(not(any(target_arch = "x86_64", target_arch = "aarch64"))) {
        fastpath_testkit::skip("profile-stacks", "stacks are unwound on x86-64 and AArch64");
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
fn reports_name_who_allocated_and_who_freed() {
    if cfg!(not(any(target_arch = "x86_64", target_arch = "aarch64"))) {
        fastpath_testkit::skip("profile-stacks", "stacks are unwound on x86-64 and AArch64");
        return;
    }
    let Some(program) = program() else { return };
    let report = |what: &str, letters: &str| {
        let output = Command::new(&program)
            .arg(what)
            .env("LD_PRELOAD", library())
            .env("FASTPATH_DEBUG", letters)
            .output()
            .unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(6), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    // The function in the line after one that ends so.
    let named = |text: &str, after: &str, function: &str| {
        let mut lines = text.lines();
        assert!(lines.any(|line| line.ends_with(after)), "{after}: {text}");
        assert!(
            lines.next().is_some_and(|line| line.contains(&format!(" {function}+0x"))),
            "{after}: {text}"
        );
    };
    let twice = report("twice", "U");
    assert!(
        twice.lines().next().unwrap().contains("freed twice") || twice.contains("double free"),
        "{twice}"
    );
    named(&twice, "freed by", "site_free");
    named(&twice, "when it had been allocated by", "site_small");
    let beyond = report("beyond", "UZ");
    assert!(beyond.contains("overflow at"), "{beyond}");
    named(&beyond, "freed by", "site_free");
    named(&beyond, "allocated by", "site_large");
    let late = report("late", "PU");
    assert!(late.contains("write after free"), "{late}");
    named(&late, "freed by", "site_free");
    named(&late, "allocated by", "site_large");
    // Without the letter a report is one line.
    assert_eq!(report("twice", "F").lines().count(), 1);
}

#[test]
fn every_live_block_is_listed_exactly_when_owners_are_remembered() {
    if cfg!(not(any(target_arch = "x86_64", target_arch = "aarch64"))) {
        fastpath_testkit::skip("profile-stacks", "stacks are unwound on x86-64 and AArch64");
        return;
    }
    let Some(program) = program() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("owners");
    let file = path.to_str().unwrap();
    let settings = [("FASTPATH_PROFILE", file), ("FASTPATH_DEBUG", "UFZP"), ("FASTPATH_LEAKS", "1")];
    let output = run(&program, &["leaks"], &settings);
    assert_eq!(folded(file, "live-bytes", "site_small"), 25_000);
    assert_eq!(folded(file, "live-blocks", "site_large"), 1);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("95000 bytes in 26 blocks from 2 places were not freed"), "{text}");
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

fn fastpath(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fastpath")).args(arguments).env("COLUMNS", "200").output().unwrap()
}

/// The sum over all stacks of a profile in which `function` is the innermost one.
fn folded(file: &str, by: &str, function: &str) -> u64 {
    let output = fastpath(&["prof", file, "--folded", "--by", by]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| line.rsplit_once(' ').unwrap())
        .filter(|(stack, _)| stack.rsplit(';').next() == Some(function))
        .map(|(stack, value)| {
            assert!(stack.contains("main;"), "{stack}");
            value.parse::<u64>().unwrap()
        })
        .sum()
}

#[test]
fn sampled_sizes_are_right_within_five_per_cent() {
    if cfg!(not(any(target_arch = "x86_64", target_arch = "aarch64"))) {
        fastpath_testkit::skip("profile-stacks", "stacks are unwound on x86-64 and AArch64");
        return;
    }
    let Some(program) = program() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (front, interval) in
        [("sheaf", "4096"), ("trylock", "4096"), ("direct", "4096"), ("tid", "4096"), ("sheaf", "1")]
    {
        let path = folder.path().join(format!("{front}-{interval}"));
        let file = path.to_str().unwrap();
        let settings = [
            ("FASTPATH_PROFILE", file),
            ("FASTPATH_PROFILE_INTERVAL", interval),
            ("FASTPATH_PROFILE_SEED", "7"),
            ("FASTPATH_FRONT", front),
        ];
        let text = String::from_utf8(run(&program, &[], &settings).stdout).unwrap();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let (function, total, live) =
                (words[0], words[1].parse::<f64>().unwrap(), words[2].parse::<f64>().unwrap());
            let allowed = if interval == "1" { 0.0 } else { 0.05 };
            for (by, truth) in
                [("bytes", total), ("live-bytes", live)].into_iter().filter(|(_, truth)| *truth > 0.0)
            {
                let found = folded(file, by, function) as f64;
                assert!(
                    (found / truth - 1.0).abs() <= allowed,
                    "{front} {interval} {function} {by}: {found} {truth}"
                );
            }
        }
    }
}

#[test]
fn the_default_interval_is_right_within_five_per_cent_too() {
    if cfg!(not(any(target_arch = "x86_64", target_arch = "aarch64"))) {
        fastpath_testkit::skip("profile-stacks", "stacks are unwound on x86-64 and AArch64");
        return;
    }
    let Some(program) = program() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (front, seed) in [("sheaf", "7"), ("sheaf", "8"), ("trylock", "9")] {
        let path = folder.path().join(format!("{front}-{seed}"));
        let file = path.to_str().unwrap();
        let settings = [
            ("FASTPATH_PROFILE", file),
            ("FASTPATH_PROFILE_SEED", seed),
            ("FASTPATH_FRONT", front),
            // Most of the many gigabytes is never touched, and must not come as whole huge pages.
            ("FASTPATH_HUGE_PAGES", "off"),
        ];
        let text = String::from_utf8(run(&program, &["plenty"], &settings).stdout).unwrap();
        within_five_per_cent(file, &text, &format!("{front} {seed}"));
    }
}

/// Compares a profile with what the program says: function, bytes in total, bytes that are left.
fn within_five_per_cent(file: &str, said: &str, run: &str) {
    assert!(said.lines().count() > 1, "{said}");
    for line in said.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        for (by, truth) in [("bytes", words[1]), ("live-bytes", words[2])] {
            let (truth, found) = (truth.parse::<f64>().unwrap(), folded(file, by, words[0]) as f64);
            let off = if truth == 0.0 { found } else { (found / truth - 1.0).abs() };
            eprintln!("{run} {} {by}: {found} of {truth}", words[0]);
            assert!(off <= 0.05, "{run} {} {by}: {found} of {truth}", words[0]);
        }
    }
}

#[test]
fn a_signal_has_the_profile_written_too() {
    let Some(program) = program() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("heap.pb.gz");
    let settings = [("FASTPATH_PROFILE", file.to_str().unwrap()), ("FASTPATH_PROFILE_SIGNAL", "12")];
    run(&program, &["signal", "12"], &settings);
    let output = fastpath(&["prof", file.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("site_small") && text.contains("sampled once in 524288 bytes"), "{text}");
}

#[test]
fn the_page_is_whole_and_needs_nothing_else() {
    let Some(program) = program() else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    run(&program, &[], &[("FASTPATH_PROFILE", &at("heap"))]);
    let output = fastpath(&["prof", &at("heap"), "--html", &at("page.html"), "--svg", &at("flame.svg")]);
    assert!(output.status.success(), "{output:?}");
    let page = std::fs::read_to_string(at("page.html")).unwrap();
    for part in ["<!DOCTYPE html>", "<svg", "site_large", "</svg>", "</html>"] {
        assert!(page.contains(part), "{part}");
    }
    for fetched in ["src=", "@import", "href=\"http", "url(http"] {
        assert!(!page.contains(fetched), "{fetched}");
    }
    let image = std::fs::read_to_string(at("flame.svg")).unwrap();
    assert!(image.starts_with("<?xml") && image.contains("site_growing"));
}

#[test]
fn a_file_that_is_no_profile_is_one_line_on_stderr() {
    let output = fastpath(&["prof", "/etc/passwd"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1, "{output:?}");
}

#[test]
fn manual_and_completions_name_every_command() {
    let manual = String::from_utf8(fastpath(&["man"]).stdout).unwrap();
    let shells = ["bash", "zsh", "fish"]
        .map(|shell| String::from_utf8(fastpath(&["completions", shell]).stdout).unwrap());
    for command in ["run", "bench", "info", "prof", "completions"] {
        assert!(manual.contains(&format!("COMMAND {command}")), "{command}");
        assert!(shells.iter().all(|text| text.contains(command)), "{command}");
    }
    assert!(manual.starts_with(".ie") && manual.contains(".TH fastpath"), "{}", &manual[..200]);
}
