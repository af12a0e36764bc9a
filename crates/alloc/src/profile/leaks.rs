// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `FASTPATH_LEAKS=1`: what the program still holds when it ends, by the place that allocated it, largest first.
//!
//! "Leak" means here: allocated, and not freed when the heap's own exit handler runs. That was registered when the heap was set
//! up, before nearly all others, and so runs after them. Whether anything still points to a block is not asked: no lost block
//! is missed, and what a program keeps to its end on purpose is listed too.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;

use super::table;
use crate::report::Line;
use fastpath_sys::libc_symbols;

/// Places that are listed.
const PLACES: usize = 20;
/// Callers of each that are listed.
const CALLERS: usize = 16;

/// As `Dl_info`.
#[repr(C)]
struct Info {
    file: *const c_char,
    base: *mut c_void,
    symbol: *const c_char,
    address: *mut c_void,
}

/// Bytes and blocks of a place that are live, as they were sampled.
fn live(number: usize) -> (u64, u64) {
    let stack = table::stack(number);
    let bytes = stack.bytes.load(Relaxed).saturating_sub(stack.freed_bytes.load(Relaxed));
    let blocks = stack.blocks.load(Relaxed).saturating_sub(stack.freed_blocks.load(Relaxed));
    (bytes, blocks >> 16)
}

pub(crate) fn report() {
    let (mut bytes, mut blocks, mut places) = (0, 0, 0u64);
    for number in 0..table::STACKS {
        let here = live(number);
        bytes += here.0;
        blocks += here.1;
        places += u64::from(here.1 > 0);
    }
    Line::new()
        .number(bytes)
        .text(" bytes in ")
        .number(blocks)
        .text(" blocks from ")
        .number(places)
        .text(" places were not freed")
        .print();
    // The largest first, each found by a walk over all: this happens once.
    let mut last = (u64::MAX, usize::MAX);
    for _ in 0..PLACES.min(places as usize) {
        let mut best = (0, 0);
        for number in 0..table::STACKS {
            let (bytes, blocks) = live(number);
            if blocks > 0 && (bytes, number) < last && (bytes, number) > best {
                best = (bytes, number);
            }
        }
        last = best;
        let (bytes, blocks) = live(best.1);
        Line::new().text("  ").number(bytes).text(" bytes in ").number(blocks).text(" blocks from").print();
        callers(best.1);
    }
    let lost = table::LOST.load(Relaxed);
    if lost > 0 {
        Line::new()
            .text("  ")
            .number(lost)
            .text(" more blocks were not followed: too many at a time")
            .print();
    }
}

/// The first callers of a stack, a line each.
pub(super) fn callers(stack: usize) {
    for frame in table::frames(stack).iter().take(CALLERS) {
        caller(frame.load(Relaxed));
    }
}

/// One line: function and offset where a symbol is known, and the place in the file for `addr2line`.
fn caller(address: usize) {
    let line = Line::new().text("    ").hex(address);
    let function = libc_symbols::dladdr();
    let mut info = Info {
        file: core::ptr::null(),
        base: core::ptr::null_mut(),
        symbol: core::ptr::null(),
        address: core::ptr::null_mut(),
    };
    // SAFETY: the C library's function of that name has this type; its texts stay valid while the module is loaded.
    unsafe {
        if function.is_null() {
            return line.print();
        }
        let dladdr: extern "C" fn(*const c_void, *mut Info) -> c_int = core::mem::transmute(function);
        if dladdr(address as *const c_void, &raw mut info) == 0 || info.file.is_null() {
            return line.print();
        }
        let line = if info.symbol.is_null() {
            line
        } else {
            line.text(" ")
                .raw(CStr::from_ptr(info.symbol).to_bytes())
                .text("+")
                .hex(address - info.address.addr())
        };
        line.text(" (")
            .raw(CStr::from_ptr(info.file).to_bytes())
            .text("+")
            .hex(address - info.base.addr())
            .text(")")
            .print();
    }
}
