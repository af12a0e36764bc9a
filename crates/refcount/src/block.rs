// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The block of memory behind a handle: counters, allocator, value. Knows layouts and initialisation, not who frees when.
#![expect(unsafe_code, reason = "raw memory is laid out, filled and given back")]

use core::alloc::Layout;
use core::mem::{ManuallyDrop, offset_of};
use core::ptr::{self, NonNull};

use crate::allocator::{ArcAllocator, out_of_memory};

/// Counters `C`, the allocator the block came from, and the value. `repr(C)`: unsizing the value keeps the offsets, and
/// `data_offset` can compute them.
#[repr(C)]
pub(crate) struct Block<C, T: ?Sized, A> {
    pub(crate) counts: C,
    pub(crate) allocator: A,
    pub(crate) data: T,
}

/// The layout of a block whose value has the layout `value`, and the offset of the value in it. `None` if it is too large.
pub(crate) fn layout<C, A>(value: Layout) -> Option<(Layout, usize)> {
    let (head, _) = Layout::new::<C>().extend(Layout::new::<A>()).ok()?;
    let (block, offset) = head.extend(value).ok()?;
    Some((block.pad_to_align(), offset))
}

/// Where the value of a block starts, given the value's alignment.
pub(crate) const fn data_offset<C, A>(align: usize) -> usize {
    let end = offset_of!(Block<C, (), A>, allocator) + size_of::<A>();
    end.next_multiple_of(align)
}

/// Memory that is given back when this is dropped: the allocator has been moved out of the block, or not yet into it.
pub(crate) struct Memory<A: ArcAllocator> {
    start: NonNull<u8>,
    layout: Layout,
    allocator: ManuallyDrop<A>,
}

impl<A: ArcAllocator> Memory<A> {
    /// Memory for `layout` from `allocator`, which is returned if there is none.
    pub(crate) fn allocate(layout: Layout, allocator: A) -> Result<Self, A> {
        match allocator.allocate(layout) {
            Some(start) => Ok(Self { start, layout, allocator: ManuallyDrop::new(allocator) }),
            None => Err(allocator),
        }
    }

    /// Takes over the memory of `block`, whose value has been dropped or moved out, or will be before this is dropped.
    ///
    /// # Safety
    ///
    /// `block` was made by [`finish`](Self::finish), this thread is the only one left that uses it, and nobody uses its
    /// `allocator` field afterwards. The value must be in place for its size to be read.
    pub(crate) unsafe fn reclaim<C, T: ?Sized>(block: NonNull<Block<C, T, A>>) -> Self {
        // SAFETY: the block is valid, and by the contract the allocator is moved out once.
        unsafe {
            let layout = Layout::for_value(block.as_ref());
            let allocator = ManuallyDrop::new((&raw const (*block.as_ptr()).allocator).read());
            Self { start: block.cast(), layout, allocator }
        }
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Writes the counters and moves the allocator in: the block is complete, if the value is in place.
    ///
    /// # Safety
    ///
    /// `block` points to the start of this memory, which was allocated with the layout of that block, and the value is initialised.
    pub(crate) unsafe fn finish<C, T: ?Sized>(
        self,
        block: *mut Block<C, T, A>,
        counts: C,
    ) -> NonNull<Block<C, T, A>> {
        debug_assert_eq!(block.cast::<u8>(), self.start());
        let this = ManuallyDrop::new(self);
        // SAFETY: the memory is ours and fits the block; `this` is not dropped, so the allocator is moved once.
        unsafe {
            debug_assert_eq!(Layout::for_value(&*block), this.layout);
            (&raw mut (*block).counts).write(counts);
            (&raw mut (*block).allocator)
                .write(ManuallyDrop::into_inner(ptr::read(&raw const this.allocator)));
            NonNull::new_unchecked(block)
        }
    }
}

impl<A: ArcAllocator> Drop for Memory<A> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `start` and `layout` are those of the allocation, nobody uses it any more, and this runs once.
        unsafe {
            self.allocator.deallocate(self.start, self.layout);
            ManuallyDrop::drop(&mut self.allocator);
        }
    }
}

