// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! A thin layer over `ptrace`: one traced thread, two hardware breakpoints.
//!
//! Hardware breakpoints and not stepping: every stop inside a section aborts it, so a stepping debugger would never get
//! past the first instruction. Not `int3` either: the abort handler jumps back into the code that was patched.

#![expect(unsafe_code, reason = "ptrace and wait")]

use std::io;

/// The traced thread.
#[derive(Clone, Copy)]
pub(crate) struct Traced(pub(crate) libc::pid_t);

/// Why the thread stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stopped {
    /// It hit a breakpoint; the address of the next instruction.
    Breakpoint(u64),
    /// It stopped itself between two runs.
    Itself,
    /// It received another signal.
    Signal(i32),
    /// It ended, with this wait status.
    Ended(i32),
}

fn check(result: libc::c_long, what: &str) {
    assert!(result != -1, "{what}: {}", io::Error::last_os_error());
}

impl Traced {
    /// Waits for the next stop.
    pub(crate) fn wait(self) -> Stopped {
        let mut status = 0;
        // SAFETY: `status` is a valid place for the result.
        let pid = unsafe { libc::waitpid(self.0, &raw mut status, libc::__WALL) };
        assert_eq!(pid, self.0, "waitpid: {}", io::Error::last_os_error());
        if !libc::WIFSTOPPED(status) {
            return Stopped::Ended(status);
        }
        match libc::WSTOPSIG(status) {
            libc::SIGTRAP => Stopped::Breakpoint(self.instruction_pointer()),
            libc::SIGSTOP => Stopped::Itself,
            signal => Stopped::Signal(signal),
        }
    }

    /// Lets the thread run on, delivering `signal` if it is not 0.
    pub(crate) fn resume(self, signal: i32) {
        // SAFETY: the thread is ours and stopped; no memory of this process is involved.
        check(unsafe { libc::ptrace(libc::PTRACE_CONT, self.0, 0usize, signal as usize) }, "PTRACE_CONT");
    }

    /// Sets up to two execution breakpoints (0 = none).
    pub(crate) fn breakpoints(self, first: u64, second: u64) {
        self.poke_debug_register(7, 0);
        self.poke_debug_register(0, first);
        self.poke_debug_register(1, second);
        // Local enable bits 0 and 2; type "execute" and length 1 are zero bits.
        let enable = u64::from(first != 0) | (u64::from(second != 0) << 2);
        self.poke_debug_register(7, enable);
    }

    /// Clears the resume flag that a breakpoint's stop leaves behind. The kernel moves the thread to the abort address
    /// with its flags unchanged, and with this flag set a breakpoint there would be passed over.
    pub(crate) fn clear_resume_flag(self) {
        let offset =
            core::mem::offset_of!(libc::user, regs) + core::mem::offset_of!(libc::user_regs_struct, eflags);
        // SAFETY: the thread is ours and stopped; no memory of this process is involved.
        let flags = unsafe { libc::ptrace(libc::PTRACE_PEEKUSER, self.0, offset, 0usize) };
        // SAFETY: as above.
        let result = unsafe { libc::ptrace(libc::PTRACE_POKEUSER, self.0, offset, flags & !(1 << 16)) };
        check(result, "PTRACE_POKEUSER of the flags");
    }

    fn poke_debug_register(self, number: usize, value: u64) {
        let offset = core::mem::offset_of!(libc::user, u_debugreg) + number * 8;
        // SAFETY: the thread is ours and stopped; no memory of this process is involved.
        let result = unsafe { libc::ptrace(libc::PTRACE_POKEUSER, self.0, offset, value as usize) };
        check(result, "PTRACE_POKEUSER of a debug register");
    }

    fn instruction_pointer(self) -> u64 {
        let mut registers = core::mem::MaybeUninit::<libc::user_regs_struct>::uninit();
        // SAFETY: the thread is ours and stopped; `registers` is a valid place for the result.
        let result = unsafe { libc::ptrace(libc::PTRACE_GETREGS, self.0, 0usize, registers.as_mut_ptr()) };
        check(result, "PTRACE_GETREGS");
        // SAFETY: the call succeeded and filled the structure.
        unsafe { registers.assume_init() }.rip
    }

    /// Restricts the thread to one CPU.
    pub(crate) fn pin(self, cpu: usize) {
        pin(self.0, cpu);
    }
}

/// Restricts the thread `tid` (0 = the caller) to one CPU.
pub(crate) fn pin(tid: libc::pid_t, cpu: usize) {
    // SAFETY: an all-zero set is valid, and the call only reads it.
    let result = unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(tid, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    check(result.into(), "sched_setaffinity");
}
