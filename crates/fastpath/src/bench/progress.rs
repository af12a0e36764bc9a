// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The progress bar: on stderr, only if a person watches, gone when the figures come.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::terminal;

/// A bar, or nothing.
#[derive(Debug)]
pub(crate) struct Progress(Option<ProgressBar>);

impl Progress {
    /// A bar of `steps` steps if stderr is a terminal.
    pub(crate) fn new(steps: u64) -> Self {
        if !terminal::someone_watches() {
            return Self::silent();
        }
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos:>3}/{len} {elapsed:>4} {wide_msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        Self(Some(bar))
    }

    /// No bar.
    pub(crate) const fn silent() -> Self {
        Self(None)
    }

    /// One more step begins.
    pub(crate) fn step(&self, what: &str) {
        if let Some(bar) = &self.0 {
            bar.set_message(what.to_owned());
            bar.inc(1);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
