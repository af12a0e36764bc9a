// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Four ARMv8 processors on QEMU's virt machine, at EL1. With the target feature `lse` the image uses `cas` and `casp`,
//! without it exclusive pairs.
//!
//! Exclusive accesses need normal cacheable memory, so the first thing is an identity map: two gigabytes, devices in the
//! first, memory in the second.
#![no_std]
#![no_main]

use core::arch::{asm, global_asm};
use fastpath_cmpxchg::interrupt::Interrupts;
use fastpath_cmpxchg::{Atomic, Ordering};
use kernel_harness::{AREAS, Machine, PerCpu};

const PROCESSORS: usize = 4;

global_asm!(
    ".section .boot, \"ax\"",
    ".global _start",
    "_start:",
    "    adrp x0, bss_start",
    "    add x0, x0, :lo12:bss_start",
    "    adrp x1, bss_end",
    "    add x1, x1, :lo12:bss_end",
    "1:  cmp x0, x1",
    "    b.hs 2f",
    "    str xzr, [x0], #8",
    "    b 1b",
    // Level-1 entries of one gigabyte: device memory at 0 (attribute 0), normal memory at 1 GiB (attribute 1).
    "2:  adrp x0, page_table",
    "    mov x1, #0x401", // block, access flag, attribute 0
    "    str x1, [x0]",
    "    mov x1, #0x705", // block, access flag, inner shareable, attribute 1
    "    movk x1, #0x4000, lsl #16",
    "    str x1, [x0, #8]",
    "    mov x1, #510",
    "    add x0, x0, #16",
    "3:  str xzr, [x0], #8",
    "    subs x1, x1, #1",
    "    b.ne 3b",
    "    mov x0, #0",
    "    b processor_start",
    // Secondary processors are started here by PSCI, with their number in x0.
    ".global secondary_start",
    "secondary_start:",
    "processor_start:",
    "    mov x19, x0",
    "    mov x0, #0xff00", // attribute 1: normal, write-back; attribute 0: device
    "    msr mair_el1, x0",
    "    mov x0, #0x3519", // 39-bit addresses, 4 KiB granule, inner shareable, write-back walks
    "    movk x0, #0x0080, lsl #16", // no upper half
    "    msr tcr_el1, x0",
    "    adrp x0, page_table",
    "    msr ttbr0_el1, x0",
    "    adrp x0, vectors",
    "    add x0, x0, :lo12:vectors",
    "    msr vbar_el1, x0",
    "    tlbi vmalle1",
    "    dsb sy",
    "    isb",
    "    mrs x0, sctlr_el1",
    "    mov x1, #0x1005", // translation, data and instruction caches
    "    orr x0, x0, x1",
    "    msr sctlr_el1, x0",
    "    isb",
    "    adrp x0, stacks",
    "    add x0, x0, :lo12:stacks",
    "    add x1, x19, #1",
    "    add x0, x0, x1, lsl #16",
    "    mov sp, x0",
    // The per-CPU base: areas of 64 bytes.
    "    adrp x0, {areas}",
    "    add x0, x0, :lo12:{areas}",
    "    add x0, x0, x19, lsl #6",
    "    msr tpidr_el1, x0",
    "    cbnz x19, 4f",
    "    bl kernel_main",
    "4:  bl kernel_processor",
    ".balign 2048",
    "vectors:",
    ".rept 5", // the four of EL0 stack, and the synchronous one of ours
    "    b broken",
    ".balign 128",
    ".endr",
    "    b irq_entry", // IRQ, own stack
    ".balign 128",
    ".rept 10",
    "    b broken",
    ".balign 128",
    ".endr",
    "broken:",
    "    mrs x0, esr_el1",
    "    mrs x1, elr_el1",
    "    bl kernel_broken",
    "irq_entry:",
    "    sub sp, sp, #192",
    "    stp x0, x1, [sp]",
    "    stp x2, x3, [sp, #16]",
    "    stp x4, x5, [sp, #32]",
    "    stp x6, x7, [sp, #48]",
    "    stp x8, x9, [sp, #64]",
    "    stp x10, x11, [sp, #80]",
    "    stp x12, x13, [sp, #96]",
    "    stp x14, x15, [sp, #112]",
    "    stp x16, x17, [sp, #128]",
    "    stp x18, x29, [sp, #144]",
    "    str x30, [sp, #160]",
    // Another task may be interrupted before this one goes on.
    "    mrs x0, elr_el1",
    "    mrs x1, spsr_el1",
    "    stp x0, x1, [sp, #176]",
    "    bl kernel_irq",
    "    ldp x0, x1, [sp, #176]",
    "    msr elr_el1, x0",
    "    msr spsr_el1, x1",
    "    ldp x0, x1, [sp]",
    "    ldp x2, x3, [sp, #16]",
    "    ldp x4, x5, [sp, #32]",
    "    ldp x6, x7, [sp, #48]",
    "    ldp x8, x9, [sp, #64]",
    "    ldp x10, x11, [sp, #80]",
    "    ldp x12, x13, [sp, #96]",
    "    ldp x14, x15, [sp, #112]",
    "    ldp x16, x17, [sp, #128]",
    "    ldp x18, x29, [sp, #144]",
    "    ldr x30, [sp, #160]",
    "    add sp, sp, #192",
    "    eret",
    areas = sym AREAS,
);

