// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Cortex-A8 (ARMv7-A) of the Cubieboard, the core of the seeds' am335x: `ldrex`, `ldrexd`, `dmb`. One processor.
#![no_std]
#![no_main]

use fastpath_cmpxchg::interrupt::Interrupts;
use kernel_harness::{Machine, arm};

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

fn read_register(address: usize) -> u32 {
    // SAFETY: as above.
    unsafe { core::ptr::with_exposed_provenance::<u32>(address).read_volatile() }
}

struct Cubieboard;

impl Machine for Cubieboard {
    const NAME: &'static str = "armv7 cubieboard";
    const COUNTS: bool = true;
    const SHORT: &'static str = "cortex-a8";
    const ARCH: &'static str = "armv7a";
    type Interrupts = Interrupts;

    type Front = kernel_harness::Pinned<Self>;

    fn front() -> Self::Front {
        kernel_harness::pinned()
    }

    fn write(text: &str) {
        arm::write(text);
    }

    fn exit(passed: bool) -> ! {
        arm::exit(passed)
    }

    fn start_timer() {
        write_register(TIMER + 0x14, 2400); // 100 microseconds at 24 MHz
        write_register(TIMER, 1); // timer 0 interrupts
        write_register(TIMER + 0x10, 0b0111); // on, reload, 24 MHz
        write_register(CONTROLLER + 0x40, TIMER_INTERRUPT);
        arm::interrupts_on();
    }

    fn stop_timer() {
        arm::interrupts_off();
        write_register(TIMER + 0x10, 0);
        write_register(TIMER + 4, 1);
    }

    fn nanoseconds() -> u64 {
        // Timer 1 counts down at 24 MHz and does not wrap in a run.
        if read_register(TIMER + 0x20) & 1 == 0 {
            write_register(TIMER + 0x24, u32::MAX);
            write_register(TIMER + 0x20, 0b0111);
        }
        u64::from(!read_register(TIMER + 0x28)) * 1000 / 24
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
