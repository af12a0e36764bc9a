// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `fastpath info` against what the system itself says.
#![cfg(feature = "cli")]

mod command;

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

/// `info --json` with these environment variables.
fn info(variables: &[(&str, &str)]) -> Value {
    let run = command::with(Path::new("/"), &["info", "--json"], variables);
    assert_eq!((run.status, run.err.as_str()), (Some(0), ""), "{run:?}");
    serde_json::from_str(&run.out).unwrap()
}

/// The auxiliary vector of this process: the same kernel fills in the command's.
fn auxv() -> HashMap<u64, u64> {
    let words: Vec<u64> = fs::read("/proc/self/auxv")
        .unwrap()
        .chunks_exact(8)
        .map(|bytes| u64::from_ne_bytes(bytes.try_into().unwrap()))
        .collect();
    words.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
}

fn first_line(path: &str) -> String {
    fs::read_to_string(path).unwrap().lines().next().unwrap_or_default().to_owned()
}

#[test]
fn facts_are_those_of_proc_sys_and_the_auxiliary_vector() {
    let facts = info(&[]);
    let machine = &facts["machine"];
    assert_eq!(machine["arch"], std::env::consts::ARCH);
    assert_eq!(machine["kernel"], first_line("/proc/sys/kernel/osrelease"));
    assert_eq!(machine["cpus_online"], first_line("/sys/devices/system/cpu/online"));
    assert_eq!(machine["cpus_possible"], first_line("/sys/devices/system/cpu/possible"));
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    assert_eq!(machine["cpus_allowed"], allowed);
    let auxv = auxv();
    assert_eq!(machine["page_size"], auxv[&6]);
    assert_eq!(facts["rseq"]["feature_size"], auxv.get(&27).copied().unwrap_or(0));
    assert_eq!(facts["rseq"]["alignment"], auxv.get(&28).copied().unwrap_or(0));
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap();
    if cfg!(target_arch = "x86_64") {
        let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap();
        assert_eq!(machine["double_word_cmpxchg"], flags.split(' ').any(|flag| flag == "cx16"));
        assert_eq!(machine["virtual_machine"], flags.split(' ').any(|flag| flag == "hypervisor"));
        assert!(cpuinfo.contains(machine["cpu"].as_str().unwrap()));
    }
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap();
    if let Some(kib) = meminfo.lines().find_map(|line| line.strip_prefix("Hugepagesize:")) {
        assert_eq!(facts["huge_pages"]["size_kib"].to_string() + " kB", kib.trim());
    }
    if let Ok(text) = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled") {
        assert!(text.contains(&format!("[{}]", facts["huge_pages"]["transparent"].as_str().unwrap())));
    }
    assert_eq!(facts["fastpath"]["version"], env!("CARGO_PKG_VERSION"));
    assert!(facts["fastpath"]["library_bytes"].as_u64().unwrap() > 10_000);
}

#[test]
fn libc_names_itself_as_getconf_does() {
    let Ok(output) = std::process::Command::new("getconf").arg("GNU_LIBC_VERSION").output() else { return };
    let Ok(text) = String::from_utf8(output.stdout) else { return };
    if let Some(version) = text.trim().strip_prefix("glibc ") {
        let facts = info(&[]);
        assert_eq!(
            (&facts["libc"]["name"], &facts["libc"]["version"]),
            (&Value::from("glibc"), &Value::from(version))
        );
    }
}

#[test]
fn rseq_is_told_truthfully_on_and_off() {
    let on = info(&[("GLIBC_TUNABLES", "glibc.pthread.rseq=1")]);
    let off = info(&[("GLIBC_TUNABLES", "glibc.pthread.rseq=0")]);
    // The tunable changes nothing about the kernel.
    assert_eq!(on["rseq"]["kernel"], off["rseq"]["kernel"]);
    assert_eq!(on["rseq"]["feature_size"], off["rseq"]["feature_size"]);
    let rseq = &off["rseq"];
    assert_eq!((&rseq["registered"], &rseq["registered_by"]), (&false.into(), &"nobody".into()), "{rseq}");
    assert_eq!((&rseq["mm_cid"], &rseq["active_size"]), (&false.into(), &0.into()), "{rseq}");
    assert_eq!(off["backends"]["percpu"]["name"], "locked");
    let front = off["backends"]["alloc"]["name"].as_str().unwrap();
    assert!(!front.contains("rseq"), "{front}");
    if on["rseq"]["libc"] == "registers" {
        let rseq = &on["rseq"];
        assert_eq!((&rseq["registered"], &rseq["registered_by"]), (&true.into(), &"libc".into()), "{rseq}");
        assert_eq!(on["backends"]["percpu"]["name"], "rseq");
        assert!(rseq["offset"].is_i64());
        assert_eq!(rseq["mm_cid"], rseq["active_size"].as_u64().unwrap() >= 28, "{rseq}");
    }
}

#[test]
fn the_percpu_switches_are_told() {
    let locked = info(&[("FASTPATH_PERCPU", "locked")]);
    let percpu = &locked["backends"]["percpu"];
    assert_eq!(percpu["name"], "locked");
    assert!(percpu["because"].as_str().unwrap().contains("FASTPATH_PERCPU=locked"), "{percpu}");
    let facts = info(&[]);
    if facts["rseq"]["mm_cid"] == true {
        let ids = info(&[("FASTPATH_PERCPU_IDS", "mm_cid")]);
        assert!(ids["backends"]["percpu"]["because"].as_str().unwrap().contains("mm_cid"), "{ids}");
    }
    if facts["rseq"]["kernel"] == true {
        let own = info(&[("GLIBC_TUNABLES", "glibc.pthread.rseq=0"), ("FASTPATH_PERCPU", "own")]);
        assert_eq!(own["rseq"]["registered_by"], "fastpath", "{own}");
        assert_eq!(own["backends"]["percpu"]["name"], "rseq", "{own}");
    }
}

#[test]
fn pi_futexes_work_where_they_are_said_to() {
    let facts = info(&[]);
    // Every kernel that runs this project's tests has PI futexes: the real-time mutex's own tests need them.
    assert_eq!(facts["pi_futex"]["lock_pi"], true);
    assert_eq!(facts["backends"]["rtmutex"]["name"], "pi-futex");
}

#[test]
fn the_text_fits_and_says_what_the_json_says() {
    for columns in ["40", "80", "200"] {
        let run = command::with(Path::new("/"), &["info"], &[("COLUMNS", columns)]);
        let width: usize = columns.parse().unwrap();
        assert!(run.out.lines().all(|line| line.chars().count() <= width), "{columns}: {}", run.out);
    }
    let text = command::fastpath(Path::new("/"), &["info"]).out;
    let facts = info(&[]);
    for fact in
        [&facts["machine"]["kernel"], &facts["backends"]["percpu"]["name"], &facts["rseq"]["registered_by"]]
    {
        assert!(text.contains(fact.as_str().unwrap()), "{fact} in {text}");
    }
}
