// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The statistics page of another process, read out of its memory without stopping it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use fastpath_alloc::live::{self, Snapshot};

use crate::failure::Failure;

/// The largest writable mapping that may hold the page: it lies in the static data of a program or library.
const LARGEST: u64 = 64 << 20;

/// A process whose heap is fastpath's.
#[derive(Debug)]
pub(crate) struct Watched {
    pid: u32,
    memory: File,
    /// The same, to write to; none if that is not allowed.
    asking: Option<File>,
    page: u64,
}

/// How long a fresh page is waited for: what the process takes between two, and some more.
const PATIENCE: Duration = Duration::from_millis(600);

/// The monotonic clock in milliseconds, as the page has it.
pub(crate) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

impl Watched {
    /// Finds the page of process `pid`.
    ///
    /// # Errors
    /// An operation's failure: no such process, its memory may not be read, or its heap is another.
    pub(crate) fn find(pid: u32) -> Result<Self, Failure> {
        let what = || format!("process {pid}");
        let maps =
            std::fs::read_to_string(format!("/proc/{pid}/maps")).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => Failure::operation(what(), "there is none"),
                _ => refused(pid, &error),
            })?;
        let memory = File::open(format!("/proc/{pid}/mem")).map_err(|error| refused(pid, &error))?;
        let mut first = None;
        for (start, end) in candidates(&maps) {
            for page in (start..end).step_by(live::BYTES) {
                let mut word = [0; 8];
                match memory.read_exact_at(&mut word, page) {
                    Ok(()) if u64::from_le_bytes(word) == live::MAGIC => {
                        let asking = File::options().write(true).open(format!("/proc/{pid}/mem")).ok();
                        let found = Self { pid, memory, asking, page };
                        found.look().map_err(|error| Failure::operation(what(), error))?;
                        return Ok(found);
                    }
                    Ok(()) => {}
                    Err(error) => {
                        first.get_or_insert(error);
                        break;
                    }
                }
            }
        }
        if let Some(error) = first.filter(|error| error.kind() == io::ErrorKind::PermissionDenied) {
            return Err(refused(pid, &error));
        }
        Err(Failure::operation(
            what(),
            "its heap is not fastpath's, or has not been used yet (see fastpath run --help)",
        ))
    }

    /// The page now, or what the kernel says: the process is gone.
    pub(crate) fn look(&self) -> io::Result<Snapshot> {
        let mut copies = [const { [0; live::BYTES] }; 2];
        for _ in 0..1000 {
            for copy in &mut copies {
                self.memory.read_exact_at(copy, self.page)?;
            }
            if let [Some(first), Some(second)] = [&copies[0], &copies[1]].map(|copy| live::decode(copy))
                && first.is_the_same_as(&second)
            {
                return Ok(first);
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Err(io::Error::other("its statistics page changes all the time"))
    }

    /// Tells the process that somebody looks: for the next seconds it keeps the page up to date, as long as it allocates.
    /// Where its memory may not be written the page is as old as it is.
    pub(crate) fn ask(&self) {
        if let Some(memory) = &self.asking {
            let _ = memory.write_all_at(&now().to_le_bytes(), self.page + live::ASK as u64);
        }
    }

    /// Asks, and waits a little for the answer. A process that rests gives none: then the page of before.
    pub(crate) fn fresh(&self) -> io::Result<Snapshot> {
        let (start, asked) = (Instant::now(), now());
        self.ask();
        loop {
            let page = self.look()?;
            if page.time >= asked || start.elapsed() > PATIENCE || self.asking.is_none() {
                return Ok(page);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Memory of the process that is resident, in bytes; 0 if nobody can tell.
    pub(crate) fn resident(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", self.pid)).unwrap_or_default();
        let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
        pages * rustix::param::page_size() as u64
    }

    /// The program's short name.
    pub(crate) fn name(&self) -> String {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", self.pid)).unwrap_or_default();
        name.trim().to_owned()
    }
}

fn refused(pid: u32, error: &io::Error) -> Failure {
    let hint = "its memory may be read by its user (with kernel.yama.ptrace_scope 0) and by root";
    Failure::operation(format!("process {pid}"), format!("{error}; {hint}"))
}

/// Writable private mappings of files and those right behind one, where static data lies.
fn candidates(maps: &str) -> Vec<(u64, u64)> {
    let (mut found, mut file_end) = (Vec::new(), 0);
    for line in maps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some((start, end)) = words.first().and_then(|place| place.split_once('-')) else { continue };
        let (Ok(start), Ok(end)) = (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16)) else {
            continue;
        };
        let named = words.get(5).is_some_and(|name| name.starts_with('/'));
        let behind = words.len() < 6 && start == file_end;
        if named || behind {
            file_end = end;
        }
        if (named || behind) && words[1] == "rw-p" && end - start <= LARGEST {
            found.push((start, end));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::candidates;

    #[test]
    fn static_data_is_looked_at_and_heaps_are_not() {
        let maps = "1000-2000 r-xp 00000000 00:00 1 /bin/x\n2000-3000 rw-p 00000000 00:00 1 /bin/x\n\
                    3000-5000 rw-p 00000000 00:00 0\n6000-7000 rw-p 00000000 00:00 0\n\
                    7000-8000 rw-p 00000000 00:00 0 [heap]\n8000-9000 rw-s 00000000 00:00 1 /shared\n";
        assert_eq!(candidates(maps), [(0x2000, 0x3000), (0x3000, 0x5000)]);
    }
}
