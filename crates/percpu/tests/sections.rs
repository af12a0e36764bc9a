// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The sections themselves: exact aborts by fences, the descriptors of this very program, and a wrong signature.
#![cfg(target_arch = "x86_64")]
#![expect(unsafe_code, reason = "critical sections are assembly")]

mod support;

use std::arch::asm;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fastpath_percpu::{Counter, Stack};
use fastpath_sys::rseq::{self as kernel, CriticalSection, SIGNATURE};
use fastpath_sys::sched::{self, Policy};
use fastpath_sys::{Errno, membarrier};

extern "C" fn nothing(_: libc::c_int) {}

fn runs_sections() -> bool {
    fastpath_percpu::is_registered()
}

/// Stays inside a section until `stop`; every abort is counted and the section entered again. `entered` follows:
/// it equals the number of aborts while the thread is inside.
fn stay_inside(stop: &AtomicBool, entered: &AtomicU64, aborts: &AtomicU64) {
    // SAFETY: a section in the shape the kernel wants; its only stores are to `entered`, harmless to repeat.
    unsafe {
        asm!(
            "jmp 33f",
            "34:",
            "inc qword ptr [{aborts}]",
            "33:",
            "mov {n}, [{aborts}]",
            "lea {t}, [rip + 35f]",
            "mov qword ptr fs:[{area} + 8], {t}",
            "31:",
            "mov [{entered}], {n}",
            "41:",
            "pause",
            "cmp byte ptr [{stop}], 0",
            "je 41b",
            "32:",
            "mov qword ptr fs:[{area} + 8], 0",
            ".pushsection __rseq_cs, \"aw\", @progbits",
            ".balign 32",
            "35:",
            ".long 0, 0",
            ".quad 31b, 32b - 31b, 36f",
            ".popsection",
            ".pushsection .text.test_abort, \"ax\", @progbits",
            ".byte 0x0f, 0xb9, 0x3d",
            ".long 0x53053053",
            "36:",
            "jmp 34b",
            ".popsection",
            t = out(reg) _,
            n = out(reg) _,
            area = in(reg) kernel::area_offset(),
            stop = in(reg) stop.as_ptr(),
            entered = in(reg) entered.as_ptr(),
            aborts = in(reg) aborts.as_ptr(),
            options(nostack),
        );
    }
}

/// Held by tests that fence, and by the one that counts fences.
static FENCES: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Lets the thread inside go, also when an assertion fails: a scope waits for its threads.
struct Finish<'a>(&'a AtomicBool);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn each_fence_aborts_exactly_once() {
    let cpus = support::allowed_cpus();
    if !runs_sections() || !membarrier::has_rseq() || cpus.len() < 2 {
        fastpath_testkit::skip("exact-fences", "needs rseq, its fences and two CPUs");
        return;
    }
    let _alone = FENCES.lock();
    let (inside, outside) = (cpus[1], cpus[0]);
    let (stop, entered, aborts) = (AtomicBool::new(false), AtomicU64::new(u64::MAX), AtomicU64::new(0));
    // A real-time thread alone on its CPU is not preempted: then every abort is a fence's. Else there may be more.
    let exact = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(fastpath_percpu::is_registered());
            sched::pin_to(inside).unwrap();
            exact.store(sched::set_policy(0, Policy::Fifo(10)).is_ok(), Ordering::Relaxed);
            stay_inside(&stop, &entered, &aborts);
        });
        sched::pin_to(outside).unwrap();
        let inside_again = |aborted: u64| {
            // The abort handler runs some time after the fence has returned. Without a limit it would hang if the fence
            // aborted nothing; the limit is only reached then.
            let limit = std::time::Instant::now() + std::time::Duration::from_secs(30);
            while aborts.load(Ordering::Relaxed) < aborted
                || entered.load(Ordering::Relaxed) != aborts.load(Ordering::Relaxed)
            {
                assert!(std::time::Instant::now() < limit, "not aborted, or not entered again");
                std::thread::yield_now();
            }
        };
        let aborted_by = |fence: &dyn Fn() -> Result<(), Errno>, each: u64| {
            inside_again(0);
            let before = aborts.load(Ordering::Relaxed);
            for _ in 0..50 {
                let now = aborts.load(Ordering::Relaxed);
                fence().unwrap();
                inside_again(now + each);
            }
            aborts.load(Ordering::Relaxed) - before
        };
        let finish = Finish(&stop);
        let all = aborted_by(&membarrier::rseq_all, 1);
        let right = aborted_by(&|| membarrier::rseq_cpu(inside), 1);
        let wrong = aborted_by(&|| membarrier::rseq_cpu(outside), 0);
        membarrier::register_expedited().unwrap();
        let plain = aborted_by(&membarrier::expedited, 0);
        drop(finish);
        println!("all {all}, right CPU {right}, wrong CPU {wrong}, plain {plain}, exact {exact:?}");
        if exact.load(Ordering::Relaxed) {
            // Real-time throttling may stop the thread once in a while on a machine that is short of time.
            assert!((50..60).contains(&all) && (50..60).contains(&right) && wrong < 10 && plain < 10);
        } else {
            assert!(all >= 50 && right >= 50);
        }
    });
    fastpath_testkit::case("R3", support::backend());
}

