// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The heap: entry points, set-up, and the choice of the front end.
//!
//! One comparison decides everything on the way in: [`LIMIT`] is 0 until the heap is set up and in every mode in which
//! the fast path must stay closed; otherwise it lies just above the largest class.

use core::sync::atomic::{
    AtomicU8, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use fastpath_percpu::sheaf;

use crate::classes::{CLASSES, MAX_SMALL, UNIT, class_of_aligned, class2_of};
use crate::pagemap::{self, Record, class2_at};
use crate::profile::apart;
use crate::report::Line;
use crate::settings::{self, Foreign, Front};
use crate::shared_stats::word;
use crate::{big, caches, cpu, debug, errno, fork, limit, live, os, profile, report, stats, tid};
use fastpath_sys::libc_symbols;
use fastpath_sys::rseq::thread_pointer;

/// Sizes below this go through the fast path.
pub static LIMIT: AtomicUsize = AtomicUsize::new(0);
/// Sizes below this are counted before they take the same path, in a heap that samples: [`LIMIT`] is 0 then.
pub static COUNTED: AtomicUsize = AtomicUsize::new(0);
static MODE: AtomicU8 = AtomicU8::new(UNSET);
/// Thread pointer of whoever is setting the heap up.
static SETTING_UP: AtomicU64 = AtomicU64::new(0);

const UNSET: u8 = 0;
/// Sheaves per CPU, under rseq.
const RSEQ: u8 = 1;
/// Sheaves per CPU, each CPU's under a lock.
const LOCKED: u8 = 2;
/// No sheaves: every operation goes to the slabs.
const DIRECT: u8 = 3;

/// A list and a transaction id per CPU.
const TID: u8 = 4;

/// How the CPUs' sheaves are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// By restartable sequences.
    Sections,
    /// Under one lock per CPU.
    Locks,
    /// Not at all.
    None,
}

/// How the CPUs' sheaves are reached.
#[inline]
pub(crate) fn reach() -> Reach {
    // ORDERING: Relaxed: constant once the heap is set up, and nothing calls this before.
    match MODE.load(Relaxed) {
        RSEQ => Reach::Sections,
        LOCKED => Reach::Locks,
        _ => Reach::None,
    }
}

/// Whether slabs are entered in the fast map.
#[inline]
pub(crate) fn fast_map() -> bool {
    MODE.load(Relaxed) == RSEQ && !stats::exact()
}

/// The front end as the statistics file names it.
pub(crate) fn front_number() -> u64 {
    u64::from(MODE.load(Relaxed))
}

/// The name of the front end that runs.
pub(crate) fn front() -> &'static str {
    front_name(MODE.load(Relaxed))
}

/// The name of the front end with that number.
pub(crate) fn front_name(number: u8) -> &'static str {
    match number {
        RSEQ => "sheaf/rseq",
        LOCKED => "sheaf/trylock",
        DIRECT => "direct",
        TID => "tid/locked",
        _ => "not set up",
    }
}

/// Sets the heap up; false while this very thread is inside the set-up.
#[cold]
pub(crate) fn set_up() -> bool {
    let me = thread_pointer().addr() as u64;
    loop {
        // ORDERING: Acquire pairs with the Release at the end: the tables are seen.
        if MODE.load(Acquire) != UNSET {
            return true;
        }
        match SETTING_UP.compare_exchange(0, me, Acquire, Relaxed) {
            Ok(_) => break,
            Err(other) if other == me => return false,
            Err(_) => os::yield_now(),
        }
    }
    // ORDERING: Acquire as above: another thread may have been faster.
    if MODE.load(Acquire) == UNSET {
        let settings = settings::read();
        if settings.hardened {
            debug::harden();
        }
        let mode = choose_mode(if debug::on() { Front::Direct } else { settings.front });
        // ORDERING: Release publishes all tables to the Acquire above.
        MODE.store(mode, Release);
        stats::attach();
        limit::set_up();
        profile::set_up(fast_map());
        fork::register();
        if fast_map() && profile::on() {
            // ORDERING: Release, as below.
            COUNTED.store(MAX_SMALL + 1, Release);
        } else if fast_map() {
            // ORDERING: Release: opens the fast path last. Its readers are Relaxed: what they go on to read is
            // reached through tables that are constant from here on, and a thread that sees the new limit without
            // them would need to have been created before this store without any synchronisation with it, which the
            // first allocation of a process rules out; x86-64, the one machine with this mode, keeps the order anyway.
            LIMIT.store(MAX_SMALL + 1, Release);
        }
    }
    // ORDERING: Release pairs with the Acquire of the next claim.
    SETTING_UP.store(0, Release);
    true
}

