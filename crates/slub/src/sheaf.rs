// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The array stack of free objects that a CPU owns.
//!
//! ```text
//! word:    0    1    2         s     s+1 ... top      ... w
//!          link, head of a     NULL  objects (LIFO)   free
//!          grace period
//! ```
//!
//! A sheaf is an array of 256 words (64 where words have 32 bits) aligned to its size; its last word is `w = 255`. A
//! sheaf of capacity `c` has its NULL sentinel at word `s = w - c` and its objects at words `s+1 ..= w`. It is named by
//! the address of its top word. So
//! * a pop is: load top, load `*top`, NULL means empty, commit `top - 1`;
//! * a push is: `top + 1` is a multiple of 2048 bytes means full, store there, commit `top + 1`.
//!
//! Neither needs the capacity. A place without a sheaf holds the address of the last word of a block of zeros: empty *and*
//! full, both operations fail on it without a test of their own ([`missing`]). The layout is that of the sheaves of
//! `fastpath-percpu`, whose restartable sequences can work on these.
#![expect(unsafe_code, reason = "sheaves are raw arrays")]

use core::ptr::NonNull;

/// Words of a sheaf.
pub const SHEAF_WORDS: usize = if WORD == 8 { 256 } else { 64 };

/// The word that holds the last object of a full sheaf.
pub const SHEAF_FULL: usize = SHEAF_WORDS - 1;

/// The largest capacity: three words and the sentinel hold no objects.
pub const SHEAF_MAX: usize = SHEAF_WORDS - 4;

const WORD: usize = core::mem::size_of::<*mut u8>();

/// Alignment and size of a sheaf in bytes (2048 on 64-bit machines).
pub const SHEAF_BYTES: usize = SHEAF_WORDS * WORD;

const MASK: usize = SHEAF_BYTES - 1;
const LINK: usize = 0;

/// A sheaf in hand, or what stands where none is: the address of its top word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Sheaf(NonNull<*mut u8>);

// SAFETY: a sheaf is an exclusively owned array; the handle moves between threads with it.
unsafe impl Send for Sheaf {}

impl Sheaf {
    /// Offset of the top word of a full sheaf, in bytes from its start: 2040 on 64-bit machines.
    pub const FULL_OFFSET: usize = SHEAF_FULL * WORD;

    /// From the address of a top word.
    ///
    /// # Safety
    ///
    /// `top` is the top word of a live sheaf that the caller owns, or the last word of a block of zeros.
    #[inline(always)]
    pub const unsafe fn from_top(top: NonNull<*mut u8>) -> Self {
        Self(top)
    }

    /// The address of the top word.
    #[inline(always)]
    pub const fn top(self) -> *mut *mut u8 {
        self.0.as_ptr()
    }

    /// Lays out an empty sheaf of `capacity` in `memory`.
    ///
    /// # Safety
    ///
    /// `memory` has [`SHEAF_BYTES`] bytes, is aligned to as many and belongs to the caller. `capacity` is 1 to
    /// [`SHEAF_MAX`].
    pub unsafe fn lay_out(memory: NonNull<u8>, capacity: usize) -> Self {
        let words = memory.cast::<*mut u8>();
        // SAFETY: the block has that many words (caller).
        unsafe {
            let sentinel = words.add(SHEAF_FULL - capacity);
            sentinel.write(core::ptr::null_mut());
            words.add(LINK).write(core::ptr::null_mut());
            Self(sentinel)
        }
    }

    /// The first word of the block.
    #[inline]
    pub fn block(self) -> NonNull<u8> {
        let offset = self.0.addr().get() & MASK;
        // SAFETY: the top lies `offset` bytes into its block.
        unsafe { self.0.cast::<u8>().sub(offset) }
    }

