// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! How the command fails: one line on stderr that says what failed and what to do.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// Why the command stops.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The arguments make no sense: exit status 2.
    Usage(String),
    /// What was asked for could not be done: exit status 1.
    Operation(String),
    /// A program could not be started, with the exit status that says so: 127 if it is not there, 126 if it may not run.
    Start(String, u8),
    /// Whoever read our output went away (`fastpath info | head -1`): a quiet end, as other tools do it.
    ReaderGone,
}

impl Failure {
    /// A failed operation, as `what: reason`.
    pub(crate) fn operation(what: impl Display, reason: impl Display) -> Self {
        Self::Operation(format!("{what}: {reason}"))
    }

    /// A program that could not be started.
    pub(crate) fn start(program: impl Display, reason: &io::Error) -> Self {
        let status = if reason.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
        Self::Start(format!("{program}: {reason}"), status)
    }

    /// Prints the one line and says which status to exit with.
    pub(crate) fn report(self) -> ExitCode {
        let (line, status) = match self {
            Self::Usage(line) => (line, 2),
            Self::Operation(line) => (line, 1),
            Self::Start(line, status) => (line, status),
            Self::ReaderGone => return ExitCode::from(141), // 128 + SIGPIPE, what a shell shows for other tools
        };
        // A closed stderr is no reason to panic: the status still tells.
        let _ = writeln!(io::stderr(), "fastpath: {}", line.trim_end());
        ExitCode::from(status)
    }
}

impl From<io::Error> for Failure {
    /// Only for errors of our own output streams.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::ReaderGone
        } else {
            Self::operation("cannot write the output", error)
        }
    }
}
