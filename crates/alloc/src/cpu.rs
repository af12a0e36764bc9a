// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The per-CPU sheaves as the slab allocator sees them: a table of blocks by CPU number, each with a slot per class.
//!
//! Under rseq every operation is a section of `fastpath-percpu`: pop and push, and `exchange` for the rest, which commits
//! only if the slot is still what it was looked at. Without rseq (or with `FASTPATH_FRONT=trylock`) the same slots are
//! used under one lock per CPU, the CPU number being only a hint; whoever finds that lock taken works on the slabs.

use core::sync::atomic::{
    AtomicIsize, AtomicPtr, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use core::ptr::NonNull;

use fastpath_percpu::sheaf::{self, Access, Block, Slot, Top, guard_block};
use fastpath_slub::sheaf::missing;
use fastpath_slub::{CpuSlots, Place, Refused, Sheaf, Side, Wait, When};

use crate::caches::cache;
use crate::classes::COUNT;
use crate::heap::{Reach, reach};
use crate::lock::{Guard, Lock, Rank};
use crate::meta;
use fastpath_sys::libc_symbols;
use fastpath_sys::rseq::thread_pointer;

/// Distance from the thread pointer to the thread's rseq area. Constant once set.
pub static RSEQ_OFFSET: AtomicIsize = AtomicIsize::new(0);
/// Length of that area, as it was registered with the kernel.
pub static RSEQ_SIZE: AtomicUsize = AtomicUsize::new(32);
/// The table of blocks by CPU number. Constant once set; its entries change.
pub static TABLE: AtomicPtr<*mut Block> = AtomicPtr::new(core::ptr::null_mut());
/// Entries of the table.
static CPUS: AtomicUsize = AtomicUsize::new(0);
/// The real blocks, also while the table's entry leads to the guard because the CPU is being drained.
static BLOCKS: AtomicPtr<AtomicPtr<Block>> = AtomicPtr::new(core::ptr::null_mut());
/// One lock per CPU, for the front without rseq.
static CPU_LOCKS: AtomicPtr<Lock<()>> = AtomicPtr::new(core::ptr::null_mut());
static NEW_BLOCK: Lock<()> = Lock::new(Rank::Cpu, ());

/// Makes the table for `cpus` CPUs; false if there is no memory.
pub(crate) fn set_up(cpus: usize, rseq_offset: isize, locked: bool) -> bool {
    let table = meta::take((cpus + 2) * size_of::<*mut Block>(), 64).cast::<*mut Block>();
    let blocks = meta::take(cpus * size_of::<*mut Block>(), 64).cast::<AtomicPtr<Block>>();
    let counts = meta::take(cpus * size_of::<Counts>(), 64).cast::<Counts>();
    if table.is_null() || blocks.is_null() || counts.is_null() {
        return false;
    }
    for entry in 0..cpus + 2 {
        // SAFETY: fresh memory for as many entries.
        unsafe { table.add(entry).write(guard_block()) };
    }
    if locked {
        let locks = meta::take(cpus * size_of::<Lock<()>>(), 64).cast::<Lock<()>>();
        if locks.is_null() {
            return false;
        }
        // ORDERING: Relaxed throughout: set-up ends with the Release of the heap's mode, before any other thread
        // looks. Zeroed memory is a free lock and a null pointer.
        CPU_LOCKS.store(locks, Relaxed);
    }
    BLOCKS.store(blocks, Relaxed);
    COUNTS.store(counts, Relaxed);
    CPUS.store(cpus, Relaxed);
    RSEQ_OFFSET.store(rseq_offset, Relaxed);
    TABLE.store(table.wrapping_add(2), Relaxed);
    true
}

/// The two constants of the fast path.
#[inline(always)]
pub(crate) fn access() -> Access {
    // ORDERING: Relaxed: see `set_up`; both are constant by the time the fast path is open.
    Access { rseq_offset: RSEQ_OFFSET.load(Relaxed), table: TABLE.load(Relaxed) }
}

/// The block of CPU `cpu`, made if this is its first use; null if there is none to be had now.
fn block_of(cpu: usize) -> *mut Block {
    // ORDERING: Relaxed: constant, see `set_up`.
    if cpu >= CPUS.load(Relaxed) {
        return core::ptr::null_mut();
    }
    // SAFETY: the array has an entry per CPU.
    let entry = unsafe { &*BLOCKS.load(Relaxed).add(cpu) };
    // ORDERING: Acquire pairs with the Release below: the new block is seen filled.
    let block = entry.load(Acquire);
    if !block.is_null() {
        return block;
    }
    let Some(_lock) = NEW_BLOCK.lock() else { return core::ptr::null_mut() };
    let block = entry.load(Acquire);
    if !block.is_null() {
        return block;
    }
    let block = meta::take(size_of::<Block>(), align_of::<Block>()).cast::<Block>();
    if !block.is_null() {
        // SAFETY: fresh memory of the right size; then the table's own entry, which sections read as one word.
        unsafe {
            core::ptr::copy_nonoverlapping(guard_block(), block, 1);
            // ORDERING: Release pairs with the Acquire above and publishes the filled block.
            entry.store(block, Release);
            (*TABLE.load(Relaxed).add(cpu).cast::<AtomicPtr<Block>>()).store(block, Release);
        }
    }
    block
}

/// The block of this thread's CPU under rseq; null for a thread that is not registered, or if there is no memory.
fn my_block(access: Access) -> *mut Block {
    // SAFETY: `access` is the heap's own.
    let cpu = unsafe { sheaf::cpu_id(access.rseq_offset) };
    if cpu < 0 { core::ptr::null_mut() } else { block_of(cpu as usize) }
}

/// A look at a slot that others may be changing: only good for deciding what to try.
fn look(block: *mut Block, class: usize) -> Slot {
    // SAFETY: blocks are valid for ever, and their words are read one by one as atomics.
    // ORDERING: Relaxed: `exchange` compares again.
    unsafe {
        let slot = &raw mut (*block).slots[class];
        Slot {
            main: (*(&raw mut (*slot).main).cast::<AtomicPtr<*mut u8>>()).load(Relaxed),
            spare: (*(&raw mut (*slot).spare).cast::<AtomicPtr<*mut u8>>()).load(Relaxed),
        }
    }
}

/// What is counted so far. Everything here is a slow path; the fast paths count nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Count {
    /// Sheaves that went to a CPU.
    Refills,
    /// Objects in them.
    Refilled,
    /// Sheaves that came from a CPU.
    Flushes,
    /// Objects in them.
    Flushed,
    /// Objects that were allocated without a sheaf.
    DirectAllocs,
    /// Objects that were freed without one.
    DirectFrees,
}

