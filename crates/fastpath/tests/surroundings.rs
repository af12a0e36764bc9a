// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! libfastpath while the process's surroundings change or lack something, and as an installed library.

mod programs;

use programs::{FRONTS, NO_RSEQ, PROGRAMS, archive, build, have, library, passes, served};
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn threads_may_be_moved_from_cpu_to_cpu() {
    let Some(program) = build("surroundings.c", "surroundings", &[]) else { return };
    for settings in [&[][..], &[NO_RSEQ], &[("FASTPATH_FRONT", "tid")], &[("FASTPATH_FRONT", "trylock")]] {
        passes(&program, &["affinity"], settings);
    }
}

#[test]
fn huge_pages_make_no_difference() {
    let Some(program) = build("surroundings.c", "surroundings", &[]) else { return };
    passes(&program, &["thp=0"], &[]);
    passes(&program, &["thp=1"], &[]);
}

/// What `huge.c` says of one moment: KiB open to huge pages, closed to them.
fn huge_pages(text: &str, when: &str) -> (u64, u64) {
    let line = text.lines().find(|line| line.starts_with(when)).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    (words[2].parse().unwrap(), words[4].parse().unwrap())
}

/// Memory that is free, or will be in pieces, is never open to the kernel's huge pages: it would grow back.
#[test]
fn only_living_large_blocks_are_open_to_huge_pages() {
    let Some(program) = build("huge.c", "huge", &[]) else { return };
    if !Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        fastpath_testkit::skip("malloc-no-huge-pages", "the kernel has no transparent huge pages");
        return;
    }
    let text = passes(&program, &[], &[]);
    assert_eq!(huge_pages(&text, "start"), (0, 0), "small heaps do not ask: {text}");
    let (open, closed) = huge_pages(&text, "small");
    assert!(open == 0 && closed > 40 << 10, "small blocks get huge pages, once: {text}");
    let mappings = |when| -> u64 {
        text.lines()
            .find(|line| line.starts_with(when))
            .unwrap()
            .split(' ')
            .next_back()
            .unwrap()
            .parse()
            .unwrap()
    };
    assert!(mappings("small") < mappings("start") + 10, "32 huge pages join in one mapping: {text}");
    let (open, _) = huge_pages(&text, "large");
    assert!(open > 170 << 10, "three large blocks of 180 MiB in all: {text}");
    for when in ["freed", "end"] {
        assert_eq!(huge_pages(&text, when).0, 0, "{text}");
    }
    let backed = |when| -> u64 {
        let line = text.lines().find(|line| line.starts_with(when)).unwrap();
        line.split_whitespace().nth(6).unwrap().parse().unwrap()
    };
    // As far as the kernel has huge pages to give.
    assert!(backed("again") >= backed("small"), "what was given back comes back by huge pages: {text}");
    let text = passes(&program, &[], &[("FASTPATH_HUGE_PAGES", "off")]);
    for when in ["start", "small", "large", "freed", "end"] {
        assert_eq!(huge_pages(&text, when), (0, 0), "turned off: {text}");
    }
    let text = passes(&program, &[], &[("FASTPATH_LIMIT", "1G")]);
    assert_eq!(huge_pages(&text, "small").1, 0, "a limit counts what is in use: {text}");
}

#[test]
fn a_busy_program_can_be_replaced_and_the_new_one_is_served() {
    let Some(program) = build("surroundings.c", "surroundings", &[]) else { return };
    for settings in FRONTS {
        passes(&program, &["exec"], settings);
    }
}

#[test]
fn neither_proc_nor_sys_is_needed() {
    let Some(program) = build("surroundings.c", "surroundings", &[]) else { return };
    for settings in [&[][..], &[NO_RSEQ], &[("FASTPATH_FRONT", "tid")]] {
        let output = served(&program, &["hidden"], settings);
        if output.status.code() == Some(77) {
            fastpath_testkit::skip("malloc-no-namespaces", "a mount namespace of one's own is not permitted");
            return;
        }
        assert!(output.status.success() && output.stdout == b"ok\n", "{settings:?}: {output:?}");
    }
}

#[test]
fn a_hardened_heap_is_in_random_order_and_clears_what_was_freed() {
    let Some(program) = build("surroundings.c", "surroundings", &[]) else { return };
    let figures = |settings: &[(&str, &str)]| {
        let text = passes(&program, &["order"], settings);
        let mut words = text.split_whitespace().skip(1).map(|word| word.parse::<u32>().unwrap());
        (words.next().unwrap(), words.next().unwrap())
    };
    let (near, kept) = figures(&[("FASTPATH_HARDENED", "on")]);
    assert!(near < 100, "{near} of 1000 follow each other in memory");
    assert_eq!(kept, 0, "freed memory is cleared");
    let (near, kept) = figures(&[]);
    assert!(near > 900 && kept > 2000, "by default neither: {near}, {kept}");
}

