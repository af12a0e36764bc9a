// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The contract of an object cache, for every front end on every backend, on the host and on bare metal.
//!
//! The functions take a fresh cache (no slabs, no objects) and leave it destroyed. They use no heap: arrays are the
//! caller's. Each panics when the contract is broken.

#![expect(
    clippy::missing_panics_doc,
    reason = "every function panics when the contract is broken, as said above"
)]

use core::ptr::NonNull;

/// What the suite sees of a cache under test.
pub trait ObjectCache {
    /// Bytes of an object.
    fn object_size(&self) -> usize;
    /// Its alignment in bytes.
    fn align(&self) -> usize;
    /// An object, or `None` without memory.
    fn alloc(&self) -> Option<NonNull<u8>>;
    /// Takes an object back.
    ///
    /// # Safety
    ///
    /// It came from this cache and nobody uses it any more.
    #[expect(unsafe_code, reason = "the caller gives the object up")]
    unsafe fn free(&self, object: NonNull<u8>);
    /// Fills `out`, all or nothing.
    fn alloc_bulk(&self, out: &mut [*mut u8]) -> bool;
    /// Takes many objects back.
    ///
    /// # Safety
    ///
    /// As for [`free`](Self::free).
    #[expect(unsafe_code, reason = "the caller gives the objects up")]
    unsafe fn free_bulk(&self, objects: &mut [*mut u8]);
    /// An object without waiting.
    fn alloc_nolock(&self) -> Option<NonNull<u8>>;
    /// Takes an object back without waiting.
    ///
    /// # Safety
    ///
    /// As for [`free`](Self::free).
    #[expect(unsafe_code, reason = "the caller gives the object up")]
    unsafe fn free_nolock(&self, object: NonNull<u8>);
    /// Gives back what nobody uses; whether slabs remain.
    fn shrink(&self) -> bool;
    /// Gives everything back; `Err` with the number of slabs that remain.
    ///
    /// # Errors
    ///
    /// Objects are in use.
    fn destroy(&self) -> Result<(), usize>;
    /// {objects not free in slabs, objects free in partial slabs, all objects, slabs, slabs on partial lists}.
    fn counts(&self) -> Counts;
    /// Checks the cache's own invariants at rest.
    ///
    /// # Errors
    ///
    /// What is violated.
    fn validate(&self) -> Result<usize, &'static str>;
}

/// The numbers of [`ObjectCache::counts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Objects that are not free in their slab.
    pub active: usize,
    /// Objects free in partial slabs.
    pub free_in_partial: usize,
    /// Objects of all slabs.
    pub objects: usize,
    /// Slabs.
    pub slabs: usize,
    /// Slabs on partial lists.
    pub partial: usize,
}

/// [`Counts`](crate::slub_suite::Counts) of a `fastpath_slub::SlabInfo`.
#[macro_export]
macro_rules! slab_counts {
    ($info:expr) => {{
        let info = $info;
        $crate::slub_suite::Counts {
            active: info.active_objs,
            free_in_partial: info.free_in_partial,
            objects: info.num_objs,
            slabs: info.num_slabs,
            partial: info.partial_slabs,
        }
    }};
}

/// Makes a tuple struct around a reference to a cache of `fastpath-slub`, of either front end, an
/// [`ObjectCache`](crate::slub_suite::ObjectCache). In brackets: the generics of the implementation.
#[macro_export]
macro_rules! object_cache {
    ([$($generics:tt)*] $wrapper:ty) => {
        impl<$($generics)*> $crate::slub_suite::ObjectCache for $wrapper {
            fn object_size(&self) -> usize {
                self.0.slabs().layout().object_size
            }
            fn align(&self) -> usize {
                self.0.slabs().layout().align
            }
            fn alloc(&self) -> Option<core::ptr::NonNull<u8>> {
                self.0.alloc()
            }
            unsafe fn free(&self, object: core::ptr::NonNull<u8>) {
                // SAFETY: as the caller promises.
                unsafe { self.0.free(object) }
            }
            fn alloc_bulk(&self, out: &mut [*mut u8]) -> bool {
                self.0.alloc_bulk(out)
            }
            unsafe fn free_bulk(&self, objects: &mut [*mut u8]) {
                // SAFETY: as the caller promises.
                unsafe { self.0.free_bulk(objects) }
            }
            fn alloc_nolock(&self) -> Option<core::ptr::NonNull<u8>> {
                self.0.alloc_nolock()
            }
            unsafe fn free_nolock(&self, object: core::ptr::NonNull<u8>) {
                // SAFETY: as the caller promises.
                unsafe { self.0.free_nolock(object) }
            }
            fn shrink(&self) -> bool {
                self.0.shrink()
            }
            fn destroy(&self) -> Result<(), usize> {
                self.0.destroy().map_err(|busy| busy.slabs)
            }
            fn counts(&self) -> $crate::slub_suite::Counts {
                $crate::slab_counts!(self.0.info())
            }
            fn validate(&self) -> Result<usize, &'static str> {
                self.0.slabs().validate()
            }
        }
    };
}

