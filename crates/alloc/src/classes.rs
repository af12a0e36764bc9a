// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Size classes: multiples of 16 bytes to 128, then eight steps per doubling to 32 KiB.
//!
//! The internal waste of a request above 128 bytes is at most one step of eight, that is below 11.2 %; below it is
//! the 15 bytes that the 16-byte alignment costs anyway. Class 0 means "not a small object".

use fastpath_slub::{sheaf::SHEAF_MAX, sheaf_capacity};

/// Number of classes, class 0 included.
pub(crate) const COUNT: usize = 73;

/// The largest size of a small object.
pub(crate) const MAX_SMALL: usize = 32 * 1024;

/// Bytes of a unit of the page map: slabs start at multiples of it.
pub(crate) const UNIT: usize = 64 * 1024;

const fn size_of_class(class: usize) -> usize {
    if class <= 8 {
        return class * 16;
    }
    let doubling = (class - 9) / 8;
    let step = (class - 9) % 8 + 1;
    (128 << doubling) + (step << (4 + doubling))
}

const fn units_of_class(class: usize) -> usize {
    let size = size_of_class(class);
    let mut units = 1;
    while units < 8 {
        let bytes = units * UNIT;
        if bytes / size >= 16 && (bytes % size) * 16 <= bytes {
            break;
        }
        units *= 2;
    }
    units
}

/// What the heap needs to know of one class.
#[derive(Clone, Copy)]
pub(crate) struct Class {
    /// Bytes of an object.
    pub(crate) size: u32,
    /// Units of a slab.
    pub(crate) units: u32,
    /// Objects of a slab.
    pub(crate) objects: u32,
    /// Objects of a sheaf.
    pub(crate) sheaf: u32,
    /// `offset * reciprocal >> 40` is `offset / size` for every offset in a slab.
    pub(crate) reciprocal: u64,
}

/// Bytes of the objects of a full sheaf, where neither its words nor the kernel's number decides.
const SHEAF_BYTES: usize = 128 * 1024;

/// What fits in [`SHEAF_BYTES`], or the kernel's number where that is more.
const fn sheaf_of_class(class: usize) -> u32 {
    let size = size_of_class(class);
    let objects = sheaf_capacity(size, SHEAF_BYTES / size);
    if objects > SHEAF_MAX { SHEAF_MAX as u32 } else { objects as u32 }
}

const fn describe(class: usize) -> Class {
    let size = size_of_class(class);
    let units = units_of_class(class);
    Class {
        size: size as u32,
        units: units as u32,
        objects: (units * UNIT / size) as u32,
        sheaf: sheaf_of_class(class),
        reciprocal: (1 << 40) / size as u64 + 1,
    }
}

/// Indexed by class; entry 0 is empty.
pub(crate) static CLASSES: [Class; COUNT] = {
    let mut table = [Class { size: 0, units: 0, objects: 0, sheaf: 0, reciprocal: 0 }; COUNT];
    let mut class = 1;
    while class < COUNT {
        table[class] = describe(class);
        class += 1;
    }
    table
};

/// Twice the class of a size, indexed by the size. Twice, because a slot has two words: the value is a scaled index as
/// it stands. One byte per size costs 32 KiB of read-only file, of which a program touches a line per 64 bytes of the
/// sizes it uses, and saves the rounding on the way to a smaller table.
pub static CLASS2_OF_SIZE: [u8; MAX_SMALL + 1] = {
    let mut table = [2u8; MAX_SMALL + 1];
    let mut class = 1;
    let mut size = 0;
    while size <= MAX_SMALL {
        if size_of_class(class) < size {
            class += 1;
        }
        table[size] = (class * 2) as u8;
        size += 1;
    }
    table
};

/// Twice the class that serves `size`, which must be at most [`MAX_SMALL`].
#[inline(always)]
pub(crate) fn class2_of(size: usize) -> usize {
    debug_assert!(size <= MAX_SMALL);
    // SAFETY: `size <= MAX_SMALL` by the callers' comparison with the limit.
    unsafe { *CLASS2_OF_SIZE.get_unchecked(size) as usize }
}

/// The class that serves `size` at a multiple of `align` (a power of two), or 0 if no class does.
///
/// Slabs start at multiples of [`UNIT`], so an object is aligned if its size is a multiple of the alignment.
pub(crate) fn class_of_aligned(size: usize, align: usize) -> usize {
    if size > MAX_SMALL || align > MAX_SMALL {
        return 0;
    }
    let mut class = class2_of(size.max(align)) / 2;
    while class < COUNT && !(CLASSES[class].size as usize).is_multiple_of(align) {
        class += 1;
    }
    if class < COUNT { class } else { 0 }
}

const _: () = assert!(size_of_class(COUNT - 1) == MAX_SMALL && COUNT <= fastpath_percpu::sheaf::CLASSES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_the_smallest_class_that_holds_it() {
        for size in 0..=MAX_SMALL {
            let class = class2_of(size) / 2;
            assert!(CLASSES[class].size as usize >= size, "{size}");
            assert!(class == 1 || (CLASSES[class - 1].size as usize) < size, "{size}");
        }
    }

    #[test]
    fn the_waste_is_below_an_eighth_above_128_bytes() {
        for size in 129..=MAX_SMALL {
            let got = CLASSES[class2_of(size) / 2].size as usize;
            assert!((got - size) * 8 <= got, "{size} gets {got}");
        }
    }

    #[test]
    fn the_reciprocal_divides_exactly() {
        for class in &CLASSES[1..] {
            let size = u64::from(class.size);
            for offset in 0..u64::from(class.units) * UNIT as u64 {
                assert_eq!((offset * class.reciprocal) >> 40, offset / size);
            }
        }
    }

    #[test]
    fn a_slab_wastes_at_most_a_sixteenth_of_its_end() {
        for class in &CLASSES[1..] {
            let bytes = class.units as usize * UNIT;
            assert!((bytes - (class.objects * class.size) as usize) * 16 <= bytes, "{}", class.size);
        }
    }

    #[test]
    fn aligned_classes_are_multiples_of_the_alignment() {
        for align in (4..16).map(|shift| 1 << shift) {
            for size in (0..=MAX_SMALL).step_by(7) {
                let class = class_of_aligned(size, align);
                assert_ne!(class, 0);
                assert!(
                    CLASSES[class].size as usize >= size
                        && (CLASSES[class].size as usize).is_multiple_of(align)
                );
            }
        }
    }
}
