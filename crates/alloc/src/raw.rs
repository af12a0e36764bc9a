// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The entry points behind the C names: untyped, without `errno`. `fastpath-malloc` exports them; a Rust program uses
//! [`FastPath`](crate::FastPath).

use crate::heap;
use crate::report::Line;
use fastpath_sys::libc_symbols;

/// Allocates `size` bytes at a multiple of 16; null if there is no memory.
///
/// ```
/// let block = fastpath_alloc::raw::malloc(100);
/// assert!(!block.is_null());
/// // SAFETY: allocated above, and not used afterwards.
/// unsafe { fastpath_alloc::raw::free(block) };
/// ```
#[inline(always)]
pub fn malloc(size: usize) -> *mut u8 {
    heap::malloc::<false>(size)
}

/// Frees a block; null is fine. A pointer that is not this heap's ends the process (or is ignored, by
/// `FASTPATH_FOREIGN=leak`).
///
/// # Safety
///
/// A block of this heap that nobody uses any more.
#[inline(always)]
pub unsafe fn free(pointer: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { heap::free::<false>(pointer) };
}

/// Allocates `size` bytes at a multiple of `align`, a power of two; null if there is no memory.
pub fn aligned(size: usize, align: usize) -> *mut u8 {
    heap::alloc_any(size, align.max(16)).0
}

/// Allocates `size` zeroed bytes; null if there is no memory.
pub fn zeroed(size: usize) -> *mut u8 {
    heap::zeroed(size, 16)
}

/// Changes the size of a block; null if there is no memory, and then the block is as it was.
///
/// # Safety
///
/// A block of this heap, not null, not used through the old pointer if the result is not null.
pub unsafe fn realloc(pointer: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { heap::realloc(pointer, size, 16) }
}

/// The bytes that may be used at `pointer`, a block of this heap. Anything else ends the process.
pub fn usable_size(pointer: *mut u8) -> usize {
    heap::usable_size(pointer)
}

/// Gives free memory back to the system; whether there was any.
pub fn trim() -> bool {
    heap::trim()
}

/// The front end that runs: `sheaf/rseq`, `sheaf/trylock`, `direct` or `not set up`.
pub fn front() -> &'static str {
    heap::front()
}

/// For tests of failure: the `n`th mapping from now fails, and all after it unless `once`; 0 ends that.
pub fn inject_fault(n: usize, once: bool) {
    crate::os::inject_fault(n, once);
}

/// Ends the process by SIGABRT.
pub fn abort() -> ! {
    crate::report::abort()
}

/// Prints one line and ends the process by SIGABRT.
pub fn fatal(what: &str) -> ! {
    Line::new().text(what).abort()
}

/// Prints one line on standard error: a name, a text and a number.
pub fn message(name: &str, text: &str, value: Option<u64>) {
    let line = Line::new().text(name).text(" ").text(text);
    match value {
        Some(value) => line.number(value).print(),
        None => line.print(),
    }
}

/// Writes `<name>value</name>`, a line end and a zero byte into `out`, as far as it has room.
pub fn xml_line(out: &mut [u8], name: &str, value: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = value;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let parts: [&[u8]; 7] = [b"<", name.as_bytes(), b">", &digits[at..], b"</", name.as_bytes(), b">\n"];
    let room = out.len().saturating_sub(1);
    let mut end = 0;
    for byte in parts.into_iter().flatten() {
        if end < room {
            out[end] = *byte;
            end += 1;
        }
    }
    if let Some(last) = out.get_mut(end) {
        *last = 0;
    }
}

/// The C library's `dlopen`, or null.
pub fn dlopen() -> *mut u8 {
    libc_symbols::dlopen()
}

/// The C library's `dlsym`, or null.
pub fn dlsym() -> *mut u8 {
    libc_symbols::dlsym()
}

/// The C library's `fputs`, or null.
pub fn fputs() -> *mut u8 {
    libc_symbols::fputs()
}

/// Sets the heap up, if nothing was allocated yet, for a library that holds nothing but the allocator: its own callers are
/// left out of profiles.
pub fn set_up() {
    crate::profile::leave_module_out();
    heap::ensure();
}

/// For the end of the process: looks for objects that were freed twice, and ends the process by SIGABRT if it finds one.
pub fn at_exit() {
    heap::at_exit();
}

/// The C++ runtime's functions and data that are linked into this program, each null where it is not.
pub mod cxx_runtime {
    pub use fastpath_sys::libc_symbols::{
        __cxa_allocate_exception, __cxa_throw, _ZNSt9bad_allocD1Ev, _ZSt15get_new_handlerv,
        _ZSt17__throw_bad_allocv, _ZTISt9bad_alloc, _ZTVSt9bad_alloc,
    };
}