/// Sets the heap up if that has not happened.
pub(crate) fn ensure() {
    // ORDERING: Acquire pairs with the Release in `set_up`.
    if MODE.load(Acquire) == UNSET {
        set_up();
    }
}

fn choose_mode(front: Front) -> u8 {
    let cpus = if rustix::thread::sched_getaffinity(None).is_ok() { 1024 } else { 8192 };
    if front == Front::Direct {
        return DIRECT;
    }
    if front == Front::Tid {
        if let Some(offset) = rseq_offset() {
            cpu::set_offset(offset);
        }
        if tid::set_up() {
            return TID;
        }
        Line::new().text("FASTPATH_FRONT=tid needs a double-word exchange and memory; sheaves serve").print();
    }
    if matches!(front, Front::Sheaf | Front::Tid)
        && sheaf::SUPPORTED
        && let Some(offset) = rseq_offset()
        && cpu::set_up(cpus, offset, false)
    {
        // Now, while there is one thread: registering later would wait for all CPUs.
        crate::fence::register();
        return RSEQ;
    }
    let cpus = rustix::thread::sched_getaffinity(None).map_or(64, |set| set.count() as usize).max(1);
    if cpu::set_up(cpus, 0, true) { LOCKED } else { DIRECT }
}

/// Where the C library registered this thread's rseq area, if it did.
fn rseq_offset() -> Option<isize> {
    let size = libc_symbols::__rseq_size().cast::<u32>();
    let offset = libc_symbols::__rseq_offset().cast::<isize>();
    if size.is_null() || offset.is_null() {
        return None;
    }
    // SAFETY: the C library's own constants of these types.
    let (size, offset) = unsafe { (size.read(), offset.read()) };
    // SAFETY: a non-zero size says that every thread has an area at that offset.
    (size != 0 && unsafe { sheaf::cpu_id(offset) } >= 0).then_some(offset)
}

/// Allocates `size` bytes at a multiple of 16. Null if there is no memory.
#[inline(always)]
pub(crate) fn malloc<const CLEAR: bool>(size: usize) -> *mut u8 {
    // ORDERING: Relaxed: see `set_up`.
    if size < LIMIT.load(Relaxed) {
        let class2 = class2_of(size);
        // SAFETY: the limit is open, so `access` is set up; its blocks and sheaves are valid for ever.
        let object = unsafe { sheaf::pop::<CLEAR>(cpu::access(), class2) };
        if !object.is_null() {
            return object;
        }
        return malloc_empty(class2);
    }
    malloc_slow(size)
}

