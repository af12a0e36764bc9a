// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What needs assembly: the thread pointer, and symbols of the C library that may be missing.

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
#[cfg_attr(target_arch = "riscv64", path = "riscv64.rs")]
#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")),
    path = "missing.rs"
)]
mod machine;

pub(crate) use machine::{registers, thread_pointer, weak};

/// Defines a function that returns the address of the C library's symbol of the same name, or null.
macro_rules! weak_symbols {
    ($($name:ident),*) => {$(
        #[doc = concat!("The address of `", stringify!($name), "`, or null where the C library lacks it.")]
        #[inline]
        pub fn $name() -> *mut u8 {
            $crate::arch::weak!($name)
        }
    )*};
}
pub(crate) use weak_symbols;
