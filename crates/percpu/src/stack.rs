// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! [`Stack`]: a bounded stack of pointers per CPU (a magazine, a sheaf).

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::num::NonZeroU64;
use core::ptr::NonNull;

use fastpath_sys::Errno;
use fastpath_sys::rseq as kernel;

use crate::protocol::{self, SlotLock};
use crate::rseq::{self, Base, Outcome};
use crate::slots::Slot;
use crate::sync::AtomicU64;
use crate::thread::{self, Backend, Route, backend, fence, slots};
use crate::{OutOfMemory, PerCpu};

/// A value of one word that is never zero: what a [`Stack`] can hold.
///
/// # Safety
///
/// `Self` has 8 bytes and may be moved as the `u64` they are, which is never 0, between threads.
pub unsafe trait Pointer: Send + Sized {}

// SAFETY: one non-zero word.
unsafe impl Pointer for NonZeroU64 {}
// SAFETY: a reference is a non-zero word; `T: Sync` makes it `Send`.
#[cfg(target_pointer_width = "64")]
unsafe impl<T: Sync> Pointer for &'static T {}
// SAFETY: a box of a sized type is a non-zero word.
#[cfg(all(feature = "alloc", target_pointer_width = "64"))]
unsafe impl<T: Send> Pointer for alloc::boxed::Box<T> {}
// SAFETY: an `Arc` of a sized type is a non-zero word.
#[cfg(all(feature = "alloc", target_pointer_width = "64"))]
unsafe impl<T: Send + Sync> Pointer for alloc::sync::Arc<T> {}

/// A pointer without an owner, for callers who manage the memory themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Raw<T>(pub NonNull<T>);

// SAFETY: it is only an address; what is done with it is the caller's unsafe code.
unsafe impl<T> Send for Raw<T> {}
// SAFETY: a non-zero word.
#[cfg(target_pointer_width = "64")]
unsafe impl<T> Pointer for Raw<T> {}

fn into_bits<T: Pointer>(value: T) -> u64 {
    const { assert!(size_of::<T>() == 8) };
    let value = core::mem::ManuallyDrop::new(value);
    // SAFETY: 8 bytes that may be moved as a `u64` (`Pointer`'s contract).
    unsafe { core::mem::transmute_copy(&value) }
}

/// # Safety
///
/// `bits` came from [`into_bits`] and is used once.
unsafe fn from_bits<T: Pointer>(bits: u64) -> T {
    // SAFETY: the caller's contract.
    unsafe { core::mem::transmute_copy(&bits) }
}

/// One CPU's stack. `count` is followed by entries 1 to N and entry N + 1, which is 0 for ever.
#[repr(C)]
struct StackSlot<const N: usize> {
    count: AtomicU64,
    entries: [UnsafeCell<u64>; N],
    guard: UnsafeCell<u64>,
    lock: SlotLock,
}

// SAFETY: `count` and `entries` are accessed by sections of the slot, or by the holder of `lock` (slots of full
// atomics; stopped slots); `guard` is never written.
unsafe impl<const N: usize> Sync for StackSlot<N> {}
// SAFETY: zero is an empty stack with a free lock.
unsafe impl<const N: usize> Slot for StackSlot<N> {}

/// A stack of up to `N` pointers per CPU.
///
/// `push` and `pop` work on the stack of the CPU the thread is on: a few plain instructions, in cache, shared with
/// nobody. What one thread pushed another one may pop; order is last in, first out per CPU, and nothing is promised
/// across CPUs. All dropped when the stack is.
///
/// ```
/// use fastpath_percpu::Stack;
///
/// let spare_buffers = Stack::<Box<[u8; 4096]>, 32>::new().unwrap();
/// let buffer = spare_buffers.pop().unwrap_or_else(|| Box::new([0; 4096]));
/// // ... use it, then keep it for the next one; if this CPU has enough, free it.
/// let _ = spare_buffers.push(buffer);
/// ```
pub struct Stack<T: Pointer, const N: usize> {
    slots: PerCpu<StackSlot<N>>,
    holds: PhantomData<T>,
}

// SAFETY: it passes `T: Send` values from thread to thread, never references to them.
unsafe impl<T: Pointer, const N: usize> Sync for Stack<T, N> {}

impl<T: Pointer, const N: usize> Stack<T, N> {
    /// Empty stacks.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] when there is no address space left.
    pub fn new() -> Result<Self, OutOfMemory> {
        const { assert!(N >= 1 && N < i32::MAX as usize) };
        Ok(Self { slots: PerCpu::new()?, holds: PhantomData })
    }

