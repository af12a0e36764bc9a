// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Start-up and threads: which backend the process uses, who registers threads, and where a thread may write.
//!
//! The decision falls once per process, at the first use of the crate, and never changes:
//!
//! | libc | kernel | backend |
//! |---|---|---|
//! | registers its threads | - | rseq, libc's areas |
//! | knows nothing of rseq (musl, old glibc) | has rseq | rseq, own areas: each thread registers at its first use |
//! | declined (tunable, sandbox) | - | locked; own areas with `FASTPATH_PERCPU=own` |
//! | - | has none, hides it, or fails the self-test | locked |
//!
//! Environment, read at that moment: `FASTPATH_PERCPU` = `auto` (default), `locked`, `own`; `FASTPATH_PERCPU_IDS` =
//! `cpu_id`, `mm_cid` (default: `cpu_id` while the process
//! may use CPUs 0 to 63 only, else `mm_cid` where the kernel has it).
//!
//! **Invariant 1.** A slot of the region is written with plain stores only by sections, or with full atomics only; which of
//! both is a property of (process, slot): in an rseq process slots below [`slots`] belong to sections, and the extra
//! outsider slot belongs to full atomics; in a locked process all belong to full atomics.
//!
//! **Invariant 2.** The decision is published before any region exists, so whoever has a region knows the backend.
//!
//! Everything here is idempotent rather than locked: a thread that finds another one (or itself, below a signal handler)
//! in the middle of start-up computes the same and goes on.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use fastpath_sys::linker::{self, ExitKey};
use fastpath_sys::{Errno, env, membarrier, rseq as kernel, sched};

use crate::{rseq, self_test};

/// Who registered the threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owner {
    /// libc: every thread, before it runs.
    Libc,
    /// This crate: each thread at its first use.
    Own,
}

/// What numbers the slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ids {
    /// The CPU number.
    Cpu,
    /// The concurrency id (`mm_cid`): dense below min(threads, CPUs), without a meaning for NUMA.
    MmCid,
}

/// How this process is atomic on its slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Backend {
    /// Restartable sequences.
    Rseq {
        /// Who registered the threads.
        owner: Owner,
        /// What numbers the slots.
        ids: Ids,
    },
    /// Full atomics and per-slot locks; the CPU number is only a hint.
    Locked,
}

impl Backend {
    /// `rseq` or `locked`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rseq { .. } => "rseq",
            Self::Locked => "locked",
        }
    }

    const fn encode(self) -> u32 {
        match self {
            Self::Locked => 1,
            Self::Rseq { owner, ids } => {
                2 | if matches!(owner, Owner::Own) { 4 } else { 0 }
                    | if matches!(ids, Ids::MmCid) { 8 } else { 0 }
            }
        }
    }

    const fn decode(word: u32) -> Option<Self> {
        match word {
            0 => None,
            1 => Some(Self::Locked),
            _ => Some(Self::Rseq {
                owner: if word & 4 == 0 { Owner::Libc } else { Owner::Own },
                ids: if word & 8 == 0 { Ids::Cpu } else { Ids::MmCid },
            }),
        }
    }
}

/// The decision, encoded; 0 before it.
static DECISION: AtomicU32 = AtomicU32::new(0);
/// The decision is in force: the offsets of the area are in place.
static READY: AtomicBool = AtomicBool::new(false);
/// [`slots`], once known.
static SLOTS: AtomicU32 = AtomicU32::new(0);
/// 1 + the exit key of own registrations; 0 before there is one.
static EXIT_KEY: AtomicU64 = AtomicU64::new(0);
/// Set when the start-up tests found the kernel's promises broken.
static SELF_TEST: AtomicU32 = AtomicU32::new(0);

/// The backend of this process. The first call decides it.
///
/// ```
/// println!("{:?}", fastpath_percpu::backend());
/// ```
#[inline]
pub fn backend() -> Backend {
    // ORDERING: Acquire pairs with the Release in `start`: the offsets are in place.
    if READY.load(Ordering::Acquire) {
        // ORDERING: Relaxed: written before `READY`, and never again.
        if let Some(backend) = Backend::decode(DECISION.load(Ordering::Relaxed)) {
            return backend;
        }
    }
    start(SelfTest::Run)
}

/// Whether start-up tests that the kernel really aborts sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SelfTest {
    /// Yes: about 100 µs, one short-lived thread. `FASTPATH_PERCPU_SELF_TEST=0` still skips it.
    Run,
    /// No: for an allocator in every process. Somebody else must test the machine ([`crate::self_test`]).
    Skip,
}

