// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Settings from the environment, read once.
//!
//! | variable | values | default | meaning |
//! |---|---|---|---|
//! | `FASTPATH_FRONT` | `sheaf`, `tid`, `trylock`, `direct` | `sheaf` | per-CPU sheaves under rseq; a list and a transaction id per CPU; sheaves under locks; neither |
//! | `FASTPATH_STATS` | `derived`, `exact` | `derived` | `exact` closes the fast path and counts every call |
//! | `FASTPATH_STATS_FILE` | a path | none | the statistics file to count in, as `fastpath run --stats` makes it |
//! | `FASTPATH_FOREIGN` | `abort`, `leak` | `abort` | what `free` does with a pointer of another allocator |
//! | `FASTPATH_LIMIT` | bytes, `cgroup` | none | the most memory the heap may hold: see the module `limit` |
//! | `FASTPATH_HARDENED` | `off`, `on` | `off` | all checks of `FZP`; objects come in random order and are cleared when freed |
//! | `FASTPATH_HUGE_PAGES` | `on`, `off` | `on` | whether large heaps and blocks ask for transparent huge pages: see the module `huge` |
//! | `FASTPATH_DEBUG` | letters `F`, `Z`, `P`, `U` | none | checks at every call: double and invalid frees; red zones; poison; who allocated and freed a block |
//! | `FASTPATH_TEST_FAULT` | a number | none | for tests: the mapping that fails, counted from 1; with a `+`, all from there on |
//!
//! A value that is none of these is one warning on standard error, and the default.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::report::Line;
use fastpath_sys::libc_symbols;

/// The per-CPU front end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Front {
    Sheaf,
    Tid,
    TryLock,
    Direct,
}

/// What to do with foreign pointers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Foreign {
    Abort,
    Leak,
}

/// All settings.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) front: Front,
    pub(crate) foreign: Foreign,
    pub(crate) hardened: bool,
}

static FOREIGN: AtomicU8 = AtomicU8::new(0);

/// The value of an environment variable, if it is set and the environment is there yet.
pub(crate) fn variable(name: &[u8]) -> Option<&'static [u8]> {
    let environ = libc_symbols::__environ().cast::<*const *const c_char>();
    if environ.is_null() {
        return None;
    }
    // SAFETY: the C library's list of strings, which ends in a null pointer. Read during set-up, which the first
    // allocation of the process runs, before the program can change it.
    unsafe {
        let mut entry = environ.read();
        if entry.is_null() {
            return None;
        }
        while !entry.read().is_null() {
            let text = CStr::from_ptr(entry.read()).to_bytes();
            if text.len() > name.len() && text.starts_with(name) && text[name.len()] == b'=' {
                return Some(&text[name.len() + 1..]);
            }
            entry = entry.add(1);
        }
    }
    None
}

fn choice<T: Copy>(name: &'static [u8], values: &[(&[u8], T)], default: T) -> T {
    let Some(value) = variable(name) else { return default };
    for (text, meaning) in values {
        if *text == value {
            return *meaning;
        }
    }
    let mut line = Line::new().raw(name).text("=").raw(value).text(" is not known; the values are");
    for (text, _) in values {
        line = line.text(" ").raw(text);
    }
    line.print();
    default
}

/// Reads the environment.
pub(crate) fn read() -> Settings {
    let front = choice(
        b"FASTPATH_FRONT",
        &[
            (b"sheaf", Front::Sheaf),
            (b"tid", Front::Tid),
            (b"trylock", Front::TryLock),
            (b"direct", Front::Direct),
        ],
        Front::Sheaf,
    );
    let foreign =
        choice(b"FASTPATH_FOREIGN", &[(b"abort", Foreign::Abort), (b"leak", Foreign::Leak)], Foreign::Abort);
    crate::stats::set_exact(choice(b"FASTPATH_STATS", &[(b"derived", false), (b"exact", true)], false));
    if let Some(letters) = variable(b"FASTPATH_DEBUG") {
        match crate::debug::parse(letters) {
            Some(flags) => crate::debug::set(flags),
            None => {
                Line::new()
                    .text("FASTPATH_DEBUG=")
                    .raw(letters)
                    .text(" is not known; the letters are F Z P U")
                    .print();
            }
        }
    }
    if let Some(text) = variable(b"FASTPATH_TEST_FAULT") {
        let (digits, on) = text.strip_suffix(b"+").map_or((text, false), |digits| (digits, true));
        let number = digits.iter().fold(0usize, |sum, digit| {
            sum.saturating_mul(10).saturating_add(usize::from(digit.wrapping_sub(b'0') % 10))
        });
        crate::os::inject_fault(number, !on);
    }
    // ORDERING: Relaxed: set during set-up, before any free can need it.
    FOREIGN.store(u8::from(foreign == Foreign::Leak), Relaxed);
    if !choice(b"FASTPATH_HUGE_PAGES", &[(b"on", true), (b"off", false)], true) {
        crate::huge::turn_off();
    }
    let hardened = choice(b"FASTPATH_HARDENED", &[(b"off", false), (b"on", true)], false);
    Settings { front, foreign, hardened }
}

/// What was read.
pub(crate) fn get() -> Settings {
    let foreign = if FOREIGN.load(Relaxed) == 1 { Foreign::Leak } else { Foreign::Abort };
    Settings { front: Front::Sheaf, foreign, hardened: false }
}
