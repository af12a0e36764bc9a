// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The facts as text.

use super::{Backend, Facts};
use crate::terminal;

impl Facts {
    /// One fact a line, names left, folded to `width`.
    pub(crate) fn text(&self, width: usize) -> String {
        let yes = |fact: bool| if fact { "yes" } else { "no" };
        let number = |fact: Option<String>| fact.unwrap_or_else(|| "none".to_owned());
        let backend = |backend: &Backend| format!("{} ({})", backend.name, backend.because);
        let machine = &self.machine;
        let rseq = &self.rseq;
        let sections: [(&str, Vec<(&str, String)>); 7] = [
            (
                "machine",
                vec![
                    (
                        "cpu",
                        format!(
                            "{}, {}{}",
                            machine.cpu,
                            machine.arch,
                            if machine.virtual_machine { ", virtual machine" } else { "" }
                        ),
                    ),
                    (
                        "cpus",
                        format!(
                            "{} possible, {} online, {} allowed; {} per-CPU slots; NUMA nodes {}",
                            machine.cpus_possible,
                            machine.cpus_online,
                            machine.cpus_allowed,
                            machine.percpu_slots,
                            machine.numa_nodes
                        ),
                    ),
                    ("kernel", machine.kernel.clone()),
                    (
                        "libc",
                        format!("{} {}", self.libc.name, self.libc.version.as_deref().unwrap_or(""))
                            .trim_end()
                            .to_owned(),
                    ),
                    ("page size", machine.page_size.to_string()),
                    ("double-word cmpxchg", yes(machine.double_word_cmpxchg).to_owned()),
                    ("counter", format!("{} at {:.3} MHz", machine.counter, machine.counter_hz / 1e6)),
                ],
            ),
            (
                "restartable sequences",
                vec![
                    ("kernel has rseq", yes(rseq.kernel).to_owned()),
                    ("registered by", format!("{} (libc: {})", rseq.registered_by, rseq.libc)),
                    (
                        "libc's size, offset",
                        format!(
                            "{}, {}",
                            number(rseq.published_size.map(|n| n.to_string())),
                            number(rseq.offset.map(|n| n.to_string()))
                        ),
                    ),
                    ("kernel's size, alignment", format!("{}, {}", rseq.feature_size, rseq.alignment)),
                    ("active size", rseq.active_size.to_string()),
                    ("mm_cid", yes(rseq.mm_cid).to_owned()),
                    ("self-test", rseq.self_test.to_owned()),
                ],
            ),
            (
                "membarrier",
                vec![
                    ("aborts other CPUs' sections", yes(self.membarrier.rseq).to_owned()),
                    (
                        "commands",
                        if self.membarrier.commands.is_empty() {
                            "none".to_owned()
                        } else {
                            self.membarrier.commands.join(" ").to_lowercase()
                        },
                    ),
                ],
            ),
            (
                "PI futex",
                vec![
                    ("lock_pi", yes(self.pi_futex.lock_pi).to_owned()),
                    ("lock_pi2", yes(self.pi_futex.lock_pi2).to_owned()),
                ],
            ),
            (
                "huge pages",
                vec![
                    ("transparent", number(self.huge_pages.transparent.clone())),
                    (
                        "reserved",
                        format!(
                            "{} of {} KiB, {} free",
                            self.huge_pages.reserved,
                            number(self.huge_pages.size_kib.map(|n| n.to_string())),
                            self.huge_pages.free
                        ),
                    ),
                ],
            ),
            (
                "backends",
                vec![
                    ("cmpxchg", backend(&self.backends.cmpxchg)),
                    ("percpu", backend(&self.backends.percpu)),
                    ("alloc", backend(&self.backends.alloc)),
                    ("refcount", backend(&self.backends.refcount)),
                    ("rtmutex", backend(&self.backends.rtmutex)),
                ],
            ),
            (
                "fastpath",
                vec![
                    ("version", format!("{} for {}", self.fastpath.version, self.fastpath.target)),
                    ("library inside", format!("{} KiB", self.fastpath.library_bytes.div_ceil(1024))),
                ],
            ),
        ];
        let mut out = String::new();
        let indent = " ".repeat(if width < 60 { 4 } else { 30 });
        for (title, facts) in sections {
            out.push_str(&terminal::bold(title));
            out.push('\n');
            for (name, value) in facts {
                if width < 60 {
                    // A narrow terminal: the value on lines of its own.
                    out.extend(["  ", name, "\n", &terminal::wrap(&value, &indent, width)]);
                } else {
                    let folded = terminal::wrap(&value, &indent, width);
                    out.extend([&format!("  {name:<28}"), folded.trim_start()]);
                }
            }
        }
        out
    }
}