unsafe extern "C" {
    /// Where PSCI starts a processor.
    fn secondary_start();
}

const UART: usize = 0x900_0000;
/// The interrupt controller (GICv2): distributor and processor interface.
const DISTRIBUTOR: usize = 0x800_0000;
const INTERFACE: usize = 0x801_0000;
/// The virtual timer's interrupt.
const TIMER_INTERRUPT: u32 = 27;

fn register<T>(address: usize) -> *mut T {
    core::ptr::with_exposed_provenance_mut(address)
}

static WORK: Atomic<*const ()> = Atomic::new(core::ptr::null());
static ROUND: Atomic<usize> = Atomic::new(0);
static DONE: Atomic<usize> = Atomic::new(0);
static STARTED: Atomic<bool> = Atomic::new(false);

/// The next timer interrupt in 100 microseconds.
fn arm_timer() {
    // SAFETY: the virtual timer's registers.
    unsafe {
        asm!("mrs {0}, cntfrq_el0", "mov {1}, #10000", "udiv {0}, {0}, {1}", "msr cntv_tval_el0, {0}",
            "isb", out(reg) _, out(reg) _, options(nostack));
    }
}

/// Opens this processor's interface, for the timer's interrupt and for software interrupts, which are always on.
fn accept_interrupts() {
    // SAFETY: registers of the interrupt controller.
    unsafe {
        register::<u32>(DISTRIBUTOR).write_volatile(1);
        register::<u32>(DISTRIBUTOR + 0x100).write_volatile(1 << TIMER_INTERRUPT);
        register::<u32>(INTERFACE).write_volatile(1);
        register::<u32>(INTERFACE + 4).write_volatile(0xff);
    }
}

struct Virt;

impl Machine for Virt {
    const NAME: &'static str = "aarch64 virt";
    type Interrupts = Interrupts;

    type Front = kernel_harness::Pinned<Self>;

    fn front() -> Self::Front {
        kernel_harness::pinned()
    }

    fn write(text: &str) {
        for byte in text.bytes() {
            // SAFETY: the data register of the serial port, which never makes this emulator wait.
            unsafe { register::<u32>(UART).write_volatile(u32::from(byte)) };
        }
    }

    fn exit(passed: bool) -> ! {
        let block: [u64; 2] = [0x2_0026, u64::from(!passed)];
        // SAFETY: semihosting's exit with a status; it reads the block.
        unsafe { asm!("hlt #0xf000", in("x0") 0x18, in("x1") block.as_ptr(), options(nostack)) };
        loop {}
    }

