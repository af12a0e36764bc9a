// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The checks of single objects and slabs, and what paints the patterns that they look for.
#![expect(
    clippy::cast_ptr_alignment,
    reason = "records lie at multiples of the word size in word-aligned objects"
)]
#![expect(unsafe_code, reason = "reads and writes raw objects")]

use super::pattern;
use super::report::{Damage, Report, SlabState};
use super::track::{Track, TrackKind};
use crate::host::{Corruption, Host};
use crate::slab::{DAMAGED, Slab};
use crate::slabs::Slabs;
use crate::spec::CacheFlags;
use crate::sync::{Ordering, fence};
use crate::word::{NONE, SlabWord};
use core::ptr::NonNull;

impl<H: Host, const NODES: usize> Slabs<H, NODES> {
    /// The whole run of a slab: first byte and length.
    pub(crate) fn extent(&self, slab: &Slab) -> (*mut u8, usize) {
        let config = self.config();
        (slab.base().wrapping_sub(config.layout.red_left), 1 << (slab.order() + config.page_shift))
    }

    /// Gives an object the zones and contents of its state.
    ///
    /// # Safety
    ///
    /// An object of this cache that is the caller's.
    #[doc(alias = "init_object")]
    pub(crate) unsafe fn paint(&self, object: *mut u8, active: bool) {
        let config = self.config();
        let layout = &config.layout;
        let red = if active { pattern::RED_ACTIVE } else { pattern::RED_INACTIVE };
        // SAFETY: the object with its zones, as the layout says.
        unsafe {
            if config.spec.flags.contains(CacheFlags::RED_ZONE) {
                object.sub(layout.red_left).write_bytes(red, layout.red_left);
                object.add(layout.object_size).write_bytes(red, layout.inuse - layout.object_size);
            }
            if config.poison {
                object.write_bytes(pattern::FREE, layout.object_size - 1);
                object.add(layout.object_size - 1).write(pattern::END);
            }
        }
    }

    /// Checks an object that should be in use (`active`) or free. `false`: something was wrong with it; it is reported and
    /// put right.
    ///
    /// # Safety
    ///
    /// An object of `slab`; under the slab's list lock, or the slab is the caller's.
    pub(crate) unsafe fn check_object(&self, slab: &Slab, object: *mut u8, active: bool) -> bool {
        use Corruption as C;
        let config = self.config();
        let layout = &config.layout;
        let flags = config.spec.flags;
        let poisoned = flags.contains(CacheFlags::POISON);
        let mut good = true;
        // SAFETY: all inside the object's share of the slab, as the layout says; the caller holds the lock.
        unsafe {
            let mut zone = |name, what, from: *mut u8, to: usize, value| {
                good &= self.check_bytes(slab, object, name, what, (from, to), value);
            };
            let end = object.wrapping_add(layout.object_size);
            let inuse = object.addr() + layout.inuse;
            if flags.contains(CacheFlags::RED_ZONE) {
                let red = if active { pattern::RED_ACTIVE } else { pattern::RED_INACTIVE };
                zone("Left Redzone", C::RedZone, object.wrapping_sub(layout.red_left), object.addr(), red);
                zone("Right Redzone", C::RedZone, end, inuse, red);
                if let Some(request) = self.request(object).filter(|_| active) {
                    // ORDERING: Acquire, pairs with the Release in `set_request`.
                    fence(Ordering::Acquire);
                    let from = object.wrapping_add(request.min(layout.object_size));
                    zone("kmalloc Redzone", C::RedZone, from, end.addr(), red);
                }
            } else if poisoned {
                zone("Alignment padding", C::Padding, end, inuse, pattern::IN_USE);
            }
            if config.poison && !active {
                let last = object.wrapping_add(layout.object_size - 1);
                zone("Poison", C::Poison, object, last.addr(), pattern::FREE);
                zone("End Poison", C::Poison, last, end.addr(), pattern::END);
            }
            if poisoned {
                let next = object.addr() + layout.size - layout.red_left;
                zone("Object padding", C::Padding, object.wrapping_add(layout.pad), next, pattern::IN_USE);
            }
            // The free pointer of an object in use means something only where nobody writes: outside of it.
            let outside = layout.offset >= layout.inuse && !config.apart;
            if flags.contains(CacheFlags::CONSISTENCY) && (outside || !active) && !(active && config.apart) {
                let next = self.next(slab, object);
                if !next.is_null() && !slab.is_object(next, slab.word()) {
                    self.finding(slab, object, C::FreePointer, "Freepointer corrupt", pattern::CUT);
                    self.set_next(slab, object, core::ptr::null_mut());
                    good = false;
                }
            }
        }
        good
    }

