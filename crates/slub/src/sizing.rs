// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! How large slabs are and where things lie inside an object: integer arithmetic only.

use crate::spec::{CacheFlags, CacheSpec, FreePointer};
use crate::word::MAX_OBJECTS;

const WORD: usize = core::mem::size_of::<usize>();

/// Limits for the size of slabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizing {
    /// log2 of the page size in bytes.
    pub page_shift: u32,
    /// Smallest order (pages are `1 << order`).
    #[doc(alias = "slab_min_order")]
    pub min_order: u32,
    /// Largest order that is tried to reach `min_objects`.
    #[doc(alias = "slab_max_order")]
    pub max_order: u32,
    /// Objects a slab should have; 0: by the number of CPUs.
    #[doc(alias = "slab_min_objects")]
    pub min_objects: usize,
    /// Number of CPUs, for `min_objects` 0.
    pub cpus: usize,
}

impl Sizing {
    /// The kernel's limits on a machine with 4 KiB pages and `cpus` CPUs.
    pub const fn kernel(cpus: usize) -> Self {
        Self { page_shift: 12, min_order: 0, max_order: 3, min_objects: 0, cpus }
    }

    /// The order of the slabs of objects of `size` bytes: the smallest one that holds the wanted number of objects and
    /// wastes at most 1/16 of its bytes, failing that 1/8, 1/4, 1/2; failing that the order that holds one object.
    /// `None` if not even that fits in `top_order`.
    ///
    /// ```
    /// use fastpath_slub::Sizing;
    /// let four = Sizing::kernel(4);
    /// assert_eq!(four.order(700, 10), Some(2));
    /// assert_eq!(four.order(8192, 10), Some(3));
    /// ```
    #[doc(alias = "calculate_order")]
    pub const fn order(&self, size: usize, top_order: u32) -> Option<u32> {
        let mut wanted = self.min_objects;
        if wanted == 0 {
            let bits = usize::BITS - self.cpus.leading_zeros();
            wanted = 4 * (bits as usize + 1);
        }
        let most = (1usize << (self.max_order + self.page_shift)) / size;
        if wanted > most {
            wanted = most;
        }
        if wanted < 1 {
            wanted = 1;
        }
        let mut start = self.min_order;
        while (1usize << (start + self.page_shift)) < wanted * size {
            start += 1;
        }
        let mut fraction = 16;
        while fraction > 1 {
            let mut order = start;
            while order <= self.max_order {
                let bytes = 1usize << (order + self.page_shift);
                if self.objects(order, size) <= MAX_OBJECTS && bytes % size <= bytes / fraction {
                    return Some(order);
                }
                order += 1;
            }
            fraction /= 2;
        }
        let mut order = self.min_order;
        while (1usize << (order + self.page_shift)) < size {
            order += 1;
        }
        if order <= top_order { Some(order) } else { None }
    }

    /// Objects in a slab of `order`.
    #[doc(alias = "order_objects")]
    pub const fn objects(&self, order: u32, size: usize) -> usize {
        (1usize << (order + self.page_shift)) / size
    }
}

/// Empty slabs a node keeps: half the logarithm of the size, at least 5 and at most 10.
///
/// ```
/// assert_eq!(fastpath_slub::min_partial(4096), 6);
/// ```
#[doc(alias = "set_min_partial")]
pub const fn min_partial(size: usize) -> usize {
    let half = (usize::BITS - 1 - (size | 1).leading_zeros()) as usize / 2;
    if half < 5 {
        5
    } else if half > 10 {
        10
    } else {
        half
    }
}

/// Free objects that slabs on a CPU's partial list may have: fewer of larger ones.
///
/// ```
/// use fastpath_slub::cpu_partial;
/// assert_eq!([8192, 1024, 256, 64].map(cpu_partial), [6, 24, 52, 120]);
/// ```
#[doc(alias = "set_cpu_partial")]
pub const fn cpu_partial(size: usize) -> usize {
    match size {
        4096.. => 6,
        1024.. => 24,
        256.. => 52,
        _ => 120,
    }
}

/// The kernel's sheaf capacity for objects of `size` bytes: 60, less for larger objects, rounded up to what fills the
/// sheaf's own allocation there (32 bytes of header); an explicit request wins if it is larger.
///
/// A [`Cache`](crate::Cache) holds at most [`SHEAF_MAX`](crate::sheaf::SHEAF_MAX) per sheaf, by the sheaf's layout.
///
/// ```
/// use fastpath_slub::sheaf_capacity;
/// assert_eq!((sheaf_capacity(256, 0), sheaf_capacity(64, 100), sheaf_capacity(64, 10)), (28, 100, 60));
/// ```
#[doc(alias = "calculate_sheaf_capacity")]
pub const fn sheaf_capacity(size: usize, requested: usize) -> usize {
    let wished = if size >= 4096 {
        4
    } else if size >= 1024 {
        12
    } else if size >= 256 {
        26
    } else {
        60
    };
    // 64-bit layout of the kernel's sheaf, whatever this machine is: 32 bytes of header, then words, in a kmalloc object.
    let bytes = 32 + wished * 8;
    let crate::classes::KmallocClass::Cache(class) = crate::classes::kmalloc_class(bytes) else {
        return wished;
    };
    let filled = (crate::classes::KMALLOC_SIZES[class] - 32) / 8;
    if requested > filled { requested } else { filled }
}