    fn start_timer() {
        accept_interrupts();
        // SAFETY: the timer's registers; the vectors are set.
        unsafe {
            arm_timer();
            asm!("msr cntv_ctl_el0, {}", "isb", "msr daifclr, #2", in(reg) 1_u64, options(nostack));
        }
    }

    fn stop_timer() {
        // SAFETY: interrupts masked, the timer off.
        unsafe { asm!("msr daifset, #2", "msr cntv_ctl_el0, xzr", "isb", options(nostack)) };
    }

    const TASK_PROCESSORS: usize = PROCESSORS;

    #[inline(always)]
    fn per_cpu() -> &'static PerCpu {
        let area: *const PerCpu;
        // SAFETY: reads a register that holds the same for as long as the processor runs. No `pure`: after a switch it is read
        // again.
        unsafe { asm!("mrs {}, tpidr_el1", out(reg) area, options(nomem, nostack, preserves_flags)) };
        // SAFETY: set at the start to one of `AREAS`.
        unsafe { &*area }
    }

    fn accept_kicks() {
        accept_interrupts();
        // SAFETY: the vectors are set.
        unsafe { asm!("msr daifclr, #2", options(nostack)) };
    }

    fn kick(processor: usize) {
        // SAFETY: the distributor's software interrupt 0, to the processors of a mask. What the other one is to see was stored
        // before, in memory.
        unsafe {
            asm!("dsb ishst", options(nostack));
            register::<u32>(DISTRIBUTOR + 0xf00).write_volatile(1 << (16 + processor));
        }
    }

    fn processors() -> usize {
        PROCESSORS
    }

    fn everywhere(work: fn()) {
        // ORDERING: SeqCst, whose Release half pairs with the Acquire load of the round in `kernel_processor`.
        WORK.store(work as *const (), Ordering::Relaxed);
        DONE.store(0, Ordering::Relaxed);
        ROUND.fetch_add(1, Ordering::SeqCst);
        if !STARTED.xchg(true, Ordering::SeqCst) {
            for number in 1..PROCESSORS {
                let result: u64;
                // SAFETY: PSCI CPU_ON: (processor, entry, argument for its x0). The emulator's firmware answers.
                unsafe {
                    asm!("hvc #0", inout("x0") 0xc400_0003_u64 => result, inout("x1") number => _,
                        inout("x2") secondary_start as *const () => _, inout("x3") number => _,
                        lateout("x4") _, lateout("x5") _, lateout("x6") _, lateout("x7") _, options(nostack));
                }
                assert_eq!(result, 0, "processor {number} starts");
            }
        }
        work();
        // ORDERING: Acquire, paired with the Release of each processor's last step.
        while DONE.load(Ordering::Acquire) < PROCESSORS - 1 {
            core::hint::spin_loop();
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn kernel_main() -> ! {
    kernel_harness::run::<Virt>()
}

/// The life of the other processors: wait for a round, do its work, say so.
#[unsafe(no_mangle)]
extern "C" fn kernel_processor() -> ! {
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
extern "C" fn kernel_irq() {
    // SAFETY: acknowledge and end-of-interrupt registers of the processor interface.
    let number = unsafe { register::<u32>(INTERFACE + 0xc).read_volatile() };
    let timer = number & 0x3ff == TIMER_INTERRUPT;
    if timer {
        arm_timer();
    }
    // SAFETY: as above. Before the tick, which may go on in another task.
    unsafe { register::<u32>(INTERFACE + 0x10).write_volatile(number) };
    if timer {
        kernel_harness::tick();
    } else if number & 0x3ff == 0 {
        kernel_harness::kicked::<Virt>();
    }
}

#[unsafe(no_mangle)]
extern "C" fn kernel_broken(syndrome: u64, address: u64) -> ! {
    panic!("exception {syndrome:#x} at {address:#x}")
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    kernel_harness::fail::<Virt>(info)
}
