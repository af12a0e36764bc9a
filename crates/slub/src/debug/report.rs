// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What is told about a finding.
#![expect(unsafe_code, reason = "shows the bytes of a damaged object")]

use super::track::Track;
use crate::host::Corruption;
use crate::sizing::Layout;
use core::fmt;

/// Bytes that are not as they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Address of the first wrong byte.
    pub start: usize,
    /// Address after the last wrong byte.
    pub end: usize,
    /// The first wrong byte.
    pub found: u8,
    /// What each of them should be; they are again by the time of the report's end.
    pub expected: u8,
}

/// The slab of a reported object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabState {
    /// Address of object 0.
    pub base: usize,
    /// Objects that exist.
    pub objects: usize,
    /// Objects in use by the counter.
    pub inuse: usize,
    /// Address of the first free object, 0 for none.
    pub head: usize,
}

/// A finding of the debug flags. [`Display`](fmt::Display) gives the text in the kernel's shape, with its names.
///
/// Valid during the call of [`Host::report`](crate::Host::report).
#[derive(Clone, Copy, Debug)]
#[doc(alias = "slab_bug")]
pub struct Report<'a> {
    /// The kind.
    pub what: Corruption,
    /// What is wrong: "Left Redzone", "Right Redzone", "kmalloc Redzone", "Poison", "End Poison", "Object padding",
    /// "Alignment padding", "Padding" (these with [`damage`](Self::damage)), "Freepointer corrupt", "Freechain corrupt",
    /// "Freelist cycle detected", "Object already free", "Wrong object count", "Objects remaining".
    pub problem: &'static str,
    /// What was done about it.
    pub fix: &'static str,
    /// The cache.
    pub cache: &'static str,
    /// The object, or the slab's first one.
    pub object: *mut u8,
    /// Damaged bytes.
    pub damage: Option<Damage>,
    /// Its slab.
    pub slab: SlabState,
    /// Where things lie in the object.
    pub layout: &'a Layout,
    /// Who allocated it last (`U`).
    pub allocated: Option<Track>,
    /// Who freed it last (`U`).
    pub freed: Option<Track>,
    /// Whether the object may be shown: it is one, and lies in its slab.
    pub(crate) shown: bool,
}

impl Report<'_> {
    /// Distance of the first damaged byte from the start of the object in bytes, negative before it.
    pub fn offset(&self) -> Option<isize> {
        self.damage.map(|damage| damage.start.wrapping_sub(self.object.addr()) as isize)
    }

    fn bytes(&self, f: &mut fmt::Formatter<'_>, name: &str, from: isize, len: usize) -> fmt::Result {
        const PER_LINE: usize = 16;
        /// More of an object is not shown.
        const MOST: usize = 256;
        for line in (0..len.min(MOST)).step_by(PER_LINE) {
            let start = self.object.wrapping_offset(from).wrapping_add(line);
            write!(f, "\n{name:<8} {:#x}:", start.addr())?;
            for at in 0..PER_LINE.min(len - line) {
                // SAFETY: `shown`: the object is one of its slab, and so are its zones; volatile, since it may be in use.
                write!(f, " {:02x}", unsafe { start.add(at).read_volatile() })?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let over = if self.damage.is_some() { " overwritten" } else { "" };
        write!(f, "BUG {}: {}{over}", self.cache, self.problem)?;
        if let Some(damage) = self.damage {
            write!(
                f,
                "\n{:#x}-{:#x} @offset={}. First byte {:#04x} instead of {:#04x}",
                damage.start,
                damage.end - 1,
                self.offset().unwrap_or(0),
                damage.found,
                damage.expected
            )?;
        }
        for (what, track) in [("Allocated", self.allocated), ("Freed", self.freed)] {
            if let Some(track) = track.filter(|track| !track.is_empty()) {
                write!(f, "\n{what}: {track}")?;
            }
        }
        let slab = &self.slab;
        write!(
            f,
            "\nSlab {:#x} objects={} used={} fp={:#x}",
            slab.base, slab.objects, slab.inuse, slab.head
        )?;
        write!(
            f,
            "\nObject {:#x} @offset={}",
            self.object.addr(),
            self.object.addr().wrapping_sub(slab.base)
        )?;
        if self.shown {
            let layout = self.layout;
            self.bytes(f, "Redzone", -(layout.red_left as isize), layout.red_left)?;
            self.bytes(f, "Object", 0, layout.object_size)?;
            self.bytes(f, "Redzone", layout.object_size as isize, layout.inuse - layout.object_size)?;
            let end = layout.size - layout.red_left;
            self.bytes(f, "Padding", layout.pad as isize, end.saturating_sub(layout.pad))?;
        }
        write!(f, "\nFIX {}: {}", self.cache, self.fix)?;
        if let Some(damage) = self.damage {
            write!(
                f,
                " {} {:#x}-{:#x}={:#04x}",
                self.problem,
                damage.start,
                damage.end - 1,
                damage.expected
            )?;
        }
        f.write_str("\n")
    }
}

/// A text of at most `N` bytes, for hosts that print reports without allocating; what does not fit is cut off.
///
/// ```
/// use core::fmt::Write;
/// let mut text = fastpath_slub::debug::Text::<8>::new();
/// let _ = write!(text, "{} {}", "Right", "Redzone");
/// assert_eq!(text.as_str(), "Right Re");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    /// An empty one.
    pub const fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    /// What was written.
    pub fn as_str(&self) -> &str {
        self.bytes.get(..self.len).and_then(|bytes| core::str::from_utf8(bytes).ok()).unwrap_or("")
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> fmt::Write for Text<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut fits = text.len().min(N - self.len);
        while !text.is_char_boundary(fits) {
            fits -= 1;
        }
        let room = self.bytes.iter_mut().skip(self.len);
        for (to, from) in room.zip(text.as_bytes().iter().take(fits)) {
            *to = *from;
        }
        self.len += fits;
        Ok(())
    }
}
