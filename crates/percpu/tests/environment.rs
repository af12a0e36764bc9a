// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Start-up in every environment: which backend is chosen, and that the same code then counts exactly.
#![expect(unsafe_code, reason = "installs a system call filter, forks, and clones as vfork does")]

mod support;

use std::os::unix::process::CommandExt as _;
use std::sync::atomic::{AtomicU32, Ordering};

use fastpath_percpu::self_test::Verdict;
use fastpath_percpu::{Backend, Counter, Ids, Lazy, List, Node, Owner, RingBuffer, Stack, slots};
use fastpath_sys::rseq::{self as kernel, Libc};
use support::{allowed_cpus, backend, in_changed_process, in_environment, migrate};

/// A little of everything, from several threads: exact whatever the backend.
fn everything_works() {
    let counter = Counter::new().unwrap();
    let stack = Stack::<Box<usize>, 8>::new().unwrap();
    let list = List::<usize>::new().unwrap();
    let ring = RingBuffer::<256>::new().unwrap();
    let (threads, each) = (4, 2000);
    let kept: usize = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (counter, stack, list, ring) = (&counter, &stack, &list, &ring);
                scope.spawn(move || {
                    let mut kept = 0;
                    for round in 0..each {
                        counter.add(1);
                        list.push(Node::new(round));
                        if let Some(node) = list.pop() {
                            kept += usize::from(stack.push(Box::new(*node.get())).is_ok());
                        }
                        kept -= usize::from(stack.pop().is_some());
                        let _ = ring.push(&round.to_le_bytes());
                        if round % 500 == 0 {
                            migrate(round / 500 + thread);
                        }
                    }
                    kept as isize
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum::<isize>() as usize
    });
    assert_eq!(counter.sum(), (threads * each) as i64);
    assert_eq!(stack.drain(drop).unwrap(), kept);
    ring.read_all(|_, record| assert_eq!(record.len(), 8));
}

#[test]
fn by_default_the_registered_threads_run_sections() {
    if !in_environment("by_default_the_registered_threads_run_sections", &[]) {
        return;
    }
    let chosen = fastpath_percpu::backend();
    match kernel::libc() {
        Libc::Registers { .. } if kernel::supported() || kernel::cpu_id() >= 0 => {
            assert!(matches!(chosen, Backend::Rseq { owner: Owner::Libc, .. }), "{chosen:?}");
            assert_ne!(fastpath_percpu::start_up_verdict(), Some(Verdict::NoAbort));
        }
        other => println!("{other:?}: {chosen:?}"),
    }
    everything_works();
}

#[test]
fn concurrency_ids_are_dense() {
    let name = "concurrency_ids_are_dense";
    if !in_environment(name, &[("FASTPATH_PERCPU_IDS", "mm_cid")]) {
        return;
    }
    let Backend::Rseq { ids: Ids::MmCid, .. } = fastpath_percpu::backend() else {
        fastpath_testkit::skip("mm_cid", "the kernel has no concurrency ids, or rseq is off");
        return;
    };
    let cpus = allowed_cpus();
    let largest = |threads: usize, pinned: bool| {
        let largest = AtomicU32::new(0);
        let counter = Counter::new().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    if pinned {
                        fastpath_sys::sched::pin_to(allowed_cpus()[0]).unwrap();
                    }
                    for _ in 0..20_000 {
                        largest.fetch_max(fastpath_percpu::current_slot(), Ordering::Relaxed);
                        counter.add(1);
                    }
                });
            }
        });
        assert_eq!(counter.sum(), 20_000 * threads as i64);
        // What was counted where: only slots below the bound were touched.
        let bound = threads.min(cpus.len()) as u32 + 2;
        for (slot, word) in counter.slots().iter() {
            assert!(word.load() == 0 || slot <= bound, "slot {slot} of at most {bound}");
        }
        largest.into_inner()
    };
    // The test harness has threads of its own, which may hold an id while they sleep in a futex: hence the slack above
    // the bound of min(threads, CPUs) - 1, which is exact in the kernel.
    let free = largest(6, false);
    assert!(free < 6.min(cpus.len() as u32), "{free} with 6 threads on {} CPUs", cpus.len());
    for slot in 0..slots().min(4) {
        let counter = Counter::new().unwrap();
        assert!(counter.slots().per_cpu(slot).is_none(), "a concurrency id is no CPU");
    }
    everything_works();
    fastpath_testkit::case("R2", backend());
}

