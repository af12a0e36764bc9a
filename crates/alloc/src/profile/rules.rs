// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! How to step to the caller, by return address: what the tables of the modules said when they were last asked.
//!
//! A direct-mapped table: the first word of an entry is the key, exclusive-or all others, which hold the rule. A reader that
//! meets a writer finds a key that is not its own, and asks the tables again; so nobody waits, and nothing is locked. The key
//! holds, besides the address, what tells a module from one that was loaded in its place later.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};

use super::unwind::Found;
use crate::arch::SAVED;
use crate::os;

/// Words of a rule, four numbers each: the register and the offset of the caller's frame, and where each register lies.
const WORDS: usize = (SAVED.len() + 2).div_ceil(4);

/// Where the caller's frame starts, and which of its registers lie where, from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) register: usize,
    pub(super) offset: isize,
    pub(super) saved: [(usize, Option<isize>); SAVED.len()],
}

impl Rule {
    pub(super) fn new(register: usize, offset: isize) -> Self {
        Self { register, offset, saved: SAVED.map(|number| (number, None)) }
    }

    /// Where to note the place of a register; `None`: no rule tells of it.
    pub(super) fn place(&mut self, number: usize) -> Option<&mut Option<isize>> {
        self.saved.iter_mut().find(|saved| saved.0 == number).map(|saved| &mut saved.1)
    }

    /// As words of four numbers of 16 bits each. Offsets count in eights of bytes; 0 is no place of a register, as the
    /// caller's frame starts there.
    fn words(&self) -> Option<[u64; WORDS]> {
        let eights = |bytes: isize| if bytes % 8 == 0 { i16::try_from(bytes / 8).ok() } else { None };
        let mut words = [0; WORDS];
        let mut put = |at: usize, part: i16| words[at / 4] |= u64::from(part as u16) << (at % 4 * 16);
        put(0, i16::try_from(self.register).ok()?);
        put(1, eights(self.offset)?);
        for (at, saved) in self.saved.iter().enumerate() {
            if let Some(place) = saved.1 {
                put(at + 2, eights(place).filter(|&place| place != 0)?);
            }
        }
        Some(words)
    }

    fn from_words(words: [u64; WORDS]) -> Self {
        let part = |at: usize| isize::from((words[at / 4] >> (at % 4 * 16)) as i16);
        let mut rule = Self::new(part(0) as usize, part(1) * 8);
        for (at, saved) in rule.saved.iter_mut().enumerate() {
            saved.1 = Some(part(at + 2) * 8).filter(|&at| at != 0);
        }
        rule
    }
}

#[repr(C, align(32))]
struct Entry([AtomicU64; WORDS + 1]);

const ENTRIES: usize = 1 << 12;
static TABLE: AtomicPtr<Entry> = AtomicPtr::new(core::ptr::null_mut());

/// Maps the table; without one, the modules are asked each time.
pub(super) fn set_up() {
    if let Some(memory) = os::map_memory(ENTRIES * size_of::<Entry>()) {
        // ORDERING: Relaxed: the heap's set-up publishes it before anything is sampled.
        TABLE.store(memory as *mut Entry, Relaxed);
    }
}

fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn entry(module: &Found, address: usize) -> Option<(&'static Entry, u64)> {
    let table = TABLE.load(Relaxed);
    if table.is_null() {
        return None;
    }
    // The start of the module's search table: where its frames are described, how many there are, and the first two.
    // SAFETY: the module is loaded, and this section of its has at least the header, four bytes for each of two numbers, and
    // an entry of eight bytes for the code at `address`.
    let start = unsafe { (module.eh_frame_hdr as *const [u32; 4]).read_unaligned() };
    let mut key = mix(address as u64, module.link_map as u64);
    for word in [module.eh_frame_hdr as u64, u64::from(start[0]) << 32 | u64::from(start[1])] {
        key = mix(key, word);
    }
    key = mix(key, u64::from(start[2]) << 32 | u64::from(start[3]));
    // SAFETY: the table has that many entries, zeroed at first, for ever.
    Some((unsafe { &*table.add((key >> 52) as usize % ENTRIES) }, key))
}

/// What was kept for a return address in a module.
#[inline]
pub(super) fn known(module: &Found, address: usize) -> Option<Rule> {
    let (entry, key) = entry(module, address)?;
    // ORDERING: Relaxed: the key tells whether the words belong together.
    let words: [u64; WORDS] = core::array::from_fn(|at| entry.0[at + 1].load(Relaxed));
    let found = words.iter().fold(entry.0[0].load(Relaxed), |key, word| key ^ word);
    (found == key).then(|| Rule::from_words(words))
}

/// Keeps a rule, if it fits.
pub(super) fn keep(module: &Found, address: usize, rule: Rule) {
    if let (Some((entry, key)), Some(words)) = (entry(module, address), rule.words()) {
        // ORDERING: Relaxed: see `known`.
        entry.0[0].store(words.iter().fold(key, |key, word| key ^ word), Relaxed);
        for (kept, word) in entry.0[1..].iter().zip(words) {
            kept.store(word, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::{FRAME_POINTER, RETURN, STACK_POINTER};

    #[test]
    fn rules_are_kept_as_they_are_or_not_at_all() {
        let mut rule = Rule::new(STACK_POINTER, 208);
        *rule.place(RETURN).unwrap() = Some(-8);
        *rule.place(SAVED[1]).unwrap() = Some(-56);
        *rule.place(SAVED[SAVED.len() - 1]).unwrap() = Some(-16);
        assert_eq!(rule.place(5), None);
        assert_eq!(Rule::from_words(rule.words().unwrap()), rule);
        for (offset, at) in [(1 << 20, -8), (12, -8), (16, 0), (16, -4), (16, -(1 << 20))] {
            let mut rule = Rule::new(STACK_POINTER, offset);
            *rule.place(FRAME_POINTER).unwrap() = Some(at);
            assert_eq!(rule.words(), None);
        }
    }

    #[test]
    fn what_is_kept_is_found_by_the_same_module_and_address_only() {
        set_up();
        // Two headers stand for two modules.
        let headers = [[1u32, 2, 3, 4], [1, 2, 4, 4]];
        let modules = headers
            .each_ref()
            .map(|header| Found { eh_frame_hdr: core::ptr::from_ref(header).addr(), ..Found::default() });
        let rule = Rule::new(FRAME_POINTER, 16);
        assert_eq!(known(&modules[0], 4096), None);
        keep(&modules[0], 4096, rule);
        assert_eq!(known(&modules[0], 4096), Some(rule));
        assert_eq!(known(&modules[0], 4097), None);
        assert_eq!(known(&modules[1], 4096), None);
        // Half of an entry is none.
        let entry = entry(&modules[0], 4096).unwrap().0;
        entry.0[2].store(5, Relaxed);
        assert_eq!(known(&modules[0], 4096), None);
    }
}
