// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The figures that argued for the kernel's fast paths when they went in, shipped as data (`data/*.json`) and shown
//! beside ours for reference. Other machines, other decades: their shape is comparable, their cycles are not.

use serde::Deserialize;

use super::report::{Better, Cell, Column, Family, Row, Scale, Table, Unit};
use crate::failure::Failure;

/// slab_test on five machines.
#[derive(Debug, Deserialize)]
pub(crate) struct SlabTest {
    /// Bytes, one per figure of a column's lists.
    pub(crate) sizes: Vec<usize>,
    /// One kernel on one machine each.
    pub(crate) columns: Vec<SlabColumn>,
    /// The loop over one object.
    #[serde(rename = "loop")]
    pub(crate) pair_loop: PairLoop,
}

/// One kernel on one machine: cycles per operation, by size.
#[derive(Debug, Deserialize)]
pub(crate) struct SlabColumn {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) machine: String,
    pub(crate) source: String,
    pub(crate) method: String,
    pub(crate) alloc: Vec<f64>,
    pub(crate) free: Vec<f64>,
    pub(crate) pair: Vec<f64>,
}

/// Allocation and free of one object over and over, in nanoseconds per pair.
#[derive(Debug, Deserialize)]
pub(crate) struct PairLoop {
    pub(crate) before: f64,
    pub(crate) after: f64,
}

/// The lock/unlock loop.
#[derive(Debug, Deserialize)]
pub(crate) struct LockLoop {
    pub(crate) source: String,
    pub(crate) rows: Vec<LockRow>,
}

/// One machine with one compare-and-exchange: the loop with and without the fast path.
#[derive(Debug, Deserialize)]
pub(crate) struct LockRow {
    pub(crate) machine: String,
    pub(crate) label: String,
    pub(crate) cmpxchg: String,
    #[cfg_attr(not(test), expect(dead_code, reason = "lets the tests check the nanoseconds"))]
    pub(crate) slow_us: f64,
    pub(crate) slow_ns: f64,
    #[cfg_attr(not(test), expect(dead_code, reason = "lets the tests check the nanoseconds"))]
    pub(crate) fast_us: f64,
    pub(crate) fast_ns: f64,
}

/// The gain of open-read-close.
#[derive(Debug, Deserialize)]
pub(crate) struct OpenClose {
    pub(crate) source: String,
    pub(crate) machine: String,
    pub(crate) rows: Vec<OpenCloseRow>,
}

/// At one number of threads.
#[derive(Debug, Deserialize)]
pub(crate) struct OpenCloseRow {
    pub(crate) threads: usize,
    /// Per cent; none where the source says there was no notable difference.
    pub(crate) gain: Option<f64>,
}

/// slab_test's figures.
///
/// # Errors
/// Never for the shipped file; the type keeps its readers free of panics.
pub(crate) fn slab_test() -> Result<SlabTest, Failure> {
    parse("slab_test", include_str!("../../data/slab_test.json"))
}

/// The lock loop's figures.
///
/// # Errors
/// As [`slab_test`].
pub(crate) fn lock_loop() -> Result<LockLoop, Failure> {
    parse("lock_loop", include_str!("../../data/lock_loop.json"))
}

/// open-read-close's figures.
///
/// # Errors
/// As [`slab_test`].
pub(crate) fn open_close() -> Result<OpenClose, Failure> {
    parse("open_close", include_str!("../../data/open_close.json"))
}

fn parse<T: serde::de::DeserializeOwned>(name: &str, text: &str) -> Result<T, Failure> {
    serde_json::from_str(text).map_err(|error| Failure::operation(format!("data/{name}.json"), error))
}

