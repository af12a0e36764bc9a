// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Debug flags of caches: what they find, how a host turns them on, and what it must give them.
//!
//! | flag | letter | finds | costs per object |
//! |---|---|---|---|
//! | [`CONSISTENCY`](crate::CacheFlags::CONSISTENCY) | `F` | double frees, damaged free lists and counters, on every free | no memory; a walk of the slab's free list per free |
//! | [`RED_ZONE`](crate::CacheFlags::RED_ZONE) | `Z` | writes just before and behind an object, at its free and in [`validate`] | a left zone of the object's alignment, one or two words on the right |
//! | [`POISON`](crate::CacheFlags::POISON) | `P` | writes to free objects, at their next allocation and in [`validate`]; reads of them see `0x6b` | a word; one fill per allocation and free, one comparison per allocation |
//! | [`STORE_USER`](crate::CacheFlags::STORE_USER) | `U` | nothing, but reports say who allocated and freed the object | two [`Track`]s (176 bytes on 64-bit machines); two calls of [`Host::track`] |
//!
//! Any of them sends every operation of the cache through the list lock, one object at a time, whatever the front end: the
//! cache has no sheaves, and no CPU has a slab. A cache without them executes the same instructions as if they did not exist.
//! They work with every [`FreePointer`](crate::FreePointer), and each alone: `Z` and `P` are checked also without `F`.
//!
//! # Turning them on
//!
//! A cache made with the flags in its [`CacheSpec`](crate::CacheSpec) has them. For a setting that is known only when the
//! program runs, [`SlabDebug`] parses the `slab_debug` grammar and [`Slabs::set_flags`] changes a cache before its first slab:
//!
//! ```
//! # use fastpath_slub::{Cache, CacheFlags, CacheSpec, Host, SheafPool, Sizing, SpinLock, StaticRegion, TryLockSlots};
//! # use fastpath_slub::debug::SlabDebug;
//! # fn cpu() -> usize { 0 }
//! # const SIZING: Sizing = Sizing::kernel(1);
//! # static MEMORY: StaticRegion<64> = StaticRegion::new();
//! # static SLOTS: TryLockSlots<fn() -> usize, 1, 1> = TryLockSlots::new(cpu);
//! # static SHEAVES: SheafPool<Kernel> = SheafPool::new(Kernel, 100, &SIZING);
//! # static SEEN: std::sync::Mutex<String> = std::sync::Mutex::new(String::new());
//! use fastpath_slub::debug::{Report, Text};
//! use std::fmt::Write;
//!
//! #[derive(Clone, Copy)]
//! struct Kernel;
//! impl Host for Kernel {
//! #     type Source = StaticRegion<64>; type Slots = TryLockSlots<fn() -> usize, 1, 1>; type Lock = SpinLock;
//! #     fn source(&self) -> &Self::Source { &MEMORY }
//! #     fn slots(&self) -> &Self::Slots { &SLOTS }
//! #     fn sheaves(&self) -> &SheafPool<Self> { &SHEAVES }
//! #     fn context(&self) -> usize { 1 }
//!     // ...
//!     fn report(&self, report: &Report<'_>) {
//!         let mut text = Text::<2048>::new();
//!         let _ = write!(text, "{report}");
//!         // ... text.as_str() to the console
//! #         SEEN.lock().unwrap().push_str(text.as_str());
//!     }
//! }
//! static INODES: Cache<Kernel> = Cache::new(Kernel, CacheSpec::new("inode", 40), &SIZING);
//!
//! let setting = SlabDebug::parse("FZ,inode", |_| ());
//! let flags = setting.flags_for("inode", CacheFlags::NONE, false);
//! // SAFETY: the cache is not in use yet.
//! assert!(unsafe { INODES.slabs().set_flags(flags, &SIZING) });
//!
//! let object = INODES.alloc().unwrap();
//! // SAFETY: one byte too far, into the zone; then the object is given up.
//! unsafe {
//!     object.add(40).write(7);
//!     INODES.free(object);
//! }
//! assert!(SEEN.lock().unwrap().starts_with("BUG inode: Right Redzone overwritten"));
//! ```
//!
//! # What the host gives
//!
//! * [`Host::report`]: gets a [`Report`] per finding, which it may print, count, or take for the end of the world. Without it
//!   [`Host::corrupted`] gets the kind and the object. What must be fatal is made fatal there.
//! * [`Host::track`]: for `U`: stack, processor, thread, time.
//! * nothing else: no hook allocates, and nothing here formats, panics or unwinds by itself.
//!
//! # After a finding
//!
//! Damaged zones are rewritten, so that each is reported once. An object that fails its check when it is freed is not freed.
//! One that fails when it is to be allocated condemns its slab: the slab is frozen with all objects counted as used, another
//! slab serves the allocation, and the memory is lost. A free list in a circle, or one whose head leads astray, is dropped.
//!
//! [`validate`]: crate::Slabs::validate
//! [`Slabs::set_flags`]: crate::Slabs::set_flags
//! [`Host::report`]: crate::Host::report
//! [`Host::corrupted`]: crate::Host::corrupted
//! [`Host::track`]: crate::Host::track

mod calls;
mod check;
mod grammar;
mod path;
mod report;
mod track;

pub(crate) use calls::Calls;
pub use grammar::{DEFAULT, Letters, SlabDebug, flag_of_letter};
pub use report::{Damage, Report, SlabState, Text};
pub use track::{TRACK_FRAMES, Track, TrackKind};

/// Bytes that mean something, and the words for what is done about a finding.
pub(crate) mod pattern {
    /// Red zone of a free object.
    #[doc(alias = "SLUB_RED_INACTIVE")]
    pub(crate) const RED_INACTIVE: u8 = 0xbb;
    /// Red zone of an object in use.
    #[doc(alias = "SLUB_RED_ACTIVE")]
    pub(crate) const RED_ACTIVE: u8 = 0xcc;
    /// Contents of a free object.
    #[doc(alias = "POISON_FREE")]
    pub(crate) const FREE: u8 = 0x6b;
    /// Its last byte.
    #[doc(alias = "POISON_END")]
    pub(crate) const END: u8 = 0xa5;
    /// Padding.
    #[doc(alias = "POISON_INUSE")]
    pub(crate) const IN_USE: u8 = 0x5a;

    pub(crate) const ALL_USED: &str = "Marking all objects used";
    pub(crate) const NOT_FREED: &str = "Object not freed";
    pub(crate) const CUT: &str = "Free list cut off";
    pub(crate) const CLEARED: &str = "Freelist cleared";
}
