// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What this machine and this process support, asked of the kernel, libc and our own crates; nothing is guessed from
//! version numbers.

mod gather;
mod show;

use serde::Serialize;

/// Every fact that `fastpath info` tells. The names are those of `info --json`, which is stable: names are added, not
/// changed.
#[derive(Debug, Serialize)]
pub(crate) struct Facts {
    /// This program.
    pub(crate) fastpath: Versions,
    /// The processor and its system.
    pub(crate) machine: Machine,
    /// The C library of this program.
    pub(crate) libc: Libc,
    /// Restartable sequences.
    pub(crate) rseq: Rseq,
    /// Fences of other CPUs.
    pub(crate) membarrier: Membarrier,
    /// Futexes with priority inheritance.
    pub(crate) pi_futex: PiFutex,
    /// Huge pages.
    pub(crate) huge_pages: HugePages,
    /// What each crate uses here.
    pub(crate) backends: Backends,
}

#[derive(Debug, Serialize)]
pub(crate) struct Versions {
    pub(crate) version: &'static str,
    /// What it was built for.
    pub(crate) target: String,
    /// Bytes of the allocator library inside this program.
    pub(crate) library_bytes: usize,
}

#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) arch: &'static str,
    pub(crate) cpu: String,
    pub(crate) kernel: String,
    #[expect(clippy::struct_field_names, reason = "its usual name")]
    pub(crate) virtual_machine: bool,
    /// CPUs that could ever be online, as the kernel lists them: 0-3,8.
    pub(crate) cpus_possible: String,
    /// CPUs that are online.
    pub(crate) cpus_online: String,
    /// CPUs this process may use.
    pub(crate) cpus_allowed: String,
    /// Slots of a per-CPU object: every CPU number the kernel can give is below.
    pub(crate) percpu_slots: u32,
    pub(crate) numa_nodes: String,
    pub(crate) page_size: usize,
    /// Compare-and-exchange of two words: the processor has it.
    pub(crate) double_word_cmpxchg: bool,
    /// The counter that benchmarks read, and its frequency.
    pub(crate) counter: String,
    pub(crate) counter_hz: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Libc {
    /// glibc, musl or unknown.
    pub(crate) name: &'static str,
    pub(crate) version: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Rseq {
    /// The kernel has the system call and does not hide it.
    pub(crate) kernel: bool,
    /// What libc says: registers, declined (it could and did not), silent (it knows nothing of rseq).
    pub(crate) libc: &'static str,
    /// Whether the thread that asked is registered.
    pub(crate) registered: bool,
    /// libc, fastpath or nobody.
    pub(crate) registered_by: &'static str,
    /// `__rseq_size` as libc published it.
    pub(crate) published_size: Option<u32>,
    /// `__rseq_offset`: the area's distance from the thread pointer.
    pub(crate) offset: Option<isize>,
    /// `AT_RSEQ_FEATURE_SIZE`; 0 before Linux 6.3.
    pub(crate) feature_size: u32,
    /// `AT_RSEQ_ALIGN`; 0 before Linux 6.3.
    pub(crate) alignment: usize,
    /// Bytes of the area that mean something.
    pub(crate) active_size: u32,
    /// The area has dense per-process CPU numbers.
    pub(crate) mm_cid: bool,
    /// Whether start-up saw the kernel abort a section: aborts, no-abort, not-tested.
    pub(crate) self_test: &'static str,
}

#[derive(Debug, Serialize)]
pub(crate) struct Membarrier {
    /// The kernel's commands, by their names without MEMBARRIER_CMD_.
    pub(crate) commands: Vec<String>,
    /// It can abort critical sections of other CPUs (Linux 5.10).
    pub(crate) rseq: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct PiFutex {
    /// A lock and an unlock through the kernel work.
    pub(crate) lock_pi: bool,
    /// FUTEX_LOCK_PI2: timeouts on the monotonic clock (Linux 5.14).
    pub(crate) lock_pi2: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct HugePages {
    /// Transparent huge pages: always, madvise, never; none if the kernel has none.
    pub(crate) transparent: Option<String>,
    /// The default size in KiB.
    pub(crate) size_kib: Option<u64>,
    /// Reserved pages, and how many of them are free.
    pub(crate) reserved: u64,
    pub(crate) free: u64,
}

/// What each crate uses in this process, and why.
#[derive(Debug, Serialize)]
pub(crate) struct Backends {
    pub(crate) cmpxchg: Backend,
    pub(crate) percpu: Backend,
    pub(crate) alloc: Backend,
    pub(crate) refcount: Backend,
    pub(crate) rtmutex: Backend,
}

#[derive(Debug, Serialize)]
pub(crate) struct Backend {
    pub(crate) name: String,
    pub(crate) because: String,
}