#[expect(clippy::type_complexity, reason = "what came in goes out")]
/// A block with `value` in it; both are returned if there is no memory.
pub(crate) fn with_value<C, T, A: ArcAllocator>(
    value: T,
    counts: C,
    allocator: A,
) -> Result<NonNull<Block<C, T, A>>, (T, A)> {
    let memory = match Memory::allocate(Layout::new::<Block<C, T, A>>(), allocator) {
        Ok(memory) => memory,
        Err(allocator) => return Err((value, allocator)),
    };
    let block: *mut Block<C, T, A> = memory.start().cast();
    // SAFETY: the memory has the layout of the block, and the value is written before `finish`.
    unsafe {
        (&raw mut (*block).data).write(value);
        Ok(memory.finish(block, counts))
    }
}

/// Memory for a block whose value has the layout `value`, and the address of that value. Ends the program if there is none.
pub(crate) fn for_layout<C, A: ArcAllocator>(value: Layout, allocator: A) -> (Memory<A>, *mut u8) {
    let Some((layout, offset)) = layout::<C, A>(value) else { out_of_memory(value) };
    let Ok(memory) = Memory::allocate(layout, allocator) else { out_of_memory(layout) };
    // SAFETY: the offset lies inside the allocation.
    let data = unsafe { memory.start().add(offset) };
    (memory, data)
}

/// A pointer to a block at `memory` with the metadata (length or vtable) of `value`.
#[cfg(feature = "alloc")]
fn with_metadata_of<C, T: ?Sized, A>(value: *const T, memory: *mut u8) -> *mut Block<C, T, A> {
    let mut block = value as *mut Block<C, T, A>;
    // SAFETY: a pointer starts with its address, whatever metadata follows. The language does not promise that yet (it will
    // be `ptr::with_metadata_of`), so it is checked here: a toolchain that lays pointers out differently stops.
    unsafe { (&raw mut block).cast::<*mut u8>().write(memory) };
    assert_eq!(block.cast::<u8>(), memory, "a pointer does not start with its address");
    block
}

/// A block with the value of a box in it, whatever its size.
#[cfg(feature = "alloc")]
pub(crate) fn from_box<C, T: ?Sized>(
    value: alloc::boxed::Box<T>,
    counts: C,
) -> NonNull<Block<C, T, crate::allocator::Global>> {
    use alloc::boxed::Box;

    let layout = Layout::for_value(&*value);
    let (memory, data) = for_layout::<C, _>(layout, crate::allocator::Global);
    // Owns the memory of the box, but not the value any more: that is about to move.
    // SAFETY: the cast changes only that the value is not dropped with the box.
    let emptied: Box<ManuallyDrop<T>> =
        unsafe { Box::from_raw(Box::into_raw(value) as *mut ManuallyDrop<T>) };
    let source: *const T = &raw const **emptied;
    let block = with_metadata_of(source, memory.start());
    // SAFETY: the block was laid out for a value of this size and alignment, which is moved in bytewise.
    unsafe {
        ptr::copy_nonoverlapping(source.cast::<u8>(), data, layout.size());
        memory.finish(block, counts)
    }
}

/// Elements that have been written so far: dropped if the rest never comes.
pub(crate) struct Elements<T> {
    start: *mut T,
    len: usize,
}

impl<T> Elements<T> {
    /// Fills `len` elements at `start` from `source`.
    ///
    /// # Safety
    ///
    /// `start` is valid for writes of `len` elements, which are uninitialised.
    ///
    /// # Panics
    ///
    /// If the source does not have exactly `len` elements, after dropping those written; or if the source panics.
    pub(crate) unsafe fn fill(start: *mut T, len: usize, mut source: impl Iterator<Item = T>) {
        let mut done = Self { start, len: 0 };
        while done.len < len {
            let item = source.next().expect("the iterator gave fewer elements than it had promised");
            // SAFETY: `done.len < len`, and the caller promises room for `len`.
            unsafe { start.add(done.len).write(item) };
            done.len += 1;
        }
        assert!(source.next().is_none(), "the iterator gave more elements than it had promised");
        core::mem::forget(done);
    }
}

impl<T> Drop for Elements<T> {
    fn drop(&mut self) {
        // SAFETY: the first `len` elements have been written, and nobody else owns them.
        unsafe { ptr::slice_from_raw_parts_mut(self.start, self.len).drop_in_place() };
    }
}
