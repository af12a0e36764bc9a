// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `fastpath run`: a program on the per-CPU allocator.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::args::RunArgs;
use crate::embed;
use crate::failure::Failure;

/// Runs the program.
pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    let library = Library::unpack()?;
    let mut preload = OsString::from(library.path());
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let program = &args.program[0];
    let status = Command::new(program)
        .args(&args.program[1..])
        .env("LD_PRELOAD", preload)
        .status()
        .map_err(|error| Failure::Operation(format!("{}: {error}", Path::new(program).display())))?;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(ExitCode::from(code as u8))
}

/// The embedded library as a file, for as long as the program runs.
struct Library {
    path: PathBuf,
}

impl Library {
    fn unpack() -> Result<Self, Failure> {
        if embed::LIBRARY.is_empty() {
            return Err(Failure::Operation(
                "this build carries no libfastpath.so: build the command from the repository".to_owned(),
            ));
        }
        let folder = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let path = folder.join(format!("libfastpath-{}.so", std::process::id()));
        std::fs::File::create_new(&path)
            .and_then(|mut file| file.write_all(embed::LIBRARY))
            .map_err(|error| Failure::Operation(format!("{}: {error}", path.display())))?;
        Ok(Self { path })
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