/// Where things lie in the objects and slabs of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Distance of two objects, with everything that belongs to them.
    pub size: usize,
    /// Bytes the user asked for.
    pub object_size: usize,
    /// Where the metadata begins.
    pub inuse: usize,
    /// Where a free object keeps its next-pointer.
    pub offset: usize,
    /// Alignment of objects.
    pub align: usize,
    /// Bytes before each object (left red zone, `Z`).
    pub red_left: usize,
    /// Where the records of who allocated and who freed the object lie (`U`), 0 for none.
    pub track: usize,
    /// Where the number of bytes a `kmalloc` asked for lies (`U`), 0 for nowhere.
    pub request: usize,
    /// Where the padding up to the next object's left red zone begins.
    pub pad: usize,
    /// Order of new slabs.
    pub order: u32,
    /// Order used when `order` cannot be had.
    pub min_order: u32,
    /// Objects in a slab of `order`.
    pub objects: usize,
}

impl Layout {
    /// The layout of a cache, with the room that its debugging flags need.
    ///
    /// The free pointer lies in the middle of the object, away from small over- and underflows; behind the object if the
    /// object must keep its contents while free (constructor, type-stable, poison) or a red zone would overlap it; at the
    /// start if the spec asks for it (user space: one cache line less to touch).
    ///
    /// ```text
    /// red_left | object_size .. inuse | free pointer, if outside | track of alloc, of free | request | pad .. size - red_left
    ///  (Z)     ^0                 (Z) ^inuse                     ^track (U)                ^request  ^pad
    /// ```
    ///
    /// `None` if the object does not fit in a slab.
    #[doc(alias = "calculate_sizes")]
    pub const fn of(spec: &CacheSpec, sizing: &Sizing, top_order: u32) -> Option<Self> {
        let align = if spec.align < WORD { WORD } else { spec.align };
        if spec.size == 0 || !align.is_power_of_two() || spec.size > isize::MAX as usize / 2 {
            return None;
        }
        let flags = spec.flags;
        let red_zone = flags.contains(CacheFlags::RED_ZONE);
        let user = flags.contains(CacheFlags::STORE_USER);
        let requests = user && flags.contains(CacheFlags::KMALLOC);
        let mut inuse = spec.size.next_multiple_of(WORD);
        if red_zone && inuse == spec.size {
            inuse += WORD;
        }
        let explicit = matches!(spec.free_pointer, FreePointer::At(_));
        let apart = matches!(spec.free_pointer, FreePointer::Apart);
        let keeps = spec.ctor.is_some() || flags.contains(CacheFlags::TYPESAFE_BY_RCU);
        let outside = keeps && !explicit
            || flags.contains(CacheFlags::POISON) && !apart
            || red_zone && (spec.size < WORD || requests);
        let offset = match spec.free_pointer {
            _ if outside => inuse,
            FreePointer::At(offset) => offset,
            // Apart: only frees that must wait are linked, through the first word of what the user gave up.
            FreePointer::Start | FreePointer::Apart => 0,
            FreePointer::Middle => (spec.size / 2) & !(WORD - 1),
        };
        let mut size = if offset == inuse { inuse + WORD } else { inuse };
        let (mut track, mut request) = (0, 0);
        if user {
            track = size;
            size += 2 * core::mem::size_of::<crate::debug::Track>();
        }
        if requests {
            request = size;
            size += WORD;
        }
        let pad = size;
        let mut red_left = 0;
        if red_zone {
            red_left = WORD.next_multiple_of(align);
            size += WORD + red_left;
        }
        size = size.next_multiple_of(align);
        let order = match spec.order {
            Some(order) => order,
            None => match sizing.order(size, top_order) {
                Some(order) => order,
                None => return None,
            },
        };
        let mut min_order = 0;
        while (1usize << (min_order + sizing.page_shift)) < size {
            min_order += 1;
        }
        if order < min_order || order > top_order {
            return None;
        }
        let mut objects = sizing.objects(order, size);
        if objects > MAX_OBJECTS {
            objects = MAX_OBJECTS;
        }
        Some(Self {
            size,
            object_size: spec.size,
            inuse,
            offset,
            align,
            red_left,
            track,
            request,
            pad,
            order,
            min_order,
            objects,
        })
    }
}