#[test]
fn a_setting_that_is_not_known_is_one_warning_and_the_default() {
    let Some(program) = build("surroundings.c", "surroundings", &[]) else { return };
    for name in [
        "FASTPATH_FRONT",
        "FASTPATH_STATS",
        "FASTPATH_FOREIGN",
        "FASTPATH_HARDENED",
        "FASTPATH_HUGE_PAGES",
        "FASTPATH_DEBUG",
        "FASTPATH_LIMIT",
    ] {
        let output = served(&program, &["order"], &[(name, "no such thing")]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{name}: {output:?}");
        assert!(text.lines().count() == 1 && text.contains(name), "{name}: {text}");
    }
}

#[test]
fn every_setting_is_in_the_readmes_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let mut found = 0;
    let source = root.join("crates/alloc/src");
    for folder in [source.clone(), source.join("profile")] {
        for file in std::fs::read_dir(folder).unwrap() {
            let Ok(text) = std::fs::read_to_string(file.unwrap().path()) else { continue };
            for part in text.split("b\"FASTPATH_").skip(1) {
                let name = format!("FASTPATH_{}", part.split('"').next().unwrap());
                found += 1;
                let for_tests = name.starts_with("FASTPATH_TEST_");
                assert!(for_tests || readme.contains(&format!("| `{name}` |")), "{name} is not in the table");
            }
        }
    }
    assert!(found >= 6, "the names are written as bytes in crates/alloc/src");
}

/// The library, its header and its pkg-config file as they are installed.
fn install() -> PathBuf {
    let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prefix");
    let (lib, include) = (prefix.join("lib"), prefix.join("include"));
    std::fs::create_dir_all(lib.join("pkgconfig")).unwrap();
    std::fs::create_dir_all(&include).unwrap();
    std::fs::copy(library(), lib.join("libfastpath.so")).unwrap();
    std::fs::copy(archive(), lib.join("libfastpath.a")).unwrap();
    let crate_folder = Path::new(PROGRAMS).join("../..");
    std::fs::copy(crate_folder.join("include/fastpath.h"), include.join("fastpath.h")).unwrap();
    let template = std::fs::read_to_string(crate_folder.join("fastpath.pc.in")).unwrap();
    let filled = template
        .replace("@prefix@", prefix.to_str().unwrap())
        .replace("@version@", env!("CARGO_PKG_VERSION"));
    std::fs::write(lib.join("pkgconfig/fastpath.pc"), filled).unwrap();
    prefix
}

#[test]
fn a_program_builds_against_the_installed_header_and_library() {
    if !have("pkg-config") || !have("cc") || !have("c++") {
        fastpath_testkit::skip("malloc-no-pkg-config", "pkg-config or a compiler is missing");
        return;
    }
    let prefix = install();
    let ask = |flags: &[&str]| {
        let output = Command::new("pkg-config")
            .args(flags)
            .arg("fastpath")
            .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(ask(&["--modversion"]), [env!("CARGO_PKG_VERSION")]);
    let source = Path::new(PROGRAMS).join("header.c");
    for (compiler, language) in [("cc", "c"), ("c++", "c++")] {
        for linked in ["shared", "static"] {
            let program = prefix.join(format!("header-{compiler}-{linked}"));
            let mut command = Command::new(compiler);
            command.args(["-Wall", "-Wextra", "-Werror", "-fno-builtin", "-x", language]);
            command.args(ask(&["--cflags"])).arg(&source).args(["-x", "none"]).arg("-o").arg(&program);
            if linked == "static" {
                command.arg(prefix.join("lib/libfastpath.a")).args(["-pthread", "-ldl", "-lm"]);
            } else {
                command.args(ask(&["--libs"])).arg(format!("-Wl,-rpath,{}", prefix.join("lib").display()));
            }
            let output = command.output().unwrap();
            assert!(
                output.status.success(),
                "{compiler} {linked}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            let output = Command::new(&program).output().unwrap();
            let expected = format!("ok {}\n", env!("CARGO_PKG_VERSION"));
            assert!(
                output.status.success() && output.stdout == expected.as_bytes(),
                "{compiler} {linked}: {output:?}"
            );
        }
    }
}
