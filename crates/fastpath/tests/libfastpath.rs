// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! libfastpath under C and C++ programs: the programs of `crates/malloc/tests/programs`, compiled by the machine's
//! compiler and run with the library that this build carries.

mod programs;

use programs::{FRONTS, NO_RSEQ, archive, build, build_with, have, library, passes, served};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;

#[test]
fn every_c_function_behaves_as_the_c_librarys() {
    let Some(program) = build("abi.c", "abi", &[]) else { return };
    for settings in FRONTS {
        passes(&program, &[], settings);
    }
}

#[test]
fn every_operator_of_cxx_works_and_throws() {
    let Some(program) = build("operators.cpp", "operators", &[]) else { return };
    passes(&program, &[], &[]);
    passes(&program, &[], &[NO_RSEQ]);
}

#[test]
fn a_plugin_brings_the_cxx_runtime_into_a_c_program() {
    let Some(plugin) = build("operators.cpp", "plugin.so", &["-shared", "-fPIC", "-DPLUGIN"]) else { return };
    let Some(loader) = build("loader.c", "loader", &[]) else { return };
    passes(&loader, &[plugin.to_str().unwrap()], &[]);
}

#[test]
fn threads_that_trade_blocks_find_them_whole() {
    let Some(program) = build("churn.c", "churn", &[]) else { return };
    for settings in FRONTS {
        passes(&program, &["4", "8000"], settings);
    }
}

#[test]
fn signal_handlers_may_allocate() {
    let Some(program) = build("churn.c", "churn", &[]) else { return };
    for settings in FRONTS {
        passes(&program, &["3", "4000", "signals"], settings);
    }
}

#[test]
fn children_of_a_busy_process_never_hang() {
    let Some(program) = build("churn.c", "churn", &[]) else { return };
    for settings in FRONTS {
        passes(&program, &["4", "6000", "forks=25"], settings);
    }
}

#[test]
fn a_child_of_vfork_that_allocates_corrupts_nothing() {
    let Some(program) = build("vfork.c", "vfork", &[]) else { return };
    passes(&program, &[], &[]);
    passes(&program, &[], &[NO_RSEQ]);
}

#[test]
fn ten_thousand_threads_cost_no_cache() {
    let Some(program) = build("threads.c", "threads", &[]) else { return };
    let text = passes(&program, &["10000"], &[]);
    let figure = |name: &str| -> f64 {
        let mut words = text.split_whitespace().skip_while(|word| *word != name);
        words.nth(1).unwrap().parse().unwrap()
    };
    let added = figure("idle-thread-kb") - figure("bare");
    // One page of 200 threads' worth of chance: half a kilobyte a thread.
    assert!(added <= 0.5, "an idle thread that used all small sizes costs {added} KB more than a bare one");
}

fn figures(what: &str, preload: bool) -> HashMap<String, f64> {
    let Some(program) = build("memory.c", "memory", &[]) else { return HashMap::new() };
    let output = if preload {
        served(&program, &[what], &[])
    } else {
        Command::new(&program).arg(what).output().unwrap()
    };
    assert!(output.status.success(), "{what}: {output:?}");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| {
            let (name, value) = line.split_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        })
        .collect()
}

#[test]
fn hello_world_stays_small() {
    let (ours, theirs) = (figures("hello", true), figures("hello", false));
    if ours.is_empty() {
        return;
    }
    assert!(ours["rss-kb"] - theirs["rss-kb"] < 1024.0, "{ours:?} {theirs:?}");
    assert!(ours["virtual-kb"] - theirs["virtual-kb"] < 256.0 * 1024.0, "{ours:?} {theirs:?}");
}

#[test]
fn freed_memory_goes_back_without_another_call() {
    let ours = figures("small", true);
    if ours.is_empty() {
        return;
    }
    assert!(ours["full-kb"] > 190_000.0, "{ours:?}");
    assert!(ours["freed-kb"] < 50_000.0, "{ours:?}");
    assert!(ours["trimmed-kb"] <= ours["freed-kb"], "{ours:?}");
    assert!(ours["mappings"] < 300.0, "{ours:?}");
}

