// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Traits of `std` that its own `Arc` has too: a shared file can be read and written, a shared descriptor borrowed.

use std::fs::File;
use std::io;

use super::Arc;
use crate::allocator::ArcAllocator;

impl<A: ArcAllocator> io::Read for Arc<File, A> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&**self).read(buffer)
    }

    fn read_vectored(&mut self, buffers: &mut [io::IoSliceMut<'_>]) -> io::Result<usize> {
        (&**self).read_vectored(buffers)
    }
}

impl<A: ArcAllocator> io::Write for Arc<File, A> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        (&**self).write(buffer)
    }

    fn write_vectored(&mut self, buffers: &[io::IoSlice<'_>]) -> io::Result<usize> {
        (&**self).write_vectored(buffers)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&**self).flush()
    }
}

impl<A: ArcAllocator> io::Seek for Arc<File, A> {
    fn seek(&mut self, position: io::SeekFrom) -> io::Result<u64> {
        (&**self).seek(position)
    }
}

#[cfg(unix)]
impl<T: ?Sized + std::os::fd::AsFd, A: ArcAllocator> std::os::fd::AsFd for Arc<T, A> {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        T::as_fd(self)
    }
}

#[cfg(unix)]
impl<T: ?Sized + std::os::fd::AsRawFd, A: ArcAllocator> std::os::fd::AsRawFd for Arc<T, A> {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        T::as_raw_fd(self)
    }
}
