// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Cortex-A8 (ARMv7-A) of the Cubieboard, the core of the seeds' am335x: `ldrex`, `ldrexd`, `dmb`. One processor.
#![no_std]
#![no_main]

use core::arch::{asm, global_asm};
use fastpath_cmpxchg::interrupt::Interrupts;
use kernel_harness::Machine;

// Entry in supervisor mode with interrupts off.
global_asm!(
    ".section .boot, \"ax\"",
    ".arm",
    ".global _start",
    "_start:",
    "    msr cpsr_c, #0xd2", // IRQ mode, for its stack
    "    ldr sp, =irq_stack_top",
    "    msr cpsr_c, #0xd3", // supervisor mode, interrupts off
    "    ldr sp, =stack_top",
    "    ldr r0, =bss_start",
    "    ldr r1, =bss_end",
    "    mov r2, #0",
    "1:  cmp r0, r1",
    "    strlo r2, [r0], #4",
    "    blo 1b",
    "    ldr r0, =vectors",
    "    mcr p15, 0, r0, c12, c0, 0", // the vectors' address
    "    mrc p15, 0, r0, c1, c0, 0",
    "    bic r0, r0, #0x2000", // not the high vectors
    "    mcr p15, 0, r0, c1, c0, 0",
    "    bl kernel_main",
    "3:  b 3b",
    ".balign 32",
    "vectors:",
    ".rept 8",
    "    ldr pc, [pc, #24]",
    ".endr",
    "    .word broken, broken, broken, broken, broken, broken, irq_entry, broken",
    "irq_entry:",
    "    sub lr, lr, #4",
    "    push {{r0-r3, r12, lr}}",
    "    bl kernel_irq",
    "    ldm sp!, {{r0-r3, r12, pc}}^",
    "broken:",
    "    ldr sp, =stack_top",
    "    bl kernel_broken",
    ".ltorg",
);

/// The timers and the interrupt controller of the Allwinner A10.
const TIMER: usize = 0x01c2_0c00;
const CONTROLLER: usize = 0x01c2_0400;
/// Timer 0 is source 22.
const TIMER_INTERRUPT: u32 = 1 << 22;

/// Writes a device register.
fn write_register(address: usize, value: u32) {
    // SAFETY: the callers name registers of this board's devices, which are not memory of the program.
    unsafe { core::ptr::with_exposed_provenance_mut::<u32>(address).write_volatile(value) };
}

/// A semihosting call: the emulator does what `operation` says.
fn semihosting(operation: usize, argument: usize) {
    // SAFETY: the operations used here only read the argument's memory. The return value comes in r0.
    unsafe {
        asm!("svc #0x123456", inout("r0") operation => _, in("r1") argument, out("lr") _, options(nostack))
    };
}

struct Cubieboard;

impl Machine for Cubieboard {
    const NAME: &'static str = "armv7 cubieboard";
    type Interrupts = Interrupts;

    fn write(text: &str) {
        for byte in text.bytes() {
            semihosting(0x03, &raw const byte as usize);
        }
    }

    fn exit(passed: bool) -> ! {
        // "Application exit" is status 0, "run-time error" is 1.
        semihosting(0x18, if passed { 0x2_0026 } else { 0x2_0023 });
        loop {}
    }

    fn start_timer() {
        write_register(TIMER + 0x14, 2400); // 100 microseconds at 24 MHz
        write_register(TIMER, 1); // timer 0 interrupts
        write_register(TIMER + 0x10, 0b0111); // on, reload, 24 MHz
        write_register(CONTROLLER + 0x40, TIMER_INTERRUPT);
        // SAFETY: the vectors and the handler's stack are set up.
        unsafe {
            asm!("mrs {0}, cpsr", "bic {0}, {0}, #0x80", "msr cpsr_c, {0}", out(reg) _, options(nostack))
        };
    }

    fn stop_timer() {
        // SAFETY: masks interrupts.
        unsafe {
            asm!("mrs {0}, cpsr", "orr {0}, {0}, #0x80", "msr cpsr_c, {0}", out(reg) _, options(nostack))
        };
        write_register(TIMER + 0x10, 0);
        write_register(TIMER + 4, 1);
    }

    fn processors() -> usize {
        1
    }

    fn everywhere(work: fn()) {
        work();
    }
}

#[unsafe(no_mangle)]
extern "C" fn kernel_main() -> ! {
    kernel_harness::run::<Cubieboard>()
}

#[unsafe(no_mangle)]
extern "C" fn kernel_irq() {
    write_register(TIMER + 4, 1);
    kernel_harness::tick();
}

#[unsafe(no_mangle)]
extern "C" fn kernel_broken() -> ! {
    panic!("an exception")
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    kernel_harness::fail::<Cubieboard>(info)
}
