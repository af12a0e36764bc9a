// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Four RV64GC harts on QEMU's virt machine, in machine mode without firmware. LR/SC and AMO, no wide exchange.
#![no_std]
#![no_main]

use core::arch::{asm, global_asm};
use fastpath_cmpxchg::interrupt::Interrupts;
use fastpath_cmpxchg::{Atomic, Ordering};
use kernel_harness::{AREAS, Machine, PerCpu};

const HARTS: usize = 4;

// Every hart starts here. Hart 0 clears .bss and runs the tests; the others wait for work in `kernel_hart`.
global_asm!(
    ".section .boot, \"ax\"",
    ".global _start",
    "_start:",
    "    csrw mie, zero",
    "    la t0, trap_entry",
    "    csrw mtvec, t0",
    "    csrr a0, mhartid",
    // The per-CPU base: areas of 64 bytes.
    "    slli t0, a0, 6",
    "    la tp, {areas}",
    "    add tp, tp, t0",
    "    la sp, stacks",
    "    addi t0, a0, 1",
    "    slli t0, t0, 16",
    "    add sp, sp, t0",
    "    bnez a0, 2f",
    "    la t0, bss_start",
    "    la t1, bss_end",
    "1:  sd zero, 0(t0)",
    "    addi t0, t0, 8",
    "    bltu t0, t1, 1b",
    "    call kernel_main",
    // The others must not touch .bss before it is cleared: hart 0 wakes them by an interrupt of their own.
    "2:  csrsi mie, 8", // software interrupts, as a wake-up only: MIE of mstatus stays clear
    "3:  wfi",
    "    csrr t0, mip",
    "    andi t0, t0, 8",
    "    beqz t0, 3b",
    "    call kernel_hart",
    ".balign 4",
    "trap_entry:",
    "    addi sp, sp, -144",
    "    sd ra, 0(sp)",
    "    sd t0, 8(sp)",
    "    sd t1, 16(sp)",
    "    sd t2, 24(sp)",
    "    sd t3, 32(sp)",
    "    sd t4, 40(sp)",
    "    sd t5, 48(sp)",
    "    sd t6, 56(sp)",
    "    sd a0, 64(sp)",
    "    sd a1, 72(sp)",
    "    sd a2, 80(sp)",
    "    sd a3, 88(sp)",
    "    sd a4, 96(sp)",
    "    sd a5, 104(sp)",
    "    sd a6, 112(sp)",
    "    sd a7, 120(sp)",
    // Another task may be interrupted before this one goes on.
    "    csrr t0, mepc",
    "    csrr t1, mstatus",
    "    sd t0, 128(sp)",
    "    sd t1, 136(sp)",
    "    csrr a0, mcause",
    "    call kernel_trap",
    "    ld t0, 128(sp)",
    "    ld t1, 136(sp)",
    "    csrw mepc, t0",
    "    csrw mstatus, t1",
    "    ld ra, 0(sp)",
    "    ld t0, 8(sp)",
    "    ld t1, 16(sp)",
    "    ld t2, 24(sp)",
    "    ld t3, 32(sp)",
    "    ld t4, 40(sp)",
    "    ld t5, 48(sp)",
    "    ld t6, 56(sp)",
    "    ld a0, 64(sp)",
    "    ld a1, 72(sp)",
    "    ld a2, 80(sp)",
    "    ld a3, 88(sp)",
    "    ld a4, 96(sp)",
    "    ld a5, 104(sp)",
    "    ld a6, 112(sp)",
    "    ld a7, 120(sp)",
    "    addi sp, sp, 144",
    "    mret",
    areas = sym AREAS,
);

const UART: usize = 0x1000_0000;
const TEST_DEVICE: usize = 0x10_0000;
/// The core-local interruptor: software interrupts, timer compares, time in units of 100 ns.
const CLINT: usize = 0x200_0000;
const TIMER_COMPARE: usize = CLINT + 0x4000;
const TIME: usize = CLINT + 0xbff8;

fn register<T>(address: usize) -> *mut T {
    core::ptr::with_exposed_provenance_mut(address)
}

