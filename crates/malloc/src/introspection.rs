// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a program can ask: `mallinfo`, `malloc_info`, `malloc_stats`, `mallopt`, and `fastpath.h`'s functions. A replacement
//! that leaves one of the former out lets the C library answer for its own, empty heap.

use core::ffi::{c_char, c_int, c_void};

use fastpath_alloc::{Stats, errno, raw, stats};

/// As glibc's `struct mallinfo2`.
#[repr(C)]
pub struct Mallinfo2 {
    arena: usize,
    ordblks: usize,
    smblks: usize,
    hblks: usize,
    hblkhd: usize,
    usmblks: usize,
    fsmblks: usize,
    uordblks: usize,
    fordblks: usize,
    keepcost: usize,
}

/// As `struct mallinfo`: the same in `int`.
#[repr(C)]
pub struct Mallinfo {
    fields: [c_int; 10],
}

fn info() -> Mallinfo2 {
    let now = stats();
    let free = (now.slab_bytes - now.small_bytes.min(now.slab_bytes)) + now.dirty_bytes;
    let runs = now.big_bytes - now.mapped_bytes.min(now.big_bytes);
    Mallinfo2 {
        arena: now.slab_bytes + now.dirty_bytes + runs,
        ordblks: usize::from(free > 0),
        smblks: 0,
        hblks: usize::from(now.mapped_bytes > 0),
        hblkhd: now.mapped_bytes,
        usmblks: 0,
        fsmblks: now.cached_bytes,
        uordblks: now.small_bytes + runs,
        fordblks: free,
        keepcost: now.dirty_bytes,
    }
}

/// As the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo2() -> Mallinfo2 {
    info()
}

/// As the C library's; figures beyond `INT_MAX` are cut to it.
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo() -> Mallinfo {
    let now = info();
    let fields = [
        now.arena,
        now.ordblks,
        now.smblks,
        now.hblks,
        now.hblkhd,
        now.usmblks,
        now.fsmblks,
        now.uordblks,
        now.fordblks,
        now.keepcost,
    ];
    Mallinfo { fields: fields.map(|value| c_int::try_from(value).unwrap_or(c_int::MAX)) }
}

/// As the C library's: 1 for a parameter it knows. None changes anything here, because this heap adapts by itself.
#[unsafe(no_mangle)]
pub extern "C" fn mallopt(parameter: c_int, _value: c_int) -> c_int {
    // M_MXFAST, M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_MMAP_MAX, M_CHECK_ACTION, M_PERTURB, M_ARENA_TEST,
    // M_ARENA_MAX.
    c_int::from(matches!(parameter, 1 | -8..=-1))
}

fn lines(now: &Stats) -> [(&'static str, u64); 11] {
    [
        ("small-objects", now.small_objects as u64),
        ("small-bytes", now.small_bytes as u64),
        ("cached-bytes", now.cached_bytes as u64),
        ("slab-bytes", now.slab_bytes as u64),
        ("big-bytes", now.big_bytes as u64),
        ("mapped-bytes", now.mapped_bytes as u64),
        ("dirty-bytes", now.dirty_bytes as u64),
        ("reserved-bytes", now.reserved_bytes as u64),
        ("purged-bytes", now.purged_bytes),
        ("record-bytes", now.record_bytes as u64),
        ("barn-bytes", now.barn_bytes as u64),
    ]
}

/// As the C library's: a line per figure on standard error.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_stats() {
    raw::message(raw::front(), "front end", None);
    for (name, value) in lines(&stats()) {
        raw::message(name, "", Some(value));
    }
}

/// As the C library's: XML to `stream`. `EINVAL` for options other than 0.
///
/// # Safety
///
/// `stream` is an open `FILE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_info(options: c_int, stream: *mut c_void) -> c_int {
    let function = raw::fputs();
    if options != 0 || function.is_null() {
        errno::set(errno::EINVAL);
        return -1;
    }
    // SAFETY: the C library's `fputs`; the texts end in a zero byte, the stream is the caller's.
    unsafe {
        let fputs: extern "C" fn(*const c_char, *mut c_void) -> c_int = core::mem::transmute(function);
        fputs(c"<malloc version=\"fastpath-1\">\n<heap nr=\"0\">\n".as_ptr(), stream);
        for (name, value) in lines(&stats()) {
            let mut text = [0u8; 96];
            raw::xml_line(&mut text, name, value);
            fputs(text.as_ptr().cast(), stream);
        }
        fputs(c"</heap>\n</malloc>\n".as_ptr(), stream);
    }
    0
}

/// `fastpath.h`: the library's version.
#[unsafe(no_mangle)]
pub extern "C" fn fastpath_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// `fastpath.h`: gives free memory back to the system; 1 if there was any.
#[unsafe(no_mangle)]
pub extern "C" fn fastpath_trim() -> c_int {
    c_int::from(raw::trim())
}

