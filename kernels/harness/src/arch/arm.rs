// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! 32-bit ARM (classic and A profile): what all boards share. From reset to `kernel_main`, the interrupt entry, the
//! switch, interrupts on and off, and the emulator's semihosting as console and exit.
//!
//! A board's linker script names its stacks and says by `place_vectors = vectors_to_zero;` or `= vectors_stay;` where its
//! core looks for vectors; its code has `kernel_main`, `kernel_irq` and `kernel_broken`.

use core::arch::{asm, global_asm};

/// Ends what an interrupted `ldrex` began: without it the `strex` after it could succeed though another task's code ran
/// in between. Stores the word at the stack pointer where it already is.
#[cfg(target_has_atomic = "32")]
macro_rules! end_exclusive {
    () => {
        "    ldr r2, [sp]\n    strex r3, r2, [sp]"
    };
}
/// No exclusive accesses here.
#[cfg(not(target_has_atomic = "32"))]
macro_rules! end_exclusive {
    () => {
        ""
    };
}

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
    "    bl place_vectors",
    "    bl kernel_main",
    "2:  b 2b",
    ".global vectors_to_zero",
    "vectors_to_zero:", // instructions and the addresses they load
    "    mov r1, #0",
    "    mov r2, #16",
    "3:  ldr r3, [r0], #4",
    "    str r3, [r1], #4",
    "    subs r2, r2, #1",
    "    bne 3b",
    "    bx lr",
    ".global vectors_stay",
    "vectors_stay:",
    "    mcr p15, 0, r0, c12, c0, 0", // the vectors' address
    "    mrc p15, 0, r0, c1, c0, 0",
    "    bic r0, r0, #0x2000", // not the high vectors
    "    mcr p15, 0, r0, c1, c0, 0",
    "    bx lr",
    ".balign 32",
    "vectors:",
    ".rept 8",
    "    ldr pc, [pc, #24]",
    ".endr",
    "    .word broken, broken, broken, broken, broken, broken, irq_entry, broken",
    // The frame lies on the interrupted task's own stack, so that it can go on after others: status, r4, r0 to r3, r12, lr,
    // pc. The interrupt mode's stack is only a place for three words on the way.
    "irq_entry:",
    "    sub lr, lr, #4",
    "    stmdb sp, {{r0, r1, lr}}",
    "    sub r0, sp, #12",
    "    mrs r1, spsr",
    "    msr cpsr_c, #0xd3",
    "    sub sp, sp, #36",
    "    str r1, [sp]",
    "    str r4, [sp, #4]",
    "    str r2, [sp, #16]",
    "    str r3, [sp, #20]",
    "    str r12, [sp, #24]",
    "    str lr, [sp, #28]",
    "    ldr r1, [r0]",
    "    str r1, [sp, #8]",
    "    ldr r1, [r0, #4]",
    "    str r1, [sp, #12]",
    "    ldr r1, [r0, #8]",
    "    str r1, [sp, #32]",
    end_exclusive!(),
    "    mov r4, sp",
    "    bic sp, sp, #7",
    "    bl kernel_irq",
    "    mov sp, r4",
    "    ldr r0, [sp], #4",
    "    ldr r4, [sp], #4",
    "    msr spsr_cxsf, r0",
    "    ldm sp!, {{r0-r3, r12, lr, pc}}^",
    "broken:",
    "    msr cpsr_c, #0xd3",
    "    ldr sp, =stack_top",
    "    bl kernel_broken",
    ".ltorg",
    // r3 only keeps the stack a multiple of 8.
    ".section .text.kernel_switch, \"ax\"",
    ".arm",
    ".global kernel_switch",
    ".type kernel_switch, %function",
    "kernel_switch:",
    "    push {{r3-r11, lr}}",
    "    str sp, [r0]",
    "    mov sp, r1",
    "    pop {{r3-r11, lr}}",
    "    bx lr",
    ".text",
);

/// Words of a frame of `kernel_switch`.
pub(super) const FRAME: usize = 10;
/// Which of them is returned to.
pub(super) const RETURN: usize = 9;

/// A semihosting call: the emulator does what `operation` says.
fn semihosting(operation: usize, argument: usize) {
    // SAFETY: the operations used here only read the argument's memory. The return value comes in r0.
    unsafe {
        asm!("svc #0x123456", inout("r0") operation => _, in("r1") argument, out("lr") _, options(nostack));
    }
}

/// Writes to the emulator's console.
pub fn write(text: &str) {
    for byte in text.bytes() {
        semihosting(0x03, &raw const byte as usize);
    }
}

/// Ends the emulator with status 0 ("application exit") or 1 ("run-time error").
pub fn exit(passed: bool) -> ! {
    semihosting(0x18, if passed { 0x2_0026 } else { 0x2_0023 });
    loop {}
}

/// Interrupts on.
pub fn interrupts_on() {
    // SAFETY: the vectors and the handler's stack are set up.
    unsafe { asm!("mrs {0}, cpsr", "bic {0}, {0}, #0x80", "msr cpsr_c, {0}", out(reg) _, options(nostack)) };
}

/// Interrupts off.
pub fn interrupts_off() {
    // SAFETY: masks interrupts.
    unsafe { asm!("mrs {0}, cpsr", "orr {0}, {0}, #0x80", "msr cpsr_c, {0}", out(reg) _, options(nostack)) };
}
