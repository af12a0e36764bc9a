// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! From names to files.

use fastpath_refcount::RefCount;
use fastpath_rtmutex::linux::{RtMutex, RtMutexGuard};
use fastpath_slub::Cache;

use crate::object::{Cached, Count, Ref};
use crate::slab::{INODES, Process};
use crate::{Error, MAX_CONTENTS, MAX_NAME};

const BUCKETS: usize = 64;
const PER_BUCKET: usize = 16;

/// A file: its name and contents, which do not change.
#[derive(Debug)]
pub struct Inode {
    name: Text<MAX_NAME>,
    contents: Text<MAX_CONTENTS>,
}

impl Inode {
    /// The contents.
    #[must_use]
    pub fn contents(&self) -> &[u8] {
        self.contents.bytes()
    }

    /// The name it was created under.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.name.bytes()
    }
}

impl Cached for Inode {
    fn cache() -> &'static Cache<Process> {
        &INODES
    }
}

/// The files that can be opened by name. Each bucket has a lock of its own and a handle for each of its files.
#[derive(Debug)]
pub struct Names<C: Count = RefCount> {
    buckets: [Bucket<C>; BUCKETS],
}

/// Apart from each other by two cache lines, which some processors fetch together: threads on different buckets do not meet.
#[derive(Debug)]
#[repr(align(128))]
struct Bucket<C: Count>(RtMutex<Entries<C>>);

type Entries<C> = [Option<Ref<Inode, C>>; PER_BUCKET];
type Locked<'a, C> = RtMutexGuard<'a, Entries<C>>;

impl<C: Count> Names<C> {
    /// No files.
    #[must_use]
    pub const fn new() -> Self {
        Self { buckets: [const { Bucket(RtMutex::new([const { None }; PER_BUCKET])) }; BUCKETS] }
    }

    /// A new file.
    ///
    /// # Errors
    ///
    /// The name exists, or something is too long, or there is no room.
    pub fn create(&self, name: &str, contents: &[u8]) -> Result<(), Error> {
        let inode = Inode { name: Text::new(name.as_bytes())?, contents: Text::new(contents)? };
        let inode = Ref::new(inode).ok_or(Error::Full)?;
        let mut bucket = self.bucket(name);
        if find(&bucket, name).is_some() {
            return Err(Error::Exists);
        }
        let free = bucket.iter_mut().find(|entry| entry.is_none()).ok_or(Error::Full)?;
        *free = Some(inode);
        Ok(())
    }

    /// A handle to the file of that name.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn find(&self, name: &str) -> Result<Ref<Inode, C>, Error> {
        // The lock keeps the bucket's own handle alive while ours is made.
        let bucket = self.bucket(name);
        let at = find(&bucket, name).ok_or(Error::NotFound)?;
        bucket[at].clone().ok_or(Error::NotFound)
    }

    /// Takes the name away. The file itself goes with its last handle.
    ///
    /// # Errors
    ///
    /// There is no such file.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        let mut bucket = self.bucket(name);
        let at = find(&bucket, name).ok_or(Error::NotFound)?;
        let inode = bucket[at].take();
        // The destructor, if this was the last handle, runs without the lock.
        drop(bucket);
        drop(inode);
        Ok(())
    }

    fn bucket(&self, name: &str) -> Locked<'_, C> {
        // FNV-1a.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        // A thread that panicked with the lock held has left the bucket whole: each change is one assignment.
        self.buckets[(hash >> 32) as usize % BUCKETS].0.lock().unwrap_or_else(|error| error.into_inner())
    }
}

impl<C: Count> Default for Names<C> {
    fn default() -> Self {
        Self::new()
    }
}

/// Where the file of that name is in its bucket.
fn find<C: Count>(bucket: &Locked<'_, C>, name: &str) -> Option<usize> {
    bucket.iter().position(|entry| entry.as_ref().is_some_and(|inode| inode.name() == name.as_bytes()))
}

/// Bytes up to a limit, in place.
#[derive(Debug)]
struct Text<const MAX: usize> {
    length: u16,
    bytes: [u8; MAX],
}

impl<const MAX: usize> Text<MAX> {
    fn new(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() > MAX {
            return Err(Error::TooLong);
        }
        let mut this = Self { length: bytes.len() as u16, bytes: [0; MAX] };
        this.bytes[..bytes.len()].copy_from_slice(bytes);
        Ok(this)
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}
