// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The exported `malloc`, `free`, `operator new` and `operator delete`, and what else must be written in assembly.

cfg_select! {
    all(target_arch = "x86_64", target_os = "linux") => {
        mod x86_64;
        pub use x86_64::malloc;
        pub(crate) use x86_64::throw_by_parts;
    }
    all(target_arch = "aarch64", target_os = "linux") => {
        mod compiled;
        mod aarch64;
        pub use compiled::malloc;
        pub(crate) use aarch64::throw_by_parts;
    }
    _ => {
        mod compiled;
        mod portable;
        pub use compiled::malloc;
        pub(crate) use portable::throw_by_parts;
    }
}
