// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! x86-64.

use core::arch::asm;

/// The thread pointer: different for every live thread of the process.
#[inline]
pub(crate) fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: the ABI stores the thread pointer at its own address.
    unsafe { asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly)) };
    pointer
}

/// The address of a symbol that may be missing (null then).
macro_rules! weak {
    ($name:ident) => {{
        let address: *mut u8;
        // SAFETY: loads the symbol's entry of the global offset table.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", stringify!($name)),
                concat!("mov {}, [rip + ", stringify!($name), "@GOTPCREL]"),
                out(reg) address,
                options(nostack, preserves_flags, readonly),
            );
        }
        address
    }};
}
pub(crate) use weak;
