// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! RISC-V with A: LR/SC and AMO from the compiler (masked for bytes and halfwords), `amocas` where the target has Zacas.
//!
//! Without Zacas there is no wide compare-and-exchange: no full pair form, and no full eight-byte form on RV32. Their
//! local forms turn interrupts off on bare metal (machine mode).

use crate::contract::Backend;
use crate::contract::sealed::Sealed;

/// The contract on RISC-V A instructions.
#[derive(Debug, Clone, Copy)]
pub struct RiscV;

impl Sealed for RiscV {}
impl Backend for RiscV {
    const NAME: &'static str = if cfg!(target_feature = "zacas") { "riscv-zacas" } else { "riscv" };
}
full_by_core!(RiscV);
local_by_relaxed!(RiscV);

#[cfg(target_feature = "zacas")]
mod zacas {
    use super::RiscV;
    use crate::Ordering;
    use crate::contract::{DoubleOps, LocalDoubleOps};
    use crate::pair::Pair;
    use core::arch::asm;

    /// One `amocas` of two registers; it wants an even register and the next for each pair.
    macro_rules! amocas {
        ($suffix:literal, $ptr:expr, $old:expr, $new:expr) => {{
            let (first, second);
            // No `nomem`: it accesses memory.
            asm!(
                ".option push",
                ".option arch, +zacas",
                #[cfg(target_arch = "riscv64")]
                concat!("amocas.q", $suffix, " a0, a2, (a4)"),
                #[cfg(target_arch = "riscv32")]
                concat!("amocas.d", $suffix, " a0, a2, (a4)"),
                ".option pop",
                inout("a0") $old.first => first,
                inout("a1") $old.second => second,
                in("a2") $new.first,
                in("a3") $new.second,
                in("a4") $ptr,
                options(nostack)
            );
            Pair { first, second }
        }};
    }

    // SAFETY: one AMO is one step for all harts (Zacas specification).
    unsafe impl DoubleOps for RiscV {
        fn available() -> bool {
            true
        }
        #[inline(always)]
        unsafe fn cmpxchg_double(ptr: *mut Pair, old: Pair, new: Pair, order: Ordering) -> Pair {
            // ORDERING: the .aq and .rl bits as the caller asks.
            // SAFETY: valid, aligned to the pair by the type (caller).
            unsafe {
                match order {
                    Ordering::Relaxed => amocas!("", ptr, old, new),
                    Ordering::Acquire => amocas!(".aq", ptr, old, new),
                    Ordering::Release => amocas!(".rl", ptr, old, new),
                    _ => amocas!(".aqrl", ptr, old, new),
                }
            }
        }
    }

    // SAFETY: what no hart can divide, no handler of this hart can.
    unsafe impl LocalDoubleOps for RiscV {
        fn available_local() -> bool {
            true
        }
        #[inline(always)]
        unsafe fn cmpxchg_double_local(ptr: *mut Pair, old: Pair, new: Pair) -> Pair {
            // ORDERING: Relaxed: a local form orders nothing for other harts.
            // SAFETY: the caller's guarantee includes that of the full form.
            unsafe { Self::cmpxchg_double(ptr, old, new, Ordering::Relaxed) }
        }
    }
}

#[cfg(not(target_feature = "zacas"))]
mod narrow {
    use super::RiscV;

    no_full_double!(RiscV);
    #[cfg(target_os = "none")]
    local_double_by_interrupts!(RiscV);
    #[cfg(not(target_os = "none"))]
    no_local_double!(RiscV);
}
#[cfg(all(not(target_has_atomic = "64"), target_os = "none"))]
local_u64_by_interrupts!(RiscV);