/// The counts of one CPU, by [`Count`].
#[repr(C, align(64))]
struct Counts([AtomicU64; Count::DirectFrees as usize + 1]);

/// By CPU, beside [`BLOCKS`].
static COUNTS: AtomicPtr<Counts> = AtomicPtr::new(core::ptr::null_mut());
/// For processes without a table of CPUs.
static COUNTS_OF_ALL: Counts = Counts([const { AtomicU64::new(0) }; Count::DirectFrees as usize + 1]);

/// The counts of all CPUs of the table, if there is one.
fn all_counts() -> &'static [Counts] {
    let all = COUNTS.load(Relaxed);
    if all.is_null() {
        return &[];
    }
    // SAFETY: an entry per CPU, zeroed at first, for ever.
    unsafe { core::slice::from_raw_parts(all, CPUS.load(Relaxed)) }
}

/// Counts on this CPU, by a plain load and store: a thread that loses the CPU in between may undo what others counted.
#[inline]
pub(crate) fn count(what: Count, amount: u64) {
    let all = all_counts();
    let cpu = match reach() {
        // SAFETY: the heap's own offset.
        Reach::Sections => usize::try_from(unsafe { sheaf::cpu_id(RSEQ_OFFSET.load(Relaxed)) }).unwrap_or(0),
        _ if all.is_empty() => 0,
        _ => cpu_hint(),
    };
    // ORDERING: Relaxed: counts publish nothing.
    let word = &all.get(cpu).unwrap_or(&COUNTS_OF_ALL).0[what as usize];
    word.store(word.load(Relaxed) + amount, Relaxed);
}

/// The count of all CPUs together.
pub(crate) fn counted(what: Count) -> u64 {
    // ORDERING: Relaxed, as above.
    all_counts().iter().chain([&COUNTS_OF_ALL]).map(|counts| counts.0[what as usize].load(Relaxed)).sum()
}

fn sheaf_of(top: Top) -> Sheaf {
    // SAFETY: slots hold tops of sheaves, or the guard's, whose last word is that of a block of zeros.
    unsafe { Sheaf::from_top(NonNull::new_unchecked(top)) }
}

