// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `errno`, where there is a C library.

use core::ffi::c_int;

use fastpath_sys::libc_symbols;

/// Out of memory, as in `errno.h`.
pub const ENOMEM: c_int = 12;
/// Invalid argument, as in `errno.h`.
pub const EINVAL: c_int = 22;

/// Sets this thread's `errno`. Does nothing where there is no C library.
///
/// ```
/// fastpath_alloc::errno::set(fastpath_alloc::errno::ENOMEM);
/// assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(12));
/// ```
pub fn set(value: c_int) {
    let location = libc_symbols::__errno_location();
    if !location.is_null() {
        // SAFETY: the C library's function of that name takes nothing and returns the address of this thread's
        // `errno`.
        unsafe {
            let location: extern "C" fn() -> *mut c_int = core::mem::transmute(location);
            location().write(value);
        }
    }
}