    #[inline(always)]
    fn base(&self) -> Base {
        self.slots.at(0).cast()
    }

    /// Pushes on this CPU's stack.
    ///
    /// # Errors
    ///
    /// Gives the value back when the stack is full, or stopped by [`stop`](Self::stop).
    #[inline(always)]
    pub fn push(&self, value: T) -> Result<(), T> {
        let bits = into_bits(value);
        // SAFETY: the slots of a live `PerCpu` in the layout the section wants; not 0 by `Pointer`'s contract.
        if unsafe { rseq::stack_push::<StackSlot<N>, N>(self.base(), bits) } == Outcome::Done {
            return Ok(());
        }
        // SAFETY: it was not pushed, so it is still ours.
        if self.push_slow(bits) { Ok(()) } else { Err(unsafe { from_bits(bits) }) }
    }

    #[cold]
    #[inline(never)]
    fn push_slow(&self, bits: u64) -> bool {
        match thread::route() {
            Route::Retry => {
                // SAFETY: as in `push`.
                (unsafe { rseq::stack_push::<StackSlot<N>, N>(self.base(), bits) }) == Outcome::Done
            }
            Route::Atomic(slot) => self.with_lock(slot, |stack| stack.push(bits)).unwrap_or(false),
        }
    }

    /// Pops from this CPU's stack; `None` when it is empty, or stopped.
    #[inline(always)]
    pub fn pop(&self) -> Option<T> {
        // SAFETY: as in `push`.
        let mut bits = unsafe { rseq::stack_pop::<StackSlot<N>>(self.base()) };
        if bits == 0 {
            bits = self.pop_slow();
        }
        // SAFETY: pushed as the bits of a `T`, and popped once.
        (bits != 0).then(|| unsafe { from_bits(bits) })
    }

