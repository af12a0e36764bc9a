// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Looks at a program before it is started: whether a library can be preloaded into it at all, and whether it brings
//! a malloc of its own.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use elf::ElfStream;
use elf::abi::{PT_INTERP, SHN_UNDEF};
use elf::endian::AnyEndian;
use elf::file::Class;

use crate::failure::Failure;

/// A program that can be served.
#[derive(Debug)]
pub(super) struct Program {
    name: String,
    own_malloc: bool,
}

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;

impl Program {
    /// Finds the program as a shell would and looks into it; a script's interpreter is what is looked into.
    ///
    /// # Errors
    /// An operation's failure if there is no such program, or none that a library can be preloaded into.
    pub(super) fn find(name: &OsStr) -> Result<Self, Failure> {
        let mut path = locate(name)?;
        // A script may be another script's interpreter; the kernel follows four of them.
        for _ in 0..5 {
            match look(&path)? {
                Look::Served { own_malloc } => {
                    return Ok(Self { name: path.display().to_string(), own_malloc });
                }
                Look::Script(interpreter) => path = interpreter,
            }
        }
        Err(Failure::operation(super::shown(name), "too many interpreters of interpreters"))
    }

    /// What a user should know before it runs.
    pub(super) fn note(&self) -> Option<String> {
        self.own_malloc.then(|| {
            format!(
                "note: {} brings its own malloc, which wins over a preloaded one: only programs it starts are served",
                self.name
            )
        })
    }
}

enum Look {
    Served { own_malloc: bool },
    Script(PathBuf),
}

/// The file that `name` means: itself if it has a slash, else the first of that name in `PATH`.
fn locate(name: &OsStr) -> Result<PathBuf, Failure> {
    let shown = super::shown(name);
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        let data = fs::metadata(&path).map_err(|error| Failure::start(&shown, &error))?;
        if !executable(&data) {
            return Err(Failure::Start(format!("{shown}: not an executable file"), 126));
        }
        return Ok(path);
    }
    let folders = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    std::env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .find(|path| fs::metadata(path).is_ok_and(|data| executable(&data)))
        .ok_or_else(|| Failure::Start(format!("{shown}: no such program in PATH"), 127))
}

fn executable(data: &fs::Metadata) -> bool {
    data.is_file() && data.mode() & 0o111 != 0
}

fn look(path: &Path) -> Result<Look, Failure> {
    let shown = path.display().to_string();
    let data = fs::metadata(path).map_err(|error| Failure::start(&shown, &error))?;
    let mut start = [0; 256];
    let file = File::open(path);
    let length = match &file {
        // A program may be executable and not readable. The dynamic linker does not mind.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => 0,
        Err(error) => return Err(Failure::start(&shown, error)),
        Ok(file) => file.take(256).read(&mut start).map_err(|error| Failure::operation(&shown, error))?,
    };
    if let Some(line) = start[..length].strip_prefix(b"#!") {
        // A script's own set-user bits mean nothing to the kernel.
        return interpreter(line)
            .map_or(Ok(Look::Served { own_malloc: false }), |path| path.map(Look::Script));
    }
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let other_user = data.mode() & SET_USER != 0 && data.uid() != uid;
    let other_group = data.mode() & SET_GROUP != 0 && data.gid() != gid;
    let capabilities =
        uid != 0 && rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 64][..]).is_ok();
    if other_user || other_group || capabilities {
        let why = if capabilities { "has file capabilities" } else { "is set-user-ID or set-group-ID" };
        return Err(Failure::Operation(format!(
            "{shown} {why}: the dynamic linker preloads nothing into such programs; start it as the user it runs as"
        )));
    }
    match file {
        Ok(file) if start.starts_with(b"\x7fELF") => look_into(&shown, file),
        // Neither: the C library hands it to the shell, and that can be served.
        _ => Ok(Look::Served { own_malloc: false }),
    }
}

fn look_into(shown: &str, file: File) -> Result<Look, Failure> {
    // What cannot be read here is left to the kernel to judge.
    let Ok(mut program) = ElfStream::<AnyEndian, _>::open_stream(file) else {
        return Ok(Look::Served { own_malloc: false });
    };
    if program.ehdr.class != if size_of::<usize>() == 8 { Class::ELF64 } else { Class::ELF32 }
        || program.ehdr.e_machine != MACHINE
    {
        return Err(Failure::Operation(format!(
            "{shown} is a program for another kind of processor than the library ({}); it cannot be served",
            std::env::consts::ARCH
        )));
    }
    if !program.segments().iter().any(|segment| segment.p_type == PT_INTERP) {
        return Err(Failure::Operation(format!(
            "{shown} is linked statically: there is no dynamic linker that could preload a library; link it with \
             libfastpath.a instead"
        )));
    }
    let own_malloc = program.dynamic_symbol_table().ok().flatten().is_some_and(|(symbols, names)| {
        symbols.iter().any(|symbol| {
            symbol.st_shndx != SHN_UNDEF
                && names.get(symbol.st_name as usize).is_ok_and(|name| name == "malloc")
        })
    });
    Ok(Look::Served { own_malloc })
}

const MACHINE: u16 = core::cfg_select! {
    target_arch = "x86_64" => elf::abi::EM_X86_64,
    target_arch = "aarch64" => elf::abi::EM_AARCH64,
    target_arch = "riscv64" => elf::abi::EM_RISCV,
    _ => 0,
};

/// The program that runs a script whose first line is `#!` and `line`; none if the line is not to be understood.
fn interpreter(line: &[u8]) -> Option<Result<PathBuf, Failure>> {
    let line = line.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t' | b'\r')).filter(|word| !word.is_empty());
    let path = PathBuf::from(OsString::from_vec(words.next()?.to_vec()));
    if path.file_name().is_some_and(|name| name == "env") {
        // `env -S python3 -u`, `env A=b python3`: the first word that is a program.
        let name = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='))?;
        return Some(locate(OsStr::from_bytes(name)));
    }
    Some(locate(path.as_os_str()))
}

#[cfg(test)]
mod tests {
    use super::{Program, interpreter};
    use std::ffi::OsStr;

    #[test]
    fn interpreters_are_found() {
        let of = |line: &str| {
            interpreter(line.as_bytes())
                .map(|found| found.map(|path| path.display().to_string()).unwrap_or_default())
        };
        assert_eq!(of(" /bin/sh -e\necho"), Some("/bin/sh".to_owned()));
        assert!(
            of("/usr/bin/env -S A=b sh -u\n").is_some_and(|path| path.ends_with("/sh")),
            "{:?}",
            of("/usr/bin/env sh")
        );
        assert_eq!(of("/no/such/interpreter\n"), Some(String::new()));
        assert_eq!(of("\n"), None);
    }

    #[test]
    fn an_ordinary_program_can_be_served() {
        let program = Program::find(OsStr::new("sh")).unwrap();
        assert!(program.note().is_none());
    }
}
