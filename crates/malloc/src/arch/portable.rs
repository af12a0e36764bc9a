// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `operator new` for machines without a hand-written form.

use core::ffi::c_void;

use super::malloc;
use crate::cxx::{new_handler, throw_bad_alloc, try_again};

/// Without frames that the unwinder knows nothing can be thrown through: the runtime's thrower is called from here,
/// and ends the process if the exception cannot pass.
extern "C-unwind" fn new_failed(size: usize, align: usize) -> *mut c_void {
    loop {
        let handler = new_handler();
        if handler.is_null() {
            // SAFETY: `std::__throw_bad_alloc()`.
            let throw: extern "C-unwind" fn() -> ! = unsafe { core::mem::transmute(throw_bad_alloc()) };
            throw();
        }
        // SAFETY: a `std::new_handler`.
        let handler: extern "C-unwind" fn() = unsafe { core::mem::transmute(handler) };
        handler();
        let block = try_again(size, align);
        if !block.is_null() {
            return block;
        }
    }
}

macro_rules! operator_new {
    ($($name:ident),*) => {$(
        /// `operator new`, plain or array form.
        #[unsafe(no_mangle)]
        pub extern "C-unwind" fn $name(size: usize) -> *mut c_void {
            let block = malloc(size);
            if block.is_null() { new_failed(size, 16) } else { block }
        }
    )*};
}
operator_new!(_Znwm, _Znam);

macro_rules! operator_new_aligned {
    ($($name:ident),*) => {$(
        /// `operator new`, aligned, plain or array form.
        #[unsafe(no_mangle)]
        pub extern "C-unwind" fn $name(size: usize, align: usize) -> *mut c_void {
            let block = try_again(size, align);
            if block.is_null() { new_failed(size, align) } else { block }
        }
    )*};
}
operator_new_aligned!(_ZnwmSt11align_val_t, _ZnamSt11align_val_t);

/// Not available here.
pub(crate) fn throw_by_parts() -> *mut c_void {
    core::ptr::null_mut()
}
