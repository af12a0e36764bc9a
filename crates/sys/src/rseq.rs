// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Restartable sequences: the kernel's interface, and who registered this thread.
//!
//! One area per thread, filled in by the kernel at every return to user mode. Whoever registers first owns it; with
//! glibc 2.35 and newer that is libc, which publishes where its area is by three symbols. They are weak here: older
//! libcs and musl have none.
//!
//! Never write any field of an area but `rseq_cs`: newer kernels kill a process that does, and the fields' rewriting
//! is no sign of having been preempted.

use core::ffi::c_uint;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::{Errno, arch, auxv, result};

pub use crate::arch::{SIGNATURE, area_offset, id_offset, own_area_offset, thread_pointer};

/// The thread's area, as the kernel defines it up to Linux 6.19 (later fields are not used here).
///
/// All fields are atomics: the kernel writes them between any two instructions of the thread.
#[doc(alias = "rseq")]
#[repr(C, align(32))]
#[derive(Debug)]
pub struct Area {
    /// Always a valid index: the CPU, or 0 when not registered.
    pub cpu_id_start: AtomicU32,
    /// The CPU, or negative as an `i32`: [`UNINITIALIZED`] or [`REGISTRATION_FAILED`].
    pub cpu_id: AtomicU32,
    /// The address of a [`CriticalSection`], or 0. The only field user space writes.
    pub rseq_cs: AtomicU64,
    /// Reserved: must stay as the kernel left it.
    pub flags: AtomicU32,
    /// NUMA node. Since Linux 6.3.
    pub node_id: AtomicU32,
    /// The thread's number among the process's running threads, below min(threads, CPUs). Since Linux 6.3. Reads 0 when
    /// not registered: look at `cpu_id` first.
    pub mm_cid: AtomicU32,
    padding: u32,
}

const _: () = {
    assert!(size_of::<Area>() == 32 && align_of::<Area>() == 32);
    assert!(offset_of!(Area, cpu_id_start) == 0);
    assert!(offset_of!(Area, cpu_id) == CPU_ID);
    assert!(offset_of!(Area, rseq_cs) == RSEQ_CS);
    assert!(offset_of!(Area, flags) == 16);
    assert!(offset_of!(Area, node_id) == 20);
    assert!(offset_of!(Area, mm_cid) == MM_CID);
};

/// Offset of `cpu_id` in the area.
pub const CPU_ID: usize = 4;
/// Offset of `rseq_cs` in the area.
pub const RSEQ_CS: usize = 8;
/// Offset of `mm_cid` in the area.
pub const MM_CID: usize = 24;

/// The value of `cpu_id` before registration and after unregistration.
pub const UNINITIALIZED: i32 = -1;
/// The value of `cpu_id` that libc writes when it could not or was told not to register.
pub const REGISTRATION_FAILED: i32 = -2;

/// The bytes that had a meaning before Linux 6.3: up to and with `flags`.
pub const ORIGINAL_SIZE: u32 = 20;
/// The shortest registration the kernel accepts.
pub const REGISTERED_SIZE: u32 = 32;

/// One critical section, as the kernel reads it from section `__rseq_cs`.
#[doc(alias = "rseq_cs")]
#[repr(C, align(32))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CriticalSection {
    /// 0.
    pub version: u32,
    /// 0: the flags that once prevented restarts are refused since Linux 6.1.
    pub flags: u32,
    /// The first instruction inside.
    pub start_ip: u64,
    /// Bytes from there to the first instruction after the commit.
    pub post_commit_offset: u64,
    /// Where the kernel continues after an abort; outside, and preceded by [`SIGNATURE`].
    pub abort_ip: u64,
}

const _: () = {
    assert!(size_of::<CriticalSection>() == 32 && align_of::<CriticalSection>() == 32);
    assert!(offset_of!(CriticalSection, start_ip) == 8);
    assert!(offset_of!(CriticalSection, post_commit_offset) == 16);
    assert!(offset_of!(CriticalSection, abort_ip) == 24);
};

/// What libc says about its registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Libc {
    /// It knows nothing of rseq (musl, glibc before 2.35): a program registers its threads itself.
    Silent,
    /// It could have registered and did not: switched off by a tunable, refused by the kernel or a sandbox.
    Declined,
    /// It registers every thread.
    Registers {
        /// From the thread pointer to the area, in bytes.
        offset: isize,
        /// `__rseq_size` as libc published it.
        published_size: u32,
        /// `__rseq_flags`.
        flags: u32,
    },
}

