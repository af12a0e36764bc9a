// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Caches made at run time, with merging: a request that an existing cache serves without waste becomes an alias of it.
#![expect(unsafe_code, reason = "entries are configured under the table's lock")]

use crate::attributes::AttributeError;
use crate::cache::Cache;
use crate::host::Host;
use crate::lock::RawLock;
use crate::sizing::Sizing;
use crate::slabs::{Busy, Config};
use crate::spec::{CacheFlags, CacheSpec};
use crate::sync::{AtomicUsize, Ordering};

const WORD: usize = size_of::<usize>();
const CACHE_LINE: usize = 64;

/// Flags that keep a cache to itself.
#[doc(alias = "SLAB_NEVER_MERGE")]
const NEVER: CacheFlags = CacheFlags::DEBUG
    .with(CacheFlags::FAILSLAB)
    .with(CacheFlags::TYPESAFE_BY_RCU)
    .with(CacheFlags::NO_LEAK_TRACE)
    .with(CacheFlags::NO_MERGE);

/// Flags that both must have alike.
#[doc(alias = "SLAB_MERGE_SAME")]
const SAME: CacheFlags = CacheFlags::RECLAIM_ACCOUNT
    .with(CacheFlags::CACHE_DMA)
    .with(CacheFlags::ACCOUNT)
    .with(CacheFlags::CONSISTENCY);

/// The alignment a spec leads to: its own, a cache line's part with `HWCACHE_ALIGN`, a word at least.
///
/// ```
/// use fastpath_slub::{CacheFlags, CacheSpec, merge::alignment};
/// assert_eq!(alignment(&CacheSpec::new("a", 20).flags(CacheFlags::HWCACHE_ALIGN)), 32);
/// ```
#[doc(alias = "calculate_alignment")]
pub const fn alignment(spec: &CacheSpec) -> usize {
    let mut align = spec.align;
    if spec.flags.contains(CacheFlags::HWCACHE_ALIGN) {
        let mut line = CACHE_LINE;
        while spec.size <= line / 2 {
            line /= 2;
        }
        if line > align {
            align = line;
        }
    }
    if align < WORD { WORD } else { align }
}

/// Whether a cache made for this spec may share its slabs with others at all.
#[doc(alias = "slab_unmergeable")]
pub const fn unmergeable(spec: &CacheSpec) -> bool {
    spec.flags.intersects(NEVER) || spec.ctor.is_some() || spec.sheaf_capacity != 0
}

/// Whether a cache of `existing`, whose objects lie `size` bytes apart, serves `wanted` too: large enough, aligned,
/// alike in kind, and with less than one word wasted.
///
/// ```
/// use fastpath_slub::{CacheSpec, merge::serves};
/// let existing = CacheSpec::new("inode", 64).align(64);
/// assert!(serves(&existing, 64, &CacheSpec::new("dentry", 56).align(64)));
/// assert!(!serves(&existing, 64, &CacheSpec::new("small", 40)));
/// ```
#[doc(alias = "find_mergeable")]
pub const fn serves(existing: &CacheSpec, size: usize, wanted: &CacheSpec) -> bool {
    if unmergeable(existing) || unmergeable(wanted) {
        return false;
    }
    let align = alignment(wanted);
    let needed = wanted.size.next_multiple_of(WORD).next_multiple_of(align);
    needed <= size
        && equal(existing.flags.and(SAME), wanted.flags.and(SAME))
        && size.is_multiple_of(align)
        && size - needed < WORD
}

const fn equal(a: CacheFlags, b: CacheFlags) -> bool {
    a.contains(b) && b.contains(a)
}

/// Why no cache was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateError {
    /// All entries of the table are in use.
    TableFull,
    /// The spec is impossible: size 0, alignment no power of two, object larger than a slab.
    Invalid,
}

#[derive(Debug)]
struct Entry<H: Host> {
    /// Creators that have not destroyed it; 0: not in use. Written under the table's lock.
    users: AtomicUsize,
    cache: Cache<H>,
}

/// Up to `N` caches made at run time, on the slots `first_slot..first_slot + N` and as many classes.
#[derive(Debug)]
pub struct CacheTable<H: Host, const N: usize> {
    host: H,
    lock: H::Lock,
    sizing: Sizing,
    first_slot: usize,
    first_class: u16,
    /// `slab_nomerge`.
    merging: bool,
    entries: [Entry<H>; N],
}