#[test]
fn a_growing_block_is_not_copied() {
    let ours = figures("grow", true);
    if ours.is_empty() {
        return;
    }
    // 2,048 touched pages are 8 MB; copying even a 64 MiB block once would touch more than that again.
    assert!(ours["peak-kb"] < 64_000.0, "{ours:?}");
    assert!(ours["mappings"] < 300.0, "{ours:?}");
}

#[test]
fn a_fragmented_heap_has_few_mappings() {
    let ours = figures("fragments", true);
    if ours.is_empty() {
        return;
    }
    assert!(ours["mappings"] < 300.0, "{ours:?}");
}

#[test]
fn a_thread_that_only_frees_hoards_nothing() {
    let ours = figures("one-way", true);
    if ours.is_empty() {
        return;
    }
    // At most 1,024 blocks of 1,000 bytes live at a time.
    assert!(ours["peak-kb"] < 20_000.0, "{ours:?}");
}

#[test]
fn any_single_mapping_may_fail() {
    let Some(program) = build("faults.c", "faults", &[]) else { return };
    for front in [&[] as &[(&str, &str)], &[("FASTPATH_FRONT", "direct")]] {
        for fault in 1..24 {
            for text in [fault.to_string(), format!("{fault}+")] {
                let mut settings = front.to_vec();
                settings.push(("FASTPATH_TEST_FAULT", &text));
                passes(&program, &[], &settings);
            }
        }
    }
}

#[test]
fn a_tight_limit_on_address_space_is_survived() {
    let Some(program) = build("limit.c", "limit", &[]) else { return };
    passes(&program, &["64"], &[]);
    passes(&program, &["256"], &[]);
}

#[test]
fn a_foreign_pointer_ends_in_one_line_or_is_left_alone() {
    let Some(program) = build("misuse.c", "misuse", &[]) else { return };
    let on_stack = "20";
    let output = served(&program, &[on_stack], &[]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(6), "{output:?}");
    assert!(text.lines().count() == 1 && text.contains("RTLD_DEEPBIND"), "{text}");
    let output = served(&program, &[on_stack], &[("FASTPATH_FOREIGN", "leak")]);
    assert!(output.status.success(), "{output:?}");
    let output = served(&program, &["count"], &[("FASTPATH_FOREIGN", "nonsense")]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && text.lines().count() == 1 && text.contains("FASTPATH_FOREIGN"),
        "{text}"
    );
}

/// The modes of the table of wrong frees.
const COLUMNS: [(&str, &[(&str, &str)]); 5] = [
    ("default", &[]),
    ("F", &[("FASTPATH_DEBUG", "F")]),
    ("FZP", &[("FASTPATH_DEBUG", "FZP")]),
    ("hardened", &[("FASTPATH_HARDENED", "on")]),
    ("tid", &[("FASTPATH_FRONT", "tid")]),
];

#[test]
fn misuse_is_caught_as_often_as_the_c_library_does_it() {
    let Some(program) = build("misuse.c", "misuse", &[]) else { return };
    let count: usize = {
        let output = Command::new(&program).arg("count").output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
    };
    assert!(count >= 20);
    // The last four are overflows and writes after free; by default they break nothing of ours that could be noticed.
    let frees = count - 4;
    let missed = |output: &Output| {
        String::from_utf8_lossy(&output.stdout).contains("not caught") && output.status.success()
    };
    let mut sums = [(0, 0); COLUMNS.len() + 1];
    eprintln!("case  default  F  FZP  hardened  tid  system's");
    for case in 0..count {
        let case_text = case.to_string();
        let ours = COLUMNS.map(|(_, settings)| !missed(&served(&program, &[&case_text], settings)));
        let system = !missed(&Command::new(&program).arg(&case_text).output().unwrap());
        let row: Vec<bool> = ours.into_iter().chain([system]).collect();
        eprintln!(
            "{case:4}  {}",
            row.iter().map(|&hit| if hit { "caught" } else { "-" }).collect::<Vec<_>>().join("  ")
        );
        for (sum, hit) in sums.iter_mut().zip(row) {
            let sum = if case < frees { &mut sum.0 } else { &mut sum.1 };
            *sum += usize::from(hit);
        }
    }
    for ((name, _), sum) in COLUMNS.iter().chain(&[("system's", &[][..])]).zip(sums) {
        eprintln!(
            "{name}: {} of {frees} wrong frees, {} of {} overflows and late writes",
            sum.0,
            sum.1,
            count - frees
        );
    }
    let [default, checked, all, hardened, _tid, system] = sums;
    assert!(default.0 >= system.0, "default {default:?}, the system's {system:?}");
    assert_eq!([default.0, checked.0], [frees; 2]);
    assert_eq!([all, hardened], [(frees, count - frees); 2]);
}

