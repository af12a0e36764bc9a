// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The attribute files of a cache, by the kernel's names and with its errors (`/sys/kernel/slab/CACHE/NAME`):
//! [`Cache::read_attribute`](crate::Cache::read_attribute), [`Cache::write_attribute`](crate::Cache::write_attribute), and
//! the same of [`TidCache`](crate::TidCache) and [`merge::CacheTable`](crate::merge::CacheTable).
//!
//! | to read | |
//! |---|---|
//! | `slab_size` `object_size` `align` `objs_per_slab` `order` `ctor` `usersize` | the layout |
//! | `objects` `total_objects` `slabs` `partial` `objects_partial` | what is there |
//! | `cpu_slabs` `slabs_cpu_partial` `sheaf_capacity` `aliases` | what CPUs have; creators beyond the first |
//! | `hwcache_align` `reclaim_account` `destroy_by_rcu` `cache_dma` | flags, 0 or 1 |
//! | `sanity_checks` `red_zone` `poison` `store_user` `trace` | debug flags, 0 or 1 |
//! | `alloc_calls` `free_calls` | who allocated the objects in use, who freed the free ones, most first (`U`) |
//!
//! | to read and write | |
//! |---|---|
//! | `min_partial` | empty slabs that a node keeps |
//! | `cpu_partial` | free objects on a CPU's partial list; a sheaf front has none: 0 |
//! | `remote_node_defrag_ratio` | 0 to 100 |
//! | `failslab` | 0 or 1, of a cache without aliases |
//! | `shrink` `validate` | write 1 to do it; empty to read |
//! | the names of [`StatItem`] | counters; write 0 to reset |
//!
//! Numbers are followed by ` Nk=v` for each node with a value, if there is more than one node. Reading formats into the
//! caller's sink; nothing here allocates. What is written may end in a newline.

use crate::debug::{Calls, TrackKind};
use crate::host::Host;
use crate::slabs::Slabs;
use crate::spec::CacheFlags;
use crate::stats::{SlabInfo, StatItem};
use core::fmt;

/// Why an attribute could not be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributeError {
    /// There is no such attribute (`ENOENT`).
    NotFound,
    /// It cannot be written (`EACCES`).
    ReadOnly,
    /// The value makes no sense here (`EINVAL`).
    Invalid,
    /// The number is too large (`ERANGE`).
    Range,
    /// The cache does not keep what would be shown (`ENOSYS`).
    NotKept,
    /// The sink took no more (`EIO`).
    Sink,
}

impl AttributeError {
    /// Linux's number for it.
    ///
    /// ```
    /// assert_eq!(fastpath_slub::attributes::AttributeError::Range.errno(), 34);
    /// ```
    pub const fn errno(self) -> i32 {
        match self {
            Self::NotFound => 2,
            Self::Sink => 5,
            Self::ReadOnly => 13,
            Self::Invalid => 22,
            Self::Range => 34,
            Self::NotKept => 38,
        }
    }
}

impl fmt::Display for AttributeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "no such attribute",
            Self::ReadOnly => "the attribute cannot be written",
            Self::Invalid => "the value makes no sense here",
            Self::Range => "the number is too large",
            Self::NotKept => "the cache does not keep this",
            Self::Sink => "the sink took no more",
        })
    }
}

impl core::error::Error for AttributeError {}

impl From<fmt::Error> for AttributeError {
    fn from(_: fmt::Error) -> Self {
        Self::Sink
    }
}

type Result<T = ()> = core::result::Result<T, AttributeError>;

/// What a front end adds to the slab layer's attributes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FrontFacts {
    /// Slabs that are CPUs' own.
    pub(crate) slabs: usize,
    /// Slabs on CPUs' partial lists.
    pub(crate) partials: usize,
    /// The limit of those lists in objects.
    pub(crate) limit: usize,
}

/// A number as it is written to an attribute.
pub(crate) fn number(value: &str) -> Result<usize> {
    let value = value.strip_suffix('\n').unwrap_or(value);
    value.parse().map_err(|error: core::num::ParseIntError| match error.kind() {
        core::num::IntErrorKind::PosOverflow => AttributeError::Range,
        _ => AttributeError::Invalid,
    })
}

/// The "1" that starts an action.
pub(crate) fn go(value: &str) -> Result {
    if value.starts_with('1') { Ok(()) } else { Err(AttributeError::Invalid) }
}

/// The flag an attribute of 0 or 1 shows.
fn flag(name: &str) -> Option<CacheFlags> {
    Some(match name {
        "hwcache_align" => CacheFlags::HWCACHE_ALIGN,
        "reclaim_account" => CacheFlags::RECLAIM_ACCOUNT,
        "destroy_by_rcu" => CacheFlags::TYPESAFE_BY_RCU,
        "cache_dma" => CacheFlags::CACHE_DMA,
        "sanity_checks" => CacheFlags::CONSISTENCY,
        "red_zone" => CacheFlags::RED_ZONE,
        "poison" => CacheFlags::POISON,
        "store_user" => CacheFlags::STORE_USER,
        "trace" => CacheFlags::TRACE,
        _ => return None,
    })
}