impl<H: Host, const N: usize> CacheTable<H, N> {
    /// An empty table. `merging` false is the kernel's `slab_nomerge`.
    #[cfg(not(loom))]
    pub fn new(host: H, first_slot: usize, first_class: u16, sizing: &Sizing, merging: bool) -> Self {
        let entries = core::array::from_fn(|_| Entry {
            users: AtomicUsize::new(0),
            cache: Cache::new(host, CacheSpec::new("", WORD), sizing),
        });
        Self { host, lock: H::Lock::UNLOCKED, sizing: *sizing, first_slot, first_class, merging, entries }
    }

    fn locked<R>(&self, with: impl FnOnce() -> R) -> Option<R> {
        if !self.lock.lock(self.host.context()) {
            return None;
        }
        let result = with();
        // SAFETY: held since above.
        unsafe { self.lock.unlock() };
        Some(result)
    }

    /// A cache for `spec` (its slot and class are the table's to choose): an existing one that serves it, the oldest
    /// first, or a new one.
    ///
    /// # Errors
    ///
    /// See [`CreateError`].
    #[doc(alias = "kmem_cache_create")]
    pub fn create(&self, spec: CacheSpec) -> Result<&Cache<H>, CreateError> {
        self.locked(|| {
            // ORDERING: Relaxed: only holders of the lock write it, here and below.
            let users = |entry: &Entry<H>| entry.users.load(Ordering::Relaxed);
            let alias = self.entries.iter().filter(|entry| self.merging && users(entry) != 0).find(|entry| {
                let config = entry.cache.slabs.config();
                serves(&config.spec, config.layout.size, &spec)
            });
            if let Some(entry) = alias {
                // ORDERING: Relaxed, as above.
                entry.users.store(users(entry) + 1, Ordering::Relaxed);
                return Ok(&entry.cache);
            }
            let index =
                self.entries.iter().position(|entry| users(entry) == 0).ok_or(CreateError::TableFull)?;
            let entry = &self.entries[index];
            let slot = self.first_slot + index;
            let spec = spec.align(alignment(&spec)).slot(slot).class(self.first_class + index as u16);
            let config = Config::of(spec, &self.sizing).ok_or(CreateError::Invalid)?;
            // SAFETY: an entry without users has no slabs, and nobody else uses it under the lock.
            unsafe { entry.cache.slabs.reconfigure(|old| *old = config) };
            // ORDERING: Relaxed, as above.
            entry.users.store(1, Ordering::Relaxed);
            Ok(&entry.cache)
        })
        .unwrap_or(Err(CreateError::TableFull))
    }

    /// Ends one creator's use of a cache; the last one's gives its memory back.
    ///
    /// # Errors
    ///
    /// [`Busy`] if it was the last one and objects are in use; the cache stays.
    #[doc(alias = "kmem_cache_destroy")]
    pub fn destroy(&self, cache: &Cache<H>) -> Result<(), Busy> {
        let Some(entry) = self.entry(cache) else { return Ok(()) };
        self.locked(|| {
            // ORDERING: Relaxed: only holders of the lock write it.
            let users = entry.users.load(Ordering::Relaxed);
            if users == 1 {
                entry.cache.destroy()?;
            }
            // ORDERING: Relaxed, as above.
            entry.users.store(users.saturating_sub(1), Ordering::Relaxed);
            Ok(())
        })
        .unwrap_or(Ok(()))
    }

    /// [`Cache::read_attribute`], with `aliases`.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn read_attribute(
        &self,
        cache: &Cache<H>,
        name: &str,
        out: &mut dyn core::fmt::Write,
    ) -> Result<(), AttributeError> {
        match name {
            "aliases" => Ok(writeln!(out, "{}", self.aliases(cache))?),
            _ => cache.read_attribute(name, out),
        }
    }

    /// [`Cache::write_attribute`]; failures are not injected into a cache that somebody else uses too.
    ///
    /// # Errors
    ///
    /// As there, and [`AttributeError::Invalid`] for `failslab` of a cache with aliases.
    pub fn write_attribute(&self, cache: &Cache<H>, name: &str, value: &str) -> Result<(), AttributeError> {
        if name == "failslab" && self.aliases(cache) != 0 {
            return Err(AttributeError::Invalid);
        }
        cache.write_attribute(name, value)
    }

    /// Creators of a cache of this table.
    #[doc(alias = "refcount")]
    pub fn users(&self, cache: &Cache<H>) -> usize {
        // ORDERING: Relaxed: a snapshot.
        self.entry(cache).map_or(0, |entry| entry.users.load(Ordering::Relaxed))
    }

    /// Creators beyond the first.
    pub fn aliases(&self, cache: &Cache<H>) -> usize {
        self.users(cache).saturating_sub(1)
    }

    fn entry(&self, cache: &Cache<H>) -> Option<&Entry<H>> {
        self.entries.iter().find(|entry| core::ptr::eq(&raw const entry.cache, cache))
    }
}