#[track_caller]
fn passes_alone(program: &Path, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("ok"), "{}: {output:?}", program.display());
}

#[test]
fn constructors_destructors_and_position_do_not_matter() {
    for (name, argument) in [("early-pie", "-pie"), ("early-fixed", "-no-pie")] {
        let Some(program) = build("early.c", name, &[argument]) else { return };
        for settings in FRONTS {
            passes(&program, &[], settings);
        }
    }
}

#[test]
fn static_programs_link_the_archive() {
    let archive = archive();
    let archive = archive.to_str().unwrap();
    let Some(program) = build("early.c", "early-static", &["-static", archive]) else { return };
    passes_alone(&program, &[]);
    let Some(program) = build("churn.c", "churn-static", &["-static", archive]) else { return };
    passes_alone(&program, &["3", "3000", "signals", "forks=5"]);
    let Some(program) = build("operators.cpp", "operators-static", &["-static", "-DSTATIC", archive]) else {
        return;
    };
    passes_alone(&program, &[]);
}

#[test]
fn musl_programs_are_served() {
    static BUILT: Mutex<Option<HashMap<String, PathBuf>>> = Mutex::new(None);
    if !Command::new("musl-gcc").arg("-dumpversion").output().is_ok_and(|output| output.status.success()) {
        fastpath_testkit::skip("malloc-no-musl", "musl-gcc is not installed");
        return;
    }
    let program = build_with(&BUILT, "musl-gcc", "churn.c", "churn-musl", &[]).unwrap();
    passes(&program, &["3", "3000", "signals"], &[]);
    passes(&program, &["3", "3000", "forks=5"], &[("FASTPATH_FRONT", "direct")]);
    let archive = archive();
    let arguments = ["-static", archive.to_str().unwrap()];
    let program = build_with(&BUILT, "musl-gcc", "churn.c", "churn-musl-static", &arguments).unwrap();
    passes_alone(&program, &["3", "3000", "signals"]);
}

