// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! ARM1176 (ARMv6K) of the Raspberry Pi Zero: `ldrex` and `ldrexd`. One processor.
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

/// The system timer (it counts microseconds) and the interrupt controller of the BCM2835.
const TIMER: usize = 0x2000_3000;
const TIMER_COMPARE: usize = TIMER + 0x10;
const ENABLE: usize = 0x2000_b210;
const DISABLE: usize = 0x2000_b21c;
/// Compare register 1.
const TIMER_INTERRUPT: u32 = 1 << 1;

/// Writes a device register.
fn write_register(address: usize, value: u32) {
    // SAFETY: the callers name registers of this board's devices, which are not memory of the program.
    unsafe { core::ptr::with_exposed_provenance_mut::<u32>(address).write_volatile(value) };
}

/// The next timer interrupt in 100 microseconds.
fn arm_timer() {
    // SAFETY: the low half of the timer's counter.
    let now = unsafe { core::ptr::with_exposed_provenance::<u32>(TIMER + 4).read_volatile() };
    write_register(TIMER_COMPARE, now.wrapping_add(100));
}

/// A semihosting call: the emulator does what `operation` says.
fn semihosting(operation: usize, argument: usize) {
    // SAFETY: the operations used here only read the argument's memory. The return value comes in r0.
    unsafe {
        asm!("svc #0x123456", inout("r0") operation => _, in("r1") argument, out("lr") _, options(nostack))
    };
}

struct Raspberry;

impl Machine for Raspberry {
    const NAME: &'static str = "armv6 raspi0";
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
        arm_timer();
        write_register(ENABLE, TIMER_INTERRUPT);
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
        write_register(DISABLE, TIMER_INTERRUPT);
        write_register(TIMER, TIMER_INTERRUPT);
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
    kernel_harness::run::<Raspberry>()
}

#[unsafe(no_mangle)]
extern "C" fn kernel_irq() {
    write_register(TIMER, TIMER_INTERRUPT);
    arm_timer();
    kernel_harness::tick();
}

#[unsafe(no_mangle)]
extern "C" fn kernel_broken() -> ! {
    panic!("an exception")
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    kernel_harness::fail::<Raspberry>(info)
}