/// Decides the backend, if that has not happened yet. Called by itself at the first use with [`SelfTest::Run`].
#[cold]
pub fn start(test: SelfTest) -> Backend {
    // ORDERING: Relaxed: the number alone is used; `apply` below puts in place what it stands for.
    let backend = Backend::decode(DECISION.load(Ordering::Relaxed)).unwrap_or_else(|| {
        let mine = decide(test);
        // ORDERING: Relaxed: as above. The first decision wins.
        match DECISION.compare_exchange(0, mine.encode(), Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => mine,
            Err(first) => Backend::decode(first).unwrap_or(Backend::Locked),
        }
    });
    apply(backend);
    // The descriptors of inlined sections, the abort handlers and the exit handler live in this object.
    let _ = linker::pin_object((&raw const DECISION).addr());
    // ORDERING: Release pairs with the Acquire in `backend`: the offsets are in place.
    READY.store(true, Ordering::Release);
    backend
}

fn apply(backend: Backend) {
    let Backend::Rseq { owner, ids } = backend else {
        // The offsets stay those of the own area, which must not be registered: this thread may have tried.
        let area = kernel::area_at(kernel::own_area_offset());
        // SAFETY: the thread's own area, of which nobody else in a locked process makes use.
        let _ = unsafe { kernel::unregister(area, kernel::REGISTERED_SIZE) };
        return;
    };
    let area = match (owner, kernel::libc()) {
        (Owner::Libc, kernel::Libc::Registers { offset, .. }) => offset,
        _ => kernel::own_area_offset(),
    };
    let field = match ids {
        Ids::Cpu => kernel::CPU_ID,
        Ids::MmCid => kernel::MM_CID,
    };
    // SAFETY: this is the start-up code. libc's offset is that of an area in every thread; so is the own one.
    unsafe { kernel::set_offsets(area, area + field as isize) };
}

fn decide(test: SelfTest) -> Backend {
    // SAFETY: start-up: the environment is not being changed, as every user of C's environment must assume.
    let (wanted, wanted_ids, test_switch) = unsafe {
        (
            env::variable(c"FASTPATH_PERCPU"),
            env::variable(c"FASTPATH_PERCPU_IDS"),
            env::variable(c"FASTPATH_PERCPU_SELF_TEST"),
        )
    };
    if !rseq::AVAILABLE || wanted == Some(c"locked") {
        return Backend::Locked;
    }
    let (owner, area, size) = match kernel::libc() {
        kernel::Libc::Registers { published_size, offset, .. } => {
            // SAFETY: libc's area of this thread.
            let cpu = unsafe { &(*kernel::area_at(offset)).cpu_id };
            // ORDERING: Relaxed: a number the kernel writes.
            if (cpu.load(Ordering::Relaxed) as i32) < 0 {
                return Backend::Locked;
            }
            (Owner::Libc, offset, kernel::active_size(published_size, kernel::feature_size()))
        }
        kernel::Libc::Declined if wanted != Some(c"own") => return Backend::Locked,
        kernel::Libc::Declined | kernel::Libc::Silent => {
            if !kernel::supported() || !register_thread() {
                return Backend::Locked;
            }
            let size = kernel::active_size(kernel::REGISTERED_SIZE, kernel::feature_size());
            (Owner::Own, kernel::own_area_offset(), size)
        }
    };
    let has_mm_cid = size as usize >= kernel::MM_CID + 4;
    let prefers_mm_cid = match wanted_ids {
        Some(ids) if ids == c"mm_cid" => true,
        Some(ids) if ids == c"cpu_id" => false,
        // The mask's size bounds CPU numbers but says little about the machine: kernels built for 256 CPUs or more
        // run on two. The highest CPU this process may use does.
        _ => sched::affinity().is_ok_and(|cpus| (64..sched::CpuSet::MAX_CPU).any(|cpu| cpus.is_set(cpu))),
    };
    let ids = if has_mm_cid && prefers_mm_cid { Ids::MmCid } else { Ids::Cpu };
    let backend = Backend::Rseq { owner, ids };
    // Best effort: without it fences fall back to visiting CPUs.
    let _ = membarrier::register_rseq();
    if test == SelfTest::Run && test_switch != Some(c"0") {
        let result = self_test::run(area);
        // ORDERING: Relaxed: for `info` only.
        SELF_TEST.store(1 + result as u32, Ordering::Relaxed);
        if result == self_test::Verdict::NoAbort {
            return Backend::Locked;
        }
    }
    backend
}

/// What the start-up self-test found; `None` if it did not run.
pub fn start_up_verdict() -> Option<self_test::Verdict> {
    // ORDERING: Relaxed: for information.
    self_test::Verdict::from_number(SELF_TEST.load(Ordering::Relaxed).checked_sub(1)?)
}

