// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! x86-64: LOCK-prefixed full forms from the compiler, local forms without LOCK, `cmpxchg16b` for pairs.
//!
//! Whatever order is asked, a locked read-modify-write is sequentially consistent here.

use core::arch::asm;

use crate::Ordering;
use crate::contract::sealed::Sealed;
use crate::contract::{Backend, DoubleOps, LocalDoubleOps};
use crate::pair::Pair;

/// The contract on x86-64 instructions.
#[derive(Debug, Clone, Copy)]
pub struct X86_64;

impl Sealed for X86_64 {}
impl Backend for X86_64 {
    const NAME: &'static str = "x86_64";
}
full_by_core!(X86_64);
local_unlocked!(X86_64, u8, reg_byte, "al", "{value}");
local_unlocked!(X86_64, u16, reg, "ax", "{value:x}");
local_unlocked!(X86_64, u32, reg, "eax", "{value:e}");
local_unlocked!(X86_64, u64, reg, "rax", "{value:r}");

/// CPUID.1:ECX bit 13, unless the target promises it anyway.
fn has_cmpxchg16b() -> bool {
    cfg!(target_feature = "cmpxchg16b") || core::arch::x86_64::__cpuid(1).ecx & (1 << 13) != 0
}

/// One `cmpxchg16b`, with the prefix `$lock`. The low new half must be in rbx, which the compiler keeps for itself: it is
/// exchanged in and out around the instruction.
macro_rules! cmpxchg16b {
    ($lock:literal, $ptr:expr, $old:expr, $new:expr) => {{
        let (first, second);
        // No `nomem` (it accesses memory) and no `preserves_flags` (it sets ZF). rbx is as before afterwards; an
        // interrupt in between saves and restores it like any register.
        asm!(
            "xchg rsi, rbx",
            concat!($lock, "cmpxchg16b [rdi]"),
            "mov rbx, rsi",
            in("rdi") $ptr,
            inout("rsi") $new.first => _,
            in("rcx") $new.second,
            inout("rax") $old.first => first,
            inout("rdx") $old.second => second,
            options(nostack)
        );
        Pair { first, second }
    }};
}

// SAFETY: a locked `cmpxchg16b` is one step for all processors; it reads both halves as one.
unsafe impl DoubleOps for X86_64 {
    fn available() -> bool {
        has_cmpxchg16b()
    }
    #[inline(always)]
    unsafe fn cmpxchg_double(ptr: *mut Pair, old: Pair, new: Pair, _order: Ordering) -> Pair {
        // SAFETY: valid, aligned to 16 by the type, and the instruction exists (caller).
        unsafe { cmpxchg16b!("lock ", ptr, old, new) }
    }
}

// SAFETY: one instruction: no handler of this processor comes inside.
unsafe impl LocalDoubleOps for X86_64 {
    fn available_local() -> bool {
        has_cmpxchg16b()
    }
    #[inline(always)]
    unsafe fn cmpxchg_double_local(ptr: *mut Pair, old: Pair, new: Pair) -> Pair {
        // SAFETY: valid, aligned to 16 by the type, and the instruction exists (caller).
        unsafe { cmpxchg16b!("", ptr, old, new) }
    }
}
