// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `vfork`. Its child runs on the parent's memory and thread area, but the kernel does not restart sequences for it: a
//! child that allocates would work on another CPU's sheaves unprotected. So the parent's registration is taken back
//! first, which makes the child (and the parent's signal handlers) find the guard; the parent registers again when it
//! comes back.

use core::ffi::c_int;

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
mod machine;

extern "C" fn set_errno(value: c_int) {
    fastpath_alloc::errno::set(value);
}