    /// Whether a pop would fail.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        // SAFETY: a top word is readable.
        unsafe { (*self.0.as_ptr()).is_null() }
    }

    /// Whether a push would fail.
    #[inline(always)]
    pub fn is_full(self) -> bool {
        self.0.addr().get() & MASK == Self::FULL_OFFSET
    }

    /// Whether no sheaf is here: empty and full at once.
    #[inline]
    pub fn is_missing(self) -> bool {
        self.is_full() && self.is_empty()
    }

    /// Objects in a sheaf whose capacity is `capacity`.
    #[inline]
    pub fn len(self, capacity: usize) -> usize {
        if self.is_empty() {
            return 0; // also where no sheaf is
        }
        let word = (self.0.addr().get() & MASK) / WORD;
        (word + capacity).saturating_sub(SHEAF_FULL)
    }

    /// Takes the object on top. `None` if it is empty.
    ///
    /// # Safety
    ///
    /// The caller owns the sheaf.
    #[inline]
    pub unsafe fn pop(&mut self) -> Option<NonNull<u8>> {
        // SAFETY: top is readable; below an object there is always one more word.
        unsafe {
            let object = NonNull::new(*self.0.as_ptr())?;
            self.0 = self.0.sub(1);
            Some(object)
        }
    }

    /// Puts `object` on top. `false` if it is full.
    ///
    /// # Safety
    ///
    /// The caller owns the sheaf.
    #[inline]
    #[must_use]
    pub unsafe fn push(&mut self, object: NonNull<u8>) -> bool {
        if self.is_full() {
            return false;
        }
        // SAFETY: not full, so there is a next word.
        unsafe {
            self.0 = self.0.add(1);
            self.0.write(object.as_ptr());
        }
        true
    }

    /// The empty words above the top, to be filled by [`grow`](Self::grow), for a batch.
    ///
    /// # Safety
    ///
    /// The caller owns the sheaf.
    #[inline]
    pub(crate) unsafe fn room(&mut self) -> &mut [*mut u8] {
        let word = (self.0.addr().get() & MASK) / WORD;
        // SAFETY: words up to the last belong to the sheaf; their old contents are plain words (laid out or left by pops).
        unsafe { core::slice::from_raw_parts_mut(self.0.as_ptr().add(1), SHEAF_FULL - word) }
    }

    /// Says that `count` words of [`room`](Self::room) now hold objects.
    ///
    /// # Safety
    ///
    /// They do.
    #[inline]
    pub(crate) unsafe fn grow(&mut self, count: usize) {
        // SAFETY: inside the sheaf (caller).
        self.0 = unsafe { self.0.add(count) };
    }

    /// The objects, lowest first, of a sheaf whose capacity is `capacity`.
    ///
    /// # Safety
    ///
    /// The caller owns the sheaf.
    #[inline]
    pub(crate) unsafe fn objects(&mut self, capacity: usize) -> &mut [*mut u8] {
        let len = self.len(capacity);
        // SAFETY: the `len` words up to the top hold objects.
        unsafe { core::slice::from_raw_parts_mut(self.0.as_ptr().sub(len).add(1), len) }
    }

    /// Forgets all objects.
    #[inline]
    pub(crate) fn clear(&mut self, capacity: usize) {
        let len = self.len(capacity);
        // SAFETY: the sentinel lies `len` words below the top.
        self.0 = unsafe { self.0.sub(len) };
    }

    /// The first three words, below every sentinel: the link of lists, the head of a grace period.
    #[inline]
    pub(crate) fn words(self) -> NonNull<*mut u8> {
        // SAFETY: the block has more than three words.
        unsafe { self.block().cast::<*mut u8>().add(LINK) }
    }
}

#[repr(C, align(2048))]
struct Zeros([usize; SHEAF_WORDS]);
static ZEROS: Zeros = Zeros([0; SHEAF_WORDS]);

/// What stands where no sheaf is: empty and full at once. Nothing is ever written to it.
#[inline(always)]
pub const fn missing() -> Sheaf {
    let word: *const usize = &raw const ZEROS.0[SHEAF_FULL];
    // SAFETY: the last word of a block of zeros; the address of a static is not NULL.
    unsafe { Sheaf::from_top(NonNull::new_unchecked(word.cast_mut().cast())) }
}