    #[cold]
    #[inline(never)]
    fn pop_slow(&self) -> u64 {
        if kernel::cpu_id() >= 0 {
            // Registered: then it was empty (or stopped) indeed.
            return 0;
        }
        match thread::route() {
            // SAFETY: as in `push`.
            Route::Retry => unsafe { rseq::stack_pop::<StackSlot<N>>(self.base()) },
            Route::Atomic(slot) => {
                self.with_lock(slot, |stack: &mut Exclusive<'_, N>| stack.pop()).unwrap_or(0)
            }
        }
    }

    /// Pushes as many of the leading values as this CPU's stack has room for, in one step: how many. Those are `None`
    /// afterwards.
    ///
    /// ```
    /// use fastpath_percpu::Stack;
    /// let stack = Stack::<Box<u32>, 4>::new().unwrap();
    /// let mut boxes = [1, 2, 3, 4, 5, 6].map(|number| Some(Box::new(number)));
    /// let pushed = stack.push_batch(&mut boxes);
    /// assert!(boxes[..pushed].iter().all(Option::is_none));
    /// ```
    pub fn push_batch(&self, values: &mut [Option<T>]) -> usize {
        const { assert!(size_of::<Option<T>>() == 8) };
        let offered = values.iter().take_while(|value| value.is_some()).count();
        let from = values.as_ptr().cast::<u64>();
        // SAFETY: as in `push`; `offered` leading values are there, hence not 0 (`None` is the zero they never are).
        let (outcome, mut pushed) =
            unsafe { rseq::stack_push_batch::<StackSlot<N>, N>(self.base(), from, offered) };
        if outcome != Outcome::Done {
            pushed = self.push_batch_slow(from, offered);
        }
        for value in &mut values[..pushed] {
            core::mem::forget(value.take());
        }
        pushed
    }

    #[cold]
    fn push_batch_slow(&self, from: *const u64, offered: usize) -> usize {
        match thread::route() {
            Route::Retry => {
                // SAFETY: as in `push_batch`.
                let (outcome, count) =
                    unsafe { rseq::stack_push_batch::<StackSlot<N>, N>(self.base(), from, offered) };
                if outcome == Outcome::Done { count } else { 0 }
            }
            Route::Atomic(slot) => self
                .with_lock(slot, |stack| {
                    // SAFETY: `from` is readable for `offered` words.
                    (0..offered).take_while(|index| stack.push(unsafe { from.add(*index).read() })).count()
                })
                .unwrap_or(0),
        }
    }

    /// Pops up to `values.len()` values in one step into the front of `values`, whose old contents are dropped: how many.
    ///
    /// They come in the order in which they were pushed.
    pub fn pop_batch(&self, values: &mut [Option<T>]) -> usize {
        const { assert!(size_of::<Option<T>>() == 8) };
        values.fill_with(|| None);
        let (to, wanted) = (values.as_mut_ptr().cast::<u64>(), values.len());
        // SAFETY: as in `push`; `to` is writable for `wanted` words, each `None`. What is written is the bits of a `T`,
        // which are those of `Some` (8 bytes with the zero as niche).
        let (outcome, popped) = unsafe { rseq::stack_pop_batch::<StackSlot<N>, N>(self.base(), to, wanted) };
        if outcome == Outcome::Done {
            Self::forget_beyond(values, popped);
            popped
        } else {
            Self::forget_beyond(values, 0);
            self.pop_batch_slow(values)
        }
    }

    /// An aborted attempt may have copied more than the one that committed: those values are not ours.
    #[inline]
    fn forget_beyond(values: &mut [Option<T>], popped: usize) {
        for value in &mut values[popped..] {
            core::mem::forget(value.take());
        }
    }

    #[cold]
    fn pop_batch_slow(&self, values: &mut [Option<T>]) -> usize {
        let (to, wanted) = (values.as_mut_ptr().cast::<u64>(), values.len());
        match thread::route() {
            Route::Retry => {
                // SAFETY: as in `pop_batch`.
                let (outcome, count) =
                    unsafe { rseq::stack_pop_batch::<StackSlot<N>, N>(self.base(), to, wanted) };
                let count = if outcome == Outcome::Done { count } else { 0 };
                Self::forget_beyond(values, count);
                count
            }
            Route::Atomic(slot) => self
                .with_lock(slot, |stack| {
                    let count = wanted.min(stack.count());
                    for index in (0..count).rev() {
                        // SAFETY: `to` is writable for `wanted` words.
                        unsafe { to.add(index).write(stack.pop()) };
                    }
                    count
                })
                .unwrap_or(0),
        }
    }

    /// Runs `body` on a slot of full atomics, under its lock.
    fn with_lock<R>(&self, slot: u32, body: impl FnOnce(&mut Exclusive<'_, N>) -> R) -> Option<R> {
        let stack = self.slots.per_slot(slot);
        stack.lock.with(thread::token(), || {
            // ORDERING: Relaxed: the lock orders.
            let count = stack.count.load(crate::sync::Ordering::Relaxed);
            if count > N as u64 {
                // Stopped by this very thread, below whose guard we run.
                return None;
            }
            let mut exclusive = Exclusive { stack, count: count as usize };
            let result = body(&mut exclusive);
            // ORDERING: Relaxed: the lock orders.
            stack.count.store(exclusive.count as u64, crate::sync::Ordering::Relaxed);
            Some(result)
        })?
    }

    /// Stops slot `slot`: until the guard is dropped nobody pushes there or pops from there, and the guard can do both.
    ///
    /// Works from any thread, also for CPUs that are offline or ids that have fallen out of use. One at a time per slot;
    /// waits for another stopper. Not for signal handlers.
    ///
    /// # Errors
    ///
    /// The [`fence`]'s.
    ///
    /// # Panics
    ///
    /// If there is no such slot, or if this thread has stopped it already.
    ///
    /// ```
    /// use fastpath_percpu::{Stack, slots};
    /// let stack = Stack::<Box<u32>, 8>::new().unwrap();
    /// stack.push(Box::new(7)).unwrap();
    /// let mut found = Vec::new();
    /// for slot in 0..=slots() {
    ///     found.extend(stack.stop(slot).unwrap());
    /// }
    /// assert_eq!(*found[0], 7);
    /// ```
    #[doc(alias = "StopCpu")]
    #[doc(alias = "drain")]
    pub fn stop(&self, slot: u32) -> Result<Stopped<'_, T, N>, Errno> {
        let stack = self.slots.per_slot(slot);
        stack.lock.lock(thread::token());
        let marker = N as u64 + 1;
        let by_sections = backend() != Backend::Locked && slot < slots();
        let stopped = if by_sections {
            protocol::stop(&stack.count, marker, || fence(Some(slot)))
        } else {
            // ORDERING: Relaxed: the lock orders.
            Ok(stack.count.swap(marker, crate::sync::Ordering::Relaxed))
        };
        match stopped {
            Ok(count) => {
                let inside = Exclusive { stack, count: count as usize };
                Ok(Stopped { inside, holds: PhantomData })
            }
            Err(errno) => {
                stack.lock.unlock();
                Err(errno)
            }
        }
    }

    /// Empties all slots, one after the other, into `sink`: how many. Others go on meanwhile.
    ///
    /// # Errors
    ///
    /// The [`fence`]'s.
    pub fn drain(&self, mut sink: impl FnMut(T)) -> Result<usize, Errno> {
        let mut drained = 0;
        for slot in 0..=slots() {
            // ORDERING: Relaxed: a hint that saves a fence: an empty slot has nothing to drain at this moment.
            if self.slots.per_slot(slot).count.load(crate::sync::Ordering::Relaxed) == 0 {
                continue;
            }
            for value in self.stop(slot)? {
                sink(value);
                drained += 1;
            }
        }
        Ok(drained)
    }

    /// How many values slot `slot` holds, about: others go on. 0 while it is stopped.
    ///
    /// # Panics
    ///
    /// If there is no such slot.
    pub fn len_of(&self, slot: u32) -> usize {
        // ORDERING: Relaxed: a number.
        let count = self.slots.per_slot(slot).count.load(crate::sync::Ordering::Relaxed) as usize;
        if count <= N { count } else { 0 }
    }
}

impl<T: Pointer, const N: usize> Drop for Stack<T, N> {
    fn drop(&mut self) {
        for (_, stack) in self.slots.iter() {
            // ORDERING: Relaxed: `&mut self`: all users have finished before.
            let count = stack.count.load(crate::sync::Ordering::Relaxed) as usize;
            let mut inside = Exclusive { stack, count: if count <= N { count } else { 0 } };
            while inside.count > 0 {
                // SAFETY: pushed as the bits of a `T`, and popped once.
                drop(unsafe { from_bits::<T>(inside.pop()) });
            }
        }
    }
}

impl<T: Pointer, const N: usize> fmt::Debug for Stack<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let filled = (0..=slots()).filter(|slot| self.len_of(*slot) > 0);
        f.debug_map().entries(filled.map(|slot| (slot, self.len_of(slot)))).finish()
    }
}

