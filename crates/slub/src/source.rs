// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Where slabs come from.
#![expect(
    unsafe_code,
    reason = "PageSource is an unsafe trait: the slab layer writes to the memory it is given"
)]

use crate::slab::Slab;
use core::ptr::NonNull;

/// May the callee wait?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Locks may be waited for.
    Yes,
    /// Any context, also one that interrupted the holder of a lock: only try, and answer "no" if that fails.
    Never,
}

/// Memory for slabs, with one descriptor per run of pages that lies apart from the objects.
///
/// Pages have `1 << PAGE_SHIFT` bytes; a slab of order `n` is one run of `1 << n` pages. The source owns the memory of
/// the descriptors: a table indexed by page number gives [`slab_of`](Self::slab_of) in one dependent load or none.
/// All pages of a run lead to the descriptor of the run.
///
/// A descriptor stays valid memory of type [`Slab`] for ever, also after `free_slab`: late readers look at it.
///
/// # Reading memory that was given back
///
/// The tid front end reads the next-pointer of an object *before* it knows that the object is still free
/// (speculatively; the value is thrown away if it is not). The page may have been given back by then. So a source that
/// serves a tid front end may drop the contents of free pages (`MADV_DONTNEED`, `MADV_FREE`), but must leave them
/// readable: it never unmaps them and never protects them while a cache of that front end exists. The sheaf front end
/// never reads an object it does not own.
///
/// # Safety
///
/// * `alloc_slab` returns a descriptor that no other live run shares, whose [`Slab::base`] is the start of
///   `(1 << order) << PAGE_SHIFT` bytes that nobody else uses, writable, aligned to `1 << PAGE_SHIFT` at least and to
///   `align` bytes.
/// * `slab_of` returns the descriptor of the live run that holds the address, or NULL.
pub unsafe trait PageSource: Sync {
    /// log2 of the page size in bytes.
    const PAGE_SHIFT: u32;

    /// A run of `1 << order` pages on `node`, or `None`. Contents are undefined.
    fn alloc_slab(&self, order: u32, align: usize, node: usize, wait: Wait) -> Option<NonNull<Slab>>;

    /// Takes a run back.
    ///
    /// # Safety
    ///
    /// `slab` came from `alloc_slab` of this source, has not been given back since, and no object of it is in use.
    unsafe fn free_slab(&self, slab: NonNull<Slab>, wait: Wait);

    /// The descriptor of the run that holds `address`, NULL if no run of this source does. Safe for every address.
    fn slab_of(&self, address: *const u8) -> *mut Slab;

    /// One `u16` per object of `slab`, for caches with [`FreePointer::Apart`]: as many as objects of the cache's size fit
    /// in the run. Contents need not be kept or cleared between `alloc_slab` and `free_slab`. NULL, the default: the
    /// source has none, and serves no such cache.
    ///
    /// [`FreePointer::Apart`]: crate::FreePointer::Apart
    #[inline]
    fn links(&self, slab: &Slab) -> *mut u16 {
        let _ = slab;
        core::ptr::null_mut()
    }

    /// The same for an address known to lie in a live run: a source overrides it to leave out the range check.
    ///
    /// # Safety
    ///
    /// `object` lies in a run of this source that is in use.
    #[inline(always)]
    unsafe fn slab_of_object(&self, object: NonNull<u8>) -> NonNull<Slab> {
        // SAFETY: the caller vouches for a live run, so the answer is not NULL.
        unsafe { NonNull::new_unchecked(self.slab_of(object.as_ptr())) }
    }
}
