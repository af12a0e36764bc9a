// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! ARM from v6 on: `ldrex`/`strex` loops from the compiler, `ldrexd` for eight bytes and for pairs where the core has it.
//!
//! ARMv7-M and ARMv8-M have no `ldrexd`: there the eight-byte and pair local forms turn interrupts off.

use crate::contract::Backend;
use crate::contract::sealed::Sealed;

/// The contract on ARM exclusive accesses.
#[derive(Debug, Clone, Copy)]
pub struct Arm;

impl Sealed for Arm {}
impl Backend for Arm {
    const NAME: &'static str = "arm";
}
full_by_core!(Arm);
local_by_relaxed!(Arm);

#[cfg(target_has_atomic = "64")]
double_by_u64!(Arm);
#[cfg(not(target_has_atomic = "64"))]
mod narrow {
    use super::Arm;

    no_full_double!(Arm);
    #[cfg(target_os = "none")]
    local_double_by_interrupts!(Arm);
    #[cfg(target_os = "none")]
    local_u64_by_interrupts!(Arm);
    #[cfg(not(target_os = "none"))]
    no_local_double!(Arm);
}