/// A small generator with a fixed seed: the same run everywhere.
#[derive(Debug)]
pub struct Numbers(u64);

impl Numbers {
    /// Starts at `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// The next number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        // Marsaglia's xorshift64*.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize) % bound
    }
}

/// Fills an object with a pattern made of its address.
#[expect(unsafe_code, reason = "writes to an object under test")]
pub fn mark(object: NonNull<u8>, size: usize) {
    for at in 0..size {
        // SAFETY: inside the object, which the caller owns.
        unsafe { object.add(at).write(pattern(object, at)) };
    }
}

/// Checks the pattern of [`mark`].
#[expect(unsafe_code, reason = "reads an object under test")]
pub fn check(object: NonNull<u8>, size: usize) {
    for at in 0..size {
        // SAFETY: inside the object, which the caller owns.
        let byte = unsafe { object.add(at).read() };
        assert_eq!(byte, pattern(object, at), "byte {at} of an object changed while it was in use");
    }
}

fn pattern(object: NonNull<u8>, at: usize) -> u8 {
    let address = object.addr().get();
    (address >> 3) as u8 ^ (address >> 11) as u8 ^ at as u8
}

/// K19: the object freed last is allocated first.
#[expect(unsafe_code, reason = "frees objects under test")]
pub fn last_in_first_out(cache: &impl ObjectCache) {
    let first = cache.alloc().expect("memory");
    let second = cache.alloc().expect("memory");
    assert_ne!(first, second);
    for object in [first, second] {
        // SAFETY: allocated here; allocated again below before any other use.
        unsafe { cache.free(object) };
        assert_eq!(cache.alloc(), Some(object));
    }
    // SAFETY: allocated here.
    unsafe {
        cache.free(first);
        cache.free(second);
    }
    assert_eq!(cache.alloc(), Some(second));
    assert_eq!(cache.alloc(), Some(first));
    // SAFETY: allocated here.
    unsafe {
        cache.free(second);
        cache.free(first);
    }
    assert_eq!(cache.destroy(), Ok(()));
    assert_eq!(cache.counts().slabs, 0);
}

/// A long random run that knows every live object: none overlaps another, contents stay, all come back; K55's identity
/// holds at every rest.
#[expect(unsafe_code, reason = "frees objects under test")]
pub fn every_live_object(cache: &impl ObjectCache, live: &mut [*mut u8], rounds: usize, seed: u64) {
    let mut numbers = Numbers::new(seed);
    let size = cache.object_size();
    let mut count = 0;
    for round in 0..rounds {
        // Waves: the number of live objects swings between none and all of the array.
        let target = numbers.below(live.len() + 1);
        while count < target {
            let object = if numbers.below(8) == 0 { cache.alloc_nolock() } else { cache.alloc() };
            let Some(object) = object else { break };
            assert_eq!(object.addr().get() % cache.align(), 0, "alignment");
            mark(object, size);
            live[count] = object.as_ptr();
            count += 1;
        }
        while count > target {
            let victim = numbers.below(count);
            let object = NonNull::new(live[victim]).expect("an object");
            check(object, size);
            count -= 1;
            live[victim] = live[count];
            // SAFETY: a live object, forgotten here.
            unsafe {
                if numbers.below(8) == 0 {
                    cache.free_nolock(object);
                } else {
                    cache.free(object);
                }
            }
        }
        for &object in &live[..count] {
            check(NonNull::new(object).expect("an object"), size);
        }
        let counts = cache.counts();
        assert_eq!(counts.active + counts.free_in_partial, counts.objects, "K55 in round {round}");
        assert!(counts.active >= count);
        if round % 16 == 0 {
            cache.shrink();
            assert!(cache.validate().is_ok(), "{:?}", cache.validate());
        }
    }
    live[..count].sort_unstable();
    for pair in live[..count].windows(2) {
        assert!(pair[1].addr() - pair[0].addr() >= size, "two live objects overlap");
    }
    // SAFETY: the live ones.
    unsafe { cache.free_bulk(&mut live[..count]) };
    assert_eq!(cache.destroy(), Ok(()), "all objects came back");
    assert_eq!(cache.counts(), Counts { active: 0, free_in_partial: 0, objects: 0, slabs: 0, partial: 0 });
}