    /// Whether all bytes from `zone.0` to the address `zone.1` are `value`; reports and rewrites them if not.
    ///
    /// # Safety
    ///
    /// As for [`check_object`](Self::check_object).
    unsafe fn check_bytes(
        &self,
        slab: &Slab,
        object: *mut u8,
        problem: &'static str,
        what: Corruption,
        zone: (*mut u8, usize),
        value: u8,
    ) -> bool {
        let (from, to) = zone;
        let len = to.saturating_sub(from.addr());
        // SAFETY: inside the slab (caller); volatile: a program that breaks the rules may write at the same time.
        let wrong = |at: &usize| unsafe { from.add(*at).read_volatile() } != value;
        let Some(first) = (0..len).find(wrong) else { return true };
        let last = (first..len).rev().find(wrong).unwrap_or(first);
        // SAFETY: as above.
        let found = unsafe { from.add(first).read_volatile() };
        let start = from.wrapping_add(first);
        let damage = Damage { start: start.addr(), end: from.addr() + last + 1, found, expected: value };
        self.tell(slab, object, what, (problem, "Restoring"), Some(damage));
        // SAFETY: as above.
        unsafe { start.write_bytes(value, last + 1 - first) };
        false
    }

    /// Reports a finding about an object or its slab.
    pub(crate) fn finding(
        &self,
        slab: &Slab,
        object: *mut u8,
        what: Corruption,
        problem: &'static str,
        fix: &'static str,
    ) {
        self.tell(slab, object, what, (problem, fix), None);
    }

    fn tell(
        &self,
        slab: &Slab,
        object: *mut u8,
        what: Corruption,
        (problem, fix): (&'static str, &'static str),
        damage: Option<Damage>,
    ) {
        let word = slab.word();
        let layout = self.layout();
        let shown = slab.is_object(object, word);
        let track = |kind| self.track(NonNull::new(object)?, kind).filter(|_| shown);
        self.host.report(&Report {
            what,
            problem,
            fix,
            cache: self.name(),
            object,
            damage,
            slab: SlabState {
                base: slab.base().addr(),
                objects: word.objects(),
                inuse: word.inuse(),
                head: slab.head(word).addr(),
            },
            layout,
            allocated: shown.then(|| track(TrackKind::Alloc)).flatten(),
            freed: shown.then(|| track(TrackKind::Free)).flatten(),
            shown,
        });
    }

    /// `F`: whether the counters of a slab are possible.
    #[doc(alias = "check_slab")]
    pub(crate) fn check_counters(&self, slab: &Slab, word: SlabWord) -> bool {
        let possible = word.objects() <= slab.capacity() && word.inuse() <= word.objects();
        if !possible && self.flags().contains(CacheFlags::CONSISTENCY) {
            self.finding(slab, slab.base(), Corruption::Counters, "Wrong object count", pattern::ALL_USED);
        }
        possible
    }

    /// Walks the free list of a slab and repairs what it finds wrong with it. Whether `wanted` is on it.
    ///
    /// # Safety
    ///
    /// Under the list lock; the slab is not frozen.
    #[doc(alias = "on_freelist")]
    pub(crate) unsafe fn walk(&self, slab: &Slab, wanted: *mut u8) -> bool {
        let word = slab.word();
        let mut at = slab.head(word);
        let mut before = core::ptr::null_mut::<u8>();
        let mut count = 0;
        while !at.is_null() {
            if at == wanted {
                return true;
            }
            let (object, broken) = if before.is_null() { (slab.base(), at) } else { (before, at) };
            if !slab.is_object(broken, word) {
                if before.is_null() {
                    self.finding(
                        slab,
                        object,
                        Corruption::FreePointer,
                        "Freepointer corrupt",
                        pattern::CLEARED,
                    );
                    slab.change(|word| word.repaired(NONE, word.objects()));
                    return false;
                }
                self.finding(slab, object, Corruption::FreePointer, "Freechain corrupt", pattern::CUT);
                // SAFETY: a free object of the slab, under its list lock.
                unsafe { self.set_next(slab, before, core::ptr::null_mut()) };
                break;
            }
            count += 1;
            if count > word.objects() {
                self.finding(slab, at, Corruption::FreePointer, "Freelist cycle detected", pattern::CLEARED);
                slab.change(|word| word.repaired(NONE, word.objects()));
                return false;
            }
            before = at;
            // SAFETY: a free object of the slab.
            at = unsafe { self.next(slab, at) };
        }
        if word.objects() - count.min(word.objects()) != word.inuse() {
            self.finding(
                slab,
                slab.base(),
                Corruption::Counters,
                "Wrong object count",
                "Object count adjusted",
            );
            slab.change(|word| word.repaired(word.head(), word.objects() - count));
        }
        false
    }

