// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The crate's one architecture table: system calls, the thread pointer, and symbols that may be missing.
//!
//! Each file gives `syscall6`, `thread_pointer`, the `symbol!` macro (a weak reference: null when no loaded object
//! defines the name), the two words of [`crate::rseq::set_offsets`], the signature, and the system call numbers.
//! The thread's own rseq area is a thread-local object of the initial-exec model written in assembly: there is no
//! stable Rust for that, and `__tls_get_addr` may allocate.

cfg_select! {
    all(target_arch = "x86_64", target_pointer_width = "64") => {
        mod x86_64;
        pub use x86_64::*;
    }
    target_arch = "aarch64" => {
        mod aarch64;
        pub use aarch64::*;
    }
    target_arch = "riscv64" => {
        mod riscv64;
        pub use riscv64::*;
    }
    _ => {
        compile_error!("fastpath-sys knows x86_64 (LP64), aarch64 and riscv64; the no_std crates need no fastpath-sys");
    }
}