/// Bulk operations: nothing, many at once, mixed with single ones.
#[expect(unsafe_code, reason = "frees objects under test")]
pub fn in_bulk(cache: &impl ObjectCache, objects: &mut [*mut u8]) {
    assert!(cache.alloc_bulk(&mut []), "nothing is easy");
    assert!(cache.alloc_bulk(objects));
    let size = cache.object_size();
    for &mut object in &mut *objects {
        mark(NonNull::new(object).expect("an object"), size);
    }
    for &mut object in &mut *objects {
        check(NonNull::new(object).expect("an object"), size);
    }
    // Interleaved from both ends, so that neighbours in the array lie in different slabs.
    let len = objects.len();
    for at in (0..len / 2).step_by(2) {
        objects.swap(at, len - 1 - at);
    }
    // SAFETY: all live, none used afterwards.
    unsafe { cache.free_bulk(objects) };
    assert!(cache.validate().is_ok(), "{:?}", cache.validate());
    let single = cache.alloc().expect("memory");
    // SAFETY: allocated here.
    unsafe { cache.free(single) };
    assert_eq!(cache.destroy(), Ok(()));
}

/// K44: destroying with one live object fails and changes nothing; after its free it succeeds, and the cache can be used
/// again.
#[expect(unsafe_code, reason = "frees objects under test")]
pub fn destroy_with_a_live_object(cache: &impl ObjectCache) {
    let kept = cache.alloc().expect("memory");
    let other = cache.alloc().expect("memory");
    mark(kept, cache.object_size());
    // SAFETY: allocated here.
    unsafe { cache.free(other) };
    assert_eq!(cache.destroy(), Err(1));
    check(kept, cache.object_size());
    // SAFETY: allocated here.
    unsafe { cache.free(kept) };
    assert_eq!(cache.destroy(), Ok(()));
    let again = cache.alloc().expect("memory");
    // SAFETY: allocated here.
    unsafe { cache.free(again) };
    assert_eq!(cache.destroy(), Ok(()));
}

/// Memory runs out: `None`, nothing lost, and everything works again after frees.
#[expect(unsafe_code, reason = "frees objects under test")]
pub fn out_of_memory(cache: &impl ObjectCache, objects: &mut [*mut u8]) {
    let mut count = 0;
    while count < objects.len() {
        let Some(object) = cache.alloc() else { break };
        mark(object, cache.object_size());
        objects[count] = object.as_ptr();
        count += 1;
    }
    assert!(count < objects.len(), "the array must hold more objects than the memory does");
    assert_eq!(cache.alloc(), None);
    let before = count;
    for &mut object in &mut objects[..count] {
        let object = NonNull::new(object).expect("an object");
        check(object, cache.object_size());
        // SAFETY: live, not used afterwards.
        unsafe { cache.free(object) };
    }
    assert_eq!(cache.destroy(), Ok(()));
    let mut again = 0;
    while let Some(object) = cache.alloc() {
        objects[again] = object.as_ptr();
        again += 1;
    }
    assert_eq!(again, before, "the same number fits again");
    // SAFETY: live, not used afterwards.
    unsafe { cache.free_bulk(&mut objects[..again]) };
    assert_eq!(cache.destroy(), Ok(()));
}