    /// Checks every object of a slab for what it should be, and its free list. Whether all is well.
    ///
    /// # Safety
    ///
    /// Under the list lock; the slab is not frozen.
    #[doc(alias = "validate_slab")]
    pub(crate) unsafe fn check_whole(&self, slab: &Slab) -> bool {
        // SAFETY: under the list lock (caller).
        unsafe {
            if slab.flags() & DAMAGED != 0 {
                return true;
            }
            let before = slab.word();
            let mut good = self.check_counters(slab, before);
            self.walk(slab, core::ptr::null_mut());
            good &= slab.word() == before;
            if self.flags().contains(CacheFlags::POISON) {
                let (base, len) = self.extent(slab);
                let used = slab.capacity() * slab.size();
                let rest = (base.wrapping_add(used), base.addr() + len);
                good &= self.check_bytes(
                    slab,
                    slab.base(),
                    "Padding",
                    Corruption::Padding,
                    rest,
                    pattern::IN_USE,
                );
            }
            self.each_object(slab, |object, free| good &= self.check_object(slab, object, !free));
            good
        }
    }

    /// Calls `visit` with each object of a slab and whether it is free.
    ///
    /// # Safety
    ///
    /// Under the list lock.
    pub(crate) unsafe fn each_object(&self, slab: &Slab, mut visit: impl FnMut(*mut u8, bool)) {
        let word = slab.word();
        for first in (0..word.objects()).step_by(64) {
            let mut free = 0u64;
            let mut object = slab.head(word);
            for _ in 0..word.free() {
                if !slab.is_object(object, word) {
                    break;
                }
                let index = slab.index(object);
                if (first..first + 64).contains(&index) {
                    free |= 1 << (index - first);
                }
                // SAFETY: an object of the slab; the list is only pushed to while the lock is held.
                object = unsafe { self.next(slab, object) };
            }
            for index in first..word.objects().min(first + 64) {
                // SAFETY: below the number of objects.
                visit(unsafe { slab.object(index) }, free >> (index - first) & 1 != 0);
            }
        }
    }

    /// The record of who allocated or freed an object last, for caches with `U`.
    pub fn track(&self, object: NonNull<u8>, kind: TrackKind) -> Option<Track> {
        let slab = NonNull::new(crate::source::PageSource::slab_of(self.host.source(), object.as_ptr()))?;
        // SAFETY: descriptors are valid for ever.
        let slab = unsafe { slab.as_ref() };
        if slab.owner() != self.id() || !slab.is_object(object.as_ptr(), slab.word()) {
            return None;
        }
        // SAFETY: the record lies in the object's share of the slab; volatile: it may be written meanwhile.
        Some(unsafe { self.record(object.as_ptr(), kind)?.read_volatile() })
    }

    /// Where a record lies.
    fn record(&self, object: *mut u8, kind: TrackKind) -> Option<*mut Track> {
        let track = self.layout().track;
        if track == 0 {
            return None;
        }
        Some(object.wrapping_add(track).cast::<Track>().wrapping_add(kind as usize))
    }

    /// Records who does this.
    ///
    /// # Safety
    ///
    /// An object of this cache that is the caller's.
    pub(crate) unsafe fn note(&self, object: *mut u8, kind: TrackKind) {
        if let Some(record) = self.record(object, kind) {
            let mut who = Track::default();
            self.host.track(&mut who);
            // SAFETY: in the object's share of the slab.
            unsafe { record.write(who) };
        }
    }

    /// Clears both records.
    ///
    /// # Safety
    ///
    /// As for [`note`](Self::note).
    pub(crate) unsafe fn forget_tracks(&self, object: *mut u8) {
        for kind in [TrackKind::Alloc, TrackKind::Free] {
            if let Some(record) = self.record(object, kind) {
                // SAFETY: in the object's share of the slab.
                unsafe { record.write(Track::default()) };
            }
        }
    }

    /// The bytes asked for when the object was allocated, if the cache keeps that.
    #[doc(alias = "get_orig_size")]
    pub(crate) unsafe fn request(&self, object: *mut u8) -> Option<usize> {
        let at = self.layout().request;
        // SAFETY: in the object's share of the slab (caller: an object of this cache).
        (at != 0).then(|| unsafe { object.add(at).cast::<usize>().read_volatile() })
    }

    /// Says how many bytes of an object its user asked for: what lies behind them becomes part of the red zone ("kmalloc
    /// Redzone"). Only for caches with `Z`, `U` and [`CacheFlags::KMALLOC`]; nothing happens in others.
    ///
    /// # Safety
    ///
    /// An object of this cache that is the caller's; the bytes behind `size` are not used.
    #[doc(alias = "set_orig_size")]
    pub unsafe fn set_request(&self, object: NonNull<u8>, size: usize) {
        let layout = self.layout();
        if layout.request != 0 {
            let size = size.min(layout.object_size);
            // SAFETY: in the object's share of the slab, and behind what its user uses.
            unsafe {
                if self.flags().contains(CacheFlags::RED_ZONE) {
                    object.as_ptr().add(size).write_bytes(pattern::RED_ACTIVE, layout.object_size - size);
                }
                // ORDERING: Release, pairs with the Acquire in `check_object`: the zone is red for whoever validates and sees
                // where it begins.
                fence(Ordering::Release);
                object.as_ptr().add(layout.request).cast::<usize>().write_volatile(size);
            }
        }
    }
}
