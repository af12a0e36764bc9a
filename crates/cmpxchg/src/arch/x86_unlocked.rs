// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The one-instruction local forms that x86 and x86-64 share: `cmpxchg`, `xadd`, `add`, `and`, `or`, `xor` without LOCK.
//!
//! An interrupt, also an NMI, arrives before or after an instruction, never inside, so one instruction is indivisible for
//! this processor (Intel SDM vol. 3, "Handling faults and interrupts at instruction boundaries"). `xchg` with memory
//! always locks, so `xchg_local` is a loop of `cmpxchg`.
//!
//! Options left out in every block: no `nomem` (they access memory, and are compiler barriers for it), no
//! `preserves_flags` (they set the arithmetic flags).

/// The local forms of `$backend` on `$word`: register class, accumulator and operand template by width.
macro_rules! local_unlocked {
    ($backend:ty, $word:ty, $reg:ident, $acc:tt, $value:literal) => {
        // SAFETY: each form is one instruction, or a loop around one that retries until nothing came in between.
        unsafe impl $crate::contract::LocalOps<$word> for $backend {
            #[inline(always)]
            unsafe fn load_local(ptr: *mut $word) -> $word {
                // SAFETY: valid and aligned (caller); one `mov`.
                unsafe { ptr.read_volatile() }
            }
            #[inline(always)]
            unsafe fn cmpxchg_local(ptr: *mut $word, old: $word, new: $word) -> $word {
                let previous;
                // SAFETY: accesses only the word at `ptr`, valid and aligned (caller).
                unsafe {
                    core::arch::asm!(concat!("cmpxchg [{ptr}], ", $value), ptr = in(reg) ptr, value = in($reg) new,
                        inout($acc) old => previous, options(nostack));
                }
                previous
            }
            #[inline(always)]
            unsafe fn fetch_add_local(ptr: *mut $word, value: $word) -> $word {
                let previous;
                // SAFETY: accesses only the word at `ptr`, valid and aligned (caller); so do the blocks below.
                unsafe {
                    core::arch::asm!(concat!("xadd [{ptr}], ", $value), ptr = in(reg) ptr,
                        value = inout($reg) value => previous, options(nostack));
                }
                previous
            }
            #[inline(always)]
            unsafe fn add_local(ptr: *mut $word, value: $word) {
                // SAFETY: see `fetch_add_local`.
                unsafe {
                    core::arch::asm!(concat!("add [{ptr}], ", $value), ptr = in(reg) ptr, value = in($reg) value,
                        options(nostack));
                }
            }
            #[inline(always)]
            unsafe fn and_local(ptr: *mut $word, value: $word) {
                // SAFETY: see `fetch_add_local`.
                unsafe {
                    core::arch::asm!(concat!("and [{ptr}], ", $value), ptr = in(reg) ptr, value = in($reg) value,
                        options(nostack));
                }
            }
            #[inline(always)]
            unsafe fn or_local(ptr: *mut $word, value: $word) {
                // SAFETY: see `fetch_add_local`.
                unsafe {
                    core::arch::asm!(concat!("or [{ptr}], ", $value), ptr = in(reg) ptr, value = in($reg) value,
                        options(nostack));
                }
            }
            #[inline(always)]
            unsafe fn xor_local(ptr: *mut $word, value: $word) {
                // SAFETY: see `fetch_add_local`.
                unsafe {
                    core::arch::asm!(concat!("xor [{ptr}], ", $value), ptr = in(reg) ptr, value = in($reg) value,
                        options(nostack));
                }
            }
        }
    };
}
