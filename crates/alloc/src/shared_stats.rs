// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The statistics file that a process tree shares: its layout, and a reader without `unsafe`.
//!
//! Whoever wants statistics of programs it starts writes [`new_file`] to a file (or a memfd) and passes its path in the
//! environment as `FASTPATH_STATS_FILE`. Every process that the library serves maps the file and takes the next entry:
//! after `exec`, and after `fork` in the child, a new one. Counters are updated in place as things happen, so they
//! survive `_exit` and signals. [`entries`] reads the file's bytes, at any time.
//!
//! The layout, in little-endian 64-bit words: a header of 32 words (the magic, the entry size in bytes, the number of
//! entries there is room for, the number of entries asked for so far), then entries of 32 words.

/// First word of the file: `FPSTATS1`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"FPSTATS1");
/// Words of the header, and of an entry.
pub const WORDS: usize = 32;
/// Name of the environment variable with the file's path.
pub const VARIABLE: &str = "FASTPATH_STATS_FILE";

/// Words of the header.
pub(crate) mod header {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const ENTRY_BYTES: usize = 1;
    pub(crate) const CAPACITY: usize = 2;
    pub(crate) const CLAIMED: usize = 3;
}

/// Words of an entry.
pub(crate) mod word {
    pub(crate) const PID: usize = 0;
    pub(crate) const FRONT: usize = 1;
    pub(crate) const NAME: usize = 2;
    pub(crate) const REFILLS: usize = 4;
    pub(crate) const REFILLED: usize = 5;
    pub(crate) const FLUSHES: usize = 6;
    pub(crate) const FLUSHED: usize = 7;
    pub(crate) const DIRECT_ALLOCS: usize = 8;
    pub(crate) const DIRECT_FREES: usize = 9;
    pub(crate) const BIG_ALLOCS: usize = 10;
    pub(crate) const BIG_FREES: usize = 11;
    pub(crate) const EXACT_ALLOCS: usize = 12;
    pub(crate) const EXACT_FREES: usize = 13;
    pub(crate) const USED: usize = 14;
    pub(crate) const PEAK: usize = 15;
    pub(crate) const RESERVED: usize = 16;
    pub(crate) const PURGED: usize = 17;
    pub(crate) const REENTERED: usize = 18;
    pub(crate) const PARENT: usize = 19;
}

/// The front end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// Per-CPU sheaves on restartable sequences.
    SheafRseq,
    /// Per-CPU sheaves, each CPU's under a lock.
    SheafTryLock,
    /// No sheaves.
    Direct,
    /// A list and a transaction id per CPU.
    Tid,
    /// An entry that its process has not filled in yet, or one of a newer version.
    Unknown,
}

/// What one process did. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The process.
    pub pid: u32,
    /// Its parent when it attached.
    pub parent: u32,
    /// The front end that served it.
    pub front: Front,
    name: [u8; 16],
    /// Sheaves that went to a CPU.
    pub refills: u64,
    /// Objects in them.
    pub refilled: u64,
    /// Full sheaves that came back from a CPU.
    pub flushes: u64,
    /// Objects in them.
    pub flushed: u64,
    /// Small objects allocated without a sheaf.
    pub direct_allocs: u64,
    /// Small objects freed without a sheaf.
    pub direct_frees: u64,
    /// Blocks above the largest size class that were allocated.
    pub big_allocs: u64,
    /// Such blocks that were freed.
    pub big_frees: u64,
    /// All allocations, counted one by one; 0 unless `FASTPATH_STATS=exact`.
    pub exact_allocs: u64,
    /// All frees, counted one by one; 0 unless `FASTPATH_STATS=exact`.
    pub exact_frees: u64,
    /// Memory in slabs and big blocks, at the last change.
    pub used: u64,
    /// The most it ever was.
    pub peak: u64,
    /// Address space reserved for slabs and page runs.
    pub reserved: u64,
    /// Memory given back to the system while the process ran.
    pub purged: u64,
    /// How often a signal handler interrupted the allocator itself.
    pub reentered: u64,
}

impl Entry {
    /// The program's short name.
    pub fn name(&self) -> &str {
        let end = self.name.iter().position(|&byte| byte == 0 || byte == b'\n').unwrap_or(self.name.len());
        core::str::from_utf8(&self.name[..end]).unwrap_or("?")
    }

