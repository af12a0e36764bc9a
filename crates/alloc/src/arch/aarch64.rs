// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! AArch64.

use core::arch::asm;

/// The thread pointer: different for every live thread of the process.
#[inline]
pub(crate) fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: a register that user space may read.
    unsafe { asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, preserves_flags, nomem)) };
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
                concat!("adrp {0}, :got:", stringify!($name)),
                concat!("ldr {0}, [{0}, :got_lo12:", stringify!($name), "]"),
                out(reg) address,
                options(nostack, preserves_flags, readonly),
            );
        }
        address
    }};
}
pub(crate) use weak;

/// Stacks are not unwound here yet.
pub(crate) fn registers() -> Option<[usize; 17]> {
    None
}
