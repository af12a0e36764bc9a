// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `malloc`, `free` and `operator delete` as the compiler makes them of the heap's fast paths.

use core::ffi::c_void;

use fastpath_alloc::raw;

/// As the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn malloc(size: usize) -> *mut c_void {
    raw::malloc(size).cast()
}

/// As the C library's.
///
/// # Safety
///
/// Null, or a block of this library that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(pointer: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { raw::free(pointer.cast()) };
}

macro_rules! operator_delete {
    ($($name:ident),*) => {$(
        /// `operator delete`, one of its forms.
        ///
        /// # Safety
        ///
        /// As [`free`].
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(pointer: *mut c_void) {
            // SAFETY: the caller's promise.
            unsafe { free(pointer) };
        }
    )*};
}
operator_delete!(
    _ZdlPv,
    _ZdaPv,
    _ZdlPvm,
    _ZdaPvm,
    _ZdlPvRKSt9nothrow_t,
    _ZdaPvRKSt9nothrow_t,
    _ZdlPvSt11align_val_t,
    _ZdaPvSt11align_val_t,
    _ZdlPvmSt11align_val_t,
    _ZdaPvmSt11align_val_t,
    _ZdlPvSt11align_val_tRKSt9nothrow_t,
    _ZdaPvSt11align_val_tRKSt9nothrow_t
);
