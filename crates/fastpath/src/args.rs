// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The command line: what people and scripts may type. Stable.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::failure::Failure;
use crate::terminal;

/// The Linux kernel's per-CPU fast paths for ordinary programs.
#[derive(Debug, Parser)]
#[command(
    name = "fastpath",
    version,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = false
)]
#[command(after_help = "Examples:
  fastpath run -- python3 -c 'print(sum(range(10**6)))'   run a program on the per-CPU allocator
  fastpath run --compare -- make -j4                      and say what it gained
  fastpath bench slab --html slab.html                    what each fast path is worth on this machine
  fastpath info                                           what this machine supports")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program on the per-CPU allocator
    Run(RunArgs),
    /// Measure the fast paths beside their alternatives
    Bench(BenchArgs),
    /// The measuring half of `bench slab`
    #[command(hide = true)]
    BenchWorker {
        /// malloc, rust or base
        allocator: String,
        /// The CPUs to use, the first for tests of one thread
        #[arg(long, value_delimiter = ',', required = true)]
        cpus: Vec<usize>,
    },
    /// Show what this machine supports and which backend each part uses
    Info(InfoArgs),
    /// Show a heap profile: a table, folded stacks, a flame graph
    Prof(ProfArgs),
    /// Watch the heap of a running program
    Top(TopArgs),
    /// Print the heap of a running program as OpenMetrics text, or serve it to a scraper
    Metrics(MetricsArgs),
    /// Print the manual page
    Man,
    /// Print a shell's completions
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
#[command(
    after_help = "The exit status is the program's (128 + N if signal N ended it), 127 if there is none of that name, 126 if it may not be run.

Examples:
  fastpath run -- python3 script.py
  fastpath run --stats -- gcc -O2 -c file.c
  fastpath run --compare 5 -- sqlite3 db.sqlite '.read query.sql'
  fastpath run --stats-json stats.json -- redis-server --port 7000"
)]
pub(crate) struct RunArgs {
    /// Print the allocator's statistics of the whole process tree to stderr at the end
    #[arg(long)]
    pub(crate) stats: bool,
    /// Write the statistics to FILE as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) stats_json: Option<PathBuf>,
    /// Run the program N times on the system's allocator and N times on ours, interleaved, and print a table of both
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "3", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) compare: Option<u32>,
    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// What `fastpath bench` can measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FamilyName {
    /// Compare-and-exchange: native, generic with interrupts off, core's atomics
    Cmpxchg,
    /// Per-CPU operations on restartable sequences beside their alternatives
    Percpu,
    /// slab_test: allocate and free by size
    Slab,
    /// The saturating reference count beside plain atomics
    Refcount,
    /// The mutex with priority inheritance
    Rtmutex,
    /// Threads that open, read and close a file: reference counts in the kernel
    OpenClose,
    /// Every family
    All,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  fastpath bench                                    everything, as text
  fastpath bench slab percpu --json a.json --html a.html
  fastpath bench --quick all --json b.json          a first impression, under 20 s
  fastpath bench compare a.json b.json              what changed; status 1 if a ratio got worse
  fastpath bench show a.json --html a.html          the text and the page of an earlier run
  fastpath bench --from-qemu console.log --json k.json")]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) action: Option<BenchAction>,
    /// What to measure (everything if nothing is named)
    #[arg(value_enum, value_name = "FAMILY")]
    pub(crate) families: Vec<FamilyName>,
    /// Write the results to FILE as JSON (docs/bench-schema.json)
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write one self-contained page with plots to FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Show the columns of another run's JSON beside these, such as that of peers/ (may be repeated)
    #[arg(long, value_name = "FILE")]
    pub(crate) with: Vec<PathBuf>,
    /// Measure nothing: read the figures from the console output of a bare-metal image
    #[arg(long, value_name = "FILE", conflicts_with_all = ["families", "quick", "cpu"])]
    pub(crate) from_qemu: Option<PathBuf>,
    /// A first impression: fewer and shorter rounds, under 20 s for everything
    #[arg(long)]
    pub(crate) quick: bool,
    /// Keep the measuring thread on this CPU (a CPU this process may use is chosen otherwise)
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<usize>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchAction {
    /// Say what changed between two runs; exit status 1 if a ratio got worse
    #[command(
        after_help = "A ratio is a figure over its table's baseline, from the same rounds. It counts as changed if it moved by
more than the threshold and the middle halves of its rounds do not overlap.

Examples:
  fastpath bench compare before.json after.json
  fastpath bench compare --threshold 5 before.json after.json || echo slower"
    )]
    Compare {
        /// The earlier run, as bench --json wrote it
        before: PathBuf,
        /// The later run
        after: PathBuf,
        /// Per cent that a ratio may get worse
        #[arg(long, value_name = "PERCENT", default_value = "10", value_parser = percent)]
        threshold: f64,
        /// Print every ratio, not only those that moved
        #[arg(long)]
        all: bool,
    },
    /// Print an earlier run again, or make its page
    Show {
        /// The run, as bench --json wrote it
        file: PathBuf,
        /// Write one self-contained page with plots to FILE
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
        /// Write it as JSON to FILE
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Show the columns of another run's JSON beside these (may be repeated)
        #[arg(long, value_name = "FILE")]
        with: Vec<PathBuf>,
    },
}

