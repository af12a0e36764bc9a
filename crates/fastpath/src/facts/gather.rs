// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Asking.

use std::fs;
use std::sync::atomic::AtomicU32;

use fastpath_cmpxchg::Backend as _;
use fastpath_percpu::self_test::Verdict;
use fastpath_percpu::{Backend as PerCpu, Ids, Owner};
use fastpath_sys::futex::{self, Clock, Scope};
use fastpath_sys::rseq::{self, Libc as Registration};
use fastpath_sys::{auxv, membarrier};

use super::{Backend, Backends, Facts, HugePages, Libc, Machine, Membarrier, PiFutex, Rseq, Versions};
use crate::bench::machine::{Machine as Observed, chosen, line};
use crate::{embed, system};

impl Facts {
    /// Asks everybody. Takes some 60 ms, for the counter's frequency.
    pub(crate) fn gather() -> Self {
        // First, so that everything below describes a process that has decided.
        let percpu = fastpath_percpu::backend();
        let rseq = rseq_facts(percpu);
        let pi_futex = pi_futex();
        Self {
            fastpath: Versions {
                version: env!("CARGO_PKG_VERSION"),
                target: format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
                library_bytes: embed::LIBRARY.len(),
            },
            machine: machine(),
            libc: libc(),
            membarrier: membarrier_facts(),
            huge_pages: huge_pages(),
            backends: Backends {
                cmpxchg: Backend {
                    name: fastpath_cmpxchg::Native::NAME.to_owned(),
                    because: "chosen when it was built, by target".to_owned(),
                },
                percpu: percpu_backend(percpu, &rseq),
                alloc: alloc_backend(),
                refcount: Backend {
                    name: fastpath_cmpxchg::Native::NAME.to_owned(),
                    because: "the atomics of cmpxchg".to_owned(),
                },
                rtmutex: if pi_futex.lock_pi {
                    Backend {
                        name: "pi-futex".to_owned(),
                        because: "the kernel locks and unlocks PI futexes".to_owned(),
                    }
                } else {
                    Backend {
                        name: "none".to_owned(),
                        because: "the kernel has no PI futexes, or hides them".to_owned(),
                    }
                },
            },
            rseq,
            pi_futex,
        }
    }
}

fn machine() -> Machine {
    let observed = Observed::observe();
    Machine {
        arch: std::env::consts::ARCH,
        cpu: observed.cpu,
        kernel: observed.kernel,
        virtual_machine: observed.virtual_machine,
        cpus_possible: line("/sys/devices/system/cpu/possible").unwrap_or_else(|| "unknown".to_owned()),
        cpus_online: observed.online,
        cpus_allowed: observed.allowed,
        percpu_slots: fastpath_percpu::slots(),
        numa_nodes: line("/sys/devices/system/node/online").unwrap_or_else(|| "0".to_owned()),
        page_size: rustix::param::page_size(),
        double_word_cmpxchg: double_word(),
        counter: observed.counter,
        counter_hz: observed.counter_hz,
    }
}

fn double_word() -> bool {
    core::cfg_select! {
        target_arch = "x86_64" => std::arch::is_x86_feature_detected!("cmpxchg16b"),
        // LDXP and STXP; CASP where LSE is.
        target_arch = "aarch64" => true,
        _ => false,
    }
}

fn libc() -> Libc {
    if cfg!(target_env = "gnu") {
        return Libc { name: "glibc", version: system::glibc_version() };
    }
    Libc { name: if cfg!(target_env = "musl") { "musl" } else { "unknown" }, version: None }
}

