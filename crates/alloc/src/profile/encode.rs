// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The profile as a file for pprof: the messages of its `profile.proto`, in gzip's frame without compression, written
//! piece by piece through one mapped buffer.

use core::ffi::CStr;
use core::sync::atomic::Ordering::Relaxed;

use super::table;
use crate::os;

const BUFFER: usize = 32 * 1024;
const RANGES: usize = 4096;
const STRINGS: [&[u8]; 8] = [
    b"",
    b"alloc_objects",
    b"count",
    b"alloc_space",
    b"bytes",
    b"inuse_objects",
    b"inuse_space",
    // Frames of the allocator itself, where it is linked into the program.
    b"fastpath_alloc::.*|<fastpath_alloc::.*|_?_rust_alloc.*|__rustc::__rust_.*|alloc::alloc::.*|malloc|calloc|realloc",
];

/// What one message holds before its length is known.
struct Message {
    bytes: [u8; 1024],
    len: usize,
}

impl Message {
    const fn new() -> Self {
        Self { bytes: [0; 1024], len: 0 }
    }

    fn byte(&mut self, byte: u8) {
        if let Some(slot) = self.bytes.get_mut(self.len) {
            *slot = byte;
            self.len += 1;
        }
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }

    /// A number, field `number`.
    fn number(&mut self, number: u8, value: u64) {
        self.byte(number << 3);
        self.varint(value);
    }

    /// Bytes, field `number`.
    fn bytes(&mut self, number: u8, bytes: &[u8]) {
        self.byte(number << 3 | 2);
        self.varint(bytes.len() as u64);
        for &byte in bytes {
            self.byte(byte);
        }
    }

    fn done(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

struct Out {
    file: os::File,
    buffer: &'static mut [u8],
    len: usize,
    crc: u32,
    total: u32,
    failed: bool,
}

impl Out {
    fn write(&mut self, bytes: &[u8]) {
        self.failed |= !self.file.write(bytes);
    }

    fn flush(&mut self, last: bool) {
        let length = self.len as u16;
        let mut head = [u8::from(last), 0, 0, 0, 0];
        head[1..3].copy_from_slice(&length.to_le_bytes());
        head[3..5].copy_from_slice(&(!length).to_le_bytes());
        self.write(&head);
        let buffer = core::mem::take(&mut self.buffer);
        self.write(&buffer[..self.len]);
        self.buffer = buffer;
        self.len = 0;
    }

    fn raw(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            let mut crc = self.crc ^ u32::from(byte);
            for _ in 0..8 {
                crc = (crc >> 1) ^ (0xedb8_8320 & 0u32.wrapping_sub(crc & 1));
            }
            self.crc = crc;
            if self.len == self.buffer.len() {
                self.flush(false);
            }
            self.buffer[self.len] = byte;
            self.len += 1;
            self.total = self.total.wrapping_add(1);
        }
    }

    /// Bytes as field `number` of the profile.
    fn field(&mut self, number: u8, bytes: &[u8]) {
        let mut head = Message::new();
        head.byte(number << 3 | 2);
        head.varint(bytes.len() as u64);
        self.raw(head.done());
        self.raw(bytes);
    }
}

/// Writes the profile to the file of that name; whether that worked.
pub(crate) fn write(path: &CStr, interval: u64) -> bool {
    let Some(file) = os::File::create(path) else { return false };
    let bytes = BUFFER + RANGES * 16;
    let Some(memory) = os::map_memory(bytes) else { return false };
    // SAFETY: a new mapping of that size, ours alone until it is unmapped below.
    let (buffer, ranges) = unsafe {
        (
            core::slice::from_raw_parts_mut(memory as *mut u8, BUFFER),
            core::slice::from_raw_parts_mut((memory + BUFFER) as *mut [usize; 2], RANGES),
        )
    };
    let mut out = Out { file, buffer, len: 0, crc: !0, total: 0, failed: false };
    out.write(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255]);
    profile(&mut out, ranges, interval);
    out.flush(true);
    let (crc, total) = (!out.crc, out.total);
    out.write(&crc.to_le_bytes());
    out.write(&total.to_le_bytes());
    let good = !out.failed;
    drop(out);
    os::unmap(memory, bytes);
    good
}

fn profile(out: &mut Out, ranges: &mut [[usize; 2]], interval: u64) {
    for (kind, unit) in
        [(1, 2), (3, 4), (5, 2), (6, 4), (3, 4)].iter().enumerate().map(|(at, pair)| ((at, pair.0), pair.1))
    {
        let mut value = Message::new();
        value.number(1, kind.1);
        value.number(2, unit);
        // The last one is the period's type.
        out.field(if kind.0 == 4 { 11 } else { 1 }, value.done());
    }
    for text in STRINGS {
        out.field(6, text);
    }
    let mut rest = Message::new();
    rest.number(12, interval);
    rest.number(14, 6);
    rest.number(7, 7);
    rest.number(9, os::time_of_day());
    out.raw(rest.done());
    let count = mappings(out, ranges);
    let mut location = 0u64;
    for number in 0..table::STACKS {
        let stack = table::stack(number);
        let (blocks, bytes) = (stack.blocks.load(Relaxed), stack.bytes.load(Relaxed));
        if blocks == 0 {
            continue;
        }
        let (freed, freed_bytes) = (stack.freed_blocks.load(Relaxed), stack.freed_bytes.load(Relaxed));
        let frames = table::frames(number);
        let mut ids = Message::new();
        for frame in frames {
            location += 1;
            let address = frame.load(Relaxed);
            let mapping = ranges[..count].iter().position(|range| (range[0]..range[1]).contains(&address));
            let mut message = Message::new();
            message.number(1, location);
            if let Some(mapping) = mapping {
                message.number(2, mapping as u64 + 1);
            }
            message.number(3, address as u64);
            out.field(4, message.done());
            ids.varint(location);
        }
        let mut values = Message::new();
        for value in
            [blocks >> 16, bytes, blocks.saturating_sub(freed) >> 16, bytes.saturating_sub(freed_bytes)]
        {
            values.varint(value);
        }
        let mut sample = Message::new();
        sample.bytes(1, ids.done());
        sample.bytes(2, values.done());
        out.field(2, sample.done());
    }
}

