// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The descriptor of one slab.
#![expect(
    unsafe_code,
    reason = "fields are shared under the slab word, the list lock, or before publication"
)]

#[cfg(not(loom))]
use crate::cache::GraceHead;
use crate::sync::{AtomicPtr, AtomicU64, Ordering, const_fn, fence};
use crate::word::{NONE, SlabWord};
use core::cell::UnsafeCell;
use core::ptr::NonNull;

/// The descriptor of one run of pages, in memory that the [`PageSource`](crate::PageSource) owns.
///
/// One cache line (64 bytes on 64-bit machines), apart from the objects. A descriptor of all zero bytes is valid and
/// vacant. What may change when:
///
/// * `word`: by compare-and-exchange, at any time ([`SlabWord`]);
/// * `next`, `prev`, the flags: under the list lock of the slab's node (or by the owner of a slab that nobody else knows);
/// * everything else: written when the slab is made, before anyone else can reach it, and constant until it is given back.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Slab {
    word: AtomicU64,
    /// First byte of the run; of object 0 while the slab layer has it.
    base: UnsafeCell<*mut u8>,
    // These three are a `GraceHead` while the slab waits for a grace period: `owner` is the head's cache then.
    pub(crate) next: UnsafeCell<*mut Slab>,
    pub(crate) prev: UnsafeCell<*mut Slab>,
    owner: AtomicPtr<()>,
    shape: UnsafeCell<Shape>,
    run: UnsafeCell<Run>,
    /// Guarded by the list lock.
    flags: UnsafeCell<u8>,
    source: UnsafeCell<usize>,
}

/// What is constant during a slab's life.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Shape {
    /// Distance of two objects in bytes.
    pub(crate) size: u32,
    /// ceil(2^32 / size), 0 where that would be inexact.
    pub(crate) reciprocal: u32,
    pub(crate) class: u16,
    pub(crate) capacity: u16,
}

/// Where the run came from; constant like the shape (apart from it so that the descriptor fills one line).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Run {
    pub(crate) node: u8,
    pub(crate) order: u8,
}

impl Shape {
    /// The reciprocal of a stride that is exact for all offsets below `bytes`, or 0.
    pub(crate) const fn reciprocal(size: u32, bytes: usize) -> u32 {
        // n * ceil(2^32/size) / 2^32 is exact while n * size < 2^32.
        if size < 2 || (size as u64).saturating_mul(bytes as u64) > 1 << 32 {
            0
        } else {
            ((1u64 << 32).div_ceil(size as u64)) as u32
        }
    }
}

/// On a node's partial list.
#[doc(alias = "SL_partial")]
pub(crate) const PARTIAL: u8 = 1;

/// Failed a check: frozen, counted as full, never touched again; its objects leak when they are freed.
pub(crate) const DAMAGED: u8 = 2;

#[cfg(all(target_pointer_width = "64", not(loom)))]
const _: () = assert!(core::mem::size_of::<Slab>() == 64);

#[cfg(not(loom))]
const _: () = {
    use core::mem::{offset_of, size_of};
    let head = size_of::<GraceHead>();
    assert!(offset_of!(Slab, owner) + size_of::<*const ()>() - offset_of!(Slab, next) == head);
    assert!(offset_of!(Slab, owner) - offset_of!(Slab, next) == GraceHead::CACHE);
};

// SAFETY: the table at the type says which rule guards each field; all fields are plain words.
unsafe impl Send for Slab {}
// SAFETY: as above.
unsafe impl Sync for Slab {}

impl Slab {
    const_fn! {
        /// A vacant descriptor.
        pub const fn new() -> Self {
            Self {
                word: AtomicU64::new(0),
                base: UnsafeCell::new(core::ptr::null_mut()),
                owner: AtomicPtr::new(core::ptr::null_mut()),
                next: UnsafeCell::new(core::ptr::null_mut()),
                prev: UnsafeCell::new(core::ptr::null_mut()),
                shape: UnsafeCell::new(Shape { size: 0, reciprocal: 0, class: 0, capacity: 0 }),
                run: UnsafeCell::new(Run { node: 0, order: 0 }),
                flags: UnsafeCell::new(0),
                source: UnsafeCell::new(0),
            }
        }
    }

