// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! 32-bit x86 from the Pentium on: as x86-64, with `cmpxchg8b` for eight bytes and for pairs.

use core::arch::asm;

use crate::Ordering;
use crate::contract::sealed::Sealed;
use crate::contract::{Backend, DoubleOps, LocalDoubleOps, LocalOps, Ops};
use crate::pair::Pair;

/// The contract on 32-bit x86 instructions.
#[derive(Debug, Clone, Copy)]
pub struct X86;

impl Sealed for X86 {}
impl Backend for X86 {
    const NAME: &'static str = "x86";
}
full_by_core!(X86);
local_unlocked!(X86, u8, reg_byte, "al", "{value}");
local_unlocked!(X86, u16, reg, "ax", "{value:x}");
local_unlocked!(X86, u32, reg, "eax", "{value:e}");

/// `cmpxchg8b` without LOCK.
///
/// # Safety
/// See [`LocalOps`].
#[inline(always)]
unsafe fn cmpxchg8b(ptr: *mut u64, old: u64, new: u64) -> u64 {
    let (low, high): (u32, u32);
    // The low new half must be in ebx, and no register is left to carry it: ebx and esi belong to the compiler. So edi
    // brings the address of both arguments, and ebx is saved on the stack: no `nostack`. No `nomem`, no
    // `preserves_flags`: it accesses memory and sets ZF.
    let arguments: [u32; 2] = [ptr as u32, new as u32];
    // SAFETY: accesses `arguments` and the word at `ptr`, valid and aligned (caller).
    unsafe {
        asm!(
            "push ebx",
            "mov ebx, [edi + 4]",
            "mov edi, [edi]",
            "cmpxchg8b [edi]",
            "pop ebx",
            inout("edi") arguments.as_ptr() => _,
            in("ecx") (new >> 32) as u32,
            inout("eax") old as u32 => low,
            inout("edx") (old >> 32) as u32 => high,
        );
    }
    u64::from(high) << 32 | u64::from(low)
}

// SAFETY: one instruction on the word, or a loop around it.
unsafe impl LocalOps<u64> for X86 {
    #[inline(always)]
    unsafe fn cmpxchg_local(ptr: *mut u64, old: u64, new: u64) -> u64 {
        // SAFETY: the caller's guarantee is the same.
        unsafe { cmpxchg8b(ptr, old, new) }
    }
}

/// Both halves as the one number that eight bytes at an address are.
fn wide(pair: Pair) -> u64 {
    (pair.second as u64) << 32 | pair.first as u64
}

fn halves(wide: u64) -> Pair {
    Pair { first: wide as usize, second: (wide >> 32) as usize }
}

// SAFETY: a pair is eight aligned bytes; the full form on `u64` is one step for all processors.
unsafe impl DoubleOps for X86 {
    fn available() -> bool {
        true
    }
    #[inline(always)]
    unsafe fn cmpxchg_double(ptr: *mut Pair, old: Pair, new: Pair, order: Ordering) -> Pair {
        // ORDERING: the caller's.
        // SAFETY: the caller's guarantee; aligned to 8 by the type.
        halves(unsafe { <Self as Ops<u64>>::cmpxchg(ptr.cast(), wide(old), wide(new), order) })
    }
}

// SAFETY: one instruction on the pair.
unsafe impl LocalDoubleOps for X86 {
    fn available_local() -> bool {
        true
    }
    #[inline(always)]
    unsafe fn cmpxchg_double_local(ptr: *mut Pair, old: Pair, new: Pair) -> Pair {
        // SAFETY: the caller's guarantee; aligned to 8 by the type.
        halves(unsafe { cmpxchg8b(ptr.cast(), wide(old), wide(new)) })
    }
}
