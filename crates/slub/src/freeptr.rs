// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The next-pointer inside a free object, plain or obfuscated.
#![expect(
    clippy::cast_ptr_alignment,
    reason = "objects and free-pointer offsets are multiples of the word size"
)]
#![expect(unsafe_code, reason = "reads and writes words inside free objects")]

use crate::sync::Tunable;

/// How free pointers are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FreePointerCode<'a> {
    /// Byte offset inside the object.
    pub(crate) offset: usize,
    /// The secret, looked at only if `hardened`.
    pub(crate) secret: &'a Tunable,
    pub(crate) hardened: bool,
}

impl FreePointerCode<'_> {
    /// What is stored at the address `slot` for the pointer `value`, and the other way round: pointer XOR secret XOR the
    /// byte-swapped address, so that a leaked word betrays neither and a guessed one fits no other place.
    #[doc(alias = "freelist_ptr_encode")]
    #[inline(always)]
    pub(crate) const fn code(secret: usize, slot: usize, value: usize) -> usize {
        value ^ secret ^ slot.swap_bytes()
    }

    /// The next object after `object`.
    ///
    /// # Safety
    ///
    /// `object` is readable memory of the cache. It need not be free: then the value means nothing.
    #[inline(always)]
    pub(crate) unsafe fn next(self, object: *mut u8) -> *mut u8 {
        // SAFETY: inside the object (caller). Volatile: the tid front reads objects that others may be writing to, and
        // throws the value away in that case; the compiler must neither assume a stable value nor read twice.
        unsafe {
            let slot = object.add(self.offset).cast::<*mut u8>();
            let raw = core::ptr::read_volatile(slot);
            if self.hardened {
                raw.map_addr(|bits| Self::code(self.secret.get(), slot.addr(), bits))
            } else {
                raw
            }
        }
    }

    /// Makes `next` the next object after `object`.
    ///
    /// # Safety
    ///
    /// `object` belongs to the caller.
    #[inline(always)]
    pub(crate) unsafe fn set_next(self, object: *mut u8, next: *mut u8) {
        // SAFETY: inside the object (caller).
        unsafe {
            let slot = object.add(self.offset).cast::<*mut u8>();
            let stored = if self.hardened {
                next.map_addr(|bits| Self::code(self.secret.get(), slot.addr(), bits))
            } else {
                next
            };
            core::ptr::write_volatile(slot, stored);
        }
    }
}

#[cfg(all(test, not(loom), target_pointer_width = "64"))]
mod tests {
    use super::FreePointerCode as Code;

    #[test]
    fn the_vector_of_the_kernels_obfuscation() {
        let (secret, slot) = (0x0123_4567_89ab_cdef, 0xffff_8881_0000_1020);
        let next = 0xffff_8881_0000_1040;
        assert_eq!(Code::code(secret, slot, next), 0xdecc_cde6_0823_2250);
        assert_eq!(Code::code(secret, slot, 0), 0x2133_4567_0823_3210);
        assert_eq!(Code::code(secret, slot, Code::code(secret, slot, next)), next, "its own inverse");
        assert_ne!(Code::code(secret, slot + 64, next), Code::code(secret, slot, next));
        fastpath_testkit::case("K33", "slabs");
    }
}