/// Frees what `malloc` and its relatives returned.
///
/// # Safety
///
/// `pointer` is null or a block of this heap that nobody uses any more. (Foreign pointers end the process.)
#[inline(always)]
pub(crate) unsafe fn free<const CLEAR: bool>(pointer: *mut u8) {
    let class2 = class2_at(pointer.addr());
    if class2 != 0 {
        // SAFETY: the fast map has entries only while the fast path is open; the object is the caller's to free.
        if !unsafe { sheaf::push::<CLEAR>(cpu::access(), class2, pointer) } {
            // SAFETY: the caller's promise.
            unsafe { free_full(pointer, class2) };
        }
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { free_slow(pointer) };
}

/// Frees an object whose size is known.
///
/// # Safety
///
/// As [`free`]; `size` is what was asked for, at an alignment of at most 16.
#[inline(always)]
pub(crate) unsafe fn free_sized<const CLEAR: bool>(pointer: *mut u8, size: usize) {
    // ORDERING: Relaxed: see `set_up`.
    if size < LIMIT.load(Relaxed) {
        let class2 = class2_of(size);
        // SAFETY: as in `free`. The object may be an emergency mapping: one that is large enough for its class, and the
        // slab layer tells it apart when the sheaf gets there.
        if !unsafe { sheaf::push::<CLEAR>(cpu::access(), class2, pointer) } {
            // SAFETY: the caller's promise.
            unsafe { free_full(pointer, class2) };
        }
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { free_slow(pointer) };
}

/// `malloc` when this CPU's sheaf is empty.
#[cold]
#[inline(never)]
pub extern "C" fn malloc_empty(class2: usize) -> *mut u8 {
    let class = class2 / 2;
    live::tick();
    let mut object = cpu::alloc_slow(class);
    if object.is_null() && limit::on() && trim() {
        object = malloc_slow(CLASSES[class].size as usize);
    }
    if object.is_null() {
        object = emergency(CLASSES[class].size as usize, 16);
        if object.is_null() {
            errno::set(errno::ENOMEM);
        }
    }
    object
}

/// `malloc` met an object twice in a row.
#[cold]
#[inline(never)]
pub extern "C" fn freed_twice(pointer: *mut u8) -> ! {
    report::double_free(pointer.addr())
}

/// `free` when this CPU's sheaf is full.
///
/// # Safety
///
/// As `free`.
#[cold]
#[inline(never)]
pub unsafe extern "C" fn free_full(pointer: *mut u8, class2: usize) {
    if class2 == 0 {
        // SAFETY: the caller of `free` made the promise.
        unsafe { free_slow(pointer) };
    } else {
        cpu::free_slow(class2 / 2, pointer);
    }
}

/// `malloc` when the fast path is closed, or for big blocks. In a heap that samples it is nearly as short.
#[cold]
#[inline(never)]
pub extern "C" fn malloc_slow(size: usize) -> *mut u8 {
    // ORDERING: Relaxed: see `set_up`.
    if size < COUNTED.load(Relaxed) && !profile::counts_here(size) {
        let class2 = class2_of(size);
        // SAFETY: as in `malloc`.
        let object = unsafe { sheaf::pop::<true>(cpu::access(), class2) };
        if !object.is_null() {
            return object;
        }
        return malloc_empty(class2);
    }
    malloc_closed(size)
}

/// `malloc` of a block that is sampled, or big, or when the fast path is closed.
#[cold]
#[inline(never)]
pub extern "C" fn malloc_closed(size: usize) -> *mut u8 {
    let object = alloc_any(size, 16).0;
    if object.is_null() {
        errno::set(errno::ENOMEM);
    }
    object
}

/// Allocates anything; also tells whether the block is known to read as zero.
pub(crate) fn alloc_any(size: usize, align: usize) -> (*mut u8, bool) {
    // ORDERING: Acquire pairs with the Release in `set_up`.
    if MODE.load(Acquire) == UNSET && !set_up() {
        return (emergency(size, align), true);
    }
    if profile::on()
        && profile::counts(size)
        && let Some(block) = alloc_sampled(size, align)
    {
        return block;
    }
    let mut block = alloc_once(size, align);
    if block.0.is_null() && limit::on() && trim() {
        block = alloc_once(size, align);
    }
    live::tick();
    block
}

/// Allocates a block that is sampled. `None`: there is no room for one; the next one's turn comes at once.
#[cold]
#[inline(never)]
fn alloc_sampled(size: usize, align: usize) -> Option<(*mut u8, bool)> {
    let class = class_of_aligned(size, align);
    let block =
        if class != 0 && apart::on() { (apart::alloc(class), false) } else { alloc_once(size, align) };
    if block.0.is_null() {
        return None;
    }
    profile::sample(block.0, size);
    Some(block)
}

fn alloc_once(size: usize, align: usize) -> (*mut u8, bool) {
    if stats::exact() {
        stats::count(word::EXACT_ALLOCS, 1);
    }
    if debug::on()
        && let Some(block) = debug::alloc(size, align)
    {
        return if block.is_null() { (emergency(size, align), true) } else { (block, false) };
    }
    let class = if debug::on() { 0 } else { class_of_aligned(size, align) };
    let (object, zeroed) = if class == 0 {
        big::alloc(size, align)
    } else {
        let object = match MODE.load(Relaxed) {
            DIRECT => caches::alloc_direct(class),
            TID => tid::alloc(class),
            _ => cpu::alloc(class),
        };
        (object, false)
    };
    if object.is_null() { (emergency(size, align), true) } else { (object, zeroed) }
}

/// Memory for an allocation that cannot enter the heap: during set-up, or under a signal handler that interrupted the
/// heap itself. A mapping of its own, with its record in its first page. Null if the system has no memory either.
#[cold]
fn emergency(size: usize, align: usize) -> *mut u8 {
    let null = core::ptr::null_mut();
    let align = align.max(16);
    let lead = align.max(os::PAGE);
    let Some(bytes) = size.checked_add(lead).and_then(|bytes| bytes.checked_next_multiple_of(UNIT)) else {
        return null;
    };
    if bytes > isize::MAX as usize || !crate::pages::fits(bytes / UNIT) {
        return null;
    }
    let Some(base) = os::map_aligned(bytes, align.max(UNIT), true) else { return null };
    // The object starts in unit `lead / UNIT`: its record is found there.
    let object = base + lead;
    // SAFETY: the mapping's own first words.
    unsafe {
        (base as *mut usize).write(bytes);
        (base as *mut usize).add(1).write(object);
    }
    if !pagemap::set_record(object, Record::Emergency(base)) {
        os::unmap(base, bytes);
        return null;
    }
    object as *mut u8
}

/// Size and start of an emergency block.
fn emergency_block(base: usize) -> (usize, usize) {
    // SAFETY: `emergency` wrote these words, and the block is live.
    unsafe { ((base as *const usize).read(), (base as *const usize).add(1).read()) }
}

/// Frees the emergency block at `address`; false if that is not its start.
pub(crate) fn free_emergency(base: usize, address: usize) -> bool {
    let (bytes, object) = emergency_block(base);
    if object == address {
        pagemap::set_record(address, Record::None);
        os::unmap(base, bytes);
    }
    object == address
}

/// `free` of anything the fast map does not know.
///
/// # Safety
///
/// As `free`.
#[cold]
#[inline(never)]
pub unsafe extern "C" fn free_slow(pointer: *mut u8) {
    let address = pointer.addr();
    // ORDERING: Relaxed: see `set_up`. In a heap that samples, frees by size come here.
    if COUNTED.load(Relaxed) != 0 {
        let class2 = class2_at(address);
        if class2 != 0 {
            // SAFETY: as in `free`.
            if !unsafe { sheaf::push::<true>(cpu::access(), class2, pointer) } {
                cpu::free_slow(class2 / 2, pointer);
            }
            return;
        }
    }
    if address == 0 {
        return;
    }
    if stats::exact() {
        stats::count(word::EXACT_FREES, 1);
    }
    if profile::on() {
        profile::freed(address);
    }
    match pagemap::record_at(address) {
        Record::Slab(record) if debug::on() => debug::free(record, address),
        Record::Slab(record) => {
            let Some(class) = caches::check_object(record, address) else { report::invalid_free(address) };
            match MODE.load(Relaxed) {
                _ if caches::is_sampled(record) => apart::free(class, pointer),
                DIRECT => caches::free_direct(class, pointer),
                TID => tid::free(class, pointer),
                _ => cpu::free(class, pointer),
            }
        }
        Record::Big(record) => big::free(record, address),
        Record::Emergency(base) => {
            if !free_emergency(base, address) {
                report::invalid_free(address);
            }
        }
        Record::None => foreign(address),
    }
}

/// A pointer this heap never returned.
#[cold]
fn foreign(address: usize) {
    let line = Line::new()
        .text("free of ")
        .hex(address)
        .text(", which this allocator did not return (freed twice, or allocated by another allocator: usually a library loaded with RTLD_DEEPBIND); ");
    match settings::get().foreign {
        Foreign::Abort => line.text("FASTPATH_FOREIGN=leak ignores it").abort_about(address),
        Foreign::Leak => line.text("ignored").print(),
    }
}

/// The number of bytes that may be used at `pointer`. Ends the process for a pointer that is not a block's.
pub(crate) fn usable_size(pointer: *mut u8) -> usize {
    let address = pointer.addr();
    let size = match pagemap::record_at(address) {
        Record::Slab(record) if debug::on() => debug::size(record, address),
        Record::Slab(record) => {
            caches::check_object(record, address).map(|class| CLASSES[class].size as usize)
        }
        Record::Big(record) => big::size(record, address),
        Record::Emergency(base) => {
            let (bytes, object) = emergency_block(base);
            (object == address).then(|| base + bytes - object)
        }
        Record::None => None,
    };
    size.unwrap_or_else(|| report::invalid_free(address))
}

/// Changes the size of a block, moving it if need be. Null: no memory, and the block is as it was.
///
/// # Safety
///
/// `pointer` is a block of this heap and not null. If the result is not null the old pointer is gone.
pub(crate) unsafe fn realloc(pointer: *mut u8, size: usize, align: usize) -> *mut u8 {
    let address = pointer.addr();
    let record = pagemap::record_at(address);
    let old = usable_size(pointer);
    if size > isize::MAX as usize {
        return core::ptr::null_mut();
    }
    match record {
        // A block stays where it is unless it would waste more than half.
        Record::Slab(_) if !debug::on() && size <= old && (size > old / 2 || old <= 128) => return pointer,
        Record::Big(record) if size > MAX_SMALL => {
            let resized = big::resize(record, address, size);
            if !resized.is_null() {
                profile::resized(address, resized, size);
            }
            if !resized.is_null() && resized.addr().is_multiple_of(align) {
                return resized;
            }
            if !resized.is_null() {
                // Moved to an address that is not aligned as the block was asked for: only the caller's copy helps.
                return aligned_copy(resized, old.min(size), size, align);
            }
        }
        Record::Emergency(_) if size <= old => return pointer,
        _ => {}
    }
    let new = if align <= UNIT && size > old && big::grows_by_mapping(size) {
        big::alloc_growing(size)
    } else {
        core::ptr::null_mut()
    };
    if profile::on() && !new.is_null() && profile::counts(size) {
        profile::sample(new, size);
    }
    let new = if new.is_null() { alloc_any(size, align).0 } else { new };
    if new.is_null() {
        return new;
    }
    // SAFETY: two different live blocks of at least that many bytes; then the old one is freed by its owner.
    unsafe {
        core::ptr::copy_nonoverlapping(pointer, new, old.min(size));
        free::<true>(pointer);
    }
    new
}

/// Changes the size of a small block that will be freed by its size: it stays only within its class.
///
/// # Safety
///
/// As [`realloc`]; both sizes are at most [`MAX_SMALL`], and the alignment is at most 16.
pub(crate) unsafe fn realloc_small<const CLEAR: bool>(pointer: *mut u8, old: usize, new: usize) -> *mut u8 {
    if !debug::on() && class2_of(old) == class2_of(new) {
        return pointer;
    }
    let block = malloc::<CLEAR>(new);
    if !block.is_null() {
        // SAFETY: two different live blocks of at least that many bytes; then the old one is freed by its owner.
        unsafe {
            core::ptr::copy_nonoverlapping(pointer, block, old.min(new));
            free_sized::<CLEAR>(pointer, old);
        }
    }
    block
}

#[cold]
fn aligned_copy(block: *mut u8, bytes: usize, size: usize, align: usize) -> *mut u8 {
    let (new, _) = alloc_any(size, align);
    if new.is_null() {
        // The block has its new size already; an alignment above a unit cannot be kept.
        return block;
    }
    // SAFETY: two different live blocks of at least that many bytes; then the old one is freed by its owner.
    unsafe {
        core::ptr::copy_nonoverlapping(block, new, bytes);
        free::<true>(block);
    }
    new
}

/// Allocates `size` zeroed bytes at a multiple of `align`.
pub(crate) fn zeroed(size: usize, align: usize) -> *mut u8 {
    if align <= 16 && size < LIMIT.load(Relaxed) {
        let object = malloc::<true>(size);
        if !object.is_null() {
            // SAFETY: a new block of `size` bytes.
            unsafe { object.write_bytes(0, size) };
        }
        return object;
    }
    let (object, zeroed) = if align <= 16 && size < COUNTED.load(Relaxed) {
        (malloc_slow(size), false)
    } else {
        alloc_any(size, align)
    };
    if !object.is_null() && !zeroed {
        // SAFETY: a new block of `size` bytes.
        unsafe { object.write_bytes(0, size) };
    }
    object
}

/// What the end of the process is used for: every object in a sheaf goes back to its slab, where a second copy of it, or
/// a pointer that is no object, is noticed.
pub(crate) fn at_exit() {
    if MODE.load(Relaxed) == RSEQ {
        cpu::drain(crate::fence::restart_all_sections, false);
    } else if MODE.load(Relaxed) == LOCKED {
        cpu::drain(|| true, true);
    }
}

/// Gives back what can be given back; whether anything was.
pub(crate) fn trim() -> bool {
    match MODE.load(Relaxed) {
        RSEQ => cpu::drain(crate::fence::restart_all_sections, false),
        LOCKED => cpu::drain(|| true, true),
        _ => {}
    }
    caches::trim(!debug::on());
    crate::pages::trim() > 0
}
