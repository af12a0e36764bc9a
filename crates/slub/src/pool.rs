// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Where sheaves come from: a slab layer of its own, without sheaves, so that it cannot recurse.
#![expect(unsafe_code, reason = "hands out raw blocks")]

use crate::host::Host;
use crate::sheaf::{SHEAF_BYTES, Sheaf};
use crate::sizing::Sizing;
use crate::slabs::Slabs;
use crate::source::Wait;
use crate::spec::{CacheFlags, CacheSpec, FreePointer};
use crate::sync::const_fn;
use core::ptr::NonNull;

/// The store of sheaf memory of one host. Sheaves are objects of slabs like any other, so they go back to the source
/// when nobody needs them.
#[derive(Debug)]
pub struct SheafPool<H: Host> {
    slabs: Slabs<H>,
}

impl<H: Host> SheafPool<H> {
    const_fn! {
        /// A pool whose slabs carry `class` in their descriptors, on pages sized by `sizing`.
        pub const fn new(host: H, class: u16, sizing: &Sizing) -> Self {
            let spec = CacheSpec::new("slub_sheaf", SHEAF_BYTES)
                .align(SHEAF_BYTES)
                .free_pointer(FreePointer::Start)
                .flags(CacheFlags::NO_LEAK_TRACE)
                .min_partial(1)
                .class(class);
            Self { slabs: Slabs::new(host, spec, sizing) }
        }
    }

    /// An empty sheaf, or `None` without memory.
    pub(crate) fn get(&self, capacity: usize, wait: Wait) -> Option<Sheaf> {
        let block = self.slabs.alloc_one(0, wait)?;
        // SAFETY: an object of this layer has SHEAF_BYTES bytes, aligned so, and is ours.
        Some(unsafe { Sheaf::lay_out(block, capacity) })
    }

    /// Takes an empty sheaf back.
    ///
    /// # Safety
    ///
    /// It came from [`get`](Self::get), holds no objects, and the caller owns it.
    pub(crate) unsafe fn put(&self, sheaf: Sheaf, wait: Wait) {
        let block: NonNull<u8> = sheaf.block();
        // SAFETY: an object of this layer that the caller gives up.
        unsafe { self.slabs.free_one(block, wait) };
    }

    /// The layer below, for statistics, shrinking and destruction.
    pub fn slabs(&self) -> &Slabs<H> {
        &self.slabs
    }
}