#[test]
fn the_library_can_be_loaded_late_and_is_never_unloaded() {
    let Some(program) = build("late.c", "late", &[]) else { return };
    let library = library();
    for setting in [("FASTPATH_FRONT", "sheaf"), ("FASTPATH_FRONT", "tid"), ("FASTPATH_FRONT", "trylock")] {
        let output = Command::new(&program).arg(&library).env(setting.0, setting.1).output().unwrap();
        assert!(output.status.success() && output.stdout == b"ok\n", "{output:?}");
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn refused_system_calls_are_survived() {
    let (Some(refused), Some(churn), Some(memory)) = (
        build("refused.c", "refused", &[]),
        build("churn.c", "churn", &[]),
        build("memory.c", "memory", &[]),
    ) else {
        return;
    };
    if served(&refused, &["/bin/true"], &[]).status.code() == Some(77) {
        fastpath_testkit::skip("malloc-no-seccomp", "system call filters are not permitted here");
        return;
    }
    passes(&refused, &[churn.to_str().unwrap(), "3", "4000"], &[]);
    let output = served(&refused, &[memory.to_str().unwrap(), "small"], &[]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_process_tree_counts_in_one_file() {
    use fastpath_alloc::shared_stats;
    let Some(program) = build("early.c", "early-pie", &["-pie"]) else { return };
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("stats-{}", std::process::id()));
    let (header, length) = shared_stats::new_file(10);
    let mut file = header.to_vec();
    file.resize(length, 0);
    std::fs::write(&path, &file).unwrap();
    let script = format!("{0}; ({0}); kill -9 $$", program.display());
    let output = served(
        Path::new("/bin/sh"),
        &["-c", &script],
        &[(shared_stats::VARIABLE, path.to_str().unwrap()), ("FASTPATH_STATS", "exact")],
    );
    assert!(!output.status.success());
    let file = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let entries: Vec<_> = shared_stats::entries(&file).unwrap().collect();
    // The shell, and twice the program with the child that its constructor forks (and perhaps the shell's own child).
    assert!(entries.len() >= 5, "{entries:?}");
    assert!(
        entries.iter().all(|entry| entry.pid != 0 && entry.front == shared_stats::Front::SheafRseq
            || entry.front == shared_stats::Front::SheafTryLock),
        "{entries:?}"
    );
    assert!(
        entries.iter().any(|entry| entry.name() == "sh" && entry.allocations_at_least() > 5),
        "{entries:?}"
    );
    assert!(entries.iter().filter(|entry| entry.name() == "early-pie").count() >= 4, "{entries:?}");
    assert!(entries.iter().all(|entry| entry.exact_allocs > 0 || entry.exact_frees == 0), "{entries:?}");
}

/// The instructions of an exported function up to its return, from the disassembler.
fn disassemble(symbol: &str) -> Option<Vec<String>> {
    disassemble_at(&format!("--disassemble={symbol}"), "ret")
}

/// The instructions where the option says, up to the first that starts with `end`.
fn disassemble_at(place: &str, end: &str) -> Option<Vec<String>> {
    if !have("objdump") {
        fastpath_testkit::skip("malloc-no-objdump", "objdump is not installed");
        return None;
    }
    let output =
        Command::new("objdump").args(["-d", "--no-show-raw-insn", place]).arg(library()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut instructions = Vec::new();
    for line in text.lines() {
        let Some((address, instruction)) = line.split_once(":\t") else { continue };
        if address.trim_start().chars().all(|digit| digit.is_ascii_hexdigit()) {
            instructions.push(instruction.trim().to_owned());
            if instruction.starts_with(end) {
                return Some(instructions);
            }
        }
    }
    panic!("{place} has no {end}: {text}");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_exported_fast_paths_are_short_and_take_no_lock() {
    for (symbol, most) in [("malloc", 20), ("free", 24)] {
        let Some(instructions) = disassemble(symbol) else { return };
        let count = |test: &dyn Fn(&str) -> bool| instructions.iter().filter(|line| test(line)).count();
        let branches = count(&|line| line.starts_with('j'));
        let calls = count(&|line| line.starts_with("call"));
        let locked = count(&|line| line.contains("lock ") || line.starts_with("xchg") && line.contains('('));
        eprintln!(
            "{symbol}: {} instructions, {branches} branches, {calls} calls, {locked} locked",
            instructions.len()
        );
        assert!(instructions.len() <= most, "{symbol}: {instructions:#?}");
        assert!(calls == 0 && locked == 0, "{symbol}: {instructions:#?}");
    }
}

/// A heap that samples keeps the limit closed: each allocation takes a detour, which must stay short.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_detour_of_a_heap_that_samples_is_short() {
    let Some(malloc) = disassemble("malloc") else { return };
    assert!(malloc[0].starts_with("cmp") && malloc[1].starts_with("jae"), "{malloc:#?}");
    let target = malloc[1].split_whitespace().nth(1).unwrap();
    let Some(detour) = disassemble_at(&format!("--start-address=0x{target}"), "jns") else { return };
    eprintln!("detour: {detour:#?}");
    assert!(detour.len() <= 9, "{detour:#?}");
    assert!(!detour.iter().any(|line| line.starts_with("call") || line.contains("lock")), "{detour:#?}");
    // It leads back behind the comparison.
    let back = detour.last().unwrap().split_whitespace().nth(1).unwrap();
    let Some(rest) = disassemble_at(&format!("--start-address=0x{back}"), "ret") else { return };
    assert_eq!(rest, malloc[2..]);
}
