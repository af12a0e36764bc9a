// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Debug flags and the `slab_debug` grammar.
//!
//! ```text
//! setting = block *( ";" block )
//! block   = [ letters ] [ "," name *( "," name ) ]        name may end in "*"
//! letters = any of F Z P U T A O -, in either case
//! ```
//!
//! A block without names sets the flags of all caches; of several, the last counts. A block with names sets the flags
//! of the caches that match; of several, the first counts. A block without letters means F, Z, P and U. `-` takes back
//! the letters before it. A letter that is none of these is reported and ignored.

use crate::sizing::{Layout, Sizing};
use crate::spec::{CacheFlags, CacheSpec};
use core::fmt;

/// The letters that stand for flags, in the order they are printed.
const LETTERS: [(char, CacheFlags); 6] = [
    ('F', CacheFlags::CONSISTENCY),
    ('Z', CacheFlags::RED_ZONE),
    ('P', CacheFlags::POISON),
    ('U', CacheFlags::STORE_USER),
    ('T', CacheFlags::TRACE),
    ('A', CacheFlags::FAILSLAB),
];

/// What an empty list of letters means: F, Z, P and U.
#[doc(alias = "DEBUG_DEFAULT_FLAGS")]
pub const DEFAULT: CacheFlags =
    CacheFlags::CONSISTENCY.with(CacheFlags::RED_ZONE).with(CacheFlags::POISON).with(CacheFlags::STORE_USER);

/// The flag of a letter of the grammar, in either case.
pub fn flag_of_letter(letter: char) -> Option<CacheFlags> {
    let upper = letter.to_ascii_uppercase();
    LETTERS.iter().find(|entry| entry.0 == upper).map(|entry| entry.1)
}

/// Prints the letters of the debug flags that are set, `-` for none.
///
/// ```
/// use fastpath_slub::{CacheFlags, debug::Letters};
/// assert_eq!(format!("{}", Letters(CacheFlags::POISON.with(CacheFlags::CONSISTENCY))), "FP");
/// assert_eq!(format!("{}", Letters(CacheFlags::NONE)), "-");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Letters(pub CacheFlags);

impl fmt::Display for Letters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut set = LETTERS.iter().filter(|entry| self.0.contains(entry.1)).peekable();
        if set.peek().is_none() {
            return f.write_str("-");
        }
        set.try_for_each(|entry| fmt::Write::write_char(f, entry.0))
    }
}

/// A parsed `slab_debug` setting. Borrows the text, so that it needs no memory.
///
/// ```
/// use fastpath_slub::{CacheFlags, debug::SlabDebug};
///
/// let setting = SlabDebug::parse("FZ;-,zs_handle", |letter| panic!("unknown letter {letter}"));
/// let checked = CacheFlags::CONSISTENCY.with(CacheFlags::RED_ZONE);
/// assert_eq!(setting.flags_for("dentry", CacheFlags::NONE, false), checked);
/// assert_eq!(setting.flags_for("zs_handle", CacheFlags::NONE, false), CacheFlags::NONE);
/// ```
#[doc(alias = "slub_debug")]
#[derive(Clone, Copy, Debug)]
pub struct SlabDebug<'a> {
    text: &'a str,
    global: Option<CacheFlags>,
    keep_order: bool,
}

impl<'a> SlabDebug<'a> {
    /// Nothing is debugged.
    pub const OFF: Self = Self { text: "-", global: None, keep_order: false };

    /// Parses `text`. `unknown` is told each letter that means nothing; such a letter is then ignored.
    pub fn parse(text: &'a str, mut unknown: impl FnMut(char)) -> Self {
        let mut setting = Self { text, global: None, keep_order: false };
        for block in Block::all(text) {
            let (flags, keep_order) = block.flags(&mut unknown);
            if block.names.is_none() {
                setting.global = Some(flags);
            }
            setting.keep_order |= keep_order;
        }
        setting
    }

    /// The debug flags of the cache `name` that asks for `own` by itself.
    ///
    /// `no_leak_trace`: the cache serves the tracking of others, so that a global `U` does not apply to it.
    #[doc(alias = "kmem_cache_flags")]
    pub fn flags_for(&self, name: &str, own: CacheFlags, no_leak_trace: bool) -> CacheFlags {
        for block in Block::all(self.text) {
            if block.matches(name) {
                return own.with(block.flags(&mut |_| ()).0);
            }
        }
        let global = self.global.unwrap_or(CacheFlags::NONE);
        own.with(if no_leak_trace { global.without(CacheFlags::STORE_USER) } else { global })
    }

