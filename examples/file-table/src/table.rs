// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The open files of one user of the names: a process, in a kernel.

use core::sync::atomic::{AtomicUsize, Ordering};

use fastpath_refcount::RefCount;
use fastpath_rtmutex::linux::{RtMutex, RtMutexGuard};
use fastpath_slub::Cache;

use crate::Error;
use crate::names::{Inode, Names};
use crate::object::{Cached, Count, Ref};
use crate::slab::{OPEN_FILES, Process};

/// Open files of one table.
const MAX_OPEN: usize = 64;

/// The number of an open file, the smallest that was free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fd(u8);

/// A file as somebody opened it: where they are in it.
#[derive(Debug)]
pub(crate) struct OpenFile<C: Count> {
    inode: Ref<Inode, C>,
    position: AtomicUsize,
}

impl<C: Count> Cached for OpenFile<C> {
    fn cache() -> &'static Cache<Process> {
        &OPEN_FILES
    }
}

/// A table of open files. Threads can share it.
#[derive(Debug)]
pub struct FileTable<'a, C: Count = RefCount> {
    names: &'a Names<C>,
    open: RtMutex<Slots<C>>,
}

#[derive(Debug)]
struct Slots<C: Count> {
    /// One bit for each number in use.
    used: u64,
    files: [Option<Ref<OpenFile<C>, C>>; MAX_OPEN],
}

impl<'a, C: Count> FileTable<'a, C> {
    /// Nothing open.
    #[must_use]
    pub const fn new(names: &'a Names<C>) -> Self {
        Self { names, open: RtMutex::new(Slots { used: 0, files: [const { None }; MAX_OPEN] }) }
    }

    /// Opens the file of that name, at its beginning.
    ///
    /// # Errors
    ///
    /// There is no such file, no memory, or no free number.
    pub fn open(&self, name: &str) -> Result<Fd, Error> {
        let inode = self.names.find(name)?;
        let file = Ref::new(OpenFile { inode, position: AtomicUsize::new(0) }).ok_or(Error::Full)?;
        let mut slots = self.slots();
        let number = slots.used.trailing_ones() as usize;
        *slots.files.get_mut(number).ok_or(Error::Full)? = Some(file);
        slots.used |= 1 << number;
        Ok(Fd(number as u8))
    }

    /// Copies the next bytes of the file, and says how many: 0 at its end.
    ///
    /// # Errors
    ///
    /// The number is not open.
    pub fn read(&self, file: Fd, buffer: &mut [u8]) -> Result<usize, Error> {
        // The file stays while it is read, even if another thread closes it meanwhile: that is what counts are for.
        let file = self.slots().files[usize::from(file.0)].clone().ok_or(Error::NotFound)?;
        let contents = file.inode.contents();
        // ORDERING: Relaxed: a position publishes nothing; each byte is read by one reader of this open file.
        let from = file.position.fetch_add(buffer.len(), Ordering::Relaxed).min(contents.len());
        let bytes = &contents[from..contents.len().min(from + buffer.len())];
        buffer[..bytes.len()].copy_from_slice(bytes);
        Ok(bytes.len())
    }

    /// Closes the file: the last one that uses it gives it back.
    ///
    /// # Errors
    ///
    /// The number is not open.
    pub fn close(&self, file: Fd) -> Result<(), Error> {
        let mut slots = self.slots();
        let closed = slots.files[usize::from(file.0)].take().ok_or(Error::NotFound)?;
        slots.used &= !(1 << file.0);
        drop(slots);
        drop(closed);
        Ok(())
    }

    fn slots(&self) -> RtMutexGuard<'_, Slots<C>> {
        // A thread that panicked with the lock held has at worst lost a number.
        self.open.lock().unwrap_or_else(|error| error.into_inner())
    }
}