/// What libc says about its registration; the same during the life of the process.
///
/// ```
/// use fastpath_sys::rseq::{self, Libc};
/// match rseq::libc() {
///     Libc::Registers { offset, .. } => println!("area at thread pointer {offset:+}"),
///     other => println!("{other:?}"),
/// }
/// ```
#[doc(alias = "__rseq_offset")]
#[doc(alias = "__rseq_size")]
pub fn libc() -> Libc {
    let offset = arch::symbol!("__rseq_offset").cast::<isize>();
    let size = arch::symbol!("__rseq_size").cast::<c_uint>();
    let flags = arch::symbol!("__rseq_flags").cast::<c_uint>();
    if offset.is_null() || size.is_null() {
        return Libc::Silent;
    }
    // SAFETY: libc defines these objects with these types (manual, "Restartable Sequences") and writes them before
    // the program starts.
    let (offset, published_size) = unsafe { (offset.read(), size.read()) };
    if published_size == 0 {
        return Libc::Declined;
    }
    // SAFETY: as above.
    let flags = if flags.is_null() { 0 } else { unsafe { flags.read() } };
    Libc::Registers { offset, published_size, flags }
}

/// How many bytes of the area mean something, from what libc published and what the kernel told in the auxiliary
/// vector (0 if it told nothing).
///
/// glibc 2.40 and older publish 20 or 32 whatever the kernel fills in: then the kernel decides, within the 32 bytes
/// registered. Newer ones publish the true size.
///
/// ```
/// use fastpath_sys::rseq::active_size;
/// assert_eq!(active_size(32, 0), 20); // a kernel before 6.3
/// assert_eq!(active_size(20, 28), 28); // node_id and mm_cid are there although libc says 20
/// assert_eq!(active_size(20, 33), 32); // a longer area, of which 32 bytes were registered
/// assert_eq!(active_size(33, 33), 33);
/// assert_eq!(active_size(0, 28), 0);
/// ```
pub const fn active_size(published_size: u32, feature_size: u32) -> u32 {
    match published_size {
        ORIGINAL_SIZE | REGISTERED_SIZE if feature_size == 0 => ORIGINAL_SIZE,
        ORIGINAL_SIZE | REGISTERED_SIZE if feature_size < REGISTERED_SIZE => feature_size,
        ORIGINAL_SIZE | REGISTERED_SIZE => REGISTERED_SIZE,
        size => size,
    }
}

/// `AT_RSEQ_FEATURE_SIZE`, 0 before Linux 6.3.
pub fn feature_size() -> u32 {
    auxv::value(auxv::AT_RSEQ_FEATURE_SIZE).map_or(0, |size| size as u32)
}

/// Does the kernel know rseq? Registers nothing.
///
/// ```
/// // Linux 4.18 and newer, unless built without, under Valgrind and qemu-user, or filtered.
/// println!("{}", fastpath_sys::rseq::supported());
/// ```
pub fn supported() -> bool {
    // SAFETY: a null area with length 0 is refused before anything is read or written.
    let answer = unsafe { arch::syscall6(arch::NR_RSEQ, [0; 6]) };
    result(answer) == Err(Errno::INVAL)
}

/// Why an area was not registered or unregistered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegisterError {
    /// `ENOSYS`: no rseq in this kernel, or a filter or emulator hides it.
    Unsupported,
    /// `EBUSY`: this very area is registered already.
    AlreadyRegistered,
    /// `EINVAL`: another area is registered for this thread; or length, alignment or flags are wrong.
    Invalid,
    /// `EPERM`: the signature differs from the registered one (or a sandbox refuses).
    WrongSignature,
    /// `EFAULT`: not an address of user space.
    Fault,
    /// Something else: sandboxes invent their own.
    Other(Errno),
}

impl From<Errno> for RegisterError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOSYS => Self::Unsupported,
            Errno::BUSY => Self::AlreadyRegistered,
            Errno::INVAL => Self::Invalid,
            Errno::PERM => Self::WrongSignature,
            Errno::FAULT => Self::Fault,
            other => Self::Other(other),
        }
    }
}

impl core::fmt::Display for RegisterError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Unsupported => "the kernel has no restartable sequences, or hides them",
            Self::AlreadyRegistered => "this area is registered already",
            Self::Invalid => "another area is registered for this thread, or the area is not acceptable",
            Self::WrongSignature => "the signature differs from the registered one",
            Self::Fault => "not an address of user space",
            Self::Other(errno) => return write!(f, "unexpected error: {errno}"),
        })
    }
}

impl core::error::Error for RegisterError {}

/// Registers `area` for the calling thread with `length` bytes and the signature [`SIGNATURE`].
///
/// # Errors
///
/// See [`RegisterError`].
///
/// # Safety
///
/// `area` must be valid, writable memory of `length` bytes until it is unregistered or the thread has made its last
/// return to user mode: the kernel writes it without asking and kills the process when it cannot. In particular a
/// thread-local area must be [unregistered](unregister) before the thread ends (a detached thread's stack and
/// thread-local storage can be unmapped while the kernel still writes there).
pub unsafe fn register(area: *mut Area, length: u32) -> Result<(), RegisterError> {
    // SAFETY: the caller's contract.
    unsafe { raw(area, length, 0, SIGNATURE) }
}

/// Ends the registration of `area` for the calling thread. Afterwards its `cpu_id` is [`UNINITIALIZED`].
///
/// # Errors
///
/// See [`RegisterError`].
///
/// # Safety
///
/// Whoever owns the registration must know: with libc's area, every user in this thread is unprotected afterwards
/// unless it looks at `cpu_id`.
pub unsafe fn unregister(area: *mut Area, length: u32) -> Result<(), RegisterError> {
    // SAFETY: the caller's contract.
    unsafe { raw(area, length, UNREGISTER, SIGNATURE) }
}