/// How many slots a region has, the outsider slot not counted: every number the kernel can give a thread is below.
///
/// ```
/// assert!(fastpath_percpu::slots() >= 1);
/// ```
pub fn slots() -> u32 {
    // ORDERING: Relaxed: always the same number, nothing is published with it.
    let known = SLOTS.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let counted = sched::possible_cpus().max(1) as u32;
    // ORDERING: Relaxed: as above.
    SLOTS.store(counted, Ordering::Relaxed);
    counted
}

/// Where a thread goes whose section said "not registered", or that has no sections at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// It is registered now: run the section again.
    Retry,
    /// Full atomics on this slot.
    Atomic(u32),
}

/// Decides where a thread goes that cannot run sections at this moment.
#[cold]
#[inline(never)]
pub(crate) fn route() -> Route {
    // The exits of sections without a result leave their descriptor armed.
    kernel::disarm();
    match backend() {
        Backend::Locked => Route::Atomic(hint()),
        Backend::Rseq { .. } if is_registered() => Route::Retry,
        Backend::Rseq { .. } => Route::Atomic(slots()),
    }
}

/// Can the calling thread run sections? With own areas, registers it if it was not yet.
///
/// Nobody needs to call this: a thread registers itself when an operation needs it. For information, and for sections of
/// one's own.
///
/// ```
/// println!("{}", fastpath_percpu::is_registered());
/// ```
pub fn is_registered() -> bool {
    match backend() {
        Backend::Locked => false,
        Backend::Rseq { owner, .. } => kernel::cpu_id() >= 0 || (owner == Owner::Own && register_thread()),
    }
}

/// A slot near this thread, for full atomics: never a promise.
#[inline]
pub(crate) fn hint() -> u32 {
    sched::current_cpu() as u32 % slots()
}

/// A number that no other live thread has: for locks that know their owner.
#[inline]
pub(crate) fn token() -> u64 {
    kernel::thread_pointer().addr() as u64
}

/// The slot the calling thread is on, or the outsider slot: a hint, out of date when this returns.
///
/// ```
/// assert!(fastpath_percpu::current_slot() <= fastpath_percpu::slots());
/// ```
#[inline]
pub fn current_slot() -> u32 {
    match backend() {
        Backend::Locked => hint(),
        Backend::Rseq { .. } => kernel::slot_id().unwrap_or_else(slots),
    }
}

/// Registers the calling thread's own area, to be unregistered when the thread exits. False if it cannot be.
///
/// Needed by nobody: a thread registers itself when it first needs to. Repeating it is harmless.
fn register_thread() -> bool {
    let area = kernel::area_at(kernel::own_area_offset());
    // SAFETY: the thread's own area.
    let cpu = unsafe { &(*area).cpu_id };
    // ORDERING: Relaxed: only this thread and the kernel write it. -2 is ours: the thread is exiting.
    match cpu.load(Ordering::Relaxed) as i32 {
        0.. => return true,
        kernel::REGISTRATION_FAILED => return false,
        _ => {}
    }
    // Older kernels read what they find at registration: it must not be the descriptor of a section left by an exit.
    // SAFETY: the thread's own area.
    // ORDERING: Relaxed: only this thread and the kernel read it.
    unsafe { &(*area).rseq_cs }.store(0, Ordering::Relaxed);
    let Some(key) = exit_key() else { return false };
    if !key.arm() {
        return false;
    }
    // SAFETY: thread-local memory that lives until the thread ends, and `unregister_at_exit` comes before that.
    match unsafe { kernel::register(area, kernel::REGISTERED_SIZE) } {
        Ok(()) | Err(kernel::RegisterError::AlreadyRegistered) => true,
        Err(_) => false,
    }
}

/// The key whose destructor unregisters; made once per process.
fn exit_key() -> Option<ExitKey> {
    // ORDERING: Acquire pairs with the Release below: the key is usable.
    let known = EXIT_KEY.load(Ordering::Acquire);
    if known != 0 {
        return Some(ExitKey::from_number((known - 1) as u32));
    }
    let key = ExitKey::new(unregister_at_exit)?;
    // ORDERING: Release pairs with the Acquire above. A loser's key stays unused: keys are few, but this happens at
    // most once per thread that starts in the same instant.
    match EXIT_KEY.compare_exchange(0, u64::from(key.number()) + 1, Ordering::Release, Ordering::Acquire) {
        Ok(_) => Some(key),
        Err(first) => Some(ExitKey::from_number((first - 1) as u32)),
    }
}

