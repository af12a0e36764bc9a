// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Clocks, as the C library reads them where there is one.
//!
//! It finds the kernel's own code for that in the process, and so does `rustix`; but not under Valgrind 3.19, whose
//! auxiliary vector names an object that `rustix` then cannot read.

use core::ffi::c_int;
use core::time::Duration;

pub use rustix::time::ClockId;

use crate::libc_symbols;

/// The C library's `struct timespec` on 64-bit machines.
#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

/// The time since the clock's zero.
///
/// ```
/// use fastpath_sys::clock::{ClockId, now};
/// assert!(now(ClockId::Monotonic) <= now(ClockId::Monotonic));
/// ```
#[doc(alias = "clock_gettime")]
pub fn now(clock: ClockId) -> Duration {
    let function = libc_symbols::clock_gettime();
    // On 32-bit machines there are two such structures, and two functions.
    if function.is_null() || !cfg!(target_pointer_width = "64") {
        let time = rustix::time::clock_gettime(clock);
        return Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32);
    }
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: the C library's function of that name and type, which cannot fail for a clock that every kernel has.
    unsafe {
        let function: extern "C" fn(c_int, *mut Timespec) -> c_int = core::mem::transmute(function);
        function(clock as c_int, &raw mut time);
    }
    Duration::new(time.seconds.unsigned_abs(), time.nanoseconds as u32)
}