/// The pair after an exchange at `place`, if what is there fits.
fn exchanged(old: Slot, place: Place, when: When, new: Sheaf) -> Option<(Sheaf, Slot)> {
    let at = sheaf_of(if place == Place::Main { old.main } else { old.spare });
    let fits = match when {
        When::Empty => at.is_empty(),
        When::Full => at.is_full(),
        When::Missing => at.is_missing(),
    };
    let pair = match place {
        Place::Main => Slot { main: new.top(), spare: old.spare },
        Place::Spare => Slot { main: old.main, spare: new.top() },
    };
    fits.then_some((at, pair))
}

/// The pair after a swap, if it helps.
fn swapped(old: Slot, side: Side) -> Option<Slot> {
    let (main, spare) = (sheaf_of(old.main), sheaf_of(old.spare));
    let helps = match side {
        Side::Alloc => main.is_empty() && !spare.is_empty(),
        Side::Free => main.is_full() && !spare.is_full(),
    };
    helps.then_some(Slot { main: old.spare, spare: old.main })
}

fn no_sheaves() -> Slot {
    Slot { main: missing().top(), spare: missing().top() }
}

/// A CPU's block, held by its lock.
struct Held {
    block: *mut Block,
    _lock: Guard<'static, ()>,
}

impl Held {
    /// The block of `cpu`, if its lock is free.
    fn of(cpu: usize) -> Option<Self> {
        let block = block_of(cpu);
        if block.is_null() {
            return None;
        }
        // ORDERING: Relaxed: constant, see `set_up`.
        // SAFETY: the array has a lock per CPU, for ever.
        let lock = unsafe { (*CPU_LOCKS.load(Relaxed).add(cpu)).try_lock() }?;
        Some(Self { block, _lock: lock })
    }

    /// That of the CPU this probably is.
    fn here() -> Option<Self> {
        Self::of(cpu_hint())
    }

    fn slot(&mut self, class: usize) -> &mut Slot {
        // SAFETY: without sections a block is only touched under its CPU's lock, which we hold.
        unsafe { &mut (*self.block).slots[class] }
    }
}

/// Under rseq: changes the pair of this CPU by one section, from what it is now to what `change` makes of that.
fn change<R>(class: usize, change: impl FnOnce(Slot) -> Option<(R, Slot)>) -> Result<R, Refused> {
    let access = access();
    let block = my_block(access);
    if block.is_null() {
        return Err(Refused::Busy);
    }
    let old = look(block, class);
    let (result, new) = change(old).ok_or(Refused::Changed)?;
    // SAFETY: `access` and `block` are the heap's own; callers own what they put in, or it is in the old pair.
    if unsafe { sheaf::exchange(access, class * 2, block, old, &new) } {
        Ok(result)
    } else {
        Err(Refused::Changed)
    }
}

/// The slots of all CPUs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpus;

// SAFETY: under rseq each operation is one section, or one exchange that commits only if nothing changed since the look;
// otherwise it runs under the lock of the block.
unsafe impl CpuSlots for Cpus {
    #[inline]
    fn pop(&self, slot: usize) -> Option<NonNull<u8>> {
        match reach() {
            // SAFETY: `access` is the heap's own, its table and blocks are valid for ever.
            Reach::Sections => NonNull::new(unsafe { sheaf::pop::<true>(access(), slot * 2) }),
            Reach::Locks => {
                let mut held = Held::here()?;
                let pair = held.slot(slot);
                // SAFETY: the top word of a sheaf, which ends below with a null.
                unsafe {
                    let object = NonNull::new(pair.main.read())?;
                    pair.main = pair.main.sub(1);
                    Some(object)
                }
            }
            Reach::None => None,
        }
    }

    #[inline]
    unsafe fn push(&self, slot: usize, object: NonNull<u8>) -> bool {
        match reach() {
            // SAFETY: as in `pop`; the caller gives the object up.
            Reach::Sections => unsafe { sheaf::push::<true>(access(), slot * 2, object.as_ptr()) },
            Reach::Locks => {
                let Some(mut held) = Held::here() else { return false };
                let pair = held.slot(slot);
                let room = !sheaf::is_full(pair.main);
                if room {
                    // SAFETY: the sheaf has room above its top.
                    unsafe {
                        pair.main = pair.main.add(1);
                        pair.main.write(object.as_ptr());
                    }
                }
                room
            }
            Reach::None => false,
        }
    }

