// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `FASTPATH_LIMIT`: how much a program gets, and what follows a cgroup.

mod programs;

use programs::{build, library};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: u64 = 1 << 20;

fn program() -> Option<PathBuf> {
    build("bound.c", "bound", &[])
}

fn figures(program: &Path, arguments: &[&str], settings: &[(&str, &str)]) -> HashMap<String, u64> {
    let mut command = Command::new(program);
    command.args(arguments).env("LD_PRELOAD", library()).envs(settings.iter().copied());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaint.is_empty(), "{:?}\n{text}{complaint}", output.status);
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

#[test]
fn the_hard_limit_is_reached_and_not_passed() {
    let Some(program) = program() else { return };
    for front in ["sheaf", "trylock", "direct"] {
        for (how, least) in [("small", 27), ("big", 27), ("grow", 15)] {
            let got =
                figures(&program, &[how], &[("FASTPATH_LIMIT", "32M"), ("FASTPATH_FRONT", front)])["got"];
            assert!((least * MIB..=32 * MIB).contains(&got), "{front} {how}: {got}");
        }
        let got =
            figures(&program, &["mapped"], &[("FASTPATH_LIMIT", "100M"), ("FASTPATH_FRONT", front)])["got"];
        assert_eq!(got, 80 * MIB, "{front}");
    }
}

#[test]
fn at_the_limit_the_heap_is_trimmed_before_a_request_fails() {
    let Some(program) = program() else { return };
    let found = figures(&program, &["again"], &[("FASTPATH_LIMIT", "32M")]);
    assert!(found["second"] >= 24 * MIB, "{found:?}");
    assert!(found["third"] >= 24 * MIB, "{found:?}");
    assert!(found["fourth"] >= 24 * MIB, "{found:?}");
}

#[test]
fn above_the_soft_limit_free_memory_is_not_kept() {
    let Some(program) = program() else { return };
    let free = figures(&program, &["tight"], &[])["kept"];
    assert!(free >= 10 * MIB, "the test sees nothing: {free}");
    let tight = figures(&program, &["tight"], &[("FASTPATH_LIMIT", "13M")])["kept"];
    assert!(tight <= MIB, "{tight}");
}

#[test]
fn a_group_and_those_above_it_limit_and_changes_are_followed() {
    let Some(program) = program() else { return };
    let root = tempfile::tempdir().unwrap();
    let inner = root.path().join("outer/inner");
    fs::create_dir_all(&inner).unwrap();
    let limit = |folder: &Path, max: &str, high: &str| {
        fs::write(folder.join("cgroup.controllers"), "memory\n").unwrap();
        fs::write(folder.join("memory.max"), max).unwrap();
        fs::write(folder.join("memory.high"), high).unwrap();
    };
    let outer = root.path().join("outer");
    limit(&inner, "max\n", "max\n");
    limit(&outer, "16777216\n", "max\n");
    let group = [("FASTPATH_LIMIT", "cgroup"), ("FASTPATH_CGROUP", inner.to_str().unwrap())];
    let got = figures(&program, &["small"], &group)["got"];
    assert!((13 * MIB..=16 * MIB).contains(&got), "the group above: {got}");
    let found = figures(&program, &["follow", outer.join("memory.max").to_str().unwrap()], &group);
    assert!(found["got"] <= 16 * MIB, "{found:?}");
    assert!((57 * MIB..=64 * MIB).contains(&found["second"]), "{found:?}");
    // memory.high is the soft limit.
    limit(&inner, "max\n", "9437184\n");
    limit(&outer, "max\n", "max\n");
    let tight = figures(&program, &["tight"], &group)["kept"];
    assert!(tight <= MIB, "{tight}");
    // Changes of it are followed down and up again.
    limit(&inner, "max\n", "max\n");
    let found = figures(&program, &["tighter", inner.join("memory.high").to_str().unwrap()], &group);
    assert!(found["before"] >= 10 * MIB && found["tight"] <= MIB && found["after"] >= 10 * MIB, "{found:?}");
}

#[test]
fn a_real_group_limits() {
    let Some(program) = program() else { return };
    let mut seen = Vec::new();
    let made = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].into_iter().find_map(|mount| {
        // Only where a cgroup v2 is mounted: anything else would just take the files.
        let controllers = fs::read_to_string(Path::new(mount).join("cgroup.controllers")).ok()?;
        seen.push(format!("{mount} has the controllers [{}]", controllers.trim()));
        if !controllers.split_whitespace().any(|name| name == "memory") {
            return None;
        }
        let folder = Path::new(mount).join(format!("fastpath-test-{}", std::process::id()));
        let _ = fs::write(Path::new(mount).join("cgroup.subtree_control"), "+memory");
        fs::create_dir(&folder).ok()?;
        if fs::write(folder.join("memory.max"), "50331648").is_ok() && folder.join("memory.high").exists() {
            return Some(folder);
        }
        let _ = fs::remove_dir(&folder);
        None
    });
    let Some(folder) = made else {
        let old = Path::new("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists();
        let why = if old { "; the memory controller is one of cgroup v1" } else { "" };
        eprintln!("{}{why}", if seen.is_empty() { "no cgroup v2".to_owned() } else { seen.join(", ") });
        fastpath_testkit::skip(
            "limit-real-cgroup",
            "no cgroup v2 with a memory controller that may be changed",
        );
        return;
    };
    let got = figures_in(&folder, &program);
    let _ = fs::remove_dir(&folder);
    assert!((40 * MIB..=48 * MIB).contains(&got), "{got}");
}

/// What the program gets in the group.
fn figures_in(folder: &Path, program: &Path) -> u64 {
    let script =
        "echo $$ > \"$1/cgroup.procs\" && exec env LD_PRELOAD=\"$2\" FASTPATH_LIMIT=cgroup \"$3\" small";
    let output = Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(folder)
        .arg(library())
        .arg(program)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    text.trim().strip_prefix("got ").unwrap().parse().unwrap()
}
