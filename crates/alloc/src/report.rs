// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages from inside the heap: a fixed buffer and one `write` to standard error. No formatting machinery.

/// A line under construction.
pub(crate) struct Line {
    bytes: [u8; 320],
    len: usize,
}

impl Line {
    pub(crate) fn new() -> Self {
        Self { bytes: [0; 320], len: 0 }.text("fastpath: ")
    }

    pub(crate) fn text(self, text: &str) -> Self {
        self.raw(text.as_bytes())
    }

    pub(crate) fn raw(mut self, text: &[u8]) -> Self {
        for &byte in text {
            // One byte stays free for the end of the line.
            if self.len + 1 < self.bytes.len() {
                self.bytes[self.len] = byte;
                self.len += 1;
            }
        }
        self
    }

    pub(crate) fn hex(self, value: usize) -> Self {
        let mut digits = [0u8; 18];
        digits[0] = b'0';
        digits[1] = b'x';
        let count = ((usize::BITS - value.leading_zeros()).div_ceil(4) as usize).max(1);
        for at in 0..count {
            let digit = (value >> ((count - 1 - at) * 4)) & 15;
            digits[2 + at] = b"0123456789abcdef"[digit];
        }
        self.raw(&digits[..2 + count])
    }

    pub(crate) fn number(self, mut value: u64) -> Self {
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (value % 10) as u8;
            value /= 10;
            if value == 0 {
                break;
            }
        }
        self.raw(&digits[at..])
    }

    /// Writes the line to standard error.
    pub(crate) fn print(mut self) {
        self.bytes[self.len] = b'\n';
        // SAFETY: descriptor 2 is only written to; if it is closed the write fails, which changes nothing.
        let stderr = unsafe { rustix::fd::BorrowedFd::borrow_raw(2) };
        let _ = rustix::io::write(stderr, &self.bytes[..=self.len]);
    }

    /// Writes the line and ends the process by SIGABRT.
    pub(crate) fn abort(self) -> ! {
        self.print();
        abort()
    }

    /// The same about a block: its owners are named, if they are known.
    pub(crate) fn abort_about(self, block: usize) -> ! {
        self.print();
        crate::profile::owners::tell(block);
        abort()
    }
}

/// Ends the process by SIGABRT, as the C library's `abort` does, without running anything.
pub(crate) fn abort() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::ABORT);
    // A handler that returned, or a blocked signal: end it all the same.
    loop {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

/// An object that was freed and is free already.
#[cold]
pub(crate) fn double_free(address: usize) -> ! {
    Line::new()
        .text("double free of ")
        .hex(address)
        .text(", or it was freed and overwritten")
        .abort_about(address)
}

/// A pointer into the heap that is not the start of an object.
#[cold]
pub(crate) fn invalid_free(address: usize) -> ! {
    Line::new()
        .text("invalid free of ")
        .hex(address)
        .text(": not the start of an allocated block")
        .abort_about(address)
}

/// An object that was freed with a size of another class.
#[cold]
pub(crate) fn wrong_size(address: usize, size: usize) -> ! {
    Line::new()
        .text("free of ")
        .hex(address)
        .text(" with a wrong size: the block has ")
        .number(size as u64)
        .text(" bytes")
        .abort_about(address)
}
