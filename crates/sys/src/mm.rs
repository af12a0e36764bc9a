// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory mappings: reserve address space, use it lazily, give it back.

use core::ffi::c_void;
use core::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags};

use crate::{Errno, auxv};

/// Bytes in a page.
///
/// ```
/// assert!(fastpath_sys::mm::page_size().is_power_of_two());
/// ```
#[doc(alias = "AT_PAGESZ")]
pub fn page_size() -> usize {
    auxv::value(auxv::AT_PAGESZ).unwrap_or(4096)
}

/// Maps `bytes` of private anonymous memory, zeroed, readable and writable, backed only when touched and not counted
/// against the commit limit (`MAP_NORESERVE`).
///
/// # Errors
///
/// `NOMEM` when there is no room in the address space.
///
/// ```
/// use fastpath_sys::mm;
/// let memory = mm::map_lazily(1 << 20).unwrap();
/// // SAFETY: mapped just now, and nobody else knows of it.
/// unsafe {
///     assert_eq!(memory.as_ptr().read(), 0);
///     mm::unmap(memory, 1 << 20).unwrap();
/// }
/// ```
#[doc(alias = "mmap")]
pub fn map_lazily(bytes: usize) -> Result<NonNull<u8>, Errno> {
    map(bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE)
}

/// Reserves `bytes` of address space that may not be touched until [`allow_access`].
///
/// # Errors
///
/// `NOMEM` when there is no room in the address space.
pub fn reserve(bytes: usize) -> Result<NonNull<u8>, Errno> {
    map(bytes, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)
}

/// Maps `bytes` of zeroed memory that a forked child shares with its parent.
///
/// # Errors
///
/// `NOMEM` when there is no room.
pub fn map_shared(bytes: usize) -> Result<NonNull<u8>, Errno> {
    map(bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED)
}

fn map(bytes: usize, access: ProtFlags, flags: MapFlags) -> Result<NonNull<u8>, Errno> {
    // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
    let address = unsafe { rustix::mm::mmap_anonymous(core::ptr::null_mut(), bytes, access, flags) }?;
    NonNull::new(address.cast()).ok_or(Errno::NOMEM)
}

/// Makes reserved memory readable and writable.
///
/// # Errors
///
/// `NOMEM` over the limits of the process, `INVAL` for a misaligned address.
///
/// # Safety
///
/// `memory` and `bytes` must name pages of the caller's own mapping.
#[doc(alias = "mprotect")]
pub unsafe fn allow_access(memory: NonNull<u8>, bytes: usize) -> Result<(), Errno> {
    let access = rustix::mm::MprotectFlags::READ | rustix::mm::MprotectFlags::WRITE;
    // SAFETY: the caller owns the pages; more access invalidates no reference.
    unsafe { rustix::mm::mprotect(memory.as_ptr().cast::<c_void>(), bytes, access) }
}

/// Makes memory inaccessible: a touch is SIGSEGV. Its contents stay.
///
/// # Errors
///
/// As [`allow_access`].
///
/// # Safety
///
/// The caller owns the pages, and nobody accesses them until access is allowed again.
pub unsafe fn deny_access(memory: NonNull<u8>, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the caller's contract.
    unsafe { rustix::mm::mprotect(memory.as_ptr().cast(), bytes, rustix::mm::MprotectFlags::empty()) }
}

/// Gives the pages back; the address space stays, and reads as zero when touched again.
///
/// # Errors
///
/// `INVAL` for a misaligned address.
///
/// # Safety
///
/// The caller owns the pages, and nobody needs their contents.
#[doc(alias = "MADV_DONTNEED")]
pub unsafe fn purge(memory: NonNull<u8>, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the caller's contract.
    unsafe { rustix::mm::madvise(memory.as_ptr().cast(), bytes, Advice::LinuxDontNeed) }
}

/// Asks for huge pages in this range.
///
/// # Errors
///
/// `INVAL` when the kernel has none.
///
/// # Safety
///
/// The caller owns the pages.
#[doc(alias = "MADV_HUGEPAGE")]
pub unsafe fn prefer_huge(memory: NonNull<u8>, bytes: usize) -> Result<(), Errno> {
    // SAFETY: a hint about the caller's own pages; it changes no contents.
    unsafe { rustix::mm::madvise(memory.as_ptr().cast(), bytes, Advice::LinuxHugepage) }
}

/// Unmaps the pages.
///
/// # Errors
///
/// `INVAL` for a misaligned address; `NOMEM` when splitting a mapping exceeds the limit of mappings.
///
/// # Safety
///
/// The caller owns the pages, and nothing refers to them any more.
#[doc(alias = "munmap")]
pub unsafe fn unmap(memory: NonNull<u8>, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the caller's contract.
    unsafe { rustix::mm::munmap(memory.as_ptr().cast(), bytes) }
}

/// Grows or shrinks a mapping, moving it if it has to. The result replaces `memory`, which is gone if it moved.
///
/// # Errors
///
/// `NOMEM` when there is no room: the old mapping then stays as it was.
///
/// # Safety
///
/// `memory` and `old_bytes` are exactly one mapping of the caller's, and nothing else refers to it.
#[doc(alias = "mremap")]
pub unsafe fn resize(memory: NonNull<u8>, old_bytes: usize, new_bytes: usize) -> Result<NonNull<u8>, Errno> {
    // SAFETY: the caller's contract.
    let moved =
        unsafe { rustix::mm::mremap(memory.as_ptr().cast(), old_bytes, new_bytes, MremapFlags::MAYMOVE) }?;
    NonNull::new(moved.cast()).ok_or(Errno::NOMEM)
}

/// Grows or shrinks a mapping in its place.
///
/// # Errors
///
/// `NOMEM` when something is in the way: the mapping then stays as it was.
///
/// # Safety
///
/// As [`resize`].
pub unsafe fn resize_in_place(memory: NonNull<u8>, old_bytes: usize, new_bytes: usize) -> Result<(), Errno> {
    // SAFETY: the caller's contract.
    unsafe { rustix::mm::mremap(memory.as_ptr().cast(), old_bytes, new_bytes, MremapFlags::empty()) }
        .map(|_| ())
}
