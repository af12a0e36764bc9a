// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Keeping threads on their CPUs.

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::failure::Failure;

/// The CPUs this process may use, in order. CPU 0 if the system does not tell.
pub(crate) fn allowed() -> Vec<usize> {
    let set = sched_getaffinity(None).ok();
    let cpus: Vec<usize> =
        set.map_or_else(Vec::new, |set| (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect());
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// Keeps the calling thread on `cpu`. A refusal (a sandbox) leaves it where the scheduler wants it.
pub(crate) fn to(cpu: usize) -> bool {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).is_ok()
}

/// Lets the calling thread, and the processes it starts, run on any of `cpus`.
pub(crate) fn to_any(cpus: &[usize]) {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu);
    }
    // A refusal leaves them on one CPU: slower where many are wanted, not wrong.
    let _ = sched_setaffinity(None, &set);
}

/// The CPUs of this process with the measuring thread's first: `wanted`, or the last one that may be used, since the
/// first serves more interrupts on most machines.
///
/// # Errors
/// A usage failure if `wanted` is not among them.
pub(crate) fn choose(wanted: Option<usize>) -> Result<Vec<usize>, Failure> {
    let mut cpus = allowed();
    let at = match wanted {
        None => cpus.len() - 1,
        Some(cpu) => cpus.iter().position(|allowed| *allowed == cpu).ok_or_else(|| {
            Failure::Usage(format!(
                "--cpu {cpu}: this process may not use that CPU; it may use {}",
                list(&cpus)
            ))
        })?,
    };
    cpus.swap(0, at);
    Ok(cpus)
}

/// The CPU the calling thread runs on now.
pub(crate) fn current() -> usize {
    sched_getcpu()
}

/// Numbers as the kernel writes them: `0-3,8`.
pub(crate) fn list(cpus: &[usize]) -> String {
    let mut sorted = cpus.to_vec();
    sorted.sort_unstable();
    let runs = sorted.chunk_by(|a, b| a + 1 == *b);
    let text: Vec<String> =
        runs.map(|run| {
            if run.len() == 1 { run[0].to_string() } else { format!("{}-{}", run[0], run[run.len() - 1]) }
        })
        .collect();
    text.join(",")
}

#[cfg(test)]
mod tests {
    #[test]
    fn lists_look_like_the_kernel_writes_them() {
        assert_eq!(super::list(&[0, 1, 2, 3, 8]), "0-3,8");
        assert_eq!(super::list(&[5]), "5");
        assert_eq!(super::list(&[]), "");
    }
}