    /// First byte of the run, as last set by the source.
    #[inline(always)]
    pub fn base(&self) -> *mut u8 {
        // SAFETY: written before publication only.
        unsafe { *self.base.get() }
    }

    /// Sets the first byte of the run.
    ///
    /// # Safety
    ///
    /// For the source, while nobody else can reach the descriptor.
    #[inline]
    pub unsafe fn set_base(&self, base: *mut u8) {
        // SAFETY: nobody else reaches it (caller).
        unsafe { *self.base.get() = base }
    }

    /// A word for the source's own use; the slab layer never touches it.
    #[inline]
    pub fn source_word(&self) -> *mut usize {
        self.source.get()
    }

    /// The class given in [`CacheSpec::class`](crate::CacheSpec), 0 for a vacant descriptor.
    #[inline(always)]
    pub fn class(&self) -> u16 {
        self.shape().class
    }

    /// Distance of two objects in bytes, 0 for a vacant descriptor.
    #[inline(always)]
    pub fn size(&self) -> usize {
        self.shape().size as usize
    }

    /// Objects that fit.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.shape().capacity as usize
    }

    /// log2 of the pages.
    #[inline]
    pub fn order(&self) -> u32 {
        // SAFETY: constant while the slab is reachable.
        u32::from(unsafe { (*self.run.get()).order })
    }

    /// The memory node it was allocated on.
    #[inline]
    pub fn node(&self) -> usize {
        // SAFETY: constant while the slab is reachable.
        usize::from(unsafe { (*self.run.get()).node })
    }

    /// The address of the slab layer that owns it, NULL while vacant.
    #[inline(always)]
    pub fn owner(&self) -> *const () {
        // ORDERING: Relaxed: whoever holds an object of the slab got it after the owner was written.
        self.owner.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn shape(&self) -> &Shape {
        // SAFETY: constant while the slab is reachable.
        unsafe { &*self.shape.get() }
    }

    /// A snapshot of the shared state.
    #[inline]
    pub fn word(&self) -> SlabWord {
        // ORDERING: Acquire pairs with the Release half of `try_change`: what the last change published (links inside
        // objects) is visible to whoever walks the list from this head.
        SlabWord::from_bits(self.word.load(Ordering::Acquire))
    }

    /// Replaces the state if it is still `*old`; else puts the present state there.
    #[inline]
    pub(crate) fn try_change(&self, old: &mut SlabWord, new: SlabWord) -> bool {
        let mut bits = old.bits();
        // ORDERING: AcqRel: Release publishes the links of the objects given back, and orders a user's last writes to an
        // object before the next owner's; Acquire pairs with the Release of the free that put the objects there.
        if self.word.try_cmpxchg(&mut bits, new.bits(), Ordering::AcqRel) {
            return true;
        }
        // ORDERING: a failed exchange read Relaxed; the fence makes it an Acquire, which pairs with the Release half of the
        // change that won: the caller will walk from this head.
        fence(Ordering::Acquire);
        *old = SlabWord::from_bits(bits);
        false
    }

    /// Replaces the state, whatever it is.
    pub(crate) fn change(&self, new: impl Fn(SlabWord) -> SlabWord) {
        let mut word = self.word();
        loop {
            let next = new(word);
            if self.try_change(&mut word, next) {
                return;
            }
        }
    }

    /// The address of object `index`.
    ///
    /// # Safety
    ///
    /// `index` is below the capacity.
    #[inline(always)]
    pub(crate) unsafe fn object(&self, index: usize) -> *mut u8 {
        // SAFETY: inside the run (caller).
        unsafe { self.base().add(index * self.size()) }
    }

    /// The index of an object of this slab.
    #[inline(always)]
    pub(crate) fn index(&self, object: *const u8) -> usize {
        let offset = object.addr().wrapping_sub(self.base().addr());
        let shape = self.shape();
        if shape.reciprocal != 0 && u32::try_from(offset).is_ok() {
            ((offset as u64 * u64::from(shape.reciprocal)) >> 32) as usize
        } else {
            offset / (shape.size.max(1) as usize)
        }
    }

    /// Whether `object` is the address of an object that exists, given the state `word`.
    #[inline]
    pub(crate) fn is_object(&self, object: *const u8, word: SlabWord) -> bool {
        let offset = object.addr().wrapping_sub(self.base().addr());
        let index = self.index(object);
        index < word.objects() && index * self.size() == offset
    }

    /// What tells the index of an object that exists, given the state `word`, for many addresses in a row.
    #[inline(always)]
    pub(crate) fn indexer(&self, word: SlabWord) -> impl Fn(*const u8) -> Option<usize> {
        let (base, size) = (self.base().addr(), self.size());
        let (bytes, reciprocal) = (word.objects() * size, self.shape().reciprocal);
        move |object| {
            let offset = object.addr().wrapping_sub(base);
            if offset >= bytes {
                return None;
            }
            let index = if reciprocal == 0 {
                offset / size
            } else {
                ((offset as u64 * u64::from(reciprocal)) >> 32) as usize
            };
            (index * size == offset).then_some(index)
        }
    }

    /// The head of the free list as an address, NULL for an empty one.
    #[inline(always)]
    pub(crate) fn head(&self, word: SlabWord) -> *mut u8 {
        let head = word.head();
        if head == NONE {
            core::ptr::null_mut()
        } else {
            // SAFETY: a head is the index of an existing object.
            unsafe { self.object(usize::from(head)) }
        }
    }

    /// Turns a run fresh from the source into an empty slab.
    ///
    /// # Safety
    ///
    /// Nobody else can reach the descriptor.
    pub(crate) unsafe fn make(&self, owner: *const (), shape: Shape, run: Run, first: usize) {
        // SAFETY: nobody else reaches it (caller).
        unsafe {
            *self.shape.get() = shape;
            *self.run.get() = run;
            *self.base.get() = self.base().add(first);
            *self.next.get() = core::ptr::null_mut();
            *self.prev.get() = core::ptr::null_mut();
            *self.flags.get() = 0;
        }
        // ORDERING: Relaxed: an object of the slab reaches others only through a lock or the slab word later on.
        self.owner.store(owner.cast_mut(), Ordering::Relaxed);
        // ORDERING: Relaxed, as above. The generation goes on where the last life of this descriptor stopped.
        let last = SlabWord::from_bits(self.word.load(Ordering::Relaxed));
        let fresh = SlabWord::from_bits(
            (u64::from(last.generation().wrapping_add(1)) << 48) | SlabWord::new().bits(),
        );
        // ORDERING: Relaxed, as above.
        self.word.store(fresh.bits(), Ordering::Relaxed);
    }

    /// Makes the descriptor vacant again before it goes back to the source.
    ///
    /// # Safety
    ///
    /// No object is in use and nobody else reaches it.
    pub(crate) unsafe fn unmake(&self, first: usize) {
        // SAFETY: nobody else reaches it (caller); `make` added `first`.
        unsafe {
            *self.base.get() = self.base().sub(first);
            *self.shape.get() = Shape { size: 0, reciprocal: 0, class: 0, capacity: 0 };
        }
        // ORDERING: Relaxed: the source publishes the run again under its own rules.
        self.owner.store(core::ptr::null_mut(), Ordering::Relaxed);
    }

    /// Turns list links and owner into the head of something that waits for a grace period. The owner stays the same.
    ///
    /// # Safety
    ///
    /// No object is in use, nobody else reaches the slab, and `owner` is the address of whatever `function` expects.
    #[cfg(not(loom))]
    pub(crate) unsafe fn wait_as(
        slab: NonNull<Self>,
        function: unsafe fn(NonNull<GraceHead>),
    ) -> NonNull<GraceHead> {
        // SAFETY: a live descriptor whose fields from `next` on have the layout of a head (checked above) and are ours.
        unsafe {
            let owner = slab.as_ref().owner();
            let head = slab.byte_add(core::mem::offset_of!(Self, next)).cast::<GraceHead>();
            head.write(GraceHead::new(function, owner));
            head
        }
    }

    /// The slab that waited as `head`.
    ///
    /// # Safety
    ///
    /// From [`wait_as`](Self::wait_as), and its wait is over.
    #[cfg(not(loom))]
    pub(crate) unsafe fn waited_as(head: NonNull<GraceHead>) -> NonNull<Self> {
        // SAFETY: the head lies in the descriptor (caller).
        unsafe { head.byte_sub(core::mem::offset_of!(Self, next)).cast() }
    }

    /// The flags.
    ///
    /// # Safety
    ///
    /// Under the list lock of the slab's node.
    #[inline]
    pub(crate) unsafe fn flags(&self) -> u8 {
        // SAFETY: guarded by the list lock (caller).
        unsafe { *self.flags.get() }
    }

    /// Sets the flags.
    ///
    /// # Safety
    ///
    /// As for [`flags`](Self::flags).
    #[inline]
    pub(crate) unsafe fn set_flags(&self, flags: u8) {
        // SAFETY: guarded by the list lock (caller).
        unsafe { *self.flags.get() = flags }
    }
}

