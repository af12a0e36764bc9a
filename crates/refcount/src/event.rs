// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What can go wrong with a counter, and who is told: one warning per kind of event, out of line, through a hook.
#![expect(unsafe_code, reason = "a function pointer is kept in an atomic pointer")]

use core::fmt;
use core::ptr;

use crate::sync::Ordering;
use crate::sync::statics::{AtomicPtr, AtomicU32};

/// A misuse of a counter. All but the last one leave the counter saturated.
///
/// The kernel's names of the events are search aliases. Its sixth message, for an event number that does not exist,
/// has no counterpart: the type has no such value.
///
/// ```
/// use fastpath_refcount::Event;
/// assert_eq!(Event::SubUseAfterFree.message(), "underflow; use-after-free");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum Event {
    /// `inc_not_zero` or `add_not_zero` left the range of good values, or found the counter outside it.
    #[doc(alias = "REFCOUNT_ADD_NOT_ZERO_OVF")]
    AddNotZeroOverflow,
    /// `inc` or `add` left the range of good values, or found the counter outside it.
    #[doc(alias = "REFCOUNT_ADD_OVF")]
    AddOverflow,
    /// `inc` or `add` found zero: the object is gone already.
    #[doc(alias = "REFCOUNT_ADD_UAF")]
    AddUseAfterFree,
    /// `dec_and_test` or `sub_and_test` took more references than there were.
    #[doc(alias = "REFCOUNT_SUB_UAF")]
    SubUseAfterFree,
    /// `dec`, which cannot report the last reference, reached zero: the object is leaked.
    #[doc(alias = "REFCOUNT_DEC_LEAK")]
    DecLeak,
    /// `dec_not_one` found zero. It leaves the counter as it is.
    DecNotOneUnderflow,
}

impl Event {
    /// Every event, in the order of their declaration.
    pub const ALL: [Self; 6] = [
        Self::AddNotZeroOverflow,
        Self::AddOverflow,
        Self::AddUseAfterFree,
        Self::SubUseAfterFree,
        Self::DecLeak,
        Self::DecNotOneUnderflow,
    ];

    /// The text of the warning, the kernel's own, so that what people search for finds both.
    pub const fn message(self) -> &'static str {
        match self {
            Self::AddNotZeroOverflow | Self::AddOverflow => "saturated; leaking memory",
            Self::AddUseAfterFree => "addition on 0; use-after-free",
            Self::SubUseAfterFree | Self::DecNotOneUnderflow => "underflow; use-after-free",
            Self::DecLeak => "decrement hit 0; leaking memory",
        }
    }

    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// What a [`Hook`] is told.
#[derive(Clone, Copy, Debug)]
pub struct Warning {
    event: Event,
    counter: *const (),
}

impl Warning {
    /// The kind of misuse.
    pub const fn event(&self) -> Event {
        self.event
    }

    /// The address of the counter, to be printed or compared. The counter may be gone by the time it is looked at.
    pub const fn counter(&self) -> *const () {
        self.counter
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refcount_t: {} (counter at {:p})", self.event.message(), self.counter)
    }
}

/// A function that is called at the first event of each kind.
///
/// It runs on the offending thread, inside the offending operation and possibly inside a destructor or a signal handler:
/// it had better not allocate or wait, and a panic in it ends the program.
pub type Hook = fn(&Warning);

/// The hook in use; null is the default one.
static HOOK: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
/// One bit per kind of event that has been reported.
static REPORTED: AtomicU32 = AtomicU32::new(0);

/// Replaces the warning hook of the whole program; `None` brings the default back.
///
/// The default prints one line on standard error with the feature `std`, and nothing without it.
///
/// ```
/// use core::sync::atomic::{AtomicU32, Ordering};
/// use fastpath_refcount::{Event, RefCount, SATURATED, set_warn_hook};
///
/// static SEEN: AtomicU32 = AtomicU32::new(0);
/// set_warn_hook(Some(|warning| {
///     assert_eq!(warning.event(), Event::AddUseAfterFree);
///     SEEN.fetch_add(1, Ordering::Relaxed);
/// }));
///
/// let dead = RefCount::new(0);
/// dead.inc();
/// dead.set(0);
/// dead.inc(); // the same kind again: not reported
/// assert_eq!(dead.read(), SATURATED);
/// assert_eq!(SEEN.load(Ordering::Relaxed), 1);
/// ```
pub fn set_warn_hook(hook: Option<Hook>) {
    let pointer = hook.map_or(ptr::null_mut(), |hook| hook as *mut ());
    // ORDERING: Release pairs with the Acquire in `report`: the hook sees what its installer wrote before.
    HOOK.store(pointer, Ordering::Release);
}

/// Makes every kind of event be reported once more, as `clear_warn_once` of the kernel's debugfs does.
///
/// See [`set_warn_hook`]; useful in tests and in programs that report periodically.
pub fn clear_warn_once() {
    // ORDERING: Relaxed: nothing is published; an event at the same moment may fall on either side.
    REPORTED.store(0, Ordering::Relaxed);
}

/// Reports `event` on `counter` unless its kind was reported before.
#[cold]
pub(crate) fn report(event: Event, counter: *const ()) {
    // ORDERING: Relaxed: the read-modify-write picks one reporter per kind; no data travels with the bit.
    if REPORTED.fetch_or(event.bit(), Ordering::Relaxed) & event.bit() != 0 {
        return;
    }
    // ORDERING: Acquire pairs with the Release in `set_warn_hook`.
    let pointer = HOOK.load(Ordering::Acquire);
    let warning = Warning { event, counter };
    if pointer.is_null() {
        default_hook(&warning);
    } else {
        // SAFETY: the only non-null pointers ever stored in `HOOK` are `Hook`s cast in `set_warn_hook`.
        let hook: Hook = unsafe { core::mem::transmute::<*mut (), Hook>(pointer) };
        hook(&warning);
    }
}

/// One line on standard error, in one write, so that it stays whole beside the output of other threads.
#[cfg(feature = "std")]
fn default_hook(warning: &Warning) {
    use fmt::Write as _;
    use std::io::Write as _;

    let mut line = Line { bytes: [0; 160], used: 0 };
    // Neither error matters: a cut or lost line leaves the counter as safe as before, and there is nobody to tell.
    let _ = writeln!(line, "{warning}; further events of this kind are not reported");
    let _ = std::io::stderr().write_all(&line.bytes[..line.used]);
}

#[cfg(not(feature = "std"))]
fn default_hook(_: &Warning) {}

/// A line built without allocating; what does not fit is cut off.
#[cfg(feature = "std")]
struct Line {
    bytes: [u8; 160],
    used: usize,
}

#[cfg(feature = "std")]
impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.used..];
        let n = text.len().min(room.len());
        room[..n].copy_from_slice(&text.as_bytes()[..n]);
        self.used += n;
        Ok(())
    }
}
