// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `FASTPATH_LIMIT`: how much memory the heap may hold.
//!
//! Two limits. Above the *soft* one free memory is not kept: it goes back to the system before more is taken. Beyond the
//! *hard* one nothing is taken: the heap is trimmed as by `malloc_trim`, the request is tried once more, and then it
//! fails with `ENOMEM`. Counted is what slabs and big blocks hold, not what the program has of it; the heap's own
//! records and memory from elsewhere are not.
//!
//! The values: a number of bytes (`K`, `M`, `G` after it count in 1024s), the soft limit then being seven eighths of
//! it; or `cgroup`: the smallest `memory.max` and `memory.high` (cgroup v2) of the process's own group and the groups above it,
//! read again once a second when memory is taken, so that changes are followed. Each process of a group is held to the group's
//! limit on its own: what the others use is the kernel's business. `FASTPATH_CGROUP` names the folder of the group if it
//! is not to be found at `/sys/fs/cgroup`.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::report::Line;
use crate::{os, settings};

const NONE: usize = usize::MAX;

// ORDERING: Relaxed throughout: numbers that publish nothing; a late reader uses the limit of a moment ago.
static HARD: AtomicUsize = AtomicUsize::new(NONE);
static SOFT: AtomicUsize = AtomicUsize::new(NONE);
/// When the group's files were read, in seconds; 0 if there is no group to follow.
static READ: AtomicU64 = AtomicU64::new(0);

/// The folder of the group, as a path that ends in zeros.
static GROUP: [core::sync::atomic::AtomicU8; PATH] = [const { core::sync::atomic::AtomicU8::new(0) }; PATH];
const PATH: usize = 512;

/// Whether any limit is set, or may come.
#[inline]
pub(crate) fn on() -> bool {
    HARD.load(Relaxed) != NONE || SOFT.load(Relaxed) != NONE || READ.load(Relaxed) != 0
}

/// Whether the heap may hold `bytes`.
pub(crate) fn allows(bytes: usize) -> bool {
    follow();
    bytes <= HARD.load(Relaxed)
}

/// Whether a heap that holds `bytes`, free memory included, should give free memory back first.
pub(crate) fn is_tight(bytes: usize) -> bool {
    bytes > SOFT.load(Relaxed)
}

/// The soft and the hard limit, in bytes; `None`: there is none.
pub(crate) fn limits() -> (Option<usize>, Option<usize>) {
    let get = |limit: &AtomicUsize| Some(limit.load(Relaxed)).filter(|&bytes| bytes != NONE);
    (get(&SOFT), get(&HARD))
}

/// Reads the setting.
pub(crate) fn set_up() {
    let Some(value) = settings::variable(b"FASTPATH_LIMIT") else { return };
    if value == b"cgroup" {
        if find_group() {
            READ.store(os::seconds().max(1), Relaxed);
            read_group();
        } else {
            Line::new().text("FASTPATH_LIMIT=cgroup: this process is in no group of cgroup v2").print();
        }
        return;
    }
    match bytes(value) {
        Some(hard) => {
            HARD.store(hard, Relaxed);
            SOFT.store(hard - hard / 8, Relaxed);
        }
        None => Line::new()
            .text("FASTPATH_LIMIT=")
            .raw(value)
            .text(" is not known; the values are cgroup or a number of bytes, such as 512M")
            .print(),
    }
}

/// A number with `K`, `M` or `G` behind it, or not.
pub(crate) fn bytes(text: &[u8]) -> Option<usize> {
    let (digits, shift) = match text.split_last() {
        Some((b'K' | b'k', digits)) => (digits, 10),
        Some((b'M' | b'm', digits)) => (digits, 20),
        Some((b'G' | b'g', digits)) => (digits, 30),
        _ => (text, 0),
    };
    if digits.is_empty() {
        return None;
    }
    let number = digits.iter().try_fold(0usize, |sum, &digit| {
        digit.is_ascii_digit().then(|| sum.checked_mul(10)?.checked_add(usize::from(digit - b'0')))?
    })?;
    number.checked_mul(1 << shift)
}