/// Runs at the exit of a thread that registered its own area: its stack and thread-local storage may be unmapped
/// before its last return to user mode, and the kernel would still write there.
unsafe extern "C" fn unregister_at_exit(_: *mut core::ffi::c_void) {
    let area = kernel::area_at(kernel::own_area_offset());
    // SAFETY: the area this thread registered.
    let gone = unsafe { kernel::unregister(area, kernel::REGISTERED_SIZE) };
    if gone.is_ok() {
        // Destructors that run later use the outsider slot instead of registering again.
        // SAFETY: unregistered now, so the field is ours.
        // ORDERING: Relaxed: only this thread reads it.
        unsafe { &(*area).cpu_id }.store(kernel::REGISTRATION_FAILED as u32, Ordering::Relaxed);
    }
}

/// Runs `body` with the calling thread unregistered, then registers it again: the safe way to `vfork`.
///
/// A `vfork` child shares its parent's memory, area included, but not its registration: it would read the parent's
/// stale CPU number and run unprotected sections. Inside `body`, and in children it makes, every operation of this
/// crate uses the outsider slot instead. Other users of rseq in this thread (libc's `sched_getcpu`, other libraries)
/// fall back too, or must not run inside.
///
/// With the locked backend it only runs `body`.
///
/// ```
/// let hits = fastpath_percpu::Counter::new().unwrap();
/// fastpath_percpu::without_rseq(|| hits.add(1));
/// assert_eq!(hits.sum(), 1);
/// ```
#[doc(alias = "vfork")]
pub fn without_rseq<R>(body: impl FnOnce() -> R) -> R {
    let Backend::Rseq { owner, .. } = backend() else { return body() };
    if owner == Owner::Own {
        // A thread that has not registered yet must not do so inside.
        register_thread();
    }
    let area = kernel::area_at(kernel::area_offset());
    // glibc before 2.40 registers 32 bytes and so do we; newer ones register what they publish.
    let length = match kernel::libc() {
        kernel::Libc::Registers { published_size, .. } => published_size.max(kernel::REGISTERED_SIZE),
        _ => kernel::REGISTERED_SIZE,
    };
    // SAFETY: for the time of `body` every user in this thread sees a negative cpu_id; it is registered again below.
    let was_registered = unsafe { kernel::unregister(area, length) }.is_ok();
    if owner == Owner::Own && was_registered {
        // Else the first operation inside would register again.
        // SAFETY: the own area, not registered now: its fields are ours.
        // ORDERING: Relaxed: only this thread (and a vfork child in its place) reads it.
        unsafe { &(*area).cpu_id }.store(kernel::REGISTRATION_FAILED as u32, Ordering::Relaxed);
    }
    let again = RegisterAgain { area, length, armed: was_registered };
    let result = body();
    drop(again);
    result
}

/// Registers the area again, also when `body` unwinds.
struct RegisterAgain {
    area: *mut kernel::Area,
    length: u32,
    armed: bool,
}

impl Drop for RegisterAgain {
    fn drop(&mut self) {
        if self.armed {
            // SAFETY: the area that was registered before, of the same thread.
            let _ = unsafe { kernel::register(self.area, self.length) };
        }
    }
}

/// Aborts the sections that other threads are in on slot `slot` (`None`: on any). When it returns, every section that
/// committed has its stores visible here, and every section that starts later sees the caller's earlier stores.
///
/// About 10 µs. Without the membarrier command (Linux before 5.10, sandboxes) it visits the CPUs one by one by
/// affinity, which needs the right to run on them. With the locked backend there are no sections: it is a fence.
///
/// # Errors
///
/// The kernel's, when neither way is permitted.
///
/// ```
/// fastpath_percpu::fence(None).unwrap();
/// ```
pub fn fence(slot: Option<u32>) -> Result<(), Errno> {
    // ORDERING: SeqCst fence: orders the caller's stores before the look at other CPUs, and with the locked backend
    // is all there is; pairs with the full atomics of the slots.
    core::sync::atomic::fence(Ordering::SeqCst);
    let Backend::Rseq { ids, .. } = backend() else { return Ok(()) };
    let done = match slot {
        // A concurrency id moves between CPUs: only fencing all of them is sound.
        Some(cpu) if ids == Ids::Cpu => membarrier::rseq_cpu(cpu),
        _ => membarrier::rseq_all(),
    };
    match done {
        Ok(()) => Ok(()),
        // A forked child or an early start-up without registration: register and try again.
        Err(Errno::PERM) if membarrier::register_rseq().is_ok() => membarrier::rseq_all(),
        Err(_) => visit_cpus(),
    }
}

/// The slow fence: once this thread has run on a CPU, no other thread is in the section it was in there before.
fn visit_cpus() -> Result<(), Errno> {
    let allowed = sched::affinity()?;
    let mut result = Ok(());
    for cpu in 0..slots().min(sched::CpuSet::MAX_CPU as u32) {
        match sched::pin_to(cpu) {
            // INVAL: not online, or not for this process: then no thread of it runs there.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(errno) => result = Err(errno),
        }
    }
    sched::set_affinity(&allowed)?;
    result
}
