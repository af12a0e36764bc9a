// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Runs the built command.
#![allow(dead_code, reason = "each test program uses its part")]

use std::path::Path;
use std::process::{Command, Stdio};

/// How a run ended and what it said.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Outcome {
    /// It failed with `status` and one line on stderr that contains `what`.
    #[track_caller]
    pub(crate) fn failed(&self, status: i32, what: &str) {
        assert_eq!(self.status, Some(status), "{self:?}");
        assert!(self.err.contains(what), "{what} in {self:?}");
        assert!(self.err.starts_with("fastpath: ") && self.err.lines().count() == 1, "one line: {self:?}");
    }
}

/// The command with neutral surroundings.
pub(crate) fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fastpath"));
    command.current_dir(folder).env_remove("COLUMNS").env_remove("NO_COLOR").stdin(Stdio::null());
    command
}

/// Runs it in `folder`.
pub(crate) fn fastpath(folder: &Path, args: &[&str]) -> Outcome {
    with(folder, args, &[])
}

/// Runs it in `folder` with environment variables.
pub(crate) fn with(folder: &Path, args: &[&str], variables: &[(&str, &str)]) -> Outcome {
    let output = command(folder).args(args).envs(variables.iter().copied()).output().unwrap();
    Outcome {
        status: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs it with a stdout that nobody reads.
pub(crate) fn into_a_closed_pipe(folder: &Path, args: &[&str]) -> Outcome {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command(folder)
        .args(args)
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap();
    Outcome {
        status: output.status.code(),
        out: String::new(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}
