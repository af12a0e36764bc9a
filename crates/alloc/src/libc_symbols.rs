// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The few symbols of the C library that the heap uses when they are there. All weak: glibc before 2.35, musl and
//! programs without a C library lack some, only C++ programs have the last ones, and a strong import would keep the library from loading at all.

crate::arch::weak_symbols!(
    __rseq_offset,
    __rseq_size,
    __register_atfork,
    pthread_atfork,
    __environ,
    __errno_location,
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