/// `RSEQ_FLAG_UNREGISTER`.
pub const UNREGISTER: u32 = 1;

/// The system call with any arguments.
///
/// # Errors
///
/// See [`RegisterError`].
///
/// # Safety
///
/// As [`register`] and [`unregister`].
#[doc(alias = "rseq")]
pub unsafe fn raw(area: *mut Area, length: u32, flags: u32, signature: u32) -> Result<(), RegisterError> {
    // SAFETY: the caller's contract.
    let answer = unsafe {
        arch::syscall6(
            arch::NR_RSEQ,
            [area as usize, length as usize, flags as usize, signature as usize, 0, 0],
        )
    };
    result(answer).map(|_| ()).map_err(Into::into)
}

/// The calling thread's area at `offset` from its thread pointer.
#[inline(always)]
pub fn area_at(offset: isize) -> *mut Area {
    thread_pointer().wrapping_offset(offset).cast()
}

/// The calling thread's `cpu_id` as a signed number: negative when it is not registered.
///
/// ```
/// let cpu = fastpath_sys::rseq::cpu_id();
/// assert!(cpu >= -2);
/// ```
#[inline(always)]
pub fn cpu_id() -> i32 {
    // SAFETY: the offset names an area of the calling thread that lives as long as the thread.
    let area = unsafe { &*area_at(area_offset()) };
    // ORDERING: Relaxed: a number the kernel writes; it publishes nothing.
    area.cpu_id.load(Ordering::Relaxed) as i32
}

/// The calling thread's slot number, by the field chosen with [`set_offsets`]; `None` when it is not registered.
///
/// Both are out of date when this returns: a hint, unless a critical section surrounds it.
#[inline(always)]
pub fn slot_id() -> Option<u32> {
    if cpu_id() < 0 {
        return None;
    }
    #[expect(clippy::cast_ptr_alignment, reason = "both fields are words of a 32-byte aligned area")]
    let field = thread_pointer().wrapping_offset(id_offset()).cast::<AtomicU32>();
    // SAFETY: the field is `cpu_id` or `mm_cid` of the calling thread's area.
    // ORDERING: Relaxed: as `cpu_id`.
    Some(unsafe { (*field).load(Ordering::Relaxed) })
}

/// The calling thread's `rseq_cs`: 0 unless a critical section was left armed.
pub fn armed_section() -> u64 {
    // SAFETY: as `cpu_id`.
    let area = unsafe { &*area_at(area_offset()) };
    // ORDERING: Relaxed: only this thread and the kernel write it.
    area.rseq_cs.load(Ordering::Relaxed)
}

/// Disarms the calling thread: stores 0 to `rseq_cs`. Each thread must do so before code that holds critical sections
/// is unmapped.
#[doc(alias = "rseq_prepare_unload")]
pub fn disarm() {
    // SAFETY: as `cpu_id`; `rseq_cs` is the field user space may write.
    let area = unsafe { &*area_at(area_offset()) };
    // ORDERING: Relaxed: only this thread and the kernel read it.
    area.rseq_cs.store(0, Ordering::Relaxed);
}

/// Says once per process which area the sections of this program use, and which field of it numbers the slots.
///
/// # Safety
///
/// `area` must be the same offset of an [`Area`] in every thread, valid as long as the thread; `id` the offset of its
/// `cpu_id` or of a filled-in `mm_cid`. Only the one start-up code of the process may call this.
pub unsafe fn set_offsets(area: isize, id: isize) {
    // ORDERING: Relaxed: a thread that still reads the old words sees its own area, which says "not registered".
    arch::fastpath_sys_rseq_id_offset_0_1.store(id, Ordering::Relaxed);
    // Whoever pairs the new id offset with the old area does not use the id: that area is not registered. The other
    // pairing, new area with old id offset, would read -1 as an id. Code that uses `id_offset` is therefore ordered after
    // start-up by whatever gave it its slots.
    // ORDERING: Relaxed: as above, the slots' publication orders both.
    arch::fastpath_sys_rseq_offset_0_1.store(area, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_own_area_starts_unregistered() {
        let area = area_at(own_area_offset());
        assert!(area.is_aligned());
        // SAFETY: the thread's own area.
        assert_eq!(unsafe { (*area).cpu_id.load(Ordering::Relaxed) } as i32, UNINITIALIZED);
        let first = area.addr();
        std::thread::spawn(move || assert_ne!(area_at(own_area_offset()).addr(), first, "one per thread"))
            .join()
            .expect("the thread finished");
    }

    #[test]
    fn before_start_up_the_offsets_name_the_own_area() {
        assert_eq!(area_offset(), own_area_offset());
        assert_eq!(id_offset(), own_area_offset() + CPU_ID as isize);
        assert_eq!(slot_id(), None);
    }
}