/// Hands a caller's buffer on, with room for a zero byte at the end, and ends the text there.
///
/// # Safety
///
/// `out` points to `size` bytes that may be written.
unsafe fn text(out: *mut c_char, size: usize, write: impl FnOnce(&mut [u8]) -> usize) -> usize {
    if out.is_null() || size == 0 {
        return write(&mut []);
    }
    // SAFETY: the caller's promise.
    let out = unsafe { core::slice::from_raw_parts_mut(out.cast::<u8>(), size) };
    let length = write(&mut out[..size - 1]);
    out[length.min(size - 1)] = 0;
    length
}

/// `fastpath.h`: the statistics as OpenMetrics text.
///
/// # Safety
///
/// `out` points to `size` bytes that may be written, or `size` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fastpath_metrics(out: *mut c_char, size: usize) -> usize {
    // SAFETY: the caller's promise.
    unsafe { text(out, size, |out| fastpath_alloc::text::open_metrics(&stats(), out)) }
}

/// `fastpath.h`: the statistics as JSON.
///
/// # Safety
///
/// `out` points to `size` bytes that may be written, or `size` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fastpath_json(out: *mut c_char, size: usize) -> usize {
    // SAFETY: the caller's promise.
    unsafe { text(out, size, |out| fastpath_alloc::text::json(&stats(), out)) }
}

/// `fastpath.h`: writes the heap profile so far to a file; 0, or -1 with `errno`.
///
/// # Safety
///
/// `path` is a text that ends in a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fastpath_profile_write(path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    if !path.is_null() && fastpath_alloc::profile::write(unsafe { core::ffi::CStr::from_ptr(path) }) {
        return 0;
    }
    errno::set(errno::EINVAL);
    -1
}

/// `fastpath.h`: the statistics, in a structure that only grows.
#[repr(C)]
pub struct FastpathStats {
    size: usize,
    values: [u64; 19],
}

/// `fastpath.h`: fills in as much of the caller's structure as its `size` says it has room for.
///
/// # Safety
///
/// `out` points to a `struct fastpath_stats` whose `size` is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fastpath_stats(out: *mut FastpathStats) {
    let now = stats();
    let values = [
        now.small_bytes as u64,
        now.small_objects as u64,
        now.cached_bytes as u64,
        now.slab_bytes as u64,
        now.big_bytes as u64,
        now.mapped_bytes as u64,
        now.dirty_bytes as u64,
        now.reserved_bytes as u64,
        now.purged_bytes,
        now.record_bytes as u64,
        now.refills,
        now.refilled,
        now.flushes,
        now.flushed,
        now.direct_allocs,
        now.direct_frees,
        now.big_allocs,
        now.big_frees,
        now.barn_bytes as u64,
    ];
    // SAFETY: the caller's promise; nothing beyond `size` bytes is written.
    unsafe {
        let room = ((*out).size.saturating_sub(size_of::<usize>()) / 8).min(values.len());
        let first = (&raw mut (*out).values).cast::<u64>();
        for (at, value) in values.iter().take(room).enumerate() {
            first.add(at).write(*value);
        }
    }
}

/// `fastpath.h`: a cache of objects of one size.
pub struct FastpathCache {
    size: usize,
    align: usize,
}

/// `fastpath.h`: a cache for objects of `size` bytes at a multiple of `align`.
#[unsafe(no_mangle)]
pub extern "C" fn fastpath_cache_create(
    _name: *const c_char,
    size: usize,
    align: usize,
) -> *mut FastpathCache {
    let align = align.max(1);
    if !align.is_power_of_two() || size > isize::MAX as usize {
        errno::set(errno::EINVAL);
        return core::ptr::null_mut();
    }
    let cache = raw::malloc(size_of::<FastpathCache>()).cast::<FastpathCache>();
    if !cache.is_null() {
        // SAFETY: a new block of that size.
        unsafe { cache.write(FastpathCache { size, align }) };
    }
    cache
}

/// `fastpath.h`: an object of the cache.
///
/// # Safety
///
/// A live cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fastpath_cache_alloc(cache: *const FastpathCache) -> *mut c_void {
    // SAFETY: the caller's promise.
    let (size, align) = unsafe { ((*cache).size, (*cache).align) };
    let object = if align <= 16 { raw::malloc(size) } else { raw::aligned(size, align) };
    if object.is_null() {
        errno::set(errno::ENOMEM);
    }
    object.cast()
}

/// `fastpath.h`: gives an object back.
///
/// # Safety
///
/// A live cache, and an object of it (or null) that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fastpath_cache_free(_cache: *const FastpathCache, object: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { raw::free(object.cast()) };
}

/// `fastpath.h`: the end of a cache.
///
/// # Safety
///
/// A live cache (or null) whose objects have been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fastpath_cache_destroy(cache: *mut FastpathCache) {
    // SAFETY: the caller's promise.
    unsafe { raw::free(cache.cast()) };
}
