// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Symbols of the C and C++ libraries that are used when they are there.
//!
//! All are weak: glibc before 2.35, musl and programs without a C library lack some, only C++ programs have the last
//! ones, and a strong import would keep an object from loading at all. Each function gives the symbol's address, null
//! where no loaded object defines it; calling through it is the caller's business.
//!
//! ```
//! // A program of the standard library has a C library, and with it an errno.
//! assert!(!fastpath_sys::libc_symbols::__errno_location().is_null());
//! ```

use crate::arch::symbol;

/// Defines a function that returns the address of the symbol of the same name, or null.
macro_rules! weak_symbols {
    ($($name:ident),* $(,)?) => {$(
        #[doc = concat!("The address of `", stringify!($name), "`, or null where nobody defines it.")]
        #[inline]
        pub fn $name() -> *mut u8 {
            symbol!(stringify!($name)).cast()
        }
    )*};
}

weak_symbols!(
    __rseq_offset,
    __rseq_size,
    __register_atfork,
    pthread_atfork,
    __environ,
    __errno_location,
    clock_gettime,
    dlopen,
    dlsym,
    fputs,
    sched_getcpu,
    signal,
    dladdr,
    process_vm_readv,
    _dl_find_object,
    __cxa_atexit,
    _ZSt15get_new_handlerv,
    _ZSt17__throw_bad_allocv,
    __cxa_throw,
    __cxa_allocate_exception,
    _ZTVSt9bad_alloc,
    _ZTISt9bad_alloc,
    _ZNSt9bad_allocD1Ev
);
