// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What `fastpath top` shows, as text: the head, and the rows.

use fastpath_alloc::live::{Class, Snapshot};

use crate::watched;

/// The column that rows are ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Live,
    Cached,
    Slabs,
    Use,
    Size,
}

impl Order {
    /// The next one, round and round.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Live => Self::Cached,
            Self::Cached => Self::Slabs,
            Self::Slabs => Self::Use,
            Self::Use => Self::Size,
            Self::Size => Self::Live,
        }
    }

    /// Its column's title.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Live => "LIVE",
            Self::Cached => "CACHED",
            Self::Slabs => "SLABS",
            Self::Use => "USE%",
            Self::Size => "SIZE",
        }
    }

    fn key(self, class: &Class) -> u64 {
        match self {
            Self::Live => class.used * class.size,
            Self::Cached => class.cached * class.size,
            Self::Slabs => class.slab_bytes,
            Self::Use => share(class),
            Self::Size => class.size,
        }
    }
}

/// Per cent of the slabs' memory that the program has.
fn share(class: &Class) -> u64 {
    (class.used * class.size * 100).checked_div(class.slab_bytes).unwrap_or(0)
}

pub(super) const COLUMNS: usize = 8;
pub(super) const TITLES: [&str; COLUMNS] =
    ["SIZE", "OBJECTS", "LIVE", "SHEAVES", "BARN", "CACHED", "SLABS", "USE%"];

/// Bytes in the unit that keeps them short.
pub(super) fn short(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["", "K", "M", "G", "T"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes}") } else { format!("{value:.1}{}", UNITS[unit]) }
}

/// The classes in use, as rows of text.
pub(super) fn rows(page: &Snapshot, order: Order, turned: bool) -> Vec<[String; COLUMNS]> {
    let mut classes: Vec<&Class> = page.classes.iter().filter(|class| class.slab_bytes > 0).collect();
    classes.sort_by_key(|class| std::cmp::Reverse((order.key(class), class.size)));
    if turned {
        classes.reverse();
    }
    let row = |class: &&Class| {
        [
            class.size.to_string(),
            class.used.to_string(),
            short(class.used * class.size),
            short(class.cached.saturating_sub(class.barn) * class.size),
            short(class.barn * class.size),
            short(class.cached * class.size),
            short(class.slab_bytes),
            share(class).to_string(),
        ]
    };
    classes.iter().map(row).collect()
}

/// What happened per second between two pages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates {
    pub(super) refills: f64,
    pub(super) flushes: f64,
    pub(super) big: f64,
}

impl Rates {
    /// Between `before` and `now`; nothing if the page did not change.
    pub(super) fn between(before: &Snapshot, now: &Snapshot) -> Self {
        let seconds = now.time.saturating_sub(before.time) as f64 / 1000.0;
        if seconds <= 0.0 {
            return Self::default();
        }
        let rate = |old: u64, new: u64| new.saturating_sub(old) as f64 / seconds;
        Self {
            refills: rate(before.stats.refills, now.stats.refills),
            flushes: rate(before.stats.flushes, now.stats.flushes),
            big: rate(before.stats.big_allocs, now.stats.big_allocs),
        }
    }
}

/// How old a page is, if that is worth saying: the process did nothing since that fills it in.
fn age(page: &Snapshot) -> String {
    match watched::now().saturating_sub(page.time) / 1000 {
        0..3 => String::new(),
        seconds => format!("   {seconds} s ago"),
    }
}

/// The lines above the table.
pub(super) fn head(name: &str, page: &Snapshot, resident: u64, rates: Option<Rates>) -> Vec<String> {
    let stats = &page.stats;
    let live = stats.small_bytes + stats.big_bytes;
    let limit = page.hard_limit.map_or(String::new(), |bytes| format!("   limit {}", short(bytes)));
    let rates = rates.map_or_else(
        || {
            format!(
                "since the start: {} refills, {} flushes, {} big blocks",
                stats.refills, stats.flushes, stats.big_allocs
            )
        },
        |rates| {
            format!(
                "per second: {:.0} refills, {:.0} flushes, {:.0} big blocks",
                rates.refills, rates.flushes, rates.big
            )
        },
    );
    let size = |bytes: usize| short(bytes as u64);
    vec![
        format!(
            "{name} ({})   front {}   resident {}{limit}{}",
            page.pid,
            page.front,
            short(resident),
            age(page)
        ),
        format!(
            "live {} ({} small, {} big, of it {} mapped)   cached {} ({} sheaves, {} barn)   dirty {}",
            size(live),
            size(stats.small_bytes),
            size(stats.big_bytes),
            size(stats.mapped_bytes),
            size(stats.cached_bytes),
            size(stats.cached_bytes.saturating_sub(stats.barn_bytes)),
            size(stats.barn_bytes),
            size(stats.dirty_bytes)
        ),
        format!(
            "slabs {}   reserved {}   records {}   given back {}",
            size(stats.slab_bytes),
            size(stats.reserved_bytes),
            size(stats.record_bytes),
            short(stats.purged_bytes)
        ),
        rates,
    ]
}

/// Everything as one text, for `--once`.
pub(super) fn text(head: &[String], rows: &[[String; COLUMNS]]) -> String {
    use std::fmt::Write as _;
    let mut out = head.join("\n") + "\n\n";
    let titles = TITLES.map(str::to_owned);
    for row in std::iter::once(&titles).chain(rows) {
        for cell in row {
            let _ = write!(out, "{cell:>10}");
        }
        out.push('\n');
    }
    out
}
