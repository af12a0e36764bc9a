// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! C++: what `operator new` does when there is no memory, and the forms that need no assembly.
//!
//! The C++ runtime is looked up at the first failure, among the libraries that are loaded (never loading one): this
//! library needs none and must work in C programs, and a plugin may bring the runtime in long after the start.

use core::ffi::{CStr, c_char, c_int, c_void};

use fastpath_alloc::raw::cxx_runtime;
use fastpath_alloc::{errno, raw};

const RTLD_LAZY_NOLOAD: c_int = 1 | 4;

/// Address of a symbol of the C++ runtime, wherever it is loaded; null if it is not.
fn runtime_symbol(name: &CStr) -> *mut c_void {
    let (dlopen, dlsym) = (raw::dlopen(), raw::dlsym());
    if dlopen.is_null() || dlsym.is_null() {
        return core::ptr::null_mut();
    }
    // SAFETY: the C library's functions of these names. The handle keeps the runtime loaded, which is wanted.
    unsafe {
        let dlopen: extern "C" fn(*const c_char, c_int) -> *mut c_void = core::mem::transmute(dlopen);
        let dlsym: extern "C" fn(*mut c_void, *const c_char) -> *mut c_void = core::mem::transmute(dlsym);
        let found = dlsym(core::ptr::null_mut(), name.as_ptr());
        if !found.is_null() {
            return found;
        }
        for library in [c"libstdc++.so.6", c"libc++abi.so.1", c"libc++.so.1"] {
            let handle = dlopen(library.as_ptr(), RTLD_LAZY_NOLOAD);
            if !handle.is_null() {
                let found = dlsym(handle, name.as_ptr());
                if !found.is_null() {
                    return found;
                }
            }
        }
    }
    core::ptr::null_mut()
}

/// The handler that `std::set_new_handler` installed; null if there is none.
pub(crate) extern "C" fn new_handler() -> *mut c_void {
    let mut function: *mut c_void = cxx_runtime::_ZSt15get_new_handlerv().cast();
    if function.is_null() {
        function = runtime_symbol(c"_ZSt15get_new_handlerv");
    }
    if function.is_null() {
        return function;
    }
    // SAFETY: `std::get_new_handler()`.
    unsafe {
        let get: extern "C" fn() -> *mut c_void = core::mem::transmute(function);
        get()
    }
}

/// The function that throws `std::bad_alloc`. Ends the process if there is none: `operator new` has no other way.
pub(crate) extern "C" fn throw_bad_alloc() -> *mut c_void {
    let mut function: *mut c_void = cxx_runtime::_ZSt17__throw_bad_allocv().cast();
    if function.is_null() && can_throw_by_parts() {
        return crate::arch::throw_by_parts();
    }
    if function.is_null() {
        function = runtime_symbol(c"_ZSt17__throw_bad_allocv");
    }
    if function.is_null() {
        raw::fatal(
            "operator new found no memory, and no C++ runtime is loaded that could throw std::bad_alloc",
        );
    }
    function
}

/// A static program may hold what it takes to throw `std::bad_alloc` without the function that does it.
fn can_throw_by_parts() -> bool {
    !cxx_runtime::__cxa_throw().is_null()
        && !cxx_runtime::__cxa_allocate_exception().is_null()
        && !cxx_runtime::_ZTVSt9bad_alloc().is_null()
        && !cxx_runtime::_ZTISt9bad_alloc().is_null()
}

/// A new `std::bad_alloc`, not thrown yet. The runtime keeps memory aside for this.
pub(crate) extern "C" fn new_bad_alloc() -> *mut c_void {
    // SAFETY: the runtime's function of that name, which ends the process rather than fail; the object is one pointer
    // to its table of virtual functions, which starts behind two words.
    unsafe {
        let allocate: extern "C" fn(usize) -> *mut c_void =
            core::mem::transmute(cxx_runtime::__cxa_allocate_exception());
        let exception = allocate(size_of::<usize>());
        exception
            .cast::<*mut u8>()
            .write(cxx_runtime::_ZTVSt9bad_alloc().wrapping_add(2 * size_of::<usize>()));
        exception
    }
}

/// One more attempt after the handler ran.
pub(crate) extern "C" fn try_again(size: usize, align: usize) -> *mut c_void {
    raw::aligned(size, align).cast()
}

