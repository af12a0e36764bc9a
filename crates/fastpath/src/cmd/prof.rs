// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `fastpath prof`: a heap profile as a table, as folded stacks, as a flame graph.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use crate::args::{Figure, ProfArgs};
use crate::failure::Failure;
use crate::heap_profile::{Profile, flame, stacks};
use crate::terminal;

/// Shows the profile.
pub(crate) fn run(args: &ProfArgs) -> Result<ExitCode, Failure> {
    let what = || args.file.display().to_string();
    let bytes = std::fs::read(&args.file).map_err(|error| Failure::operation(what(), error))?;
    let profile = Profile::read(&bytes).map_err(|error| Failure::operation(what(), error))?;
    let (name, _) = names(args.by);
    let figure = profile
        .figure(name)
        .ok_or_else(|| Failure::operation(what(), format!("a profile without {name}: not one of a heap")))?;
    let stacks = stacks(&profile);
    let values: Vec<u64> =
        profile.samples.iter().map(|sample| sample.values.get(figure).copied().unwrap_or(0)).collect();
    if let Some(page) = &args.html {
        write(page, &html(&args.file, args.by, &stacks, &values)?)?;
    }
    if let Some(image) = &args.svg {
        write(image, &flame(args.by, &stacks, &values)?)?;
    }
    if args.folded {
        terminal::print(&folded(&stacks, &values).join("\n"))?;
        terminal::print("\n")?;
    } else {
        terminal::print(&table(&profile, args, &stacks, &values))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The figure's name in the file, and in words.
fn names(figure: Figure) -> (&'static str, &'static str) {
    match figure {
        Figure::LiveBytes => ("inuse_space", "bytes in use"),
        Figure::LiveBlocks => ("inuse_objects", "blocks in use"),
        Figure::Bytes => ("alloc_space", "bytes allocated since the start"),
        Figure::Blocks => ("alloc_objects", "blocks allocated since the start"),
    }
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text)
        .map_err(|error| Failure::operation(format!("cannot write {}", path.display()), error))
}

/// One line per stack, outermost function first, semicolons between: what flame graph tools read.
fn folded(stacks: &[Vec<String>], values: &[u64]) -> Vec<String> {
    let mut sums: HashMap<String, u64> = HashMap::new();
    for (stack, &value) in stacks.iter().zip(values).filter(|(_, value)| **value > 0) {
        let line = stack.iter().map(|name| name.replace(';', ":")).collect::<Vec<_>>().join(";");
        *sums.entry(line).or_default() += value;
    }
    let mut lines: Vec<String> = sums.into_iter().map(|(stack, value)| format!("{stack} {value}")).collect();
    lines.sort();
    lines
}

fn flame(figure: Figure, stacks: &[Vec<String>], values: &[u64]) -> Result<String, Failure> {
    let unit = if matches!(figure, Figure::LiveBytes | Figure::Bytes) { "bytes" } else { "blocks" };
    flame::svg(&format!("Heap: {}", names(figure).1), unit, stacks, values).ok_or_else(|| {
        Failure::Operation("the profile has no sample with that figure: nothing to draw".to_owned())
    })
}

fn html(file: &Path, figure: Figure, stacks: &[Vec<String>], values: &[u64]) -> Result<String, Failure> {
    let svg = flame(figure, stacks, values)?;
    // The image without its XML head is part of the page as it stands.
    let svg = svg.find("<svg").map_or(&*svg, |start| &svg[start..]);
    let title = flame::escaped(&format!("Heap profile {}", file.display()));
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>{title}</title>\n\
         <style>body{{margin:1rem;font-family:sans-serif}}svg{{width:100%;height:auto}}</style></head>\n\
         <body>\n<h1>{title}</h1>\n<p>{}. Click a frame to enlarge it.</p>\n{svg}\n</body>\n</html>\n",
        names(figure).1
    ))
}

/// The functions with the largest figures: in themselves, and with what they call.
fn table(profile: &Profile, args: &ProfArgs, stacks: &[Vec<String>], values: &[u64]) -> String {
    let mut own: HashMap<&str, u64> = HashMap::new();
    let mut whole: HashMap<&str, u64> = HashMap::new();
    let total: u64 = values.iter().sum();
    for (stack, &value) in stacks.iter().zip(values) {
        if let Some(last) = stack.last() {
            *own.entry(last).or_default() += value;
        }
        for name in stack.iter().map(String::as_str).collect::<HashSet<_>>() {
            *whole.entry(name).or_default() += value;
        }
    }
    let mut rows: Vec<(&str, u64, u64)> =
        whole.iter().map(|(name, &all)| (*name, own.get(name).copied().unwrap_or(0), all)).collect();
    rows.sort_by(|a, b| (b.1, b.2, a.0).cmp(&(a.1, a.2, b.0)));
    let interval = if profile.period <= 1 {
        "every block was counted".to_owned()
    } else {
        format!("sampled once in {} bytes: small figures are rough", profile.period)
    };
    let mut out = format!("{total} {} ({interval})\n\n", names(args.by).1);
    let _ = writeln!(
        out,
        "{}",
        terminal::bold(&format!("{:>15} {:>6} {:>15} {:>6}  function", "itself", "", "with callees", ""))
    );
    let share = |value: u64| 100.0 * value as f64 / total.max(1) as f64;
    let width = terminal::width();
    for (name, itself, all) in rows.into_iter().filter(|row| row.2 > 0).take(args.top) {
        let room = width.saturating_sub(48).max(20);
        let name: String = if name.chars().count() > room {
            name.chars().take(room - 1).chain(['…']).collect()
        } else {
            name.to_owned()
        };
        let _ = writeln!(out, "{itself:>15} {:>5.1}% {all:>15} {:>5.1}%  {name}", share(itself), share(all));
    }
    out
}
