// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The statistics as text, in the caller's buffer: OpenMetrics for scrapers, and JSON. Nothing here allocates.

use core::fmt::{self, Write};

use crate::stats::FIGURES;
use crate::{Stats, heap, limit};

/// Cuts off what does not fit and counts all of it.
struct Out<'a> {
    buffer: &'a mut [u8],
    length: usize,
}

impl Write for Out<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if let Some(room) = self.buffer.get_mut(self.length..) {
            let count = room.len().min(text.len());
            room[..count].copy_from_slice(&text.as_bytes()[..count]);
        }
        self.length += text.len();
        Ok(())
    }
}

/// What the figures are called, in the order of [`Stats`]: name, whether they only grow, what they mean.
const NAMES: [(&str, bool, &str); FIGURES] = [
    ("small_bytes", false, "Small objects that the program has."),
    ("small_objects", false, "The number of small objects that the program has."),
    ("cached_bytes", false, "Small objects that wait in sheaves, on CPUs and in barns."),
    ("slab_bytes", false, "Memory of slabs, whether their objects are in use or not."),
    ("big_bytes", false, "Blocks above the largest size class that the program has."),
    ("mapped_bytes", false, "Of the big blocks, those with a mapping of their own."),
    ("dirty_bytes", false, "Free memory that was not given back to the system yet."),
    ("reserved_bytes", false, "Address space reserved for slabs and page runs."),
    ("purged_bytes", true, "Memory given back to the system."),
    ("record_bytes", false, "The heap's own records."),
    ("refills", true, "Sheaves that went to CPUs."),
    ("refilled", true, "Objects in the sheaves that went to CPUs."),
    ("flushes", true, "Sheaves that came back from CPUs."),
    ("flushed", true, "Objects in the sheaves that came back from CPUs."),
    ("direct_allocs", true, "Small objects allocated without a sheaf."),
    ("direct_frees", true, "Small objects freed without a sheaf."),
    ("big_allocs", true, "Big blocks allocated."),
    ("big_frees", true, "Big blocks freed."),
    ("barn_bytes", false, "Of the cached bytes, those in barns; the rest waits in CPUs' sheaves."),
];

/// Writes the figures as OpenMetrics text (version 1.0.0) into `out` and returns the length of the whole text: more than
/// `out` has room for means that it was cut. Sizes are in bytes; counters end in `_total`; the last line is `# EOF`.
///
/// ```
/// let mut text = [0; 8192];
/// let length = fastpath_alloc::text::open_metrics(&fastpath_alloc::stats(), &mut text);
/// assert!(text[..length].ends_with(b"# EOF\n"));
/// ```
pub fn open_metrics(stats: &Stats, out: &mut [u8]) -> usize {
    let (soft, hard) = limit::limits();
    metrics(stats, heap::front(), [soft, hard].map(|limit| limit.map(|bytes| bytes as u64)), out)
}

/// [`open_metrics`] of another process, from its [statistics page](crate::live).
pub fn open_metrics_of(page: &crate::live::Snapshot, out: &mut [u8]) -> usize {
    metrics(&page.stats, page.front, [page.soft_limit, page.hard_limit], out)
}

fn metrics(stats: &Stats, front: &str, limits: [Option<u64>; 2], out: &mut [u8]) -> usize {
    let mut out = Out { buffer: out, length: 0 };
    // Writing to `Out` cannot fail.
    let _ = write!(
        out,
        "# TYPE fastpath info\n# HELP fastpath The allocator of this process.\nfastpath_info{{version=\"{}\",front=\"{front}\"}} 1\n",
        env!("CARGO_PKG_VERSION")
    );
    for ((name, grows, help), value) in NAMES.iter().zip(stats.figures()) {
        let (kind, suffix) = if *grows { ("counter", "_total") } else { ("gauge", "") };
        let _ = writeln!(out, "# TYPE fastpath_{name} {kind}");
        if name.ends_with("_bytes") {
            let _ = writeln!(out, "# UNIT fastpath_{name} bytes");
        }
        let _ = writeln!(out, "# HELP fastpath_{name} {help}\nfastpath_{name}{suffix} {value}");
    }
    for (name, limit) in ["soft", "hard"].iter().zip(limits) {
        if let Some(bytes) = limit {
            let _ = writeln!(
                out,
                "# TYPE fastpath_{name}_limit_bytes gauge\n# UNIT fastpath_{name}_limit_bytes bytes\n# HELP fastpath_{name}_limit_bytes The {name} limit of the heap.\nfastpath_{name}_limit_bytes {bytes}"
            );
        }
    }
    let _ = out.write_str("# EOF\n");
    out.length
}

/// Writes the figures as one JSON object into `out`, the names being those of [`Stats`], and returns the length of the whole text.
///
/// ```
/// let mut text = [0; 2048];
/// let length = fastpath_alloc::text::json(&fastpath_alloc::stats(), &mut text);
/// assert!(text[..length].starts_with(b"{\"front\":"));
/// ```
pub fn json(stats: &Stats, out: &mut [u8]) -> usize {
    let mut out = Out { buffer: out, length: 0 };
    let _ = write!(out, "{{\"front\":\"{}\"", heap::front());
    for ((name, _, _), value) in NAMES.iter().zip(stats.figures()) {
        let _ = write!(out, ",\"{name}\":{value}");
    }
    let _ = out.write_str("}\n");
    out.length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_buffer_gets_the_start_and_the_length_of_all() {
        let stats = Stats::from_figures(core::array::from_fn(|at| at as u64));
        let (mut long, mut short) = ([0; 2048], [0; 30]);
        let length = json(&stats, &mut long);
        assert!(length < long.len());
        assert_eq!(json(&stats, &mut short), length);
        assert_eq!(short, long[..30]);
        assert_eq!(stats.purged_bytes, 8);
        assert_eq!(stats.figures(), core::array::from_fn(|at| at as u64));
    }
}