/// Writes the mappings with code, notes where they lie, and returns how many there are.
fn mappings(out: &mut Out, ranges: &mut [[usize; 2]]) -> usize {
    let Some(maps) = os::File::open(c"/proc/self/maps") else { return 0 };
    let (mut text, mut len, mut count) = ([0u8; 1024], 0, 0);
    loop {
        let got = maps.read(&mut text[len..]);
        len += got;
        let mut start = 0;
        while let Some(end) = text[start..len].iter().position(|&byte| byte == b'\n') {
            if count < ranges.len() && mapping(out, &text[start..start + end], count, &mut ranges[count]) {
                count += 1;
            }
            start += end + 1;
        }
        if got == 0 {
            return count;
        }
        if start == 0 && len == text.len() {
            // A line longer than any path: not of use.
            len = 0;
        }
        text.copy_within(start..len, 0);
        len -= start.min(len);
    }
}

fn hex(text: &[u8]) -> usize {
    text.iter().fold(0, |sum, &digit| (sum << 4) | (digit as char).to_digit(16).unwrap_or(0) as usize)
}

/// Bytes between the start of the page at `offset` of an ELF file and that of the segment with code that starts in this page.
fn lead(name: &[u8], offset: usize) -> Option<usize> {
    let (mut path, mut text) = ([0u8; 1024], [0u8; 4096]);
    path.get_mut(..name.len())?.copy_from_slice(name);
    let path = CStr::from_bytes_until_nul(&path).ok()?;
    let length = os::File::open(path)?.read(&mut text);
    let text = &text[..length];
    if !text.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let number = |at: usize, bytes: usize| {
        let part = text.get(at..at + bytes)?;
        Some(part.iter().rev().fold(0usize, |value, &byte| value << 8 | usize::from(byte)))
    };
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    (0..count).find_map(|index| {
        let at = table.checked_add(index * size)?;
        let (kind, rights, start) = (number(at, 4)?, number(at + 4, 4)?, number(at + 8, 8)?);
        let (load, executable) = (1, 1);
        let here = start & !(os::PAGE - 1) == offset;
        (kind == load && rights & executable != 0 && here).then(|| start - offset)
    })
}

/// Writes one line of `/proc/self/maps` as a mapping if it holds code of a file.
fn mapping(out: &mut Out, line: &[u8], index: usize, range: &mut [usize; 2]) -> bool {
    let mut words = line.splitn(6, |&byte| byte == b' ');
    let (Some(place), Some(rights), Some(offset)) = (words.next(), words.next(), words.next()) else {
        return false;
    };
    let name = words.nth(2).unwrap_or(b"").trim_ascii();
    let mut ends = place.split(|&byte| byte == b'-').map(hex);
    let (Some(from), Some(to)) = (ends.next(), ends.next()) else { return false };
    if rights.get(2) != Some(&b'x') || name.is_empty() || name.len() > 900 {
        return false;
    }
    *range = [from, to];
    let offset = hex(offset);
    // The kernel maps whole pages. Readers expect the segment itself, as its program header has it: Go's own takes the first
    // executable segment's address for that of `from`.
    let lead = lead(name, offset).filter(|lead| from + lead < to).unwrap_or(0);
    let mut message = Message::new();
    message.number(1, index as u64 + 1);
    message.number(2, (from + lead) as u64);
    message.number(3, to as u64);
    message.number(4, (offset + lead) as u64);
    message.number(5, (STRINGS.len() + index) as u64);
    out.field(3, message.done());
    out.field(6, name);
    true
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    #[test]
    fn a_mapping_starts_where_the_segment_does() {
        // A header, then the program headers: kind, rights, offset, six more words of 64 bits.
        let mut file = Vec::from(*b"\x7fELF\x02\x01");
        file.resize(64, 0);
        file[32] = 64;
        file[54] = 56;
        file[56] = 3;
        for (kind, rights, start) in [(1u32, 4u32, 0u64), (6, 5, 0x16000), (1, 5, 0x165a0)] {
            file.extend(kind.to_le_bytes());
            file.extend(rights.to_le_bytes());
            file.extend(start.to_le_bytes());
            file.resize(file.len() + 40, 0);
        }
        let path = std::env::temp_dir().join(std::format!("fastpath-lead-{}", std::process::id()));
        let name = path.to_str().unwrap().as_bytes();
        std::fs::write(&path, &file).unwrap();
        assert_eq!(lead(name, 0x16000), Some(0x5a0));
        assert_eq!(lead(name, 0), None);
        assert_eq!(lead(name, 0x17000), None);
        for cut in [0, 5, 40, 64, 150] {
            std::fs::write(&path, &file[..cut]).unwrap();
            assert_eq!(lead(name, 0x16000), None);
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(lead(name, 0x16000), None);
    }
}
