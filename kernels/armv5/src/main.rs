// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! ARM926 (ARMv5TE) on the Versatile board: no compare-and-exchange at all, so `Native` is `generic` with the
//! processor's own interrupt flag. The core family of the seeds' imx28.
#![no_std]
#![no_main]

use fastpath_cmpxchg::interrupt::Interrupts;
use kernel_harness::{Machine, arm};

/// The board's dual timer (SP804) and interrupt controller (PL190).
const TIMER: usize = 0x101e_2000;
const CONTROLLER: usize = 0x1014_0000;
const TIMER_INTERRUPT: u32 = 1 << 4;

/// Writes a device register.
fn write_register(address: usize, value: u32) {
    // SAFETY: the callers name registers of this board's devices, which are not memory of the program.
    unsafe { core::ptr::with_exposed_provenance_mut::<u32>(address).write_volatile(value) };
}

struct Versatile;

impl Machine for Versatile {
    const NAME: &'static str = "armv5 versatilepb";
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
        write_register(TIMER, 100); // microseconds
        write_register(TIMER + 8, 0xe2); // on, periodic, interrupting, 32 bits
        write_register(CONTROLLER + 0x10, TIMER_INTERRUPT);
        arm::interrupts_on();
    }

    fn stop_timer() {
        arm::interrupts_off();
        write_register(TIMER + 8, 0);
        write_register(TIMER + 0xc, 0);
    }

    const COUNTS: bool = true;
    const SHORT: &'static str = "ARM926EJ-S";
    const ARCH: &'static str = "armv5te";

    fn nanoseconds() -> u64 {
        // The second timer of the pair counts microseconds down from where it was started.
        const SECOND: usize = TIMER + 0x20;
        // SAFETY: registers of the timer.
        unsafe {
            if core::ptr::with_exposed_provenance::<u32>(SECOND + 8).read_volatile() & 0x80 == 0 {
                write_register(SECOND, u32::MAX);
                write_register(SECOND + 8, 0x82); // on, 32 bits
            }
            u64::from(!core::ptr::with_exposed_provenance::<u32>(SECOND + 4).read_volatile()) * 1000
        }
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