/// Attributes that are only read, besides the flags.
const OTHERS: [&str; 18] = [
    "slab_size",
    "object_size",
    "align",
    "objs_per_slab",
    "order",
    "ctor",
    "usersize",
    "objects",
    "total_objects",
    "slabs",
    "partial",
    "objects_partial",
    "cpu_slabs",
    "slabs_cpu_partial",
    "sheaf_capacity",
    "aliases",
    "alloc_calls",
    "free_calls",
];

impl<H: Host, const NODES: usize> Slabs<H, NODES> {
    /// Writes the value of an attribute.
    pub(crate) fn read_attribute(&self, front: &FrontFacts, name: &str, out: &mut dyn fmt::Write) -> Result {
        let (config, layout) = (self.config(), self.layout());
        if let Some(flag) = flag(name) {
            return Ok(writeln!(out, "{}", u8::from(config.spec.flags.contains(flag)))?);
        }
        let per_node: fn(&SlabInfo) -> usize = match name {
            "objects" => |info| info.active_objs,
            "total_objects" => |info| info.num_objs,
            "slabs" => |info| info.num_slabs,
            "partial" => |info| info.partial_slabs,
            "objects_partial" => |info| info.objects_in_partial,
            "shrink" | "validate" => return Ok(()),
            "slabs_cpu_partial" => {
                let slabs = front.partials;
                return Ok(writeln!(out, "{}({slabs})", slabs * layout.objects / 2)?);
            }
            "ctor" => {
                if let Some(ctor) = config.spec.ctor {
                    writeln!(out, "{ctor:p}")?;
                }
                return Ok(());
            }
            "alloc_calls" => return self.read_calls(TrackKind::Alloc, out),
            "free_calls" => return self.read_calls(TrackKind::Free, out),
            other => {
                let value = match other {
                    "slab_size" => layout.size,
                    "object_size" => layout.object_size,
                    "align" => layout.align,
                    "objs_per_slab" => layout.objects,
                    "order" => layout.order as usize,
                    "usersize" | "aliases" => 0,
                    "sheaf_capacity" => config.capacity,
                    "cpu_slabs" => front.slabs,
                    "cpu_partial" => front.limit,
                    "min_partial" => self.min_partial.get(),
                    "remote_node_defrag_ratio" => self.defrag_ratio.get() / 10,
                    "failslab" => self.failslab.get(),
                    _ => return self.read_counter(other, out),
                };
                return Ok(writeln!(out, "{value}")?);
            }
        };
        let value = |node| self.node_info(node).as_ref().map_or(0, per_node);
        Self::write_nodes(value, out)
    }

    fn read_counter(&self, name: &str, out: &mut dyn fmt::Write) -> Result {
        let item = StatItem::from_name(name).ok_or(AttributeError::NotFound)?;
        Self::write_nodes(|node| self.node_stat(node, item), out)
    }

    /// The sum, and the nodes' shares if there are several.
    fn write_nodes(value: impl Fn(usize) -> usize, out: &mut dyn fmt::Write) -> Result {
        write!(out, "{}", (0..NODES).map(&value).fold(0, usize::wrapping_add))?;
        for (node, value) in (0..NODES).map(|node| (node, value(node))) {
            if NODES > 1 && value != 0 {
                write!(out, " N{node}={value}")?;
            }
        }
        Ok(out.write_char('\n')?)
    }

    fn read_calls(&self, kind: TrackKind, out: &mut dyn fmt::Write) -> Result {
        if !self.flags().contains(CacheFlags::STORE_USER) {
            return Err(AttributeError::NotKept);
        }
        // The list locks are not held while the sink works.
        let mut calls = Calls::new();
        self.count_calls(kind, &mut calls);
        Ok(write!(out, "{calls}")?)
    }

    /// Writes to an attribute, except for those that are the front end's.
    pub(crate) fn write_attribute(&self, name: &str, value: &str) -> Result {
        match name {
            "min_partial" => self.min_partial.set(number(value)?),
            "remote_node_defrag_ratio" => match number(value)? {
                ratio @ 0..=100 => self.defrag_ratio.set(ratio * 10),
                _ => return Err(AttributeError::Range),
            },
            "failslab" => self.failslab.set(usize::from(go(value).is_ok())),
            "validate" => {
                go(value)?;
                if !self.config().debug {
                    return Err(AttributeError::Invalid);
                }
                // What it finds is reported.
                let _ = self.validate();
            }
            name if flag(name).is_some() || OTHERS.contains(&name) => return Err(AttributeError::ReadOnly),
            counter => {
                let item = StatItem::from_name(counter).ok_or(AttributeError::NotFound)?;
                if number(value)? != 0 {
                    return Err(AttributeError::Invalid);
                }
                self.reset_stat(item);
            }
        }
        Ok(())
    }
}