fn rseq_facts(backend: PerCpu) -> Rseq {
    let libc = rseq::libc();
    let (word, published_size, offset) = match libc {
        Registration::Registers { offset, published_size, .. } => {
            ("registers", Some(published_size), Some(offset))
        }
        Registration::Declined => ("declined", Some(0), None),
        Registration::Silent => ("silent", None, None),
    };
    let owned = matches!(backend, PerCpu::Rseq { owner: Owner::Own, .. });
    let registered_by = match libc {
        _ if owned => "fastpath",
        Registration::Registers { .. } => "libc",
        _ => "nobody",
    };
    // An area that fastpath registers itself is 32 bytes long.
    let size = if owned { rseq::REGISTERED_SIZE } else { published_size.unwrap_or(0) };
    let active_size = rseq::active_size(size, rseq::feature_size());
    Rseq {
        kernel: rseq::supported(),
        libc: word,
        registered: registered_by != "nobody",
        registered_by,
        published_size,
        offset,
        feature_size: rseq::feature_size(),
        alignment: auxv::value(auxv::AT_RSEQ_ALIGN).unwrap_or(0),
        active_size,
        mm_cid: active_size as usize >= rseq::MM_CID + size_of::<u32>(),
        self_test: match fastpath_percpu::start_up_verdict() {
            Some(Verdict::Aborts) => "aborts",
            Some(Verdict::NoAbort) => "no-abort",
            Some(Verdict::NotTested) | None => "not-tested",
        },
    }
}

fn percpu_backend(backend: PerCpu, rseq: &Rseq) -> Backend {
    let because = match backend {
        PerCpu::Rseq { owner, ids } => {
            let owner = match owner {
                Owner::Libc => "libc registers every thread",
                Owner::Own => "fastpath registers each thread at its first use",
            };
            let ids = match ids {
                Ids::Cpu => "slots are numbered by cpu_id",
                Ids::MmCid => "slots are numbered by mm_cid",
            };
            format!("{owner}; {ids}")
        }
        PerCpu::Locked => match () {
            () if std::env::var_os("FASTPATH_PERCPU").is_some_and(|wanted| wanted == "locked") => {
                "FASTPATH_PERCPU=locked asks for it".to_owned()
            }
            () if !rseq.kernel => "the kernel has no rseq, or hides it".to_owned(),
            () if rseq.self_test == "no-abort" => {
                "the self-test found that critical sections are not aborted".to_owned()
            }
            () if rseq.libc == "declined" => {
                "libc did not register its threads (GLIBC_TUNABLES=glibc.pthread.rseq=0, or it was refused)"
                    .to_owned()
            }
            () => "this thread could not be registered".to_owned(),
        },
    };
    Backend { name: backend.name().to_owned(), because }
}

fn alloc_backend() -> Backend {
    // The allocator decides at its first use.
    system::touch_allocator();
    let wanted = std::env::var("FASTPATH_FRONT")
        .map_or_else(|_| "the default".to_owned(), |front| format!("FASTPATH_FRONT={front}"));
    Backend { name: fastpath_alloc::raw::front().to_owned(), because: wanted }
}

fn membarrier_facts() -> Membarrier {
    let commands = membarrier::supported();
    Membarrier {
        commands: commands.iter_names().map(|(name, _)| name.to_owned()).collect(),
        rseq: membarrier::has_rseq(),
    }
}

/// Locks a futex of our own through the kernel and unlocks it.
fn pi_futex() -> PiFutex {
    let word = AtomicU32::new(0);
    let unlocked = || futex::unlock_pi(&word, Scope::Private).is_ok();
    PiFutex {
        lock_pi: futex::lock_pi(&word, Scope::Private, None).is_ok() && unlocked(),
        lock_pi2: futex::lock_pi2(&word, Scope::Private, Clock::Monotonic, None).is_ok() && unlocked(),
    }
}

fn huge_pages() -> HugePages {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    HugePages {
        transparent: line("/sys/kernel/mm/transparent_hugepage/enabled").and_then(|text| chosen(&text)),
        size_kib: field("Hugepagesize"),
        reserved: field("HugePages_Total").unwrap_or(0),
        free: field("HugePages_Free").unwrap_or(0),
    }
}