    /// Allocations that were certainly served. The fast path counts nothing: an object that a CPU allocates and frees
    /// over and over counts once.
    pub fn allocations_at_least(&self) -> u64 {
        self.exact_allocs.max(self.refilled + self.direct_allocs + self.big_allocs)
    }
}

/// Writes the start of a file for `capacity` processes (the header) and returns the length the file must have.
///
/// ```
/// let (header, length) = fastpath_alloc::shared_stats::new_file(100);
/// let mut file = header.to_vec();
/// file.resize(length, 0);
/// assert_eq!(fastpath_alloc::shared_stats::entries(&file).unwrap().count(), 0);
/// ```
pub fn new_file(capacity: u32) -> ([u8; WORDS * 8], usize) {
    let mut bytes = [0; WORDS * 8];
    for (at, value) in [
        (header::MAGIC, MAGIC),
        (header::ENTRY_BYTES, (WORDS * 8) as u64),
        (header::CAPACITY, u64::from(capacity)),
    ] {
        bytes[at * 8..][..8].copy_from_slice(&value.to_le_bytes());
    }
    (bytes, (capacity as usize + 1) * WORDS * 8)
}

fn read(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at * 8..at * 8 + 8).map_or(0, |word| {
        let mut value = [0; 8];
        value.copy_from_slice(word);
        u64::from_le_bytes(value)
    })
}

/// The number of processes that found no room in the file.
pub fn left_out(file: &[u8]) -> u64 {
    read(file, header::CLAIMED).saturating_sub(read(file, header::CAPACITY))
}

/// The entries of a statistics file; `None` if it is not one.
pub fn entries(file: &[u8]) -> Option<impl Iterator<Item = Entry> + '_> {
    if read(file, header::MAGIC) != MAGIC || read(file, header::ENTRY_BYTES) != (WORDS * 8) as u64 {
        return None;
    }
    let count = read(file, header::CLAIMED).min(read(file, header::CAPACITY)) as usize;
    Some(file.chunks_exact(WORDS * 8).skip(1).take(count).map(|bytes| {
        let mut name = [0; 16];
        name.copy_from_slice(&bytes[word::NAME * 8..][..16]);
        Entry {
            pid: read(bytes, word::PID) as u32,
            parent: read(bytes, word::PARENT) as u32,
            front: match read(bytes, word::FRONT) {
                1 => Front::SheafRseq,
                2 => Front::SheafTryLock,
                3 => Front::Direct,
                4 => Front::Tid,
                _ => Front::Unknown,
            },
            name,
            refills: read(bytes, word::REFILLS),
            refilled: read(bytes, word::REFILLED),
            flushes: read(bytes, word::FLUSHES),
            flushed: read(bytes, word::FLUSHED),
            direct_allocs: read(bytes, word::DIRECT_ALLOCS),
            direct_frees: read(bytes, word::DIRECT_FREES),
            big_allocs: read(bytes, word::BIG_ALLOCS),
            big_frees: read(bytes, word::BIG_FREES),
            exact_allocs: read(bytes, word::EXACT_ALLOCS),
            exact_frees: read(bytes, word::EXACT_FREES),
            used: read(bytes, word::USED),
            peak: read(bytes, word::PEAK),
            reserved: read(bytes, word::RESERVED),
            purged: read(bytes, word::PURGED),
            reentered: read(bytes, word::REENTERED),
        }
    }))
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn anything_else_is_not_a_statistics_file() {
        assert!(entries(b"").is_none());
        assert!(entries(&[0; 1024]).is_none());
    }

    #[test]
    fn an_entry_is_read_back_and_a_short_file_is_no_trouble() {
        let (header, length) = new_file(2);
        let mut file = header.to_vec();
        file.resize(length, 0);
        file[header::CLAIMED * 8] = 3;
        let first = WORDS * 8;
        file[first] = 42;
        file[first + word::FRONT * 8] = 1;
        file[first + word::NAME * 8..][..3].copy_from_slice(b"cat");
        file[first + word::REFILLED * 8] = 63;
        let found: std::vec::Vec<_> = entries(&file).unwrap().collect();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].pid, found[0].name(), found[0].allocations_at_least()), (42, "cat", 63));
        assert_eq!(found[0].front, Front::SheafRseq);
        assert_eq!(left_out(&file), 1);
        file.truncate(first + 10);
        assert_eq!(entries(&file).unwrap().count(), 0);
    }
}