#[test]
fn with_libc_registration_off_the_locked_backend_is_chosen() {
    let name = "with_libc_registration_off_the_locked_backend_is_chosen";
    if !in_environment(name, &[("GLIBC_TUNABLES", "glibc.pthread.rseq=0")]) {
        return;
    }
    if kernel::libc() == Libc::Declined {
        assert_eq!(fastpath_percpu::backend(), Backend::Locked);
    }
    everything_works();
    fastpath_testkit::case("R5", backend());
}

static HITS: Lazy<Counter> = Lazy::new();

/// Counts when its thread's destructors run.
struct Late;

impl Drop for Late {
    fn drop(&mut self) {
        HITS.add(1);
    }
}

std::thread_local! {
    static LATE: Late = const { Late };
}

#[test]
fn with_libc_registration_off_own_areas_can_be_asked_for() {
    let name = "with_libc_registration_off_own_areas_can_be_asked_for";
    if !in_environment(name, &[("GLIBC_TUNABLES", "glibc.pthread.rseq=0"), ("FASTPATH_PERCPU", "own")]) {
        return;
    }
    if kernel::libc() != Libc::Declined || !kernel::supported() {
        fastpath_testkit::skip("own-registration", "libc has no tunable, or the kernel no rseq");
        return;
    }
    assert!(matches!(fastpath_percpu::backend(), Backend::Rseq { owner: Owner::Own, .. }));
    everything_works();
    // Short threads, each with a registration of its own that ends before its stack is unmapped.
    for _ in 0..100 {
        let threads: Vec<_> = (0..20).map(|_| std::thread::spawn(|| HITS.add(1))).collect();
        for thread in threads {
            thread.join().unwrap();
        }
    }
    assert_eq!(HITS.sum(), 2000);
    assert_eq!(HITS.slots().per_slot(slots()).load(), 0, "all of them registered");
    // A destructor that runs after the registration has ended counts on the outsider slot.
    std::thread::spawn(|| {
        LATE.with(|_| ());
        HITS.add(1);
    })
    .join()
    .unwrap();
    assert_eq!(HITS.sum(), 2002);
    fastpath_testkit::case("R5", backend());
}