/// The seeds' tables in the shape of a family, for the page and `bench show`.
///
/// # Errors
/// As [`slab_test`].
pub(crate) fn family() -> Result<Family, Failure> {
    let slab = slab_test()?;
    let sizes: Vec<Row> = slab.sizes.iter().map(|size| Row::number(*size)).collect();
    let slab_table = |name: &str, title: &str, pick: fn(&SlabColumn) -> &Vec<f64>| Table {
        name: name.to_owned(),
        title: title.to_owned(),
        unit: Unit::Cycles,
        better: Better::Lower,
        axis: "size".to_owned(),
        scale: Scale::Log,
        baseline: None,
        rows: sizes.clone(),
        columns: slab
            .columns
            .iter()
            .map(|column| reference(&column.name, &column.title, &column.origin()))
            .collect(),
        cells: slab
            .columns
            .iter()
            .flat_map(|column| {
                sizes
                    .iter()
                    .zip(pick(column))
                    .map(|(row, value)| Cell::of_one(&row.name, &column.name, *value))
            })
            .collect(),
    };
    let lock = lock_loop()?;
    let lock_rows: Vec<String> =
        lock.rows.iter().map(|row| format!("{}, {}", row.machine, row.cmpxchg)).collect();
    let lock_table = Table {
        name: "lock-loop".to_owned(),
        title: "rt_spin_lock and rt_spin_unlock, a pair".to_owned(),
        unit: Unit::Nanoseconds,
        better: Better::Lower,
        axis: "machine, cmpxchg".to_owned(),
        scale: Scale::Category,
        baseline: None,
        rows: lock_rows.iter().map(|name| Row::named(name)).collect(),
        columns: vec![
            reference("slow", "slow path always", &lock.source),
            reference("fast", "cmpxchg fast path", &lock.source),
        ],
        cells: lock_rows
            .iter()
            .zip(&lock.rows)
            .flat_map(|(name, row)| {
                [Cell::of_one(name, "slow", row.slow_ns), Cell::of_one(name, "fast", row.fast_ns)]
            })
            .collect(),
    };
    let open = open_close()?;
    let open_table = Table {
        name: "open-close".to_owned(),
        title: "open-read-close, gain from reference counts on atomic_fetch operations".to_owned(),
        unit: Unit::Percent,
        better: Better::Higher,
        axis: "threads".to_owned(),
        scale: Scale::Linear,
        baseline: None,
        rows: open.rows.iter().map(|row| Row::number(row.threads)).collect(),
        columns: vec![reference("gain", &open.machine, &open.source)],
        cells: open
            .rows
            .iter()
            .filter_map(|row| Some(Cell::of_one(&row.threads.to_string(), "gain", row.gain?)))
            .collect(),
    };
    Ok(Family {
        name: "seeds".to_owned(),
        title: "the figures these fast paths were introduced with, on other machines".to_owned(),
        seconds: 0.0,
        tables: vec![
            slab_table("test1-alloc", "slab_test 1: allocate 10000 objects", |column| &column.alloc),
            slab_table("test1-free", "slab_test 1: then free them", |column| &column.free),
            slab_table("test2", "slab_test 2: allocate and free at once", |column| &column.pair),
            lock_table,
            open_table,
        ],
        targets: Vec::new(),
        notes: differences(&slab, &lock),
    })
}

/// Where the words that came with the figures and the figures themselves differ. Computed from the data.
pub(crate) fn differences(slab: &SlabTest, lock: &LockLoop) -> Vec<String> {
    let mut notes = Vec::new();
    let of = |name: &str| slab.columns.iter().find(|column| column.name == name);
    if let (Some(base), Some(local)) = (of("amd64-base"), of("amd64-local")) {
        notes.push(format!(
            "The 2008 text says that on AMD64 kfree also became about 10 cycles faster. Its figures say the opposite \
             at every size up to 4096: {} cycles before and {} after at 8 bytes. kmalloc did gain: {} before, {} after.",
            base.free[0], local.free[0], base.alloc[0], local.alloc[0]
        ));
    }
    if let (Some(first), Some(base), Some(local)) = (of("p4-head-1"), of("p4-head-2"), of("p4-local")) {
        notes.push(format!(
            "On the Pentium 4 kfree became slower too ({} to {} cycles at 8 bytes), and the 66 % of the text is the \
             pair of test 2 up to 2048 bytes ({} to {}); from 4096 bytes on, where the page allocator answers, nothing \
             changed ({} and {} before, {} after).",
            base.free[0], local.free[0], first.pair[0], local.pair[0], first.pair[9], base.pair[9], local.pair[9]
        ));
    }
    if let (Some(before), Some(after)) = (of("2015-before"), of("2015-after")) {
        notes.push(format!(
            "The 2015 text says most results became better. One became worse, the pair of 256 bytes ({} to {}), and \
             16384 bytes stayed ({} and {}). Its 5 % is the loop over one object: {} ns before, {} after. The CPU is \
             not named.",
            before.pair[5], after.pair[5], before.pair[11], after.pair[11], slab.pair_loop.before, slab.pair_loop.after
        ));
    }
    let row = |label: &str| lock.rows.iter().find(|row| row.label == label);
    if let (Some(native), Some(generic)) = (row("ARMv6"), row("generic")) {
        notes.push(format!(
            "Where the CPU has a compare-and-exchange, the generic one with interrupts disabled makes the lock's fast \
             path worse than no fast path: on the am335x {} ns a pair against {} ns through the slow path, +{} ns ({} ns \
             native). The text labels that machine ARMv6; the am335x is an ARMv7 core (Cortex-A8).",
            generic.fast_ns,
            generic.slow_ns,
            generic.fast_ns - generic.slow_ns,
            native.fast_ns
        ));
    }
    notes
}

