// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! ARM926 (ARMv5TE) on the Versatile board: no compare-and-exchange at all, so `Native` is `generic` with the
//! processor's own interrupt flag. The core family of the seeds' imx28.
#![no_std]
#![no_main]

use core::arch::{asm, global_asm};
use fastpath_cmpxchg::interrupt::Interrupts;
use kernel_harness::Machine;

// Entry in supervisor mode with interrupts off. The vectors are copied to address 0, where this core looks for them.
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
    "    mov r1, #0",
    "    mov r2, #16",
    "2:  ldr r3, [r0], #4",
    "    str r3, [r1], #4",
    "    subs r2, r2, #1",
    "    bne 2b",
    "    bl kernel_main",
    "3:  b 3b",
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

/// The board's dual timer (SP804) and interrupt controller (PL190).
const TIMER: usize = 0x101e_2000;
const CONTROLLER: usize = 0x1014_0000;
const TIMER_INTERRUPT: u32 = 1 << 4;

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

struct Versatile;

impl Machine for Versatile {
    const NAME: &'static str = "armv5 versatilepb";
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
        write_register(TIMER, 100); // microseconds
        write_register(TIMER + 8, 0xe2); // on, periodic, interrupting, 32 bits
        write_register(CONTROLLER + 0x10, TIMER_INTERRUPT);
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
        write_register(TIMER + 8, 0);
        write_register(TIMER + 0xc, 0);
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
    kernel_harness::run::<Versatile>()
}

#[unsafe(no_mangle)]
extern "C" fn kernel_irq() {
    write_register(TIMER + 0xc, 0);
    kernel_harness::tick();
}

#[unsafe(no_mangle)]
extern "C" fn kernel_broken() -> ! {
    panic!("an exception")
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    kernel_harness::fail::<Versatile>(info)
}
