// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The one table of cycle counters: which file reads the counter of this architecture.

core::cfg_select! {
    target_arch = "x86_64" => {
        mod x86_64;
        pub(super) use x86_64::{NAME, read, reads_cycles};
    }
    target_arch = "aarch64" => {
        mod aarch64;
        pub(super) use aarch64::{NAME, read, reads_cycles};
    }
    target_arch = "riscv64" => {
        mod riscv64;
        pub(super) use riscv64::{NAME, read, reads_cycles};
    }
    _ => {
        mod clock;
        pub(super) use clock::{NAME, read, reads_cycles};
    }
}
