// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Environment variables without `std`: for switches read once at start-up.

use core::ffi::{CStr, c_char};

use crate::arch;

type GetEnv = unsafe extern "C" fn(*const c_char) -> *const c_char;

/// The value of an environment variable; `None` when it is not set, in a set-user-id program, or without a libc.
///
/// # Safety
///
/// As for C's `getenv`: nobody may change the environment while the result is in use. Meant for start-up.
///
/// ```
/// // SAFETY: this example is the only thread.
/// let path = unsafe { fastpath_sys::env::variable(c"PATH") };
/// assert!(path.is_some());
/// ```
#[doc(alias = "secure_getenv")]
pub unsafe fn variable(name: &CStr) -> Option<&'static CStr> {
    let mut found = arch::symbol!("secure_getenv");
    if found.is_null() {
        found = arch::symbol!("getenv");
    }
    if found.is_null() {
        return None;
    }
    // SAFETY: the only symbols of these names are libc's, with this signature.
    let getenv = unsafe { core::mem::transmute::<*mut core::ffi::c_void, GetEnv>(found) };
    // SAFETY: `name` is a C string.
    let value = unsafe { getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: getenv returned a C string that lives until the environment changes; the caller excludes that.
    Some(unsafe { CStr::from_ptr(value) })
}