fn percent(text: &str) -> Result<f64, String> {
    let value: f64 =
        text.trim_end_matches('%').parse().map_err(|_| "a number of per cent is wanted".to_owned())?;
    if (0.0..=1000.0).contains(&value) { Ok(value) } else { Err("from 0 to 1000 per cent".to_owned()) }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  fastpath info
  fastpath info --json | jq .rseq")]
pub(crate) struct InfoArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The figures of a heap profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Figure {
    /// Bytes that are in use
    LiveBytes,
    /// Blocks that are in use
    LiveBlocks,
    /// Bytes allocated since the start, freed or not
    Bytes,
    /// Blocks allocated since the start, freed or not
    Blocks,
}

#[derive(Debug, Args)]
#[command(
    after_help = "A program that runs on fastpath writes a profile at its end if FASTPATH_PROFILE names a file; %p in the name
is the process. The file is in pprof's format, so `go tool pprof FILE` reads it too.

Examples:
  FASTPATH_PROFILE=heap.pb.gz fastpath run -- ./server
  fastpath prof heap.pb.gz --html heap.html
  fastpath prof heap.pb.gz --by bytes --top 40
  fastpath prof heap.pb.gz --folded | less"
)]
pub(crate) struct ProfArgs {
    /// The profile
    pub(crate) file: PathBuf,
    /// The figure to show
    #[arg(long, value_enum, default_value = "live-bytes")]
    pub(crate) by: Figure,
    /// Lines of the table
    #[arg(long, value_name = "N", default_value = "25")]
    pub(crate) top: usize,
    /// Print one line per stack instead of the table: functions from the outermost, then the figure
    #[arg(long)]
    pub(crate) folded: bool,
    /// Write a page with a flame graph to FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write the flame graph alone to FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The program is not stopped. Keys: q or F10 quits, s or F6 changes the order, r turns it, space pauses, up and down,
page up and page down scroll.

Examples:
  fastpath top 4711
  fastpath top --once $(pidof server)"
)]
pub(crate) struct TopArgs {
    /// The process
    pub(crate) pid: u32,
    /// Print one table and end
    #[arg(long)]
    pub(crate) once: bool,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) delay: u32,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  fastpath metrics 4711
  fastpath metrics 4711 --listen 127.0.0.1:9464")]
pub(crate) struct MetricsArgs {
    /// The process
    pub(crate) pid: u32,
    /// Serve them by HTTP at this address, under /metrics, as long as the process lives
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
}

/// Reads the process's arguments. `--help` and `--version` print and end the process with status 0.
///
/// # Errors
/// [`Failure::Usage`] with one line that says what is wrong and where help is.
pub(crate) fn parse() -> Result<Cli, Failure> {
    Cli::try_parse().or_else(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let text = error.render();
            let text = if terminal::colour() { text.ansi().to_string() } else { text.to_string() };
            terminal::print(&format!("{}\n", text.trim_end()))?;
            std::process::exit(0)
        }
        _ => Err(Failure::Usage(one_line(&error.render().to_string()))),
    })
}

/// clap's message of several paragraphs as one line: what is wrong, its hint if it has one, where help is.
fn one_line(message: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut help = "fastpath --help".to_owned();
    for paragraph in message.split("\n\n") {
        let text = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some(problem) = text.strip_prefix("error: ") {
            parts.push(problem.to_owned());
        } else if let Some(usage) = text.strip_prefix("Usage: ") {
            let command: Vec<&str> = usage
                .split(' ')
                .take_while(|word| word.starts_with(|c: char| c.is_ascii_lowercase()))
                .collect();
            help = format!("{} --help", command.join(" "));
        } else if text.starts_with("tip: ") {
            parts.push(text);
        }
    }
    format!("{} (see {help})", parts.join("; "))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::{Cli, one_line};

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_usage_error_is_one_line() {
        let message = "error: unexpected argument '--x' found\n\n  tip: a similar one exists: '--y'\n\nUsage: fastpath bench [OPTIONS]\n\nFor more information, try '--help'.\n";
        assert_eq!(
            one_line(message),
            "unexpected argument '--x' found; tip: a similar one exists: '--y' (see fastpath bench --help)"
        );
    }
}