/// The runtime's own form of one of our operators; null if there is none. Its nothrow forms call our throwing ones and
/// catch what the handler may throw.
fn runtime_symbol_beyond_us(name: &CStr) -> *mut c_void {
    let (dlopen, dlsym) = (raw::dlopen(), raw::dlsym());
    if dlopen.is_null() || dlsym.is_null() {
        return core::ptr::null_mut();
    }
    // SAFETY: as in `runtime_symbol`; a symbol looked up in the runtime's own handle is the runtime's.
    unsafe {
        let dlopen: extern "C" fn(*const c_char, c_int) -> *mut c_void = core::mem::transmute(dlopen);
        let dlsym: extern "C" fn(*mut c_void, *const c_char) -> *mut c_void = core::mem::transmute(dlsym);
        for library in [c"libstdc++.so.6", c"libc++abi.so.1"] {
            let handle = dlopen(library.as_ptr(), RTLD_LAZY_NOLOAD);
            if !handle.is_null() {
                let found = dlsym(handle, name.as_ptr());
                if !found.is_null() {
                    return found;
                }
            }
        }
    }
    core::ptr::null_mut()
}

#[cold]
fn nothrow_failed(size: usize, align: Option<usize>) -> *mut c_void {
    errno::set(errno::ENOMEM);
    // SAFETY: the runtime's `operator new(size_t, const std::nothrow_t&)` and its aligned form; the tag is empty.
    unsafe {
        match align {
            None => {
                let function = runtime_symbol_beyond_us(c"_ZnwmRKSt9nothrow_t");
                if function.is_null() {
                    return ask_handler(size, 16);
                }
                let new: extern "C" fn(usize, *const u8) -> *mut c_void = core::mem::transmute(function);
                new(size, c"".as_ptr().cast())
            }
            Some(align) => {
                let function = runtime_symbol_beyond_us(c"_ZnwmSt11align_val_tRKSt9nothrow_t");
                if function.is_null() {
                    return ask_handler(size, align);
                }
                let new: extern "C" fn(usize, usize, *const u8) -> *mut c_void =
                    core::mem::transmute(function);
                new(size, align, c"".as_ptr().cast())
            }
        }
    }
}

/// The nothrow form without the runtime's help, as in a static program. What a handler throws cannot be caught here: the
/// runtime ends the process then, as it does for any function that promised not to throw.
fn ask_handler(size: usize, align: usize) -> *mut c_void {
    loop {
        let handler = new_handler();
        if handler.is_null() {
            return handler;
        }
        // SAFETY: a `std::new_handler`.
        let handler: extern "C" fn() = unsafe { core::mem::transmute(handler) };
        handler();
        let block = try_again(size, align);
        if !block.is_null() {
            return block;
        }
    }
}

fn nothrow(size: usize) -> *mut c_void {
    let block = raw::malloc(size);
    if block.is_null() { nothrow_failed(size, None) } else { block.cast() }
}

fn nothrow_aligned(size: usize, align: usize) -> *mut c_void {
    let block = raw::aligned(size, align);
    if block.is_null() { nothrow_failed(size, Some(align)) } else { block.cast() }
}

/// `operator new(size_t, const std::nothrow_t&)`.
#[unsafe(no_mangle)]
pub extern "C" fn _ZnwmRKSt9nothrow_t(size: usize, _: *const u8) -> *mut c_void {
    nothrow(size)
}

/// `operator new[](size_t, const std::nothrow_t&)`.
#[unsafe(no_mangle)]
pub extern "C" fn _ZnamRKSt9nothrow_t(size: usize, _: *const u8) -> *mut c_void {
    nothrow(size)
}

/// `operator new(size_t, std::align_val_t, const std::nothrow_t&)`.
#[unsafe(no_mangle)]
pub extern "C" fn _ZnwmSt11align_val_tRKSt9nothrow_t(size: usize, align: usize, _: *const u8) -> *mut c_void {
    nothrow_aligned(size, align)
}

/// `operator new[](size_t, std::align_val_t, const std::nothrow_t&)`.
#[unsafe(no_mangle)]
pub extern "C" fn _ZnamSt11align_val_tRKSt9nothrow_t(size: usize, align: usize, _: *const u8) -> *mut c_void {
    nothrow_aligned(size, align)
}