impl Default for Slab {
    fn default() -> Self {
        Self::new()
    }
}

/// A doubly linked list of slabs, guarded by the list lock of a node.
#[derive(Debug)]
pub(crate) struct SlabList {
    head: *mut Slab,
    tail: *mut Slab,
    len: usize,
}

impl SlabList {
    pub(crate) const fn new() -> Self {
        Self { head: core::ptr::null_mut(), tail: core::ptr::null_mut(), len: 0 }
    }

    #[inline]
    pub(crate) fn first(&self) -> *mut Slab {
        self.head
    }

    pub(crate) fn last(&self) -> *mut Slab {
        self.tail
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Puts `slab` first.
    ///
    /// # Safety
    ///
    /// Under the list lock; `slab` is on no list.
    pub(crate) unsafe fn push_front(&mut self, slab: NonNull<Slab>) {
        let s = slab.as_ptr();
        // SAFETY: links are guarded by the list lock (caller), members are live descriptors.
        unsafe {
            *(*s).prev.get() = core::ptr::null_mut();
            *(*s).next.get() = self.head;
            if self.head.is_null() {
                self.tail = s;
            } else {
                *(*self.head).prev.get() = s;
            }
        }
        self.head = s;
        self.len += 1;
    }

    /// Puts `slab` last.
    ///
    /// # Safety
    ///
    /// As for [`push_front`](Self::push_front).
    pub(crate) unsafe fn push_back(&mut self, slab: NonNull<Slab>) {
        let s = slab.as_ptr();
        // SAFETY: as in `push_front`.
        unsafe {
            *(*s).next.get() = core::ptr::null_mut();
            *(*s).prev.get() = self.tail;
            if self.tail.is_null() {
                self.head = s;
            } else {
                *(*self.tail).next.get() = s;
            }
        }
        self.tail = s;
        self.len += 1;
    }

    /// Takes `slab` out.
    ///
    /// # Safety
    ///
    /// Under the list lock; `slab` is on this list.
    pub(crate) unsafe fn remove(&mut self, slab: NonNull<Slab>) {
        let s = slab.as_ptr();
        // SAFETY: as in `push_front`.
        unsafe {
            let (prev, next) = (*(*s).prev.get(), *(*s).next.get());
            if prev.is_null() {
                self.head = next;
            } else {
                *(*prev).next.get() = next;
            }
            if next.is_null() {
                self.tail = prev;
            } else {
                *(*next).prev.get() = prev;
            }
        }
        self.len -= 1;
    }
}