    fn swap(&self, slot: usize, side: Side) -> Result<(), Refused> {
        match reach() {
            Reach::Sections => change(slot, |old| swapped(old, side).map(|new| ((), new))),
            Reach::Locks => {
                let mut held = Held::here().ok_or(Refused::Busy)?;
                let pair = held.slot(slot);
                *pair = swapped(*pair, side).ok_or(Refused::Changed)?;
                Ok(())
            }
            Reach::None => Err(Refused::Busy),
        }
    }

    unsafe fn exchange(&self, slot: usize, place: Place, when: When, new: Sheaf) -> Result<Sheaf, Refused> {
        match reach() {
            Reach::Sections => change(slot, |old| exchanged(old, place, when, new)),
            Reach::Locks => {
                let mut held = Held::here().ok_or(Refused::Busy)?;
                let pair = held.slot(slot);
                let (sheaf, new) = exchanged(*pair, place, when, new).ok_or(Refused::Changed)?;
                *pair = new;
                Ok(sheaf)
            }
            Reach::None => Err(Refused::Busy),
        }
    }

    /// Other CPUs' sections can only be stopped for all classes at once: see [`drain`].
    fn take(&self, slot: usize, cpu: Option<usize>) -> Result<(Sheaf, Sheaf), Refused> {
        let both = |old: Slot| (sheaf_of(old.main), sheaf_of(old.spare));
        match (reach(), cpu) {
            (Reach::Sections, None) => change(slot, |old| Some((both(old), no_sheaves()))),
            (Reach::Locks, _) => {
                let mut held = cpu.map_or_else(Held::here, Held::of).ok_or(Refused::Busy)?;
                Ok(both(core::mem::replace(held.slot(slot), no_sheaves())))
            }
            _ => Err(Refused::Busy),
        }
    }

    /// The block of this CPU is made at its first use, if there is memory.
    fn prepare(&self) -> bool {
        match reach() {
            Reach::Sections => !my_block(access()).is_null(),
            Reach::Locks => !block_of(cpu_hint()).is_null(),
            Reach::None => false,
        }
    }

    fn cpus(&self) -> usize {
        // Under rseq a shrink is preceded by `drain`, which reaches all at once.
        // ORDERING: Relaxed: constant, see `set_up`.
        if reach() == Reach::Locks { CPUS.load(Relaxed) } else { 0 }
    }

    fn fill(&self, slot: usize, capacity: usize) -> usize {
        let blocks = BLOCKS.load(Relaxed);
        if blocks.is_null() {
            return 0;
        }
        (0..CPUS.load(Relaxed))
            .map(|cpu| {
                // SAFETY: the array has an entry per CPU.
                // ORDERING: Acquire pairs with the Release in `block_of`.
                let block = unsafe { (*blocks.add(cpu)).load(Acquire) };
                if block.is_null() {
                    return 0;
                }
                let pair = look(block, slot);
                sheaf_of(pair.main).len(capacity) + sheaf_of(pair.spare).len(capacity)
            })
            .sum()
    }
}

/// The number of the CPU this runs on, as far as it can be told: for those that only want to spread.
#[inline(always)]
pub(crate) fn number() -> usize {
    let offset = RSEQ_OFFSET.load(Relaxed);
    if offset == 0 {
        return cpu_now();
    }
    // SAFETY: not 0 says that the C library set an area up for every thread there.
    usize::try_from(unsafe { sheaf::cpu_id(offset) }).unwrap_or(0)
}

/// A number below 256 that threads of other CPUs seldom share: the last byte of the CPU's number, or of what tells the thread
/// where the CPU cannot be told without a call.
#[inline]
pub(crate) fn lane() -> usize {
    let offset = RSEQ_OFFSET.load(Relaxed);
    if offset == 0 {
        return thread_pointer().addr() >> 12 & 255;
    }
    // SAFETY: as in `number`.
    usize::from(unsafe { sheaf::cpu_id(offset) } as u8)
}

/// Notes where the threads' rseq areas are, for [`number`].
pub(crate) fn set_offset(offset: isize) {
    // ORDERING: Relaxed: see `set_up`.
    RSEQ_OFFSET.store(offset, Relaxed);
}

/// Allocates through this CPU's sheaf.
pub(crate) fn alloc(class: usize) -> *mut u8 {
    cache(class).alloc().map_or(core::ptr::null_mut(), NonNull::as_ptr)
}

