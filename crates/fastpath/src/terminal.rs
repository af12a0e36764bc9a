// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What we know about where our output goes: its width, whether a person is watching, whether colour is welcome.

use std::io::{self, IsTerminal as _, Write as _};

use crate::failure::Failure;

/// Columns assumed where nobody can tell: a pipe or a file.
const WIDTH_OF_A_PIPE: usize = 120;

/// Columns that text on stdout may use: `COLUMNS` if it is set, else the terminal's width, else 120.
pub(crate) fn width() -> usize {
    let wanted = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let width = wanted
        .or_else(|| terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0)));
    width.unwrap_or(WIDTH_OF_A_PIPE).max(20)
}

/// As [`width`], for text on stderr.
pub(crate) fn width_of_stderr() -> usize {
    let wanted = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let width = wanted
        .or_else(|| terminal_size::terminal_size_of(io::stderr()).map(|(width, _)| usize::from(width.0)));
    width.unwrap_or(WIDTH_OF_A_PIPE).max(20)
}

/// True if stderr is a terminal: then a progress bar is useful.
pub(crate) fn someone_watches() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// True if stdout may carry colour: a terminal, `NO_COLOR` not set to anything (<https://no-color.org>), not `TERM=dumb`.
pub(crate) fn colour() -> bool {
    io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// `text` in bold if stdout takes colour.
pub(crate) fn bold(text: &str) -> String {
    if colour() { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
}

/// Writes `text` to stdout.
///
/// # Errors
/// [`Failure::ReaderGone`] if the reader closed the pipe, else an operation's failure (a full disk behind a redirection).
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Breaks `text` at spaces so that no line is wider than `width`, each line starting with `indent`.
pub(crate) fn wrap(text: &str, indent: &str, width: usize) -> String {
    let mut out = String::new();
    let mut line = String::from(indent);
    for word in text.split_whitespace() {
        if line.trim_start().is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            out.push_str(&line);
            out.push('\n');
            line = format!("{indent}{word}");
        }
    }
    out.push_str(line.trim_end());
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::wrap;

    #[test]
    fn wrapped_text_keeps_its_words_and_its_width() {
        let text = "one two three four five six seven";
        let wrapped = wrap(text, "  ", 12);
        assert!(wrapped.lines().all(|line| line.len() <= 12 && line.starts_with("  ")), "{wrapped}");
        assert_eq!(wrapped.split_whitespace().collect::<Vec<_>>(), text.split(' ').collect::<Vec<_>>());
        assert_eq!(wrap("", "", 12), "\n");
    }
}
