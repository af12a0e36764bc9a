// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What needs assembly here: the registers from which a stack is unwound.

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), path = "missing.rs")]
mod machine;

pub(crate) use machine::{
    FRAME_POINTER, INSTRUCTION, REGISTERS, RETURN, SAVED, STACK_POINTER, plain, registers,
};
