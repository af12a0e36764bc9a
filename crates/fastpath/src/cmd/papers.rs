// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `fastpath man` and `fastpath completions`: what an installation puts beside the command.

use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::args::Cli;
use crate::failure::Failure;
use crate::terminal;

/// Prints the manual page, of the command and of all its commands one after the other.
pub(crate) fn man() -> Result<ExitCode, Failure> {
    let mut page = Vec::new();
    let mut command = Cli::command();
    command.build();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        let man = clap_mangen::Man::new(sub.clone());
        let mut part = Vec::new();
        man.render_name_section(&mut part)?;
        man.render_synopsis_section(&mut part)?;
        man.render_description_section(&mut part)?;
        man.render_options_section(&mut part)?;
        man.render_extra_section(&mut part)?;
        // The part's sections become the page's.
        let title = format!("COMMAND {}", sub.get_name());
        let text = String::from_utf8_lossy(&part)
            .replace(".SH NAME", &format!(".SH \"{title}\""))
            .replace(".SH SYNOPSIS", ".PP");
        page.extend_from_slice(
            text.replace(".SH DESCRIPTION", ".PP").replace(".SH OPTIONS", ".PP").as_bytes(),
        );
    }
    terminal::print(&String::from_utf8_lossy(&page))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the completions of a shell.
pub(crate) fn completions(shell: clap_complete::Shell) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "fastpath", &mut text);
    terminal::print(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}