/// Allocates when the fast path of the class gave up.
#[cold]
pub(crate) fn alloc_slow(class: usize) -> *mut u8 {
    cache(class).alloc_slow(Wait::Yes).map_or(core::ptr::null_mut(), NonNull::as_ptr)
}

/// Frees through this CPU's sheaf.
pub(crate) fn free(class: usize, object: *mut u8) {
    if let Some(object) = NonNull::new(object) {
        // SAFETY: the callers' caller gave the object up; what is no object is refused when it gets to the slabs.
        unsafe { cache(class).free(object) };
    }
}

/// Frees when the fast path of the class gave up.
#[cold]
pub(crate) fn free_slow(class: usize, object: *mut u8) {
    if let Some(object) = NonNull::new(object) {
        // SAFETY: as in `free`.
        unsafe { cache(class).free_slow(object, Wait::Yes) };
    }
}

/// A CPU number to start with, for the front without rseq. A wrong one costs time only.
fn cpu_hint() -> usize {
    // ORDERING: Relaxed: constant.
    cpu_now() % CPUS.load(Relaxed).max(1)
}

fn cpu_now() -> usize {
    let function = libc_symbols::sched_getcpu();
    if function.is_null() {
        thread_pointer().addr() >> 12
    } else {
        // SAFETY: the C library's function of that name takes nothing and returns an `int`.
        let sched_getcpu: extern "C" fn() -> i32 = unsafe { core::mem::transmute(function) };
        sched_getcpu().max(0) as usize
    }
}

/// Empties every CPU's sheaves into the slabs. `fence` must return whether it restarted the sections of all threads.
pub(crate) fn drain(fence: fn() -> bool, locked: bool) {
    let blocks = BLOCKS.load(Relaxed);
    if blocks.is_null() {
        return;
    }
    let Some(_lock) = NEW_BLOCK.lock() else { return };
    let cpus = CPUS.load(Relaxed);
    // SAFETY: table and arrays have an entry per CPU, for ever.
    unsafe {
        let table = TABLE.load(Relaxed).cast::<AtomicPtr<Block>>();
        if locked {
            for cpu in 0..cpus {
                let block = (*blocks.add(cpu)).load(Acquire);
                if let Some(_cpu) = (*CPU_LOCKS.load(Relaxed).add(cpu)).try_lock()
                    && !block.is_null()
                {
                    empty_block(block);
                }
            }
            return;
        }
        // ORDERING: Release: nothing is published; the fence that follows is what makes the change effective.
        for cpu in 0..cpus {
            (*table.add(cpu)).store(guard_block(), Release);
        }
        // From the fence on no section works on any block: those begun before restart and find the guard.
        if fence() {
            for cpu in 0..cpus {
                let block = (*blocks.add(cpu)).load(Acquire);
                if !block.is_null() {
                    empty_block(block);
                }
            }
        }
        for cpu in 0..cpus {
            let block = (*blocks.add(cpu)).load(Acquire);
            if !block.is_null() {
                // ORDERING: Release publishes the emptied block to the sections that find it again.
                (*table.add(cpu)).store(block, Release);
            }
        }
    }
}

/// Gives all of a block's sheaves back.
///
/// # Safety
///
/// Nobody else can reach the block.
unsafe fn empty_block(block: *mut Block) {
    for class in 1..COUNT {
        // SAFETY: by the caller's promise.
        let old = unsafe { core::mem::replace(&mut (*block).slots[class], no_sheaves()) };
        for top in [old.main, old.spare] {
            // SAFETY: out of its slot, so nobody else reaches it.
            unsafe { cache(class).retire(sheaf_of(top)) };
        }
    }
}

pub(crate) fn before_fork() {
    NEW_BLOCK.lock_raw();
    let locks = CPU_LOCKS.load(Relaxed);
    if !locks.is_null() {
        for cpu in 0..CPUS.load(Relaxed) {
            // SAFETY: the array has a lock per CPU.
            unsafe { (*locks.add(cpu)).lock_raw() };
        }
    }
}

pub(crate) fn after_fork() {
    let locks = CPU_LOCKS.load(Relaxed);
    if !locks.is_null() {
        for cpu in 0..CPUS.load(Relaxed) {
            // SAFETY: as in `before_fork`.
            unsafe { (*locks.add(cpu)).unlock_raw() };
        }
    }
    NEW_BLOCK.unlock_raw();
}
