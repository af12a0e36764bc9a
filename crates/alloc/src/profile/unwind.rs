// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Who called: return addresses of this thread's stack, without memory from anywhere and without a lock.
//!
//! Modules are found by `_dl_find_object`, which glibc 2.35 and later document as safe in signal handlers. Their `.eh_frame` is
//! read by `gimli` with its storage on the stack; what it says of an address is kept (`rules`), because the same callers
//! come again and again. Code without such tables (a just-in-time compiler's) is taken to keep
//! frame pointers; what they point to is read by `process_vm_readv`, which refuses a bad address instead of failing.

use core::ffi::{c_char, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EhFrameOffset, EndianSlice, LittleEndian, Pointer, Register,
    RegisterRule, UnwindContext, UnwindContextStorage, UnwindSection, UnwindTableRow, Vendor,
};

use super::rules::{self, Rule};
use crate::arch::{self, FRAME_POINTER, INSTRUCTION, REGISTERS, RETURN, STACK_POINTER, plain};
use fastpath_sys::libc_symbols;

/// The most callers that are kept.
pub(crate) const DEPTH: usize = 62;

struct OnStack;

impl UnwindContextStorage<usize> for OnStack {
    type Rules = [(Register, RegisterRule<usize>); 40];
    type Stack = [UnwindTableRow<usize, Self>; 4];
}

/// As `struct dl_find_object` in glibc's `dlfcn.h`, on x86-64 and AArch64.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Found {
    pub(super) flags: u64,
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) link_map: usize,
    pub(super) eh_frame_hdr: usize,
    pub(super) reserved: [u64; 7],
}

/// The module of an address.
fn find(address: usize) -> Option<Found> {
    let function = libc_symbols::_dl_find_object();
    if function.is_null() {
        return None;
    }
    let mut found = Found::default();
    // SAFETY: the C library's function of that name has this type, and fills the structure in if it returns 0.
    let result = unsafe {
        let function: extern "C" fn(*mut c_void, *mut Found) -> i32 = core::mem::transmute(function);
        function(address as *mut c_void, &raw mut found)
    };
    (result == 0 && found.eh_frame_hdr != 0).then_some(found)
}

/// Reads two words at a frame pointer that may be anything.
fn read_pair(address: usize) -> Option<[usize; 2]> {
    let function = libc_symbols::process_vm_readv();
    if function.is_null() || !address.is_multiple_of(8) {
        return None;
    }
    let mut pair = [0usize; 2];
    let local = [pair.as_mut_ptr().addr(), 16];
    let remote = [address, 16];
    let pid = crate::os::pid();
    // SAFETY: the C library's function of that name has this type; it writes at most 16 bytes to `pair`.
    let got = unsafe {
        type Readv = extern "C" fn(i32, *const [usize; 2], usize, *const [usize; 2], usize, usize) -> isize;
        let function: Readv = core::mem::transmute(function);
        function(pid, &raw const local, 1, &raw const remote, 1, 0)
    };
    // The array was written behind the compiler's back.
    (got == 16).then(|| core::hint::black_box(pair))
}

/// Steps to the caller by the module's tables; `None` at the end of the stack, or if they do not tell.
fn step(module: &Found, registers: &mut [usize; REGISTERS], address: usize) -> Option<()> {
    let Some(rule) = rules::known(module, address) else {
        return by_tables(module, registers, address);
    };
    let cfa = registers.get(rule.register)?.wrapping_add_signed(rule.offset);
    if cfa <= registers[STACK_POINTER] || !cfa.is_multiple_of(8) {
        return None;
    }
    for (number, at) in rule.saved {
        if let Some(at) = at {
            // SAFETY: the tables said that the caller's register was saved there, in a frame of this thread's stack.
            registers[number] = unsafe { (cfa.wrapping_add_signed(at) as *const usize).read() };
        }
    }
    registers[INSTRUCTION] = plain(registers[RETURN]);
    registers[STACK_POINTER] = cfa;
    Some(())
}