/// A stack nobody else touches: its lock is held and no section runs on it.
struct Exclusive<'a, const N: usize> {
    stack: &'a StackSlot<N>,
    count: usize,
}

impl<const N: usize> Exclusive<'_, N> {
    fn count(&self) -> usize {
        self.count
    }

    fn push(&mut self, bits: u64) -> bool {
        if self.count == N {
            return false;
        }
        // SAFETY: exclusive, by the invariant of the type.
        unsafe { self.stack.entries[self.count].get().write(bits) };
        self.count += 1;
        true
    }

    fn pop(&mut self) -> u64 {
        if self.count == 0 {
            return 0;
        }
        self.count -= 1;
        // SAFETY: exclusive, by the invariant of the type.
        unsafe { self.stack.entries[self.count].get().read() }
    }
}

/// A stopped slot of a [`Stack`]: this guard is its only user. An iterator that empties it.
pub struct Stopped<'a, T: Pointer, const N: usize> {
    inside: Exclusive<'a, N>,
    holds: PhantomData<(T, *const ())>,
}

impl<T: Pointer, const N: usize> Stopped<'_, T, N> {
    /// How many values it holds, exactly.
    #[allow(clippy::len_without_is_empty, reason = "an iterator with an exact length")]
    pub fn len(&self) -> usize {
        self.inside.count
    }

    /// Pushes.
    ///
    /// # Errors
    ///
    /// Gives the value back when it is full.
    pub fn push(&mut self, value: T) -> Result<(), T> {
        let bits = into_bits(value);
        // SAFETY: it was not pushed, so it is still ours.
        if self.inside.push(bits) { Ok(()) } else { Err(unsafe { from_bits(bits) }) }
    }
}

impl<T: Pointer, const N: usize> Iterator for Stopped<'_, T, N> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let bits = self.inside.pop();
        // SAFETY: pushed as the bits of a `T`, and popped once.
        (bits != 0).then(|| unsafe { from_bits(bits) })
    }
}

impl<T: Pointer, const N: usize> Drop for Stopped<'_, T, N> {
    fn drop(&mut self) {
        protocol::resume(&self.inside.stack.count, self.inside.count as u64);
        self.inside.stack.lock.unlock();
    }
}

impl<T: Pointer, const N: usize> fmt::Debug for Stopped<'_, T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stopped").field("len", &self.len()).finish()
    }
}
