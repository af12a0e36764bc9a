// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Four x86-64 processors: LOCK-prefixed full forms, local forms of one instruction without LOCK, `cmpxchg16b`.
//!
//! After the common tests it shows what only this machine can: a non-maskable interrupt between read and write loses an
//! update of `generic`, and none of a one-instruction local form.
#![no_std]
#![no_main]

mod apic;
mod boot;
mod nmi;
mod percpu;

use core::arch::asm;
use fastpath_cmpxchg::interrupt::Interrupts;
use fastpath_cmpxchg::{Atomic, Ordering};
use kernel_harness::{Machine, PerCpu};

const PROCESSORS: usize = 4;

/// The work of `everywhere`, as a `fn()`; its round number; how many processors have finished it; whether they run.
static WORK: Atomic<*const ()> = Atomic::new(core::ptr::null());
static ROUND: Atomic<usize> = Atomic::new(0);
static DONE: Atomic<usize> = Atomic::new(0);
static STARTED: Atomic<bool> = Atomic::new(false);

fn out(port: u16, value: u8) {
    // SAFETY: the callers name ports of the serial line, the old interrupt controllers and the debug exit, which do not touch memory.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack, preserves_flags)) };
}

/// The machine.
pub struct Pc;

impl Machine for Pc {
    const NAME: &'static str = "x86_64 pc";
    type Interrupts = Interrupts;
    type Front = percpu::Gs;

    fn front() -> percpu::Gs {
        percpu::Gs::new()
    }

    fn write(text: &str) {
        for byte in text.bytes() {
            out(0x3f8, byte);
        }
    }

    fn exit(passed: bool) -> ! {
        // The emulator's status is twice this and one more.
        out(0xf4, if passed { 0x10 } else { 0x00 });
        loop {}
    }

    fn afterwards() {
        nmi::extra::<Self>();
    }

    fn start_timer() {
        apic::start_timer();
        // SAFETY: the descriptor table is loaded.
        unsafe { asm!("sti", options(nostack)) };
    }

    fn stop_timer() {
        // SAFETY: masks interrupts.
        unsafe { asm!("cli", options(nostack)) };
        apic::stop_timer();
    }

    const COUNTS: bool = true;
    const SHORT: &'static str = "qemu-max";
    const ARCH: &'static str = "x86_64";

    fn nanoseconds() -> u64 {
        // SAFETY: reads the time stamp counter, which is the emulator's time.
        unsafe { core::arch::x86_64::_rdtsc() }
    }

    const TASK_PROCESSORS: usize = PROCESSORS;

    #[inline(always)]
    fn per_cpu() -> &'static PerCpu {
        percpu::area()
    }

    fn accept_kicks() {
        // SAFETY: the descriptor table is loaded.
        unsafe { asm!("sti", options(nostack)) };
    }

    fn kick(processor: usize) {
        apic::kick(processor);
    }

    fn processors() -> usize {
        PROCESSORS
    }

    fn everywhere(work: fn()) {
        // ORDERING: SeqCst, whose Release half pairs with the Acquire load of the round in `kernel_entry`.
        WORK.store(work as *const (), Ordering::Relaxed);
        DONE.store(0, Ordering::Relaxed);
        ROUND.fetch_add(1, Ordering::SeqCst);
        if !STARTED.xchg(true, Ordering::SeqCst) {
            apic::start_others();
        }
        work();
        // ORDERING: Acquire, paired with the Release of each processor's last step.
        while DONE.load(Ordering::Acquire) < PROCESSORS - 1 {
            core::hint::spin_loop();
        }
    }
}

/// Every processor arrives here: the first runs the tests, the others wait for work.
#[unsafe(no_mangle)]
extern "C" fn kernel_entry(number: u32) -> ! {
    apic::load_descriptors();
    percpu::set_base(number as usize);
    if number == 0 {
        // The old interrupt controllers stay silent.
        out(0x21, 0xff);
        out(0xa1, 0xff);
        kernel_harness::run::<Pc>()
    }
    let mut round = 0;
    loop {
        // ORDERING: Acquire, paired with the Release in `everywhere`.
        while ROUND.load(Ordering::Acquire) == round {
            core::hint::spin_loop();
        }
        round += 1;
        // SAFETY: `everywhere` stored a `fn()`.
        unsafe { core::mem::transmute::<*const (), fn()>(WORK.load(Ordering::Relaxed))() };
        // ORDERING: Release, paired with the Acquire in `everywhere`.
        DONE.fetch_add(1, Ordering::Release);
    }
}

#[unsafe(no_mangle)]
extern "C" fn kernel_timer() {
    // First: the tick may go on in another task.
    apic::end_of_interrupt();
    kernel_harness::tick();
}

#[unsafe(no_mangle)]
extern "C" fn kernel_kick() {
    apic::end_of_interrupt();
    kernel_harness::kicked::<Pc>();
}

#[unsafe(no_mangle)]
extern "C" fn kernel_broken(first: u64, second: u64) -> ! {
    panic!("an exception: {first:#x} {second:#x}")
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    kernel_harness::fail::<Pc>(info)
}