    /// All flags of a cache made for `spec` under this setting: none are added to one that forbids it
    /// ([`CacheFlags::NO_USER_FLAGS`]), nor, with `O`, to one whose slabs would need a higher order for them.
    ///
    /// ```
    /// use fastpath_slub::{CacheFlags, CacheSpec, Sizing, debug::SlabDebug};
    /// let (setting, sizing) = (SlabDebug::parse("ZO", |_| ()), Sizing::kernel(4));
    /// let flags = |spec| setting.applied(&spec, &sizing);
    /// assert_eq!(flags(CacheSpec::new("small", 64)), CacheFlags::RED_ZONE);
    /// assert_eq!(flags(CacheSpec::new("page", 4096)), CacheFlags::NONE, "two pages instead of one");
    /// let own = CacheFlags::NO_USER_FLAGS;
    /// assert_eq!(flags(CacheSpec::new("own", 64).flags(own)), own);
    /// ```
    pub fn applied(&self, spec: &CacheSpec, sizing: &Sizing) -> CacheFlags {
        let own = spec.flags;
        if own.contains(CacheFlags::NO_USER_FLAGS) {
            return own;
        }
        let flags = self.flags_for(spec.name, own, own.contains(CacheFlags::NO_LEAK_TRACE));
        let order = |flags| Layout::of(&spec.flags(flags), sizing, 20).map(|layout| layout.min_order);
        if self.keep_order && order(flags) > order(own) { own } else { flags }
    }

    /// `O`: caches whose slabs would need a higher order for the metadata go without it.
    #[doc(alias = "disable_higher_order_debug")]
    pub fn keeps_order(&self) -> bool {
        self.keep_order
    }
}

/// One block of the setting.
struct Block<'a> {
    letters: &'a str,
    names: Option<&'a str>,
}

impl<'a> Block<'a> {
    fn all(text: &'a str) -> impl Iterator<Item = Self> {
        text.split(';').enumerate().filter_map(move |(number, block)| {
            // An empty setting is a block ("debug everything"); an empty piece between or after separators is none.
            if block.is_empty() && (number > 0 || text.contains(';')) {
                return None;
            }
            let (letters, names) = match block.split_once(',') {
                Some((letters, names)) => (letters, Some(names)),
                None => (block, None),
            };
            Some(Self { letters, names })
        })
    }

    fn flags(&self, unknown: &mut dyn FnMut(char)) -> (CacheFlags, bool) {
        if self.letters.is_empty() {
            return (DEFAULT, false);
        }
        let mut flags = CacheFlags::NONE;
        let mut keep_order = false;
        for letter in self.letters.chars() {
            match (letter, flag_of_letter(letter)) {
                (_, Some(flag)) => flags = flags.with(flag),
                ('-', _) => flags = CacheFlags::NONE,
                ('o' | 'O', _) => keep_order = true,
                (other, _) => unknown(other),
            }
        }
        (flags, keep_order)
    }

    fn matches(&self, name: &str) -> bool {
        self.names.is_some_and(|names| {
            names.split(',').filter(|pattern| !pattern.is_empty()).any(|pattern| {
                match pattern.strip_suffix('*') {
                    Some(start) => name.starts_with(start),
                    None => name == pattern,
                }
            })
        })
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::string::ToString;
    use std::vec::Vec;

    fn letters(flags: CacheFlags) -> std::string::String {
        Letters(flags).to_string()
    }

    fn flags(text: &str, name: &str) -> std::string::String {
        letters(SlabDebug::parse(text, |letter| panic!("{letter} is unknown")).flags_for(
            name,
            CacheFlags::NONE,
            false,
        ))
    }

    #[test]
    fn the_grammar_is_the_kernels() {
        assert_eq!(flags("", "anything"), "FZPU");
        assert_eq!(flags("fz", "anything"), "FZ");
        assert_eq!(flags("P,kmalloc-*,dentry", "kmalloc-64"), "P");
        assert_eq!(flags("P,kmalloc-*,dentry", "dentry"), "P");
        assert_eq!(flags("P,kmalloc-*,dentry", "inode"), "-");
        assert_eq!(flags("P,kmalloc-*,dentry", "dentry2"), "-");
        assert_eq!(flags("FZ;-,zs_handle", "zs_handle"), "-");
        assert_eq!(flags("FZ;-,zs_handle", "dentry"), "FZ");
        assert_eq!(flags(",dentry", "dentry"), "FZPU");
        assert_eq!(flags(",dentry", "inode"), "-");
        assert_eq!(flags("F;Z", "anything"), "Z", "the second global block wins");
        assert_eq!(flags("F,a;Z,a", "a"), "F", "the first list that names a cache wins");
        assert_eq!(flags("P;F,a", "b"), "P", "a list leaves the global setting alone");

        let mut unknown = Vec::new();
        let setting = SlabDebug::parse("FQ", |letter| unknown.push(letter));
        assert_eq!(letters(setting.flags_for("a", CacheFlags::NONE, false)), "F");
        assert_eq!(unknown, ['Q']);
        fastpath_testkit::case("K41", "core");
    }

    #[test]
    fn separators_alone_are_no_blocks() {
        assert_eq!(flags("F;", "a"), "F");
        assert_eq!(flags("F,a;;", "b"), "-");
    }

    #[test]
    fn a_caches_own_flags_stay_and_the_tracker_is_not_tracked() {
        let setting = SlabDebug::parse("", |_| ());
        assert_eq!(letters(setting.flags_for("stack", CacheFlags::TRACE, true)), "FZPT");
        assert!(SlabDebug::parse("FO", |_| ()).keeps_order());
        assert!(!setting.keeps_order());
        assert_eq!(SlabDebug::OFF.flags_for("a", CacheFlags::NONE, false), CacheFlags::NONE);
    }
}
