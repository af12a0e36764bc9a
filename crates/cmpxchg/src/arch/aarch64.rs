// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! AArch64: full forms from the compiler (LL/SC, LSE when the target has it, outlined on Linux), local forms as relaxed
//! ones, and pairs by `casp` or `ldxp`/`stxp` (Arm ARM, C6.2 "CASP", "LDXP", "STXP").

use core::arch::asm;

use crate::Ordering;
use crate::contract::sealed::Sealed;
use crate::contract::{Backend, DoubleOps, LocalDoubleOps};
use crate::pair::Pair;

/// The contract on AArch64 instructions.
#[derive(Debug, Clone, Copy)]
pub struct AArch64;

impl Sealed for AArch64 {}
impl Backend for AArch64 {
    const NAME: &'static str = if cfg!(target_feature = "lse") { "aarch64-lse" } else { "aarch64" };
}
full_by_core!(AArch64);
local_by_relaxed!(AArch64);

/// One loop of exclusive pair accesses. On a mismatch it stores back what it read: only a successful `stxp` proves that
/// both halves were read at one moment (without FEAT_LSE2). Nobody can tell that from a load.
#[cfg(not(target_feature = "lse"))]
macro_rules! exclusive {
    ($load:literal, $store:literal, $ptr:expr, $old:expr, $new:expr) => {{
        let (first, second);
        // No `nomem` (it accesses memory), no `preserves_flags` (it compares).
        asm!(
            "2:",
            concat!($load, " {first}, {second}, [{ptr}]"),
            "cmp {first}, {old_first}",
            "ccmp {second}, {old_second}, #0, eq",
            "csel {store_first}, {new_first}, {first}, eq",
            "csel {store_second}, {new_second}, {second}, eq",
            concat!($store, " {failed:w}, {store_first}, {store_second}, [{ptr}]"),
            "cbnz {failed:w}, 2b",
            ptr = in(reg) $ptr,
            old_first = in(reg) $old.first,
            old_second = in(reg) $old.second,
            new_first = in(reg) $new.first,
            new_second = in(reg) $new.second,
            first = out(reg) first,
            second = out(reg) second,
            store_first = out(reg) _,
            store_second = out(reg) _,
            failed = out(reg) _,
            options(nostack)
        );
        Pair { first, second }
    }};
}

/// One `casp`. It wants an even register and the next for each pair.
#[cfg(target_feature = "lse")]
macro_rules! casp {
    ($name:literal, $ptr:expr, $old:expr, $new:expr) => {{
        let (first, second);
        // No `nomem`: it accesses memory. It leaves the flags alone.
        asm!(
            concat!($name, " x0, x1, x2, x3, [x4]"),
            inout("x0") $old.first => first,
            inout("x1") $old.second => second,
            in("x2") $new.first,
            in("x3") $new.second,
            in("x4") $ptr,
            options(nostack, preserves_flags)
        );
        Pair { first, second }
    }};
}

// SAFETY: `casp` is one step; the exclusive loop repeats until nothing came in between, on any processor.
unsafe impl DoubleOps for AArch64 {
    fn available() -> bool {
        true
    }
    #[inline(always)]
    unsafe fn cmpxchg_double(ptr: *mut Pair, old: Pair, new: Pair, order: Ordering) -> Pair {
        // ORDERING: the acquire and release forms of the instructions as the caller asks; AcqRel and SeqCst are the same
        // instruction, as for single words.
        // SAFETY: valid, aligned to 16 by the type (caller), in each arm.
        #[cfg(target_feature = "lse")]
        unsafe {
            match order {
                Ordering::Relaxed => casp!("casp", ptr, old, new),
                Ordering::Acquire => casp!("caspa", ptr, old, new),
                Ordering::Release => casp!("caspl", ptr, old, new),
                _ => casp!("caspal", ptr, old, new),
            }
        }
        // SAFETY: as above.
        #[cfg(not(target_feature = "lse"))]
        unsafe {
            match order {
                Ordering::Relaxed => exclusive!("ldxp", "stxp", ptr, old, new),
                Ordering::Acquire => exclusive!("ldaxp", "stxp", ptr, old, new),
                Ordering::Release => exclusive!("ldxp", "stlxp", ptr, old, new),
                _ => exclusive!("ldaxp", "stlxp", ptr, old, new),
            }
        }
    }
}

// SAFETY: what no processor can divide, no handler of this processor can.
unsafe impl LocalDoubleOps for AArch64 {
    fn available_local() -> bool {
        true
    }
    #[inline(always)]
    unsafe fn cmpxchg_double_local(ptr: *mut Pair, old: Pair, new: Pair) -> Pair {
        // ORDERING: Relaxed: a local form orders nothing for other processors.
        // SAFETY: the caller's guarantee includes that of the full form.
        unsafe { Self::cmpxchg_double(ptr, old, new, Ordering::Relaxed) }
    }
}
