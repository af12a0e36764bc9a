// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Puts the embedded allocator library where the dynamic linker finds it, for as long as somebody needs it there.
//!
//! A private folder holds it, because every program of the process tree must be able to open it, also one that changed
//! its user or closed its descriptors. The folder goes when we end. If we are killed it stays, and the next run removes
//! it: the library is locked (`flock`) while its owner lives, so a library that can be locked has no owner. Where no
//! folder will do (read-only, or mounted without execution) the library is an anonymous file that is reached through
//! `/proc`.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, MemfdFlags, StatVfsMountFlags, flock, memfd_create, statvfs};

use crate::embed;
use crate::failure::Failure;

const NAME: &str = "libfastpath.so";
const PREFIX: &str = "fastpath-";

/// The library as a file that the dynamic linker can open. Removed when dropped.
#[derive(Debug)]
pub(crate) struct Library {
    path: PathBuf,
    keeps: Keeps,
}

#[derive(Debug)]
enum Keeps {
    /// The folder, and the lock that says it is in use.
    Folder(PathBuf, #[expect(dead_code, reason = "holds the lock")] File),
    /// The anonymous file.
    Memory(#[expect(dead_code, reason = "keeps the file")] OwnedFd),
}

impl Library {
    /// Places the library.
    ///
    /// # Errors
    /// An operation's failure if neither a folder nor an anonymous file can be had.
    pub(crate) fn place() -> Result<Self, Failure> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let shared_memory = Some(PathBuf::from("/dev/shm"));
        for folder in [Some(std::env::temp_dir()), runtime, shared_memory].into_iter().flatten() {
            if usable(&folder) {
                sweep(&folder);
                if let Ok(library) = Self::in_folder(&folder) {
                    return Ok(library);
                }
            }
        }
        Self::in_memory()
            .map_err(|error| Failure::operation("cannot place the allocator library anywhere", error))
    }

    /// Its path, for `LD_PRELOAD`.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A path for another file of the same life.
    pub(crate) fn file_beside(&self, name: &str) -> PathBuf {
        match &self.keeps {
            Keeps::Folder(folder, _) => folder.join(name),
            Keeps::Memory(_) => std::env::temp_dir().join(format!("{PREFIX}{}-{name}", std::process::id())),
        }
    }

    fn in_folder(parent: &Path) -> std::io::Result<Self> {
        let mut attempt = 0;
        let folder = loop {
            let folder = parent.join(format!("{PREFIX}{}-{attempt}", std::process::id()));
            // Others may read it: programs of the tree may run as other users.
            match DirBuilder::new().mode(0o755).create(&folder) {
                Ok(()) => break folder,
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && attempt < 100 => {
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        };
        let new = folder.join("new");
        let path = folder.join(NAME);
        let write = || {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o555).open(&new)?;
            file.write_all(embed::LIBRARY)?;
            drop(file);
            // Locked before it has its name: whoever finds the name unlocked finds a library without an owner.
            let lock = File::open(&new)?;
            flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
            fs::rename(&new, &path)?;
            Ok(lock)
        };
        match write() {
            Ok(lock) => Ok(Self { path, keeps: Keeps::Folder(folder, lock) }),
            Err(error) => {
                let _ = fs::remove_dir_all(&folder);
                Err(error)
            }
        }
    }

    fn in_memory() -> std::io::Result<Self> {
        let memory = memfd_create(NAME, MemfdFlags::CLOEXEC)?;
        let mut file = File::from(memory);
        file.write_all(embed::LIBRARY)?;
        let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()));
        Ok(Self { path, keeps: Keeps::Memory(file.into()) })
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        if let Keeps::Folder(folder, _) = &self.keeps {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// True if a library in `folder` can be preloaded: the list in `LD_PRELOAD` has no way to write blanks and colons, and
/// its pages must be executable.
fn usable(folder: &Path) -> bool {
    let writable =
        !folder.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':' | b'\t' | b'\n'));
    let executable = statvfs(folder).is_ok_and(|mount| !mount.f_flag.contains(StatVfsMountFlags::NOEXEC));
    folder.is_absolute() && writable && executable
}

/// Removes what killed runs of this user left.
fn sweep(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let ours = entry.file_name().as_bytes().starts_with(PREFIX.as_bytes())
            && entry
                .metadata()
                .is_ok_and(|data| data.is_dir() && data.uid() == rustix::process::getuid().as_raw());
        if !ours {
            continue;
        }
        let abandoned = if let Ok(file) = File::open(entry.path().join(NAME)) {
            flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        } else {
            // Killed between the folder and the library; or a run that is just about to write it, and then it is young.
            let old =
                |time: std::time::SystemTime| time.elapsed().is_ok_and(|age| age > Duration::from_hours(1));
            entry.metadata().and_then(|data| data.modified()).is_ok_and(old)
        };
        if abandoned {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
