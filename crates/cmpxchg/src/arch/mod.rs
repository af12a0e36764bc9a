// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The crate's one selection table: which backend is [`Native`] on which target.
//!
//! | target | `Native` | local forms | pairs |
//! |---|---|---|---|
//! | x86-64 | `x86_64` | one instruction without LOCK | `cmpxchg16b`, if the processor has it |
//! | x86 (Pentium up) | `x86` | one instruction without LOCK | `cmpxchg8b` |
//! | AArch64 | `aarch64`, `aarch64-lse` | relaxed LL/SC or LSE | `ldxp`/`stxp` or `casp` |
//! | ARM v6 and later | `arm` | relaxed `ldrex`/`strex` | `ldrexd`; on v7-M, v8-M local only, interrupts off |
//! | RISC-V with A | `riscv`, `riscv-zacas` | relaxed LR/SC and AMO | `amocas` with Zacas; else local only, interrupts off |
//! | others with a compare-and-exchange | `core_atomic` | relaxed full forms | none (`available` is false) |
//! | ARM v4T, v5; bare metal without a compare-and-exchange | `generic` | interrupts off | interrupts off |
//! | anything else without one | `generic` with the feature `critical-section` | the same | the same |
//!
//! `generic` is also compiled and tested where it is not selected; modules that are not selected are not linted, so
//! `ci/lanes/20-cross.sh` runs clippy's compiler half (warnings denied) for every target.

#[cfg(target_has_atomic = "ptr")]
#[macro_use]
mod by_core;
#[macro_use]
mod by_interrupts;
#[cfg(not(loom))]
pub(crate) mod fence;

mod generic;
pub use generic::Generic;

#[cfg(target_has_atomic = "ptr")]
mod core_atomic;
#[cfg(target_has_atomic = "ptr")]
pub use core_atomic::CoreAtomic;

#[cfg(all(target_has_atomic = "ptr", not(miri)))]
cfg_select! {
    target_arch = "x86_64" => {
        #[macro_use]
        mod x86_unlocked;
        mod x86_64;
        pub use x86_64::X86_64 as Native;
    }
    target_arch = "x86" => {
        #[macro_use]
        mod x86_unlocked;
        mod x86;
        pub use x86::X86 as Native;
    }
    target_arch = "aarch64" => {
        mod aarch64;
        pub use aarch64::AArch64 as Native;
    }
    target_arch = "arm" => {
        mod arm;
        pub use arm::Arm as Native;
    }
    any(target_arch = "riscv32", target_arch = "riscv64") => {
        mod riscv;
        pub use riscv::RiscV as Native;
    }
    _ => {
        pub use core_atomic::CoreAtomic as Native;
    }
}

// Miri interprets no assembly.
#[cfg(all(target_has_atomic = "ptr", miri))]
pub use core_atomic::CoreAtomic as Native;

#[cfg(not(target_has_atomic = "ptr"))]
cfg_select! {
    feature = "critical-section" => {
        /// Interrupts off, by the `critical-section` implementation of the final binary.
        pub type Native = Generic<crate::interrupt::CriticalSection>;
    }
    all(
        target_os = "none",
        any(fastpath_arm = "pre_v6", fastpath_assume_single_core),
        any(target_arch = "arm", target_arch = "riscv32", target_arch = "riscv64")
    ) => {
        /// Interrupts off, by the processor's own flag.
        pub type Native = Generic<crate::interrupt::Interrupts>;
    }
    _ => {
        compile_error!(
            "this target has no compare-and-exchange and may have several processors: build the final binary with \
             `--cfg fastpath_assume_single_core` if it runs on one, or enable the feature `critical-section`"
        );
        /// Only so that nothing else fails after the error above.
        pub type Native = Generic<crate::interrupt::Interrupts>;
    }
}

// What `Native` can do on this target, as macros that keep or drop an item: a `where` clause on a concrete type cannot
// say it, because a bound that is false for every caller is an error in itself.
#[rustfmt::skip] // rustfmt indents the nested macro further each time
macro_rules! capability {
    ($dollar:tt $name:ident, $condition:meta) => {
        #[cfg($condition)]
        macro_rules! $name {
            ($dollar item:item) => {
                $dollar item
            };
        }
        #[cfg(not($condition))]
        macro_rules! $name {
            ($dollar item:item) => {};
        }
    };
}
capability!($ if_full_u64, any(target_has_atomic = "64", not(target_has_atomic = "ptr")));
capability!(
    $ if_local_u64,
    any(
        target_has_atomic = "64",
        not(target_has_atomic = "ptr"),
        all(target_os = "none", any(target_arch = "arm", target_arch = "riscv32"), not(miri))
    )
);
