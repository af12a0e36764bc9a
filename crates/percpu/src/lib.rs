// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

#![doc = include_str!("../README.md")]
#![no_std]
#![cfg(target_os = "linux")]

#[cfg(any(test, feature = "alloc"))]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod contract;
mod counter;
#[expect(unsafe_code, reason = "full atomics on words of raw slots")]
mod fallback;
#[expect(unsafe_code, reason = "the bytes of an atomic pointer are read as the object they are")]
mod lazy;
#[cfg(feature = "alloc")]
#[expect(unsafe_code, reason = "nodes leave the heap for the list and come back")]
mod list;
#[doc(hidden)]
pub mod protocol;
#[expect(unsafe_code, reason = "runs the guarded section")]
mod reference;
#[expect(unsafe_code, reason = "memory for slots")]
mod region;
#[expect(unsafe_code, reason = "records are bytes in a shared buffer")]
mod ring;
#[expect(unsafe_code, reason = "the critical sections are assembly")]
#[doc(hidden)]
pub mod rseq;
pub mod self_test;
pub mod sheaf;
#[expect(unsafe_code, reason = "slots are raw memory with a contract")]
mod slots;
#[expect(unsafe_code, reason = "a lock gives exclusive access")]
mod spin;
#[expect(unsafe_code, reason = "pointers travel as words")]
mod stack;
mod sync;
#[expect(unsafe_code, reason = "runs critical sections on words of slots")]
mod this_cpu;
#[expect(unsafe_code, reason = "registers threads with the kernel")]
mod thread;
#[expect(unsafe_code, reason = "runs critical sections and reads words that they write")]
mod word;

pub use counter::Counter;
pub use lazy::{Handle, Lazy};
#[cfg(feature = "alloc")]
pub use list::{Chain, List, Node};
pub use reference::PerCpuRef;
pub use region::OutOfMemory;
pub use ring::{Full, RingBuffer};
pub use rseq::aborts;
pub use slots::{PerCpu, Slot};
pub use spin::{Guard, SpinLock};
pub use stack::{Pointer, Raw, Stack, Stopped};
pub use this_cpu::ThisCpu;
pub use thread::{
    Backend, Ids, Owner, SelfTest, backend, current_slot, fence, is_registered, slots, start,
    start_up_verdict, without_rseq,
};
pub use word::{Integer, Word};