impl SlabColumn {
    /// Machine and source, as a column's reference.
    pub(crate) fn origin(&self) -> String {
        format!("{} ({}): {}", self.machine, self.method, self.source)
    }
}

fn reference(name: &str, title: &str, source: &str) -> Column {
    Column { name: name.to_owned(), title: title.to_owned(), reference: Some(source.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::{family, lock_loop, open_close, slab_test};

    #[test]
    fn the_columns_have_the_sums_of_their_sources() {
        let expected = [
            ("p4-head-1", 5183.0, 6750.0, 5761.0),
            ("p4-head-2", 5193.0, 6751.0, 5669.0),
            ("p4-local", 4324.0, 6823.0, 3828.0),
            ("amd64-base", 3198.0, 4068.0, 3003.0),
            ("amd64-local", 3062.0, 3955.0, 2587.0),
            ("athlon64-base", 3133.0, 2888.0, 2492.0),
            ("athlon64-local", 2907.0, 2940.0, 2104.0),
            ("2015-before", 1423.0, 1498.0, 1291.0),
            ("2015-after", 1379.0, 1466.0, 1260.0),
        ];
        let data = slab_test().unwrap();
        assert_eq!(data.sizes, (3..15).map(|bit| 1 << bit).collect::<Vec<usize>>());
        let sum = |figures: &[f64]| {
            assert_eq!(figures.len(), data.sizes.len());
            figures.iter().sum::<f64>()
        };
        let sums: Vec<_> = data
            .columns
            .iter()
            .map(|column| (column.name.as_str(), sum(&column.alloc), sum(&column.free), sum(&column.pair)))
            .collect();
        assert_eq!(sums, expected);
        assert_eq!((data.pair_loop.before, data.pair_loop.after), (14.821, 14.049));
    }

    #[test]
    fn a_loop_is_its_total_over_its_pairs() {
        for row in lock_loop().unwrap().rows {
            for (total, pair) in [(row.slow_us, row.slow_ns), (row.fast_us, row.fast_ns)] {
                assert!(
                    (total / 100_000.0 * 1000.0 - pair).abs() < 1.0,
                    "{}: {total} us is {pair} ns a pair",
                    row.machine
                );
            }
        }
        let gains: Vec<_> = open_close().unwrap().rows.iter().map(|row| (row.threads, row.gain)).collect();
        assert_eq!(gains, [(24, None), (48, Some(5.9)), (96, Some(8.4))]);
    }

    #[test]
    fn words_and_figures_are_compared_from_the_data() {
        let notes = family().unwrap().notes.join("\n");
        for fact in [
            "113 cycles before and 126 after",
            "351 to 363",
            "322 to 112",
            "68 to 71",
            "+14 ns",
            "108 ns a pair against 94",
        ] {
            assert!(notes.contains(fact), "{fact} in {notes}");
        }
    }

    /// The claim in the notes that the free half got slower at every size up to 4096.
    #[test]
    fn kfree_got_slower_on_amd64_up_to_4096() {
        let data = slab_test().unwrap();
        let column = |name: &str| &data.columns.iter().find(|column| column.name == name).unwrap().free;
        let slower: Vec<bool> = column("amd64-base")
            .iter()
            .zip(column("amd64-local"))
            .map(|(base, local)| local > base)
            .collect();
        assert_eq!(slower.iter().position(|slower| !slower), Some(10), "{slower:?}");
    }
}
