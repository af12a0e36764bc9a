// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! AArch64: `svc`, `tpidr_el0`, and weak references through the GOT.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicIsize, Ordering};

/// The signature before every abort handler: `brk #0x45e0`, emitted as code so that big-endian data agrees.
pub const SIGNATURE: u32 = 0xd428_bc00;
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
            "svc #0",
            in("x8") nr,
            inlateout("x0") args[0] as isize => result,
            in("x1") args[1], in("x2") args[2], in("x3") args[3], in("x4") args[4], in("x5") args[5],
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
    unsafe { asm!("mrs {}, tpidr_el0", out(reg) pointer, options(pure, nomem, nostack, preserves_flags)) };
    pointer
}

/// The address of a symbol, null when no loaded object defines it.
macro_rules! symbol {
    ($name:expr) => {{
        let address: *mut core::ffi::c_void;
        // SAFETY: reads one GOT entry, which the dynamic linker filled before any code ran and which never changes.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $name),
                concat!("adrp {0}, :got:", $name),
                concat!("ldr {0}, [{0}, :got_lo12:", $name, "]"),
                out(reg) address,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        address
    }};
}
pub(crate) use symbol;

// The thread's own area, cpu_id -1 until registered. The static linkers know no thread-local offset as data here, so
// the two words start as 0, which `area_offset` resolves to the own area.
global_asm!(
    ".pushsection .tdata.fastpath_sys_rseq,\"awT\",@progbits",
    ".balign 32",
    ".globl {area}",
    ".hidden {area}",
    ".type {area}, @object",
    ".size {area}, 32",
    "{area}:",
    ".word 0, -1",
    ".xword 0",
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
            "adrp {0}, :gottprel:{1}",
            "ldr {0}, [{0}, :gottprel_lo12:{1}]",
            out(reg) offset,
            sym fastpath_sys_rseq_area_0_1,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    offset
}
