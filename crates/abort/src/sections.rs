// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The critical sections of this very binary, from its `__rseq_cs` descriptors and its own code bytes.

#![expect(unsafe_code, reason = "linker-made symbols and the bytes of our own code")]

use iced_x86::{Decoder, DecoderOptions};

/// The ABI's descriptor of one critical section.
#[repr(C, align(32))]
#[derive(Clone, Copy)]
struct Descriptor {
    version: u32,
    flags: u32,
    start: u64,
    length: u64,
    abort: u64,
}

unsafe extern "C" {
    // The linker defines these two for a section whose name is a C identifier.
    safe static __start___rseq_cs: Descriptor;
    safe static __stop___rseq_cs: Descriptor;
}

/// One critical section.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    /// Address of its first instruction.
    pub(crate) start: u64,
    /// Address of the first instruction after the commit.
    pub(crate) end: u64,
    /// Where the kernel sends a thread that was disturbed.
    pub(crate) abort: u64,
    /// The addresses of all its instructions.
    pub(crate) instructions: Vec<u64>,
}

/// All sections of this binary, with the boundaries of their instructions.
pub(crate) fn all() -> Vec<Section> {
    let first = &raw const __start___rseq_cs;
    let count = (&raw const __stop___rseq_cs as usize - first as usize) / size_of::<Descriptor>();
    // SAFETY: the linker put `count` descriptors between the two symbols; they are relocated and never written.
    let descriptors = unsafe { core::slice::from_raw_parts(first, count) };
    descriptors.iter().map(section).collect()
}

fn section(descriptor: &Descriptor) -> Section {
    assert_eq!((descriptor.version, descriptor.flags), (0, 0), "a descriptor of this binary");
    let length = descriptor.length as usize;
    // SAFETY: a descriptor covers mapped, readable code of this binary.
    let code = unsafe { core::slice::from_raw_parts(descriptor.start as *const u8, length) };
    let mut decoder = Decoder::with_ip(64, code, descriptor.start, DecoderOptions::NONE);
    let instructions: Vec<u64> = decoder.iter().map(|instruction| instruction.ip()).collect();
    let end = descriptor.start + descriptor.length;
    assert!(!(descriptor.start..end).contains(&descriptor.abort), "abort address inside its section");
    Section { start: descriptor.start, end, abort: descriptor.abort, instructions }
}
