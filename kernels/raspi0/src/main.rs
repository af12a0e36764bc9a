// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! ARM1176 (ARMv6K) of the Raspberry Pi Zero: `ldrex` and `ldrexd`. One processor.
#![no_std]
#![no_main]

use fastpath_cmpxchg::interrupt::Interrupts;
use kernel_harness::{Machine, arm};

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

struct Raspberry;

impl Machine for Raspberry {
    const NAME: &'static str = "armv6 raspi0";
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
        arm_timer();
        write_register(ENABLE, TIMER_INTERRUPT);
        arm::interrupts_on();
    }

    fn stop_timer() {
        arm::interrupts_off();
        write_register(DISABLE, TIMER_INTERRUPT);
        write_register(TIMER, TIMER_INTERRUPT);
    }

    const COUNTS: bool = true;
    const SHORT: &'static str = "ARM1176";
    const ARCH: &'static str = "armv6";

    fn nanoseconds() -> u64 {
        // SAFETY: the low half of the timer's counter, which does not wrap in a run.
        u64::from(unsafe { core::ptr::with_exposed_provenance::<u32>(TIMER + 4).read_volatile() }) * 1000
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
