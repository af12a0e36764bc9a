// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! RISC-V, 64 bits: `ecall`, `tp`, and weak references through the GOT.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicIsize, Ordering};

/// The signature before every abort handler: `csrw mhartid, x0`, which is always illegal.
pub const SIGNATURE: u32 = 0xf140_1073;
/// `__NR_rseq`.
pub const NR_RSEQ: usize = 293;
/// `__NR_prctl`.
pub const NR_PRCTL: usize = 167;
/// `__NR_membarrier`.
pub const NR_MEMBARRIER: usize = 283;
/// `__NR_sched_setscheduler`.
pub const NR_SCHED_SETSCHEDULER: usize = 119;
/// `__NR_sched_getscheduler`.
pub const NR_SCHED_GETSCHEDULER: usize = 120;
/// `__NR_sched_getaffinity`.
pub const NR_SCHED_GETAFFINITY: usize = 123;
/// `__NR_futex`.
pub const NR_FUTEX: usize = 98;
/// `__NR_sched_setattr`.
pub const NR_SCHED_SETATTR: usize = 274;
/// `__NR_rt_sigprocmask`.
pub const NR_RT_SIGPROCMASK: usize = 135;
/// `__NR_getcpu`.
pub const NR_GETCPU: usize = 168;
/// `__NR_write`.
pub const NR_WRITE: usize = 64;

/// A system call; the result is the kernel's, negative errno included.
///
/// # Safety
///
/// The call must be sound with these arguments: pointers valid for what the kernel does with them.
#[inline]
pub unsafe fn syscall6(nr: usize, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the caller's contract. No `nomem`: the kernel reads and writes memory.
    unsafe {
        asm!(
            "ecall",
            in("a7") nr,
            inlateout("a0") args[0] as isize => result,
            in("a1") args[1], in("a2") args[2], in("a3") args[3], in("a4") args[4], in("a5") args[5],
            options(nostack),
        );
    }
    result
}

/// The calling thread's thread pointer: what thread-local offsets are added to.
#[inline(always)]
pub fn thread_pointer() -> *mut u8 {
    let pointer: *mut u8;
    // SAFETY: reads a register that never changes during a thread's life.
    unsafe { asm!("mv {}, tp", out(reg) pointer, options(pure, nomem, nostack, preserves_flags)) };
    pointer
}

/// The address of a symbol, null when no loaded object defines it.
macro_rules! symbol {
    ($name:expr) => {{
        let address: *mut core::ffi::c_void;
        // SAFETY: reads one GOT entry, which the dynamic linker filled before any code ran and which never changes.
        // `la` of an undefined symbol is a GOT load only in position-independent code, so that is switched on here.
        unsafe {
            core::arch::asm!(
                ".option push",
                ".option pic",
                concat!(".weak ", $name),
                concat!("la {}, ", $name),
                ".option pop",
                out(reg) address,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        address
    }};
}
pub(crate) use symbol;

// The thread's own area, cpu_id -1 until registered.
global_asm!(
    ".pushsection .tdata.fastpath_sys_rseq,\"awT\",@progbits",
    ".balign 32",
    ".globl {area}",
    ".hidden {area}",
    ".type {area}, @object",
    ".size {area}, 32",
    "{area}:",
    ".word 0, -1",
    ".dword 0",
    ".word 0, 0, 0, 0",
    ".popsection",
    area = sym fastpath_sys_rseq_area_0_1,
);

unsafe extern "C" {
    /// The thread-local area itself. Only its name is used: Rust would take it for an ordinary static.
    safe static fastpath_sys_rseq_area_0_1: u64;
}

/// Thread pointer to area, in bytes; 0 before start-up.
#[allow(non_upper_case_globals, reason = "the same name as the assembly symbol of x86-64")]
pub static fastpath_sys_rseq_offset_0_1: AtomicIsize = AtomicIsize::new(0);
/// Thread pointer to the field that numbers slots, in bytes; 0 before start-up.
#[allow(non_upper_case_globals, reason = "the same name as the assembly symbol of x86-64")]
pub static fastpath_sys_rseq_id_offset_0_1: AtomicIsize = AtomicIsize::new(0);

/// The offset from the thread pointer to this thread's rseq area; before start-up that of its own, unregistered one.
#[inline(always)]
pub fn area_offset() -> isize {
    // ORDERING: Relaxed: both values are offsets of valid areas, nothing else is published with them.
    match fastpath_sys_rseq_offset_0_1.load(Ordering::Relaxed) {
        0 => own_area_offset(),
        offset => offset,
    }
}

/// The offset from the thread pointer to the field that numbers the slots.
#[inline(always)]
pub fn id_offset() -> isize {
    // ORDERING: Relaxed: as `area_offset`.
    match fastpath_sys_rseq_id_offset_0_1.load(Ordering::Relaxed) {
        0 => own_area_offset() + 4,
        offset => offset,
    }
}

/// The offset of the thread's own area.
#[inline]
pub fn own_area_offset() -> isize {
    let offset: isize;
    // SAFETY: reads the GOT entry of a thread-local object in the initial-exec model: a constant of the process.
    unsafe {
        asm!(
            "la.tls.ie {0}, {1}",
            out(reg) offset,
            sym fastpath_sys_rseq_area_0_1,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    offset
}