/// `seccomp` program: rseq gives ENOSYS, everything else is allowed.
fn hide_rseq() -> std::io::Result<()> {
    const LOAD_NUMBER: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
    const JUMP_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    let statement = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        statement(LOAD_NUMBER, 0, 0, 0),
        statement(JUMP_EQUAL, 0, 1, libc::SYS_rseq as u32),
        statement(RETURN, 0, 0, 0x0005_0000 | libc::ENOSYS as u32),
        statement(RETURN, 0, 0, 0x7fff_0000),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: two prctl calls of a freshly forked child; the program is read during the call.
    unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0
        {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

#[test]
fn behind_a_filter_that_hides_rseq_the_locked_backend_is_chosen() {
    let name = "behind_a_filter_that_hides_rseq_the_locked_backend_is_chosen";
    let child = in_changed_process(name, |command| {
        // SAFETY: the closure makes two system calls.
        unsafe { command.pre_exec(hide_rseq) };
    });
    if !child {
        return;
    }
    assert!(!kernel::supported());
    assert_eq!(fastpath_percpu::backend(), Backend::Locked);
    everything_works();
    fastpath_testkit::case("R6", "locked-seccomp");
}

#[test]
fn the_locked_backend_can_be_asked_for() {
    let name = "the_locked_backend_can_be_asked_for";
    if !in_environment(name, &[("FASTPATH_PERCPU", "locked")]) {
        return;
    }
    assert_eq!(fastpath_percpu::backend(), Backend::Locked);
    everything_works();
    assert_eq!(fastpath_percpu::aborts(), 0);
}

static FORKED: Lazy<Counter> = Lazy::new();

/// Runs `body` in a forked child: whether it succeeded.
fn in_a_fork(body: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child only uses this crate's operations and ends by `_exit`; nobody holds a lock that it needs.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            libc::_exit(i32::from(!body()));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    }
}

#[test]
fn a_forked_child_goes_on_counting_for_itself() {
    FORKED.add(5);
    let before = FORKED.sum();
    assert!(in_a_fork(|| {
        (0..100_000).for_each(|_| FORKED.add(1));
        FORKED.sum() == before + 100_000 && FORKED.sum_fenced() == Ok(before + 100_000)
    }));
    assert_eq!(FORKED.sum(), before, "the parent is unaffected");
    // New objects, a stopped slot and a drained list in the child.
    assert!(in_a_fork(|| {
        let Ok(stack) = Stack::<&'static u8, 4>::new() else { return false };
        stack.push(&7).is_ok() && stack.drain(drop) == Ok(1)
    }));
    fastpath_testkit::case("R10", backend());
}

static SHARED: Lazy<Counter> = Lazy::new();

/// Counts like a child of `vfork` that breaks its rules: in the parent's memory, with its own registration.
extern "C" fn count_in_shared_memory(_: *mut libc::c_void) -> libc::c_int {
    for _ in 0..1000 {
        SHARED.add(1);
    }
    0
}

fn vfork_like() {
    let mut stack = vec![0_u8; 256 * 1024];
    // SAFETY: the parent sleeps until the child is gone (CLONE_VFORK), the stack is large enough, and the child only
    // counts.
    unsafe {
        let top = stack.as_mut_ptr().add(stack.len() - 64);
        let top = top.wrapping_sub(top.addr() % 64);
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let child = libc::clone(count_in_shared_memory, top.cast(), flags, core::ptr::null_mut());
        assert!(child > 0);
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(status, 0);
    }
}

#[test]
fn a_vfork_child_uses_the_outsider_slot() {
    std::thread::spawn(|| {
        SHARED.add(0);
        let outside = || SHARED.slots().per_slot(slots()).load();
        let before = outside();
        fastpath_percpu::without_rseq(|| {
            if backend() != "locked" {
                assert!(kernel::cpu_id() < 0, "unregistered inside");
            }
            vfork_like();
        });
        if backend() != "locked" {
            assert_eq!(outside(), before + 1000, "full atomics on the slot that belongs to them");
            assert!(kernel::cpu_id() >= 0, "registered again");
        }
        SHARED.add(1);
    })
    .join()
    .unwrap();
    fastpath_testkit::case("R10", backend());
}

#[test]
fn an_unregistered_thread_of_an_rseq_process_is_an_outsider() {
    std::thread::spawn(|| {
        let counter = Counter::new().unwrap();
        let stack = Stack::<Box<u32>, 8>::new().unwrap();
        let list = List::<u32>::new().unwrap();
        let ring = RingBuffer::<64>::new().unwrap();
        fastpath_percpu::without_rseq(|| {
            counter.add(3);
            counter.sub(1);
            stack.push(Box::new(1)).unwrap();
            list.push(Node::new(2));
            ring.push(b"three").unwrap();
            assert_eq!(*stack.pop().unwrap(), 1);
            let mut batch = [Some(Box::new(5)), Some(Box::new(6))];
            assert_eq!(stack.push_batch(&mut batch), 2);
            assert_eq!(stack.pop_batch(&mut batch), 2);
            assert_eq!(batch.map(|value| *value.unwrap()), [5, 6]);
            list.push(Node::new(3));
            assert_eq!(*list.pop().unwrap().get(), 3);
            assert_eq!(list.pop_all().count(), 1);
            if backend() != "locked" {
                assert_eq!(fastpath_percpu::current_slot(), slots());
            }
        });
        assert_eq!(counter.sum(), 2);
        assert_eq!(ring.read_all(|_, record| assert_eq!(record, b"three")), 1);
    })
    .join()
    .unwrap();
}
