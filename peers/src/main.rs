// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Runs one workload in this process, with the allocator that this program was built (or preloaded) with, and prints one line
//! of JSON: cost per operation and memory. `peers/measure` starts it, interleaved with the others'.

mod memory;
#[expect(unsafe_code, reason = "calls the allocator as it is called: through pointers")]
mod micro;
mod workloads;

#[cfg(feature = "fastpath")]
#[global_allocator]
static ALLOCATOR: fastpath_alloc::FastPath = fastpath_alloc::FastPath;
#[cfg(any(feature = "mimalloc3", feature = "mimalloc2"))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
#[cfg(feature = "snmalloc")]
#[global_allocator]
static ALLOCATOR: snmalloc_rs::SnMalloc = snmalloc_rs::SnMalloc;
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
#[cfg(feature = "rpmalloc")]
#[global_allocator]
static ALLOCATOR: rpmalloc::RpMalloc = rpmalloc::RpMalloc;
#[cfg(feature = "tcmalloc")]
#[global_allocator]
static ALLOCATOR: tcmalloc_better::TCMalloc = tcmalloc_better::TCMalloc;

/// A line of /proc/self/status, in KiB.
fn status(key: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or("");
    line.trim_start_matches(':').split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let names = workloads::ALL.map(|(name, _)| name);
    let [_, name, scale] = &arguments[..] else {
        eprintln!("usage: worker WORKLOAD PERCENT\nworkloads: {}", names.join(" "));
        return 2.into();
    };
    let Some((_, run)) = workloads::ALL.into_iter().find(|(known, _)| known == name) else {
        eprintln!("no workload {name}; there are: {}", names.join(" "));
        return 2.into();
    };
    let Ok(percent) = scale.parse::<usize>() else {
        eprintln!("{scale}: not a number of per cent");
        return 2.into();
    };
    let outcome = run(percent.max(1));
    let parts: Vec<String> =
        outcome.parts.iter().map(|(name, value)| format!("\"{name}\":{value:.4}")).collect();
    println!(
        "{{\"workload\":\"{name}\",\"ns\":{:.4},\"cpu_s\":{:.4},\"peak_kib\":{},\"rss_kib\":{},\"virtual_kib\":{},\"mappings\":{},\"parts\":{{{}}}}}",
        outcome.seconds * 1e9 / outcome.operations as f64,
        cpu_seconds(),
        status("VmHWM"),
        outcome.rss_kib,
        status("VmSize"),
        mappings(),
        parts.join(","),
    );
    0.into()
}

/// How many mappings this process has.
fn mappings() -> f64 {
    std::fs::read_to_string("/proc/self/maps").map_or(0, |text| text.lines().count()) as f64
}

/// Asks the allocator to give memory back: ours, or whatever answers `malloc_trim`.
#[cfg_attr(not(feature = "fastpath"), expect(unsafe_code, reason = "malloc_trim of the C library"))]
fn trim() {
    core::cfg_select! {
        feature = "fastpath" => {
            fastpath_alloc::trim();
        }
        // SAFETY: gives memory back; nothing to go wrong.
        _ => unsafe {
            libc::malloc_trim(0);
        },
    }
}

/// User and system time of this process so far.
#[expect(unsafe_code, reason = "getrusage of the C library")]
fn cpu_seconds() -> f64 {
    // SAFETY: zero bytes are a valid `rusage`, and the pointer is to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