/// The same, by the tables themselves. What they say is kept if it is simple, as it nearly always is.
#[cold]
#[inline(never)]
fn by_tables(module: &Found, registers: &mut [usize; REGISTERS], address: usize) -> Option<()> {
    let context = &mut UnwindContext::<usize, OnStack>::new_in();
    let slice = |from: usize| {
        // SAFETY: the tables lie in the module, which stays loaded while its code is on this stack; only what they
        // refer to is read.
        let bytes =
            unsafe { core::slice::from_raw_parts(from as *const u8, module.end.saturating_sub(from)) };
        EndianSlice::new(bytes, LittleEndian)
    };
    let mut bases = BaseAddresses::default().set_eh_frame_hdr(module.eh_frame_hdr as u64);
    let header = EhFrameHdr::from(slice(module.eh_frame_hdr)).parse(&bases, 8).ok()?;
    let Pointer::Direct(frames) = header.eh_frame_ptr() else { return None };
    bases = bases.set_eh_frame(frames);
    let mut section = EhFrame::from(slice(frames as usize));
    if cfg!(target_arch = "aarch64") {
        section.set_vendor(Vendor::AArch64);
    }
    let get = |section: &EhFrame<_>, bases: &BaseAddresses, offset: EhFrameOffset<usize>| {
        section.cie_from_offset(bases, offset)
    };
    let row = header.table()?.unwind_info_for_address(&section, &bases, context, address as u64, get).ok()?;
    let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else { return None };
    let cfa = registers.get(usize::from(register.0))?.wrapping_add(*offset as usize);
    if let Some(rule) = simple(row, usize::from(register.0), *offset as isize) {
        rules::keep(module, address, rule);
    }
    if cfa <= registers[STACK_POINTER] || !cfa.is_multiple_of(8) {
        return None;
    }
    let before = *registers;
    for (number, value) in registers.iter_mut().enumerate() {
        let rule = row.register(Register(number as u16));
        match rule {
            // SAFETY: the tables say that the caller's register was saved there, in a frame of this thread's stack.
            Some(RegisterRule::Offset(at)) => unsafe {
                *value = (cfa.wrapping_add(at as usize) as *const usize).read_unaligned();
            },
            Some(RegisterRule::ValOffset(at)) => *value = cfa.wrapping_add(at as usize),
            Some(RegisterRule::Register(from)) => *value = *before.get(usize::from(from.0))?,
            Some(RegisterRule::Undefined | RegisterRule::SameValue) | None if number == RETURN => {
                return None;
            }
            Some(RegisterRule::Expression(_) | RegisterRule::ValExpression(_)) => return None,
            _ => {}
        }
    }
    registers[INSTRUCTION] = plain(registers[RETURN]);
    registers[STACK_POINTER] = cfa;
    Some(())
}

/// The rule of a row, if it is one of those that are kept: every register is where it was or in a word of the frame.
fn simple(row: &UnwindTableRow<usize, OnStack>, register: usize, offset: isize) -> Option<Rule> {
    let mut rule = Rule::new(register, offset);
    for number in 0..REGISTERS {
        match row.register(Register(number as u16)) {
            Some(RegisterRule::Offset(at)) => *rule.place(number)? = Some(at as isize),
            Some(RegisterRule::SameValue | RegisterRule::Undefined) | None if number != RETURN => {}
            _ => return None,
        }
    }
    Some(rule)
}

/// Steps to the caller by the frame pointer, in code that has no tables.
fn by_frame_pointer(registers: &mut [usize; REGISTERS]) -> Option<()> {
    let frame = registers[FRAME_POINTER];
    if frame <= registers[STACK_POINTER] {
        return None;
    }
    let [next, ip] = read_pair(frame)?;
    registers[FRAME_POINTER] = next;
    registers[STACK_POINTER] = frame + 16;
    registers[INSTRUCTION] = plain(ip);
    Some(())
}

/// Whether the callers in the heap's own module are left out.
// ORDERING: Relaxed: a setting that publishes nothing.
pub(super) static MODULE_LEFT_OUT: AtomicBool = AtomicBool::new(false);

/// Start and end of the module that `address` lies in, if it is a library.
fn library(address: usize) -> (usize, usize) {
    let Some(module) = find(address) else { return (0, 0) };
    // SAFETY: the loader's `struct link_map` starts with the module's address and its name, which is empty for the program.
    let name = unsafe { (module.link_map as *const *const c_char).add(1).read() };
    // SAFETY: a text that ends in a zero byte, if there is one.
    if name.is_null() || unsafe { name.read() } == 0 { (0, 0) } else { (module.start, module.end) }
}

/// Fills in the addresses of the calls that led here, innermost first, and returns how many. The allocator's own are
/// left out if it is a library of its own.
#[inline(never)]
pub(crate) fn callers(out: &mut [usize; DEPTH]) -> usize {
    let Some(mut registers) = arch::registers() else { return 0 };
    let own = if MODULE_LEFT_OUT.load(Relaxed) { library(registers[INSTRUCTION]) } else { (0, 0) };
    let (mut count, mut skipped) = (0, 0);
    // The first address is one of ours, not that of a return.
    let mut address = registers[INSTRUCTION];
    for _ in 0..2 * DEPTH {
        let stepped = if let Some(module) = find(address) {
            step(&module, &mut registers, address).is_some()
        } else {
            by_frame_pointer(&mut registers).is_some()
        };
        if !stepped || registers[INSTRUCTION] < 4096 {
            break;
        }
        // The call lies before the address it returns to.
        address = registers[INSTRUCTION] - 1;
        if count < DEPTH {
            out[count] = address;
            count += 1;
        }
        if count - skipped == 1 && (own.0..own.1).contains(&address) {
            skipped = count;
        }
        if count == DEPTH {
            break;
        }
    }
    if skipped < count {
        out.copy_within(skipped..count, 0);
        return count - skipped;
    }
    count
}
