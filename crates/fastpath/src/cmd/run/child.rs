// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! A running program: signals go through to it, its end and its costs come back.

use std::ffi::OsStr;
use std::io::{PipeReader, Read as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::system::{self, Usage};

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Status(u8),
    Signal(i32),
}

/// A running program.
#[derive(Debug)]
pub(super) struct Child {
    pid: i32,
    start: Instant,
}

/// What a run cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    pub(super) wall: Duration,
    pub(super) usage: Usage,
}

impl Child {
    /// Starts it. From here to its end signals that somebody sends us go to it; those of the terminal reach it anyway.
    pub(super) fn start(command: &mut Command, name: &OsStr) -> Result<Self, Failure> {
        system::forward_signals();
        let start = Instant::now();
        let child = command.spawn().map_err(|error| Failure::start(super::shown(name), &error))?;
        let pid = child.id() as i32;
        system::forward_signals_to(pid);
        Ok(Self { pid, start })
    }

    /// Waits for its end.
    pub(super) fn wait(self) -> Result<End, Failure> {
        Ok(self.wait_with_costs()?.0)
    }

    /// Waits for its end; costs include those of the children it waited for.
    pub(super) fn wait_with_costs(self) -> Result<(End, Costs), Failure> {
        let (status, usage) = system::wait_for(self.pid)
            .map_err(|error| Failure::operation("cannot wait for the program", error))?;
        let wall = self.start.elapsed();
        let end = if libc::WIFSIGNALED(status) {
            End::Signal(libc::WTERMSIG(status))
        } else {
            End::Status(libc::WEXITSTATUS(status) as u8)
        };
        Ok((end, Costs { wall, usage }))
    }
}

/// What a stream carried: enough to tell two apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Carried {
    bytes: u64,
    hash: u64,
}

/// What to do with a run's output besides comparing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    Show,
    Discard,
}

/// Runs it to its end with its output through pipes, and tells what went through.
pub(super) fn run_captured(
    command: &mut Command,
    name: &OsStr,
    output: Output,
) -> Result<(End, Costs, [Carried; 2]), Failure> {
    let pipe = || std::io::pipe().map_err(|error| Failure::operation("cannot make a pipe", error));
    let ((out, out_end), (err, err_end)) = (pipe()?, pipe()?);
    command.stdout(Stdio::from(out_end)).stderr(Stdio::from(err_end));
    let child = Child::start(command, name)?;
    // The command still holds our ends for writing: without this the pipes would never end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    std::thread::scope(|scope| {
        let out = scope.spawn(move || carry(out, output, &mut std::io::stdout()));
        let err = scope.spawn(move || carry(err, output, &mut std::io::stderr()));
        let (end, costs) = child.wait_with_costs()?;
        let joined = |thread: std::thread::ScopedJoinHandle<'_, Carried>| {
            thread.join().unwrap_or(Carried { bytes: 0, hash: 0 })
        };
        Ok((end, costs, [joined(out), joined(err)]))
    })
}

/// Reads to the end, passing on what is to be shown.
fn carry(mut from: PipeReader, output: Output, to: &mut dyn std::io::Write) -> Carried {
    let mut buffer = vec![0; 64 << 10];
    let mut show = output == Output::Show;
    // FNV-1a over the bytes: independent of how they were cut into reads.
    let mut carried = Carried { bytes: 0, hash: 0xcbf2_9ce4_8422_2325 };
    loop {
        let length = match from.read(&mut buffer) {
            Ok(0) => return carried,
            Ok(length) => length,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => return carried,
        };
        carried.bytes += length as u64;
        for byte in &buffer[..length] {
            carried.hash = (carried.hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        // Whoever read our output went away: the program need not know, its later runs would not either.
        show = show && to.write_all(&buffer[..length]).and_then(|()| to.flush()).is_ok();
    }
}
