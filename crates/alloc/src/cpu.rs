// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The per-CPU sheaves: what happens when the fast path finds its sheaf empty or full.
//!
//! Under rseq a sheaf changes hands by `exchange` only. The slow path first takes the used-up sheaf *into its hand*
//! (the guard takes its place), trades it in the bin under the bin's lock, and installs the result. Whatever else
//! runs on this CPU in between finds the guard and does the same; if the slot has changed when the result is to be
//! installed, the sheaf goes back to the bin. No state is ever shared between two owners, and no lock is held while
//! a sheaf is installed.
//!
//! Without rseq (or with `FASTPATH_FRONT=trylock`) the same slots are used under one lock per CPU, the CPU number being only a
//! hint; whoever finds that lock taken goes to the bin.

use core::sync::atomic::{
    AtomicIsize, AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use fastpath_percpu::sheaf::{self, Access, Block, SHEAF_BYTES, Slot, Top, guard_block, guard_top, is_full};

use crate::arch::thread_pointer;
use crate::bins::{self, bin, sentinel};
use crate::classes::COUNT;
use crate::lock::{Lock, Rank};
use crate::shared_stats::word;
use crate::{libc_symbols, meta, stats};

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
    if table.is_null() || blocks.is_null() {
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

fn is_guard(top: Top) -> bool {
    top == guard_top()
}

fn is_empty(class: usize, top: Top) -> bool {
    is_guard(top) || (top.addr() % SHEAF_BYTES) / 8 == sentinel(class)
}

fn real(top: Top) -> Option<Top> {
    (!is_guard(top)).then_some(top)
}

/// Allocates when the fast path of the class gave up.
#[cold]
pub(crate) fn alloc_rseq(class: usize) -> *mut u8 {
    let access = access();
    for _ in 0..8 {
        // SAFETY: `access` is the heap's own, its table and blocks are valid for ever.
        let object = unsafe { sheaf::pop::<true>(access, class * 2) };
        if !object.is_null() {
            return object;
        }
        let block = my_block(access);
        if block.is_null() {
            break;
        }
        let slot = look(block, class);
        if !is_empty(class, slot.main) {
            continue;
        }
        if !is_empty(class, slot.spare) {
            let new = Slot { main: slot.spare, spare: slot.main };
            // SAFETY: the new pair is the old one.
            unsafe { sheaf::exchange(access, class * 2, block, slot, &new) };
            continue;
        }
        // Both are empty: take the main one into the hand.
        let hand = real(slot.main);
        if hand.is_some() {
            let new = Slot { main: guard_top(), spare: slot.spare };
            // SAFETY: the guard belongs to nobody and may be anywhere.
            if !unsafe { sheaf::exchange(access, class * 2, block, slot, &new) } {
                continue;
            }
        }
        let Some(mut bin) = bin(class) else {
            put_back(access, class, hand);
            return core::ptr::null_mut();
        };
        let (object, top) = bin.refill(hand);
        drop(bin);
        put_back(access, class, top);
        return object;
    }
    alloc_direct(class)
}

/// Installs a sheaf on whatever CPU this is now, or gives it back to the bin.
fn put_back(access: Access, class: usize, top: Option<Top>) {
    let Some(top) = top else { return };
    for _ in 0..4 {
        let block = my_block(access);
        if block.is_null() {
            break;
        }
        let slot = look(block, class);
        let new = if is_guard(slot.main) {
            Slot { main: top, spare: slot.spare }
        } else if is_guard(slot.spare) {
            Slot { main: slot.main, spare: top }
        } else {
            break;
        };
        // SAFETY: `access` and `block` are the heap's own, and the sheaf is ours.
        if unsafe { sheaf::exchange(access, class * 2, block, slot, &new) } {
            return;
        }
    }
    // If a signal handler interrupted the bin, the sheaf and its objects are lost: nothing else is safe.
    if let Some(mut bin) = bin(class) {
        bin.retire(top);
    }
}

/// Frees when the fast path of the class gave up.
#[cold]
pub(crate) fn free_rseq(class: usize, object: *mut u8) {
    let access = access();
    for _ in 0..8 {
        // SAFETY: as in `alloc_rseq`; the object belongs to the caller.
        if unsafe { sheaf::push::<true>(access, class * 2, object) } {
            return;
        }
        let block = my_block(access);
        if block.is_null() {
            break;
        }
        let slot = look(block, class);
        if !is_full(slot.main) {
            continue;
        }
        if !is_full(slot.spare) {
            let new = Slot { main: slot.spare, spare: slot.main };
            // SAFETY: the new pair is the old one.
            unsafe { sheaf::exchange(access, class * 2, block, slot, &new) };
            continue;
        }
        // Both are full: take one of them into the hand, or none if there is only one yet.
        let hand = if is_guard(slot.spare) { None } else { real(slot.main) };
        if hand.is_some() || !is_guard(slot.main) {
            let new = if hand.is_some() {
                Slot { main: guard_top(), spare: slot.spare }
            } else {
                Slot { main: guard_top(), spare: slot.main }
            };
            // SAFETY: as in `alloc_rseq`.
            if !unsafe { sheaf::exchange(access, class * 2, block, slot, &new) } {
                continue;
            }
        }
        let Some(mut bin) = bin(class) else {
            put_back(access, class, hand);
            bins::defer(class, object);
            return;
        };
        let Some(empty) = bin.flush(hand) else {
            drop(bin);
            break;
        };
        drop(bin);
        // SAFETY: the sheaf is ours and has room.
        let top = unsafe {
            let top = empty.add(1);
            top.write(object);
            top
        };
        put_back(access, class, Some(top));
        return;
    }
    free_direct(class, object);
}

/// Allocates from the bin, without a sheaf.
pub(crate) fn alloc_direct(class: usize) -> *mut u8 {
    let Some(mut bin) = bin(class) else { return core::ptr::null_mut() };
    let mut object = [core::ptr::null_mut()];
    if bin.take(&mut object) == 1 {
        bin.counts.direct_allocs += 1;
        stats::count(word::DIRECT_ALLOCS, 1);
    }
    object[0]
}

/// Frees into the bin, without a sheaf.
pub(crate) fn free_direct(class: usize, object: *mut u8) {
    match bin(class) {
        Some(mut bin) => {
            bin.counts.direct_frees += 1;
            stats::count(word::DIRECT_FREES, 1);
            bin.give(&[object]);
        }
        None => bins::defer(class, object),
    }
}

/// A CPU number to start with, for the front without rseq. A wrong one costs time only.
fn cpu_hint() -> usize {
    let function = libc_symbols::sched_getcpu();
    let cpu = if function.is_null() {
        thread_pointer() >> 12
    } else {
        // SAFETY: the C library's function of that name takes nothing and returns an `int`.
        let sched_getcpu: extern "C" fn() -> i32 = unsafe { core::mem::transmute(function) };
        sched_getcpu().max(0) as usize
    };
    // ORDERING: Relaxed: constant.
    cpu % CPUS.load(Relaxed).max(1)
}

/// Allocates with the front without rseq.
pub(crate) fn alloc_locked(class: usize) -> *mut u8 {
    let cpu = cpu_hint();
    let block = block_of(cpu);
    // SAFETY: the array has a lock per CPU, for ever.
    let Some(_cpu) = (unsafe { (*CPU_LOCKS.load(Relaxed).add(cpu)).try_lock() }) else {
        return alloc_direct(class);
    };
    if block.is_null() {
        return alloc_direct(class);
    }
    // SAFETY: the block is only touched under its CPU's lock, which we hold.
    let slot = unsafe { &mut (*block).slots[class] };
    if is_empty(class, slot.main) && !is_empty(class, slot.spare) {
        core::mem::swap(&mut slot.main, &mut slot.spare);
    }
    if is_empty(class, slot.main) {
        let Some(mut bin) = bin(class) else { return core::ptr::null_mut() };
        let (object, top) = bin.refill(real(slot.main));
        slot.main = top.unwrap_or(guard_top());
        return object;
    }
    // SAFETY: the sheaf holds an object at its top.
    unsafe {
        let object = slot.main.read();
        slot.main = slot.main.sub(1);
        object
    }
}

/// Frees with the front without rseq.
pub(crate) fn free_locked(class: usize, object: *mut u8) {
    let cpu = cpu_hint();
    let block = block_of(cpu);
    // SAFETY: as in `alloc_locked`.
    let Some(_cpu) = (unsafe { (*CPU_LOCKS.load(Relaxed).add(cpu)).try_lock() }) else {
        return free_direct(class, object);
    };
    if block.is_null() {
        return free_direct(class, object);
    }
    // SAFETY: as in `alloc_locked`.
    let slot = unsafe { &mut (*block).slots[class] };
    if is_full(slot.main) && !is_full(slot.spare) {
        core::mem::swap(&mut slot.main, &mut slot.spare);
    }
    if is_full(slot.main) {
        if is_guard(slot.spare) {
            core::mem::swap(&mut slot.main, &mut slot.spare);
        }
        let Some(mut bin) = bin(class) else { return bins::defer(class, object) };
        let Some(empty) = bin.flush(real(slot.main)) else {
            bin.give(&[object]);
            return;
        };
        slot.main = empty;
    }
    // SAFETY: the sheaf has room above its top.
    unsafe {
        slot.main = slot.main.add(1);
        slot.main.write(object);
    }
}

/// Objects that lie in all CPUs' sheaves of a class, as far as a look from outside can tell.
pub(crate) fn in_sheaves(class: usize) -> usize {
    let mut sum = 0;
    let blocks = BLOCKS.load(Relaxed);
    if blocks.is_null() {
        return 0;
    }
    for cpu in 0..CPUS.load(Relaxed) {
        // SAFETY: the array has an entry per CPU.
        let block = unsafe { (*blocks.add(cpu)).load(Acquire) };
        if !block.is_null() {
            let slot = look(block, class);
            sum += [slot.main, slot.spare]
                .into_iter()
                .filter(|&top| !is_guard(top))
                .map(|top| bins::fill(class, top))
                .sum::<usize>();
        }
    }
    sum
}

/// Empties every CPU's sheaves into the bins. `fence` must return whether it restarted the sections of all threads.
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

/// Gives all of a block's sheaves back to their bins.
///
/// # Safety
///
/// Nobody else can reach the block.
unsafe fn empty_block(block: *mut Block) {
    for class in 1..COUNT {
        // SAFETY: by the caller's promise.
        let slot = unsafe { &mut (*block).slots[class] };
        let Some(mut bin) = bin(class) else { continue };
        for top in [&mut slot.main, &mut slot.spare] {
            if !is_guard(*top) {
                bin.retire(core::mem::replace(top, guard_top()));
            }
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
