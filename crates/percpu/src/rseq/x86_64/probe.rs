// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The self-test's two halves: a section that waits to be aborted, and the bare thread that fences it.

use core::arch::asm;
use core::sync::atomic::{AtomicU32, Ordering};

use fastpath_sys::futex::{self, Clock, Scope};
use fastpath_sys::{mm, sched};

/// Is a section of this thread, whose area lies at `area`, aborted by a fence? `None` if that cannot be tried.
pub(crate) fn abort_probe(area: isize) -> Option<bool> {
    const STACK: usize = 4096;
    let memory = mm::map_lazily(STACK).ok()?;
    let shared = memory.cast::<Shared>().as_ptr();
    // SAFETY: fresh memory of our own, aligned to a page.
    unsafe { shared.write(Shared { armed: 0, fenced: 0, alive: 1 }) };
    let masked = sched::block_signals();
    // SAFETY: signals are blocked, the memory's end is the stack, and the memory stays until the helper is gone.
    let started = unsafe { spawn_fencer(memory.addr().get() + STACK, shared) };
    let aborted = (started > 0).then(|| {
        // SAFETY: start-up has found the area registered.
        let aborted = unsafe { wait_inside(area, shared) };
        // SAFETY: both words are only accessed atomically from here on, by us and the helper (or the kernel for it).
        let (armed, alive) =
            unsafe { (AtomicU32::from_ptr(&raw mut (*shared).armed), AtomicU32::from_ptr(&raw mut (*shared).alive)) };
        // The abort may have come before the section's first store: let the helper go on.
        // ORDERING: Relaxed: a flag alone.
        armed.store(1, Ordering::Relaxed);
        // ORDERING: Relaxed: the kernel's store, after the helper's last instruction.
        while alive.load(Ordering::Relaxed) != 0 {
            let _ = futex::wait(alive, 1, Scope::Shared, Clock::Monotonic, None);
        }
        aborted
    });
    sched::restore_signals(masked);
    // SAFETY: the helper is gone, or never was.
    let _ = unsafe { mm::unmap(memory, STACK) };
    aborted
}

/// What the two threads share. The helper touches nothing else.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Shared {
    /// Set by the tested thread, from inside its section.
    pub(crate) armed: u32,
    /// Set by the helper when it has fenced.
    pub(crate) fenced: u32,
    /// Cleared by the kernel when the helper is gone.
    pub(crate) alive: u32,
}

/// Waits inside a section until it is aborted (true) or the helper says that it has fenced (false).
///
/// Its descriptor lies apart from the others in `__rseq_cs`: tools list those as the sections of the program's operations.
/// The loop commits nothing: its stores to `armed` are harmless to repeat.
///
/// # Safety
///
/// `area` is the offset of this thread's registered area; `shared` is valid until the helper is gone.
pub(crate) unsafe fn wait_inside(area: isize, shared: *mut Shared) -> bool {
    let aborted: u32;
    // SAFETY: the caller's contract; the shape of the section is that of the parent module, but the abort handler does not
    // start again.
    unsafe {
        asm!(
            "xor {aborted:e}, {aborted:e}",
            "lea {t}, [rip + 35f]",
            "mov qword ptr fs:[{area} + 8], {t}",
            "31:",
            "mov dword ptr [{shared}], 1",
            "41:",
            "pause",
            "cmp dword ptr [{shared} + 4], 0",
            "je 41b",
            "32:",
            "mov qword ptr fs:[{area} + 8], 0",
            "36:",
            ".pushsection .data.fastpath_rseq_probe, \"aw\", @progbits",
            ".balign 32",
            "35:",
            ".long 0, 0",
            ".quad 31b, 32b - 31b, 34f",
            ".popsection",
            ".pushsection .text.fastpath_rseq_abort, \"ax\", @progbits",
            ".byte 0x0f, 0xb9, 0x3d",
            ".long 0x53053053",
            "34:",
            "mov {aborted:e}, 1",
            "jmp 36b",
            ".popsection",
            t = out(reg) _,
            aborted = out(reg) aborted,
            area = in(reg) area,
            shared = in(reg) shared,
            options(nostack),
        );
    }
    aborted != 0
}

/// `CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID`
const FLAGS: usize = 0x100 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x4_0000 | 0x20_0000;

/// Starts the helper: it waits for `armed`, fences three times, sets `fenced` and ends. The thread's id, or a negative errno.
///
/// # Safety
///
/// All signals are blocked, so that no handler can run in the helper, which shares this thread's thread-local storage;
/// `stack_top` is the end of writable memory; `shared` is valid until the helper is gone.
pub(crate) unsafe fn spawn_fencer(stack_top: usize, shared: *mut Shared) -> isize {
    let result: isize;
    // SAFETY: the helper runs only the instructions below, without stack, thread-local storage or libc, and ends by
    // `exit` (of the thread). The parent continues at 42. The kernel destroys rcx and r11.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 42f",
            "41:",
            "mov eax, 24", // sched_yield
            "syscall",
            "cmp dword ptr [r9], 0",
            "je 41b",
            "mov r8d, 3",
            "43:",
            "mov eax, 324", // membarrier
            "mov edi, 128", // MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ
            "xor esi, esi",
            "xor edx, edx",
            "syscall",
            "dec r8d",
            "jnz 43b",
            "mov dword ptr [r9 + 4], 1",
            "mov eax, 60", // exit
            "xor edi, edi",
            "syscall",
            "42:",
            inlateout("rax") 56_isize => result, // clone
            in("rdi") FLAGS,
            in("rsi") stack_top,
            in("rdx") 0,
            in("r10") &raw mut (*shared).alive,
            in("r8") 0,
            in("r9") shared,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}
