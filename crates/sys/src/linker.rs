// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The dynamic linker, when there is one: keeping an object loaded, and running code at thread exit.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ptr::null_mut;

use crate::arch;

#[repr(C)]
struct DlInfo {
    file_name: *const c_char,
    file_base: *mut c_void,
    symbol_name: *const c_char,
    symbol_address: *mut c_void,
}

type Create = unsafe extern "C" fn(*mut c_uint, unsafe extern "C" fn(*mut c_void)) -> c_int;

const RTLD_LAZY: c_int = 1;
const RTLD_NOLOAD: c_int = 4;
const RTLD_NODELETE: c_int = 0x1000;

/// What [`pin_object`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pinned {
    /// The object that holds the address will not be unloaded by `dlclose`.
    Yes,
    /// There is no dynamic linker in this process: nothing can be unloaded.
    NoLinker,
    /// The linker does not know the object (generated code?): the caller must keep it loaded.
    Unknown,
}

/// Makes the object (executable or shared library) that holds `address` stay loaded until the process ends.
///
/// Needed by whoever leaves addresses of its code with the kernel or libc: descriptors of critical sections, handlers
/// for thread exit. Works from library code that does not know which object it was linked into.
///
/// ```
/// use fastpath_sys::linker::{Pinned, pin_object};
/// static HERE: u8 = 0;
/// assert_ne!(pin_object((&raw const HERE).addr()), Pinned::Unknown);
/// ```
#[doc(alias = "RTLD_NODELETE")]
pub fn pin_object(address: usize) -> Pinned {
    let (dladdr, dlopen) = (arch::symbol!("dladdr"), arch::symbol!("dlopen"));
    if dladdr.is_null() || dlopen.is_null() {
        return Pinned::NoLinker;
    }
    // SAFETY: the only symbols of these names are libc's, with these signatures.
    let (dladdr, dlopen) = unsafe {
        (
            core::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_void, *mut DlInfo) -> c_int>(
                dladdr,
            ),
            core::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void>(
                dlopen,
            ),
        )
    };
    let mut info = DlInfo {
        file_name: null_mut(),
        file_base: null_mut(),
        symbol_name: null_mut(),
        symbol_address: null_mut(),
    };
    // SAFETY: dladdr writes `info` and only compares `address`.
    if unsafe { dladdr(core::ptr::without_provenance(address), &raw mut info) } == 0
        || info.file_name.is_null()
    {
        return Pinned::Unknown;
    }
    // SAFETY: `file_name` is a C string of the linker's. NOLOAD runs no constructors: the object is loaded already.
    let handle = unsafe { dlopen(info.file_name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) };
    if !handle.is_null() {
        return Pinned::Yes;
    }
    // The main program is known by its path, under which it cannot be opened again; it is never unloaded either.
    // SAFETY: a null name asks for the main program.
    let main = unsafe { dlopen(core::ptr::null(), RTLD_LAZY | RTLD_NOLOAD) };
    if main.is_null() { Pinned::Unknown } else { Pinned::Yes }
}

/// A key whose destructor libc runs at the exit of every thread that [set](ExitKey::arm) it.
#[derive(Debug, Clone, Copy)]
pub struct ExitKey(c_uint);

impl ExitKey {
    /// A new key with `destructor`; `None` without a libc that has thread-specific data, or without free keys.
    ///
    /// The destructor may never be unloaded: [pin](pin_object) its object.
    ///
    /// ```
    /// use fastpath_sys::linker::ExitKey;
    /// unsafe extern "C" fn at_exit(_: *mut core::ffi::c_void) {}
    /// let key = ExitKey::new(at_exit).expect("this process has a libc");
    /// assert!(key.arm());
    /// ```
    #[doc(alias = "pthread_key_create")]
    pub fn new(destructor: unsafe extern "C" fn(*mut c_void)) -> Option<Self> {
        let create = arch::symbol!("pthread_key_create");
        if create.is_null() {
            return None;
        }
        // SAFETY: the only symbol of this name is libc's, with this signature.
        let create = unsafe { core::mem::transmute::<*mut c_void, Create>(create) };
        let mut key = 0;
        // SAFETY: writes `key`; the destructor stays callable by the contract above.
        (unsafe { create(&raw mut key, destructor) } == 0).then_some(Self(key))
    }

    /// The key's number, for keeping it in an atomic.
    pub const fn number(self) -> c_uint {
        self.0
    }

    /// The key with this number, which [`number`](Self::number) gave.
    pub const fn from_number(number: c_uint) -> Self {
        Self(number)
    }

    /// Makes the destructor run when the calling thread exits. False if libc has no memory for it.
    #[doc(alias = "pthread_setspecific")]
    pub fn arm(self) -> bool {
        let set = arch::symbol!("pthread_setspecific");
        if set.is_null() {
            return false;
        }
        // SAFETY: the only symbol of this name is libc's, with this signature.
        let set = unsafe {
            core::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_uint, *const c_void) -> c_int>(set)
        };
        // SAFETY: the key was created; the value is never dereferenced, it only has to be non-null.
        unsafe { set(self.0, core::ptr::without_provenance(1)) == 0 }
    }
}
