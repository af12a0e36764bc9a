// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! A program large enough to ask what inlining an allocator into it costs: it parses the files given (Rust, JSON, TOML),
//! counts what a regular expression finds, and prints what it read. `peers/measure` builds it and looks at its size.

use std::fmt::Write as _;

#[cfg(feature = "fastpath")]
#[global_allocator]
static ALLOCATOR: fastpath_alloc::FastPath = fastpath_alloc::FastPath;

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, expression, files @ ..] = &arguments[..] else {
        eprintln!("usage: parser EXPRESSION FILE...");
        return 2.into();
    };
    let expression = match regex::Regex::new(expression) {
        Ok(expression) => expression,
        Err(error) => {
            eprintln!("{error}");
            return 2.into();
        }
    };
    for name in files {
        let text = std::fs::read_to_string(name).unwrap_or_default();
        let mut line = format!("{name}: {} matches", expression.find_iter(&text).count());
        let read = match name.rsplit('.').next() {
            Some("rs") => {
                syn::parse_file(&text).map(|file| format!("{file:#?}")).map_err(|error| error.to_string())
            }
            Some("json") => serde_json::from_str::<serde_json::Value>(&text)
                .map(|value| format!("{value:#}"))
                .map_err(|error| error.to_string()),
            _ => toml::from_str::<toml::Table>(&text)
                .map(|table| format!("{table:#?}"))
                .map_err(|error| error.to_string()),
        };
        let result = match read {
            Ok(read) => write!(line, ", {} bytes as read", read.len()),
            Err(error) => write!(line, ", not read: {error}"),
        };
        if result.is_ok() {
            println!("{line}");
        }
    }
    0.into()
}
