// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Cortex-M0 (ARMv6-M) of the micro:bit: no compare-and-exchange, so `Native` is `generic` with PRIMASK; 16 KiB of
//! memory, and that is the smallest machine the crates are meant for.
#![no_std]
#![no_main]

use core::arch::{asm, global_asm};
use fastpath_cmpxchg::interrupt::Interrupts;
use kernel_harness::Machine;

// The vectors: stack, reset, 14 system exceptions, then the 32 interrupts of the nRF51, of which TIMER0 is number 8.
global_asm!(
    ".section .vectors, \"a\"",
    ".word stack_top",
    ".word kernel_reset",
    ".rept 14",
    ".word kernel_broken",
    ".endr",
    ".rept 8",
    ".word kernel_broken",
    ".endr",
    ".word kernel_irq",
    ".rept 23",
    ".word kernel_broken",
    ".endr",
    ".section .text.kernel_reset, \"ax\"",
    ".thumb_func",
    ".global kernel_reset",
    "kernel_reset:",
    "    ldr r0, =data_start",
    "    ldr r1, =data_end",
    "    ldr r2, =data_load",
    "1:  cmp r0, r1",
    "    bhs 2f",
    "    ldm r2!, {{r3}}",
    "    stm r0!, {{r3}}",
    "    b 1b",
    "2:  ldr r0, =bss_start",
    "    ldr r1, =bss_end",
    "    movs r2, #0",
    "3:  cmp r0, r1",
    "    bhs 4f",
    "    stm r0!, {{r2}}",
    "    b 3b",
    "4:  cpsid i",
    "    bl kernel_main",
    ".balign 4",
    ".ltorg",
);

/// TIMER0 of the nRF51, and the interrupt controller of the M profile.
const TIMER: usize = 0x4000_8000;
const INTERRUPT_ENABLE: usize = 0xe000_e100;
const TIMER_INTERRUPT: u32 = 1 << 8;

/// Writes a device register.
fn write_register(address: usize, value: u32) {
    // SAFETY: the callers name registers of this chip's devices, which are not memory of the program.
    unsafe { core::ptr::with_exposed_provenance_mut::<u32>(address).write_volatile(value) };
}

/// A semihosting call: the emulator does what `operation` says.
fn semihosting(operation: usize, argument: usize) {
    // SAFETY: the operations used here only read the argument's memory. The return value comes in r0.
    unsafe { asm!("bkpt #0xab", inout("r0") operation => _, in("r1") argument, options(nostack)) };
}

struct Microbit;

impl Machine for Microbit {
    const NAME: &'static str = "armv6m microbit";
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
        write_register(TIMER + 0x504, 0); // timer, not counter
        write_register(TIMER + 0x508, 3); // 32 bits
        write_register(TIMER + 0x510, 4); // 16 MHz / 2^4: microseconds
        write_register(TIMER + 0x540, 100);
        write_register(TIMER + 0x200, 1); // start again at the compare
        write_register(TIMER + 0x304, 1 << 16); // interrupt at the compare
        write_register(TIMER + 0x00c, 1); // clear
        write_register(TIMER, 1); // start
        write_register(INTERRUPT_ENABLE, TIMER_INTERRUPT);
        // SAFETY: the vector is set up.
        unsafe { asm!("cpsie i", options(nostack)) };
    }

    fn stop_timer() {
        // SAFETY: masks interrupts.
        unsafe { asm!("cpsid i", options(nostack)) };
        write_register(TIMER + 4, 1); // stop
        write_register(TIMER + 0x140, 0);
        write_register(INTERRUPT_ENABLE + 0x80, TIMER_INTERRUPT);
        write_register(INTERRUPT_ENABLE + 0x180, TIMER_INTERRUPT); // nothing pending
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
    kernel_harness::run::<Microbit>()
}

#[unsafe(no_mangle)]
extern "C" fn kernel_irq() {
    write_register(TIMER + 0x140, 0);
    kernel_harness::tick();
}

#[unsafe(no_mangle)]
extern "C" fn kernel_broken() -> ! {
    panic!("an exception")
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    kernel_harness::fail::<Microbit>(info)
}