/// The descriptors of section `__rseq_cs` of this program, as they are in memory (relocated).
fn descriptors() -> Vec<CriticalSection> {
    unsafe extern "C" {
        #[link_name = "__start___rseq_cs"]
        static START: CriticalSection;
        #[link_name = "__stop___rseq_cs"]
        static STOP: CriticalSection;
    }
    // SAFETY: the linker defines both symbols around the section, which holds descriptors only.
    unsafe {
        let (start, stop) = (&raw const START, &raw const STOP);
        std::slice::from_raw_parts(start, stop.offset_from_unsigned(start)).to_vec()
    }
}

#[test]
fn every_descriptor_of_this_program_is_well_formed() {
    // Use a few, so that they are linked in.
    let counter = Counter::new().unwrap();
    counter.add(std::hint::black_box(1));
    counter.sub(std::hint::black_box(1));
    let stack = Stack::<Box<u8>, 2>::new().unwrap();
    let _ = stack.push(Box::new(1));
    drop(stack.pop());
    let found = descriptors();
    assert!(found.len() > 4, "{}", found.len());
    for section in &found {
        assert_eq!((section.version, section.flags), (0, 0));
        assert!(section.post_commit_offset > 0, "{section:x?}");
        let range = section.start_ip..section.start_ip + section.post_commit_offset;
        assert!(!range.contains(&section.abort_ip), "{section:x?}");
        let before = core::ptr::with_exposed_provenance::<u32>(section.abort_ip as usize - 4);
        // SAFETY: code of this program is readable.
        assert_eq!(unsafe { before.read_unaligned() }, SIGNATURE, "{section:x?}");
    }
    println!("SECTIONS {}", found.len());
    fastpath_testkit::case("R15", support::backend());
}

/// A section whose abort handler has no signature before it, left running until a signal aborts it.
fn run_without_signature() -> ! {
    // SAFETY: in a child process that is expected to be killed.
    unsafe {
        asm!(
            "lea {t}, [rip + 35f]",
            "mov qword ptr fs:[{area} + 8], {t}",
            "31:",
            "pause",
            "jmp 31b",
            "nop",
            "32:",
            ".pushsection .data.wrong_signature, \"aw\", @progbits",
            ".balign 32",
            "35:",
            ".long 0, 0",
            ".quad 31b, 32b - 31b, 34f",
            ".popsection",
            ".pushsection .text.test_abort, \"ax\", @progbits",
            ".long 0",
            "34:",
            "ud2",
            ".popsection",
            t = in(reg) 0_u64,
            area = in(reg) kernel::area_offset(),
            options(noreturn),
        );
    }
}

#[test]
fn a_wrong_signature_is_fatal() {
    if !runs_sections() {
        fastpath_testkit::skip("wrong-signature", "needs rseq");
        return;
    }
    // SAFETY: the child waits in its section for the signal and is killed there; a fork of a test program that only
    // makes system calls.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            // Core dumps help nobody here.
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
            libc::signal(libc::SIGALRM, nothing as *const () as usize);
            let tick = libc::timeval { tv_sec: 0, tv_usec: 1000 };
            let timer = libc::itimerval { it_interval: tick, it_value: tick };
            libc::setitimer(libc::ITIMER_REAL, &raw const timer, core::ptr::null_mut());
            run_without_signature();
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV, "status {status:#x}");
    }
}

#[test]
fn the_self_test_sees_aborts() {
    let _alone = FENCES.lock();
    if runs_sections() && membarrier::has_rseq() {
        for _ in 0..20 {
            assert_eq!(
                fastpath_percpu::self_test::abort_happens(),
                fastpath_percpu::self_test::Verdict::Aborts
            );
        }
    }
}
