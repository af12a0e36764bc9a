// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! [`RingBuffer`]: byte records per CPU, written in one step, read by anybody.

use core::cell::UnsafeCell;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::protocol::SlotLock;
use crate::rseq::{self, Outcome};
use crate::slots::Slot;

use crate::thread::{self, Route, slots};
use crate::{OutOfMemory, PerCpu};

/// The header of a stretch without a record, up to the end of the buffer.
const PADDING: u64 = 1 << 63;

/// One CPU's ring.
///
/// `tail` counts bytes ever written, `head` bytes ever read; positions in `buffer` are these modulo its size. Only
/// producers of the slot write `tail`, only the reader (holder of `reader`) writes `head`. Bytes in `head..tail` are
/// whole records and are written by nobody; the rest is scratch for producers.
#[repr(C)]
struct RingSlot<const WORDS: usize> {
    tail: AtomicU64,
    head: AtomicU64,
    reader: SlotLock,
    /// For producers on slots of full atomics.
    writer: SlotLock,
    buffer: [UnsafeCell<u64>; WORDS],
}

// SAFETY: `buffer` is divided by `head` and `tail` as described above.
unsafe impl<const WORDS: usize> Sync for RingSlot<WORDS> {}
// SAFETY: zero is an empty ring with free locks.
unsafe impl<const WORDS: usize> Slot for RingSlot<WORDS> {}

/// The record was not written: it does not fit in the free part of this CPU's ring (or is larger than half of it).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no room in this CPU's ring")
    }
}

impl core::error::Error for Full {}

/// A ring of byte records per CPU, `WORDS` × 8 bytes each (a power of two).
///
/// Writing is local and never blocks: it copies the record and commits it with one store, so a record is there whole or
/// not at all, whatever interrupts. Reading is for one thread at a time per slot, from anywhere, without disturbing
/// writers. Per slot, records come out in the order in which they went in.
///
/// ```
/// use fastpath_percpu::RingBuffer;
///
/// let log = RingBuffer::<512>::new().unwrap();
/// log.push(b"something happened").unwrap();
/// let mut seen = Vec::new();
/// log.read_all(|_slot, record| seen.push(record.to_vec()));
/// assert_eq!(seen, [b"something happened"]);
/// ```
#[doc(alias = "trace_buffer")]
pub struct RingBuffer<const WORDS: usize>(PerCpu<RingSlot<WORDS>>);

impl<const WORDS: usize> RingBuffer<WORDS> {
    const BYTES: u64 = WORDS as u64 * 8;

    /// Empty rings.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] when there is no address space left.
    pub fn new() -> Result<Self, OutOfMemory> {
        const { assert!(WORDS.is_power_of_two() && WORDS >= 8) };
        PerCpu::new().map(Self)
    }

    /// Writes a record to the ring of the CPU the thread is on.
    ///
    /// # Errors
    ///
    /// [`Full`]; also for a record above half the ring less 8 bytes, or when a signal handler interrupts a writer of the
    /// same slot in a process without rseq.
    pub fn push(&self, record: &[u8]) -> Result<(), Full> {
        let needed = 8 + (record.len() as u64).next_multiple_of(8);
        if needed > Self::BYTES / 2 {
            return Err(Full);
        }
        loop {
            let Some(slot) = fastpath_sys::rseq::slot_id() else {
                match thread::route() {
                    Route::Retry => continue,
                    Route::Atomic(slot) => return self.push_locked(slot, record, needed),
                }
            };
            match self.push_once(slot, record, needed)? {
                Outcome::Done => return Ok(()),
                // Another record or a padding came first, or we are elsewhere by now: look again.
                Outcome::Mismatch | Outcome::Moved | Outcome::NotRegistered => {}
            }
        }
    }

    /// Where the next stretch starts and how long it may be: (tail, position, bytes to the end of the buffer).
    fn room(ring: &RingSlot<WORDS>, needed: u64) -> Result<(u64, u64, u64), Full> {
        // ORDERING: Relaxed: the section checks that it is still so; the writer lock orders the locked form.
        let tail = ring.tail.load(Ordering::Relaxed);
        // ORDERING: Acquire pairs with the reader's Release: it has finished reading what we are about to overwrite.
        let head = ring.head.load(Ordering::Acquire);
        let position = tail % Self::BYTES;
        let to_end = Self::BYTES - position;
        let wanted = if needed > to_end { to_end + needed } else { needed };
        // `head` may be newer than `tail` was: then there is room for sure, and the section will notice.
        if wanted > Self::BYTES.saturating_sub(tail.saturating_sub(head)) {
            return Err(Full);
        }
        Ok((tail, position, to_end))
    }

