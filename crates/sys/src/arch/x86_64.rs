// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! x86-64: `syscall`, `fs`, and weak references through the GOT.

use core::arch::{asm, global_asm};
use core::sync::atomic::AtomicIsize;

/// The signature before every abort handler: the operand of a `ud1` that nobody executes.
pub const SIGNATURE: u32 = 0x5305_3053;
/// `__NR_rseq`.
pub const NR_RSEQ: usize = 334;
/// `__NR_prctl`.
pub const NR_PRCTL: usize = 157;
/// `__NR_membarrier`.
pub const NR_MEMBARRIER: usize = 324;
/// `__NR_sched_setscheduler`.
pub const NR_SCHED_SETSCHEDULER: usize = 144;
/// `__NR_sched_getscheduler`.
pub const NR_SCHED_GETSCHEDULER: usize = 145;
/// `__NR_sched_getaffinity`.
pub const NR_SCHED_GETAFFINITY: usize = 204;
/// `__NR_futex`.
pub const NR_FUTEX: usize = 202;
/// `__NR_sched_setattr`.
pub const NR_SCHED_SETATTR: usize = 314;
/// `__NR_rt_sigprocmask`.
pub const NR_RT_SIGPROCMASK: usize = 14;
/// `__NR_getcpu`.
pub const NR_GETCPU: usize = 309;
/// `__NR_write`.
pub const NR_WRITE: usize = 1;

/// A system call; the result is the kernel's, negative errno included.
///
/// # Safety
///
/// The call must be sound with these arguments: pointers valid for what the kernel does with them.
#[inline]
pub unsafe fn syscall6(nr: usize, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the caller's contract. No `nomem`: the kernel reads and writes memory. The kernel destroys rcx and r11.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") nr as isize => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// The calling thread's thread pointer: what thread-local offsets are added to.
#[inline(always)]
pub fn thread_pointer() -> *mut u8 {
    let pointer: *mut u8;
    // SAFETY: the x86-64 ABI keeps the thread pointer's own value at fs:0. It never changes during a thread's life,
    // so `pure` and `nomem` are true.
    unsafe { asm!("mov {}, fs:[0]", out(reg) pointer, options(pure, nomem, nostack, preserves_flags)) };
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
                concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                out(reg) address,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        address
    }};
}
pub(crate) use symbol;

// The thread's own area: what a thread has when no libc registered one. Its cpu_id is -1 until it is registered, so a
// section that reads it before start-up, or in a thread that was never registered, sees "not registered".
// The two offsets start with this area, so that even a section that runs before start-up reads a valid -1.
global_asm!(
    ".pushsection .tdata.fastpath_sys_rseq,\"awT\",@progbits",
    ".balign 32",
    ".globl {area}",
    ".hidden {area}",
    ".type {area}, @object",
    ".size {area}, 32",
    "{area}:",
    ".long 0, -1",
    ".quad 0",
    ".long 0, 0, 0, 0",
    ".popsection",
    ".pushsection .data.fastpath_sys_rseq,\"aw\",@progbits",
    ".balign 64",
    ".globl {offset}",
    ".hidden {offset}",
    ".type {offset}, @object",
    ".size {offset}, 8",
    "{offset}:",
    ".quad {area}@tpoff",
    ".globl {id}",
    ".hidden {id}",
    ".type {id}, @object",
    ".size {id}, 8",
    "{id}:",
    ".quad {area}@tpoff + 4",
    ".popsection",
    area = sym fastpath_sys_rseq_area_0_1,
    offset = sym fastpath_sys_rseq_offset_0_1,
    id = sym fastpath_sys_rseq_id_offset_0_1,
);

unsafe extern "C" {
    /// The thread-local area itself. Only its name is used: Rust would take it for an ordinary static.
    safe static fastpath_sys_rseq_area_0_1: u64;
    /// Thread pointer to area, in bytes.
    pub safe static fastpath_sys_rseq_offset_0_1: AtomicIsize;
    /// Thread pointer to the field that numbers slots (`cpu_id` or `mm_cid`), in bytes.
    pub safe static fastpath_sys_rseq_id_offset_0_1: AtomicIsize;
}

/// The offset from the thread pointer to this thread's rseq area.
///
/// Always that of an area whose `cpu_id` says whether the thread is registered: before start-up the thread's own one,
/// which says "no". A stale answer is therefore harmless, and the compiler may hoist this out of loops.
#[inline(always)]
pub fn area_offset() -> isize {
    let offset: isize;
    // SAFETY: reads a hidden word of this object. It changes once, at start-up, from one valid offset to another, and
    // either is right at any time (see above); so `pure` and `nomem` are harmless.
    unsafe {
        asm!(
            "mov {}, qword ptr [rip + {}]",
            out(reg) offset,
            sym fastpath_sys_rseq_offset_0_1,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    offset
}

/// The offset from the thread pointer to the field that numbers the slots.
///
/// Final once start-up has returned; use it only after that.
#[inline(always)]
pub fn id_offset() -> isize {
    let offset: isize;
    // SAFETY: reads a hidden word of this object. `readonly`, not `nomem`: it may not move above the call of start-up,
    // since the value from before does not fit the area from after.
    unsafe {
        asm!(
            "mov {}, qword ptr [rip + {}]",
            out(reg) offset,
            sym fastpath_sys_rseq_id_offset_0_1,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    offset
}

/// The offset of the thread's own area.
#[inline]
pub fn own_area_offset() -> isize {
    let offset: isize;
    // SAFETY: reads the GOT entry of a thread-local object in the initial-exec model: a constant of the process.
    unsafe {
        asm!(
            "mov {}, qword ptr [rip + {}@GOTTPOFF]",
            out(reg) offset,
            sym fastpath_sys_rseq_area_0_1,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    offset
}
