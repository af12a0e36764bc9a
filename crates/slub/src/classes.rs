// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Size classes: the kernel's `kmalloc` table and a finer one for user space, both as integer arithmetic only.

/// The largest size that the kernel's table serves from a slab; larger ones are page runs.
#[doc(alias = "KMALLOC_MAX_CACHE_SIZE")]
pub const KMALLOC_MAX: usize = 8192;

/// The caches of `kmalloc`, by rising size.
#[doc(alias = "kmalloc_info")]
pub const KMALLOC_SIZES: [usize; 13] = [8, 16, 32, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096, 8192];

/// Sizes to 192 by `(size - 1) / 8`: index into [`KMALLOC_SIZES`].
const KMALLOC_SMALL: [u8; 24] = {
    let mut table = [0; 24];
    let mut i = 0;
    while i < table.len() {
        let size = (i + 1) * 8;
        let mut class = 0;
        while KMALLOC_SIZES[class] < size {
            class += 1;
        }
        table[i] = class as u8;
        i += 1;
    }
    table
};

/// What serves a request of `kmalloc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KmallocClass {
    /// Size 0: the sentinel [`ZERO_SIZE_PTR`], no memory.
    Zero,
    /// Index into [`KMALLOC_SIZES`].
    Cache(usize),
    /// A run of pages.
    Large,
}

/// What `kmalloc(0)` returns: not NULL, never dereferenced, ignored by `kfree`.
pub const ZERO_SIZE_PTR: *mut u8 = core::ptr::without_provenance_mut(16);

/// The class of a request, as the kernel chooses it.
///
/// ```
/// use fastpath_slub::classes::{KMALLOC_SIZES, KmallocClass, kmalloc_class};
/// let KmallocClass::Cache(class) = kmalloc_class(65) else { panic!() };
/// assert_eq!(KMALLOC_SIZES[class], 96);
/// assert_eq!(kmalloc_class(8193), KmallocClass::Large);
/// assert_eq!(kmalloc_class(0), KmallocClass::Zero);
/// ```
#[doc(alias = "kmalloc_index")]
#[inline]
pub const fn kmalloc_class(size: usize) -> KmallocClass {
    if size == 0 {
        KmallocClass::Zero
    } else if size <= 192 {
        KmallocClass::Cache(KMALLOC_SMALL[(size - 1) / 8] as usize)
    } else if size <= KMALLOC_MAX {
        // 193..=256 is class 7; each doubling is one class.
        KmallocClass::Cache((usize::BITS - (size - 1).leading_zeros()) as usize - 1)
    } else {
        KmallocClass::Large
    }
}

/// The alignment of the objects of a `kmalloc` cache: the largest power of two that divides the size.
///
/// ```
/// assert_eq!(fastpath_slub::classes::kmalloc_align(96), 32);
/// ```
#[inline]
pub const fn kmalloc_align(size: usize) -> usize {
    1 << size.trailing_zeros()
}

/// The largest size the finer table serves.
pub const FINE_MAX: usize = 32 * 1024;

/// Number of classes of the finer table.
pub const FINE_CLASSES: usize = 9 + 64;

/// The finer class of a size of 1 to [`FINE_MAX`]: 8, multiples of 16 to 128, then eight classes per doubling. Above
/// 128 bytes at most one eighth of an object is lost (12.5 %).
///
/// ```
/// use fastpath_slub::classes::{fine_class, fine_size};
/// assert_eq!(fine_size(fine_class(129)), 144);
/// assert_eq!(fine_size(fine_class(1)), 8);
/// assert_eq!(fine_size(fine_class(32 * 1024)), 32 * 1024);
/// ```
#[inline(always)]
pub const fn fine_class(size: usize) -> usize {
    if size <= 8 {
        0
    } else if size <= 128 {
        size.div_ceil(16)
    } else {
        let last = size - 1;
        let exponent = (usize::BITS - 1 - last.leading_zeros()) as usize;
        9 + (exponent - 7) * 8 + ((last >> (exponent - 3)) & 7)
    }
}

/// The object size of a finer class.
///
/// ```
/// use fastpath_slub::classes::{FINE_CLASSES, FINE_MAX, fine_size};
/// assert_eq!(fine_size(FINE_CLASSES - 1), FINE_MAX);
/// ```
#[inline(always)]
pub const fn fine_size(class: usize) -> usize {
    if class == 0 {
        8
    } else if class <= 8 {
        class * 16
    } else {
        let exponent = 7 + (class - 9) / 8;
        (1 << exponent) + (((class - 9) % 8 + 1) << (exponent - 3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fine_classes_are_tight_and_ordered() {
        for class in 1..FINE_CLASSES {
            assert!(fine_size(class) > fine_size(class - 1));
            assert_eq!(fine_class(fine_size(class)), class);
            assert_eq!(fine_class(fine_size(class - 1) + 1), class);
        }
        for size in 1..=FINE_MAX {
            let object = fine_size(fine_class(size));
            assert!(object >= size);
            assert!(size <= 128 || (object - size) * 8 < object, "{size} -> {object}");
        }
    }

    #[test]
    fn every_kmalloc_size_takes_the_smallest_cache_that_holds_it() {
        for size in 1..=KMALLOC_MAX {
            let KmallocClass::Cache(class) = kmalloc_class(size) else { panic!("{size}") };
            assert!(
                KMALLOC_SIZES[class] >= size && (class == 0 || KMALLOC_SIZES[class - 1] < size),
                "{size}"
            );
        }
    }
}
