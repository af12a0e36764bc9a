// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Names of functions, from the files that were mapped.

use std::collections::HashMap;
use std::path::Path;

use addr2line::Loader;

use super::decode::Profile;

/// A mapped file: its debug information, and where its parts lie in memory when it is loaded at 0.
struct Module {
    loader: Option<Loader>,
    /// Offset in the file, address, length.
    parts: Vec<(u64, u64, u64)>,
}

impl Module {
    fn open(path: &str) -> Self {
        let parts = std::fs::read(path).ok().and_then(|bytes| {
            let file = elf::ElfBytes::<elf::endian::AnyEndian>::minimal_parse(&bytes).ok()?;
            let parts = file.segments()?.iter().filter(|part| part.p_type == elf::abi::PT_LOAD);
            Some(parts.map(|part| (part.p_offset, part.p_vaddr, part.p_memsz)).collect())
        });
        Self { loader: Loader::new(path).ok(), parts: parts.unwrap_or_default() }
    }

    /// The functions at an offset in the file, innermost first: more than one where calls were inlined and there is no symbol.
    fn functions(&self, offset: u64) -> Vec<String> {
        let part = self.parts.iter().find(|part| (part.0..part.0 + part.2).contains(&offset));
        let Some(loader) = &self.loader else { return Vec::new() };
        let address = part.map_or(offset, |part| offset - part.0 + part.1);
        // The symbol's name has its path; what was inlined into it is named without.
        if let Some(symbol) = loader.find_symbol(address) {
            return vec![short(&addr2line::demangle_auto(symbol.into(), None))];
        }
        let mut names = Vec::new();
        if let Ok(mut frames) = loader.find_frames(address) {
            while let Ok(Some(frame)) = frames.next() {
                if let Some(name) = frame.function.as_ref().and_then(|function| function.demangle().ok()) {
                    names.push(short(&name));
                }
            }
        }
        names
    }
}

/// Without the hash that Rust puts behind its names.
fn short(name: &str) -> String {
    match name.rsplit_once("::h") {
        Some((path, hash)) if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            path.to_owned()
        }
        _ => name.to_owned(),
    }
}

/// True for the allocator's own functions, where it is linked into the program.
fn is_allocator(name: &str) -> bool {
    ["fastpath_alloc::", "<fastpath_alloc::", "__rust_", "__rustc::__rust_", "_RNvC", "alloc::alloc::"]
        .iter()
        .any(|start| name.starts_with(start))
        || name.contains("___rust_")
        || ["malloc", "calloc", "realloc", "operator new"].contains(&name)
}

/// The stacks of all samples as names, outermost first.
pub(crate) fn stacks(profile: &Profile) -> Vec<Vec<String>> {
    let mut modules: HashMap<&str, Module> = HashMap::new();
    let mut known: HashMap<u64, Vec<String>> = HashMap::new();
    profile
        .samples
        .iter()
        .map(|sample| {
            let mut stack: Vec<String> = Vec::new();
            for id in &sample.locations {
                let Some(&(mapping, address)) = profile.locations.get(id) else { continue };
                let names = known.entry(address).or_insert_with(|| {
                    let Some(mapping) = profile.mappings.get(&mapping) else {
                        return vec![format!("{address:#x}")];
                    };
                    let path = profile.file(mapping);
                    let offset = address.wrapping_sub(mapping.start).wrapping_add(mapping.offset);
                    let names = modules.entry(path).or_insert_with(|| Module::open(path)).functions(offset);
                    if names.is_empty() {
                        let file = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
                        return vec![format!("{file}+{offset:#x}")];
                    }
                    names
                });
                stack.extend(names.iter().cloned());
            }
            let own = stack.iter().take_while(|name| is_allocator(name)).count();
            if own < stack.len() {
                stack.drain(..own);
            }
            if stack.is_empty() {
                stack.push("(unknown)".to_owned());
            }
            stack.reverse();
            stack
        })
        .collect()
}