/// Reads the group's files again if the last time is a second ago.
fn follow() {
    let read = READ.load(Relaxed);
    if read != 0 && os::seconds() != read {
        READ.store(os::seconds().max(1), Relaxed);
        read_group();
    }
}

/// Notes the folder of the process's group.
fn find_group() -> bool {
    let mut path = [0u8; PATH];
    if let Some(folder) = settings::variable(b"FASTPATH_CGROUP") {
        return keep(&mut path, folder, b"");
    }
    let mut text = [0u8; PATH];
    let length = read_file(c"/proc/self/cgroup".to_bytes_with_nul(), &mut text);
    let Some(group) = text[..length].split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"0::"))
    else {
        return false;
    };
    let mounts: [&[u8]; 2] = [b"/sys/fs/cgroup", b"/sys/fs/cgroup/unified"];
    mounts.into_iter().any(|mount| keep(&mut path, mount, group))
}

/// Puts the folder together and keeps it if it is a group's.
fn keep(path: &mut [u8; PATH], mount: &[u8], group: &[u8]) -> bool {
    if mount.len() + group.len() + 32 > PATH {
        return false;
    }
    path.fill(0);
    path[..mount.len()].copy_from_slice(mount);
    path[mount.len()..][..group.len()].copy_from_slice(group);
    let mut length = mount.len() + group.len();
    while length > 0 && path[length - 1] == b'/' {
        length -= 1;
        path[length] = 0;
    }
    for (kept, byte) in GROUP.iter().zip(path.iter()) {
        kept.store(*byte, Relaxed);
    }
    let mut text = [0; 64];
    path[length..][..20].copy_from_slice(b"/cgroup.controllers\0");
    let is_group = read_file(path, &mut text) > 0;
    path[length..][..12].copy_from_slice(b"/memory.max\0");
    is_group || read_file(path, &mut text) > 0
}

/// The smallest limits of the group and those above it.
fn read_group() {
    let mut path = [0u8; PATH];
    for (byte, kept) in path.iter_mut().zip(&GROUP) {
        *byte = kept.load(Relaxed);
    }
    let mut length = path.iter().position(|&byte| byte == 0).unwrap_or(0);
    let (mut hard, mut soft) = (NONE, NONE);
    while length > 0 {
        let mut limit = |name: &[u8]| {
            let mut text = [0u8; 32];
            path[length..][..name.len()].copy_from_slice(name);
            let count = read_file(&path, &mut text);
            let value = text[..count].trim_ascii();
            // "max" is no number: no limit. Without the file this is no group any more.
            (count > 0, bytes(value).unwrap_or(NONE))
        };
        let (is_max, max) = limit(b"/memory.max\0");
        let (is_high, high) = limit(b"/memory.high\0");
        if !is_max && !is_high && hard != NONE {
            break;
        }
        hard = hard.min(max);
        soft = soft.min(high);
        length = path[..length].iter().rposition(|&byte| byte == b'/').unwrap_or(0);
    }
    if hard != NONE {
        soft = soft.min(hard - hard / 8);
    }
    HARD.store(hard, Relaxed);
    SOFT.store(soft, Relaxed);
}

/// Reads the start of the file whose path ends in a zero byte; how much there was.
fn read_file(path: &[u8], out: &mut [u8]) -> usize {
    let Ok(path) = core::ffi::CStr::from_bytes_until_nul(path) else { return 0 };
    os::File::open(path).map_or(0, |file| file.read(out))
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_have_suffixes() {
        assert_eq!(bytes(b"4096"), Some(4096));
        assert_eq!(bytes(b"3K"), Some(3072));
        assert_eq!(bytes(b"512M"), Some(512 << 20));
        assert_eq!(bytes(b"2g"), Some(2 << 30));
        for wrong in [&b""[..], b"M", b"12x", b"-1", b"99999999999999999999", b"max", b"99999999999G"] {
            assert_eq!(bytes(wrong), None);
        }
    }
}