    /// One attempt with a section: either a padding (gives `Mismatch`: look again) or the record.
    fn push_once(&self, slot: u32, record: &[u8], needed: u64) -> Result<Outcome, Full> {
        let ring = self.0.per_slot(slot);
        let (tail, position, to_end) = Self::room(ring, needed)?;
        let word = ring.tail.as_ptr();
        let first = ring.buffer[position as usize / 8].get();
        if needed > to_end {
            // SAFETY: a word of this slot, and a free word of its buffer, as long as `tail` is the tail.
            let padded = unsafe {
                rseq::compare_store_store(slot, word, tail, first, PADDING | (to_end - 8), tail + to_end)
            };
            return Ok(if padded == Outcome::Done { Outcome::Mismatch } else { padded });
        }
        // SAFETY: as above; `needed` bytes from `first` are free and before the end of the buffer.
        Ok(unsafe {
            rseq::compare_store_copy_store(
                slot,
                word,
                tail,
                first,
                record.len() as u64,
                record.as_ptr(),
                record.len(),
                tail + needed,
            )
        })
    }

    /// The same on a slot of full atomics.
    #[cold]
    fn push_locked(&self, slot: u32, record: &[u8], needed: u64) -> Result<(), Full> {
        let ring = self.0.per_slot(slot);
        let pushed = ring.writer.with(thread::token(), || {
            let (mut tail, mut position, to_end) = Self::room(ring, needed)?;
            if needed > to_end {
                // SAFETY: a free word of the buffer, and only we write to this ring.
                unsafe { ring.buffer[position as usize / 8].get().write(PADDING | (to_end - 8)) };
                tail += to_end;
                position = 0;
            }
            let first = ring.buffer[position as usize / 8].get();
            // SAFETY: `needed` bytes from `first` are free and before the end of the buffer; only we write.
            unsafe {
                first.write(record.len() as u64);
                first.add(1).cast::<u8>().copy_from_nonoverlapping(record.as_ptr(), record.len());
            }
            // ORDERING: Release pairs with the reader's Acquire: the record is whole.
            ring.tail.store(tail + needed, Ordering::Release);
            Ok(())
        });
        pushed.unwrap_or(Err(Full))
    }

    /// Gives the records of slot `slot` to `sink`, oldest first, and frees their room: how many. 0 if another thread
    /// (or an interrupted reader of this one) is reading it.
    ///
    /// # Panics
    ///
    /// If there is no such slot.
    pub fn read(&self, slot: u32, mut sink: impl FnMut(&[u8])) -> usize {
        let ring = self.0.per_slot(slot);
        if !ring.reader.try_lock(thread::token()) {
            return 0;
        }
        let _unlock = Unlock(&ring.reader);
        // ORDERING: Relaxed: only readers write it, and the lock orders them.
        let mut head = ring.head.load(Ordering::Relaxed);
        // ORDERING: Acquire pairs with the commit (a release): the records before it are whole.
        let tail = ring.tail.load(Ordering::Acquire);
        let mut count = 0;
        while head != tail {
            let first = ring.buffer[(head % Self::BYTES) as usize / 8].get();
            // SAFETY: a header in `head..tail`, which nobody writes.
            let header = unsafe { first.read() };
            let length = header & !PADDING;
            if header & PADDING == 0 {
                // SAFETY: the record follows its header, before the end of the buffer, and nobody writes it until
                // `head` has passed it below.
                sink(unsafe { core::slice::from_raw_parts(first.add(1).cast::<u8>(), length as usize) });
                count += 1;
            }
            head += 8 + length.next_multiple_of(8);
            // ORDERING: Release pairs with the producers' Acquire: we have finished with these bytes.
            ring.head.store(head, Ordering::Release);
        }
        count
    }

    /// Reads all slots, one after the other; `sink` is given the slot's number too. How many records.
    pub fn read_all(&self, mut sink: impl FnMut(u32, &[u8])) -> usize {
        (0..=slots()).map(|slot| self.read(slot, |record| sink(slot, record))).sum()
    }
}

/// Frees the reader's lock, also when its sink unwinds.
struct Unlock<'a>(&'a SlotLock);

impl Drop for Unlock<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}

impl<const WORDS: usize> fmt::Debug for RingBuffer<WORDS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingBuffer").field("bytes_per_slot", &Self::BYTES).finish()
    }
}
