// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The interrupt descriptor table and the local APIC: timer, starting the other processors, NMI to oneself.

use core::arch::asm;
use core::cell::UnsafeCell;

const APIC: usize = 0xfee0_0000;
const TIMER_VECTOR: u32 = 0x40;
const KICK_VECTOR: u32 = 0x41;

unsafe extern "C" {
    fn timer_entry();
    fn kick_entry();
    fn nmi_entry();
    fn broken_entry();
    static trampoline: u8;
    static trampoline_end: u8;
}

/// 256 gates of 16 bytes.
#[repr(C, align(16))]
struct Table(UnsafeCell<[[u64; 2]; 256]>);
// SAFETY: written by the first processor before the others start, read by hardware afterwards.
unsafe impl Sync for Table {}
static TABLE: Table = Table(UnsafeCell::new([[0; 2]; 256]));

fn gate(entry: unsafe extern "C" fn()) -> [u64; 2] {
    let address = entry as *const () as u64;
    // Code segment 8, an interrupt gate of level 0, present.
    [(address & 0xffff) | 8 << 16 | 0x8e00 << 32 | (address & 0xffff_0000) << 32, address >> 32]
}

/// Fills the table (the same each time) and loads it on this processor.
pub fn load_descriptors() {
    let table = TABLE.0.get().cast::<[u64; 2]>();
    for vector in 0..256 {
        let entry = match vector {
            2 => gate(nmi_entry),
            0x40 => gate(timer_entry),
            0x41 => gate(kick_entry),
            _ => gate(broken_entry),
        };
        // SAFETY: inside the table; every processor writes the same values.
        unsafe { table.add(vector).write_volatile(entry) };
    }
    #[repr(C, packed)]
    struct Pointer(u16, u64);
    let pointer = Pointer(256 * 16 - 1, table as u64);
    // SAFETY: the table is static.
    unsafe { asm!("lidt [{}]", in(reg) &raw const pointer, options(nostack, preserves_flags)) };
    write(0xf0, 0x1ff); // the local APIC on, spurious vector 255
}

fn write(offset: usize, value: u32) {
    // SAFETY: registers of this processor's APIC.
    unsafe { core::ptr::with_exposed_provenance_mut::<u32>(APIC + offset).write_volatile(value) };
}

fn read(offset: usize) -> u32 {
    // SAFETY: as in `write`.
    unsafe { core::ptr::with_exposed_provenance::<u32>(APIC + offset).read_volatile() }
}

/// Periodic, about 100 microseconds (the emulator's APIC timer runs at 1 GHz).
pub fn start_timer() {
    write(0x3e0, 0b1011); // divide by 1
    write(0x320, TIMER_VECTOR | 1 << 17);
    write(0x380, 100_000);
}

/// No more interrupts.
pub fn stop_timer() {
    write(0x320, 1 << 16);
    write(0x380, 0);
}

/// The handler is done.
pub fn end_of_interrupt() {
    write(0xb0, 0);
}

fn command(destination: u32, value: u32) {
    write(0x310, destination << 24);
    write(0x300, value);
    while read(0x300) & 1 << 12 != 0 {}
}

/// An interrupt to another processor.
pub fn kick(processor: usize) {
    // In the order in which they started, processors also have their APIC numbers only by chance: each noted its own.
    command(crate::percpu::apic_of(processor), KICK_VECTOR);
}

/// This processor's number in its APIC.
pub fn own_number() -> u32 {
    read(0x20) >> 24
}

/// INIT and start-up to all processors but this one: they begin at 0x8000 in real mode.
pub fn start_others() {
    let (from, to) = (&raw const trampoline, &raw const trampoline_end);
    let length = to as usize - from as usize;
    // SAFETY: low memory is nobody's; the trampoline is `length` bytes.
    unsafe { core::ptr::copy_nonoverlapping(from, core::ptr::with_exposed_provenance_mut(0x8000), length) };
    command(0, 0xc_4500); // INIT, all but self
    for _ in 0..1_000_000 {
        core::hint::spin_loop();
    }
    command(0, 0xc_4608); // start-up at page 8, all but self
}

/// A non-maskable interrupt to this processor. It has arrived when this returns.
pub fn nmi_to_self() {
    let before = crate::nmi::taken();
    command(own_number(), 0x4400);
    while crate::nmi::taken() == before {
        core::hint::spin_loop();
    }
}

/// A non-maskable interrupt to the first processor, from another.
pub fn nmi_to_first() {
    command(0, 0x4400);
}