/// The work of `everywhere`, as a `fn()`; its round number; and how many harts have finished it.
static WORK: Atomic<*const ()> = Atomic::new(core::ptr::null());
static ROUND: Atomic<usize> = Atomic::new(0);
static DONE: Atomic<usize> = Atomic::new(0);

/// This hart's next timer interrupt in 100 microseconds.
fn arm_timer() {
    let compare = TIMER_COMPARE + 8 * Virt::per_cpu().number();
    // SAFETY: registers of the interruptor.
    unsafe { register::<u64>(compare).write_volatile(register::<u64>(TIME).read_volatile() + 1000) };
}

/// Interrupts another hart by software.
fn interrupt(hart: usize) {
    // SAFETY: a register of the interruptor.
    unsafe { register::<u32>(CLINT + 4 * hart).write_volatile(1) };
}

struct Virt;

impl Machine for Virt {
    const NAME: &'static str = "riscv64 virt";
    type Interrupts = Interrupts;

    type Front = kernel_harness::Pinned<Self>;

    fn front() -> Self::Front {
        kernel_harness::pinned()
    }

    fn write(text: &str) {
        for byte in text.bytes() {
            // SAFETY: the transmit register of the serial port, which never makes this emulator wait.
            unsafe { register::<u8>(UART).write_volatile(byte) };
        }
    }

    fn exit(passed: bool) -> ! {
        // SAFETY: the register of the test device that ends the emulator: pass, or fail with status 1.
        unsafe { register::<u32>(TEST_DEVICE).write_volatile(if passed { 0x5555 } else { 0x1_3333 }) };
        loop {}
    }

    fn start_timer() {
        arm_timer();
        // SAFETY: timer and software interrupts on in `mie`, all on in `mstatus`; the trap vector is set.
        unsafe { asm!("csrs mie, {}", "csrsi mstatus, 8", in(reg) 1 << 7 | 1 << 3, options(nostack)) };
    }

    fn accept_kicks() {
        // SAFETY: software interrupts on in `mie`, all on in `mstatus`; the trap vector is set.
        unsafe { asm!("csrs mie, {}", "csrsi mstatus, 8", in(reg) 1 << 3, options(nostack)) };
    }

    fn stop_timer() {
        // SAFETY: both off.
        unsafe { asm!("csrci mstatus, 8", "csrc mie, {}", in(reg) 1 << 7, options(nostack)) };
    }

    const TASK_PROCESSORS: usize = HARTS;

    #[inline(always)]
    fn per_cpu() -> &'static PerCpu {
        let area: *const PerCpu;
        // SAFETY: reads a register that holds the same for as long as the hart runs.
        unsafe { asm!("mv {}, tp", out(reg) area, options(nomem, nostack, preserves_flags)) };
        // SAFETY: set at the start to one of `AREAS`.
        unsafe { &*area }
    }

    fn kick(processor: usize) {
        interrupt(processor);
    }

    fn processors() -> usize {
        HARTS
    }

    fn everywhere(work: fn()) {
        // ORDERING: Release (by SeqCst), paired with the Acquire load of the round in `kernel_hart`: the work is there.
        WORK.store(work as *const (), Ordering::Relaxed);
        DONE.store(0, Ordering::Relaxed);
        ROUND.fetch_add(1, Ordering::SeqCst);
        for hart in 1..HARTS {
            // Wakes it the first time.
            interrupt(hart);
        }
        work();
        // ORDERING: Acquire, paired with the Release of each hart's last step: we see what it did.
        while DONE.load(Ordering::Acquire) < HARTS - 1 {
            core::hint::spin_loop();
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn kernel_main() -> ! {
    kernel_harness::run::<Virt>()
}

/// The life of the other harts: wait for a round, do its work, say so.
#[unsafe(no_mangle)]
extern "C" fn kernel_hart() -> ! {
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
extern "C" fn kernel_trap(cause: usize) {
    match cause ^ 1 << 63 {
        7 => {
            arm_timer();
            kernel_harness::tick();
        }
        3 => {
            let own = CLINT + 4 * Virt::per_cpu().number();
            // SAFETY: a register of the interruptor: seen.
            unsafe { register::<u32>(own).write_volatile(0) };
            kernel_harness::kicked::<Virt>();
        }
        _ => panic!("trap {cause:#x}"),
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    kernel_harness::fail::<Virt>(info)
}
