// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The few calls of libc and of our own crates that are unsafe to make, as safe functions.
#![expect(unsafe_code, reason = "calls C functions and raw entry points")]

use std::ffi::CStr;

#[cfg_attr(target_env = "gnu", expect(clippy::unnecessary_wraps, reason = "other libraries have none"))]
/// glibc's version, as it says itself; none for other libraries.
pub(crate) fn glibc_version() -> Option<String> {
    core::cfg_select! {
        target_env = "gnu" => {
            // SAFETY: returns a static string.
            let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
            Some(version.to_string_lossy().into_owned())
        }
        _ => None,
    }
}

/// Allocates and frees once, so that the allocator has decided which front end it uses.
pub(crate) fn touch_allocator() {
    let block = fastpath_alloc::raw::malloc(64);
    // SAFETY: allocated above (null is fine) and not used.
    unsafe { fastpath_alloc::raw::free(block) };
}
