// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The C names. glibc's semantics for every corner: `errno`, zero sizes, alignments, overflow.

use core::ffi::{c_int, c_void};

use fastpath_alloc::{
    errno::{self, EINVAL, ENOMEM},
    raw,
};

use crate::arch::malloc;

const PAGE: usize = 4096;

fn checked(block: *mut u8) -> *mut c_void {
    if block.is_null() {
        errno::set(ENOMEM);
    }
    block.cast()
}

/// The old name of `free`.
///
/// # Safety
///
/// As [`free`](crate::arch::free).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cfree(pointer: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { raw::free(pointer.cast()) };
}

/// C23: `free` with the size that was asked for, which is not needed here.
///
/// # Safety
///
/// As [`free`](crate::arch::free).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_sized(pointer: *mut c_void, _size: usize) {
    // SAFETY: the caller's promise.
    unsafe { raw::free(pointer.cast()) };
}

/// C23: `free` with the alignment and size that were asked for, which are not needed here.
///
/// # Safety
///
/// As [`free`](crate::arch::free).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_aligned_sized(pointer: *mut c_void, _alignment: usize, _size: usize) {
    // SAFETY: the caller's promise.
    unsafe { raw::free(pointer.cast()) };
}

/// As the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        Some(bytes) => checked(raw::zeroed(bytes)),
        None => checked(core::ptr::null_mut()),
    }
}

/// As the C library's: `realloc(p, 0)` frees and returns null.
///
/// # Safety
///
/// As [`free`](crate::arch::free); the old pointer is gone unless the result is null and `size` is not 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(pointer: *mut c_void, size: usize) -> *mut c_void {
    if pointer.is_null() {
        return malloc(size);
    }
    // SAFETY: the caller's promise.
    unsafe {
        if size == 0 {
            raw::free(pointer.cast());
            return core::ptr::null_mut();
        }
        checked(raw::realloc(pointer.cast(), size))
    }
}

/// As the C library's.
///
/// # Safety
///
/// As [`realloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(pointer: *mut c_void, count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: the caller's promise.
        Some(bytes) => unsafe { realloc(pointer, bytes) },
        None => checked(core::ptr::null_mut()),
    }
}

/// As the C library's: an alignment that is not a power of two is rounded up to one.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(alignment: usize, size: usize) -> *mut c_void {
    match alignment.max(1).checked_next_power_of_two() {
        Some(alignment) => checked(raw::aligned(size, alignment)),
        None => {
            errno::set(EINVAL);
            core::ptr::null_mut()
        }
    }
}

/// As the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void {
    memalign(alignment, size)
}

/// As the C library's: nothing is stored in `*out` unless the result is 0.
///
/// # Safety
///
/// `out` points to a pointer that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, alignment: usize, size: usize) -> c_int {
    if !alignment.is_power_of_two() || !alignment.is_multiple_of(size_of::<usize>()) {
        return EINVAL;
    }
    let block = raw::aligned(size, alignment);
    if block.is_null() {
        return ENOMEM;
    }
    // SAFETY: the caller's promise.
    unsafe { out.write(block.cast()) };
    0
}

/// As the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn valloc(size: usize) -> *mut c_void {
    checked(raw::aligned(size, PAGE))
}

/// As the C library's: whole pages.
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(size: usize) -> *mut c_void {
    match size.checked_next_multiple_of(PAGE) {
        Some(size) => checked(raw::aligned(size.max(PAGE), PAGE)),
        None => checked(core::ptr::null_mut()),
    }
}

/// As the C library's: all of the bytes may be used.
///
/// # Safety
///
/// Null, or a live block of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(pointer: *mut c_void) -> usize {
    if pointer.is_null() { 0 } else { raw::usable_size(pointer.cast()) }
}

/// As the C library's: gives free memory back to the system; 1 if there was any.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_trim(_pad: usize) -> c_int {
    c_int::from(raw::trim())
}

/// Sets the heap up when the library is loaded, at the latest: before a first `vfork` or `fork`, and while the
/// environment is still what the process was started with.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        raw::set_up();
    }
    at_load
};

/// Looks for double frees that nobody has met yet, when the process ends by `exit`.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = {
    extern "C" fn at_exit() {
        raw::at_exit();
    }
    at_exit
};
