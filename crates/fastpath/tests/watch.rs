// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! A running program seen from inside and from outside: every way to ask gives the same figures.

mod programs;

use programs::{build, library};
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const MIB: f64 = 1_048_576.0;

const NAMES: [&str; 19] = [
    "small_bytes",
    "small_objects",
    "cached_bytes",
    "slab_bytes",
    "big_bytes",
    "mapped_bytes",
    "dirty_bytes",
    "reserved_bytes",
    "purged_bytes",
    "record_bytes",
    "refills",
    "refilled",
    "flushes",
    "flushed",
    "direct_allocs",
    "direct_frees",
    "big_allocs",
    "big_frees",
    "barn_bytes",
];

fn program() -> Option<PathBuf> {
    build("agree.c", "agree", &[])
}

fn fastpath(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fastpath")).args(arguments).env("COLUMNS", "120").output().unwrap()
}

/// The program, at the point where it waits, and what it said before. Ended when dropped.
struct Waiting {
    child: Child,
    said: String,
}

impl Waiting {
    fn start(front: &str) -> Option<Self> {
        let mut child = Command::new(program()?)
            .args(["/dev/null", "wait"])
            .env("LD_PRELOAD", library())
            .env("FASTPATH_FRONT", front)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        while !said.ends_with("ready\n") {
            assert!(lines.read_line(&mut said).unwrap() > 0, "{said}");
        }
        Some(Self { child, said })
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// Has the program allocate once more.
    fn go(&mut self) {
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(b"x").unwrap();
        input.flush().unwrap();
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn every_way_to_ask_gives_the_same_figures_and_the_kernel_agrees() {
    let Some(program) = program() else { return };
    let folder = tempfile::tempdir().unwrap();
    let xml = folder.path().join("info.xml");
    for front in ["sheaf", "trylock", "direct"] {
        let mut command = Command::new(&program);
        command.arg(&xml).env("LD_PRELOAD", library()).env("FASTPATH_FRONT", front);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let line = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
                .unwrap_or_else(|| panic!("{name}: {text}"))
        };
        let number = |name: &str| line(name).parse::<f64>().unwrap();
        let figures: HashMap<&str, u64> =
            NAMES.into_iter().zip(line("figures").split(' ').map(|word| word.parse().unwrap())).collect();

        // One heap, one moment, no call to malloc in between: equal.
        let json: serde_json::Value = serde_json::from_str(line("json")).unwrap();
        let warnings = String::from_utf8(output.stderr).unwrap();
        let document = std::fs::read_to_string(&xml).unwrap();
        for (name, value) in &figures {
            assert_eq!(json[name], *value, "{front} JSON {name}");
            let counter = text.lines().find_map(|line| line.strip_prefix(&format!("fastpath_{name}_total ")));
            let gauge = text.lines().find_map(|line| line.strip_prefix(&format!("fastpath_{name} ")));
            assert_eq!(counter.or(gauge), Some(&*value.to_string()), "{front} OpenMetrics {name}");
        }
        for name in NAMES[..10].iter().chain(&NAMES[18..]) {
            let (dashes, value) = (name.replace('_', "-"), figures[name]);
            assert!(
                document.contains(&format!("<{dashes}>{value}</{dashes}>")),
                "{front} malloc_info {name}: {document}"
            );
            assert!(
                warnings.contains(&format!("{dashes} {value}\n")),
                "{front} malloc_stats {name}: {warnings}"
            );
        }
        let runs = figures["big_bytes"] - figures["mapped_bytes"];
        let info: Vec<u64> = line("mallinfo").split(' ').map(|word| word.parse().unwrap()).collect();
        assert_eq!(info[0], figures["small_bytes"] + runs, "{front} uordblks");
        assert_eq!(info[1], figures["mapped_bytes"], "{front} hblkhd");

        // What the program did: 90,000 blocks of 1024 bytes are left, and 20 MiB in one block.
        assert_eq!(line("small_more"), (90_000 * 1024).to_string(), "{front}");
        assert_eq!(line("big_more"), (20 << 20).to_string(), "{front}");
        // What the kernel saw: all 100,000 were touched.
        let touched = 100_000.0 * 1024.0 / MIB + 20.0;
        let resident = number("resident_more") / MIB;
        assert!(
            (resident - touched).abs() < 0.03 * touched,
            "{front}: {resident} MiB resident, {touched} touched"
        );
        let held =
            (figures["slab_bytes"] + figures["big_bytes"] + figures["dirty_bytes"] + figures["record_bytes"])
                as f64;
        assert!(
            number("resident") <= held + 8.0 * MIB,
            "{front}: {} resident, {held} held",
            number("resident")
        );
    }
}

#[test]
fn top_prints_one_table_of_a_running_process() {
    let Some(waiting) = Waiting::start("sheaf") else { return };
    let output = fastpath(&["top", &waiting.pid(), "--once"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&format!("agree ({})", waiting.pid())) && text.contains("front sheaf/"), "{text}");
    let row: Vec<&str> = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|words| words.first() == Some(&"1024"))
        .unwrap_or_else(|| panic!("{text}"));
    assert_eq!(row[1], "90000", "{text}");
    assert_eq!(row[2], "87.9M", "{text}");
    // What lies in sheaves, and of it what lies in barns: 10,000 objects came back, far more than CPUs' sheaves hold.
    let bytes = |word: &str| -> f64 {
        let (number, factor) = match word.split_at(word.len() - 1) {
            (number, "K") => (number, 1024.0),
            (number, "M") => (number, MIB),
            _ => (word, 1.0),
        };
        number.parse::<f64>().unwrap() * factor
    };
    let [sheaves, barn, cached] = [row[3], row[4], row[5]].map(bytes);
    assert!(barn > 0.0 && cached > 0.0 && (sheaves + barn - cached).abs() <= 0.01 * cached, "{text}");
    assert!(text.lines().any(|line| line.contains("cached") && line.contains(" barn)")), "{text}");
}

#[test]
fn a_process_with_another_heap_or_none_is_refused_in_one_line() {
    let mut other = Command::new("sleep").arg("60").spawn().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    for (pid, reason) in [(other.id().to_string(), "not fastpath's"), ("4194999".to_owned(), "there is none")]
    {
        for command in ["top", "metrics"] {
            let output = fastpath(&[command, &pid]);
            let text = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            assert!(text.contains(reason) && text.lines().count() == 1, "{text}");
        }
    }
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn a_scraper_is_served_until_the_process_ends() {
    let Some(waiting) = Waiting::start("sheaf") else { return };
    let plain = String::from_utf8(fastpath(&["metrics", &waiting.pid()]).stdout).unwrap();
    // Ours inside, the command's outside: the same text but for what happened since.
    let inside = waiting.said.split_once("metrics\n").unwrap().1;
    let names = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.starts_with("# TYPE")).map(str::to_owned).collect()
    };
    assert_eq!(names(&plain), names(inside));
    let small = |text: &str| -> f64 {
        text.lines().find_map(|line| line.strip_prefix("fastpath_small_bytes ")?.parse().ok()).unwrap()
    };
    assert!((small(&plain) / small(inside) - 1.0).abs() < 0.001, "{plain}{inside}");
    assert!(plain.ends_with("# EOF\n"));

    let mut server = Command::new(env!("CARGO_BIN_EXE_fastpath"))
        .args(["metrics", &waiting.pid(), "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut address = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let address = address.trim().strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap();
    let ask = |request: &str| {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    // Clients that say nothing keep nobody waiting: one after the other they would take minutes.
    let silent: Vec<_> = (0..30).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
    let start = Instant::now();
    let answer = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(start.elapsed() < Duration::from_mins(1), "it waits for those who say nothing");
    drop(silent);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0"),
        "{head}"
    );
    assert!((small(body) / small(&plain) - 1.0).abs() < 0.001, "{body}{plain}");
    assert!(ask("GET /nothing HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(ask("nonsense\r\n\r\n").starts_with("HTTP/1.1 400"));
    drop(waiting);
    let start = Instant::now();
    let status = loop {
        if let Some(status) = server.try_wait().unwrap() {
            break status;
        }
        assert!(start.elapsed() < Duration::from_mins(1), "it goes on without its process");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success(), "{status}");
}

/// A terminal emulator of its own.
struct Screen {
    socket: String,
}

impl Screen {
    fn tmux(&self, arguments: &[&str]) -> String {
        let output = Command::new("tmux")
            .args(["-L", &self.socket, "-f", "/dev/null"])
            .args(arguments)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Waits until the screen shows what is wanted.
    #[track_caller]
    fn until(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let shown = self.tmux(&["capture-pane", "-p"]);
            if wanted(&shown) {
                return shown;
            }
            assert!(start.elapsed() < Duration::from_mins(1), "{what}:\n{shown}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

#[test]
fn top_on_a_terminal_sorts_pauses_resizes_and_ends() {
    if Command::new("tmux").arg("-V").output().is_err() {
        fastpath_testkit::skip("top-tmux", "no tmux");
        return;
    }
    let Some(mut waiting) = Waiting::start("sheaf") else { return };
    let screen = Screen { socket: format!("fastpath-{}", std::process::id()) };
    let command = format!("{} top {}; echo over; sleep 100", env!("CARGO_BIN_EXE_fastpath"), waiting.pid());
    screen.tmux(&["new-session", "-d", "-x", "100", "-y", "20", &command]);
    let shown =
        screen.until("the first picture", |shown| shown.contains("F10 Quit") && shown.contains("90000"));
    assert!(shown.contains(&format!("agree ({})", waiting.pid())) && shown.contains("LIVE▼"), "{shown}");
    // The largest first.
    let first =
        |shown: &str| shown.lines().nth(6).and_then(|line| line.split_whitespace().next().map(str::to_owned));
    assert_eq!(first(&shown).as_deref(), Some("1024"), "{shown}");
    screen.tmux(&["send-keys", "F6"]);
    screen.until("sorted by the next column", |shown| shown.contains("CACHED▼") && !shown.contains("LIVE▼"));
    for _ in 0..3 {
        screen.tmux(&["send-keys", "s"]);
    }
    screen.until("by size, largest first", |shown| {
        let sizes: Vec<u64> =
            shown.lines().skip(6).filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect();
        shown.contains("SIZE▼") && sizes.len() > 1 && sizes.is_sorted_by(|a, b| a > b)
    });
    screen.tmux(&["send-keys", "r"]);
    screen.until("turned", |shown| {
        let sizes: Vec<u64> =
            shown.lines().skip(6).filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect();
        sizes.len() > 1 && sizes.is_sorted_by(|a, b| a < b)
    });
    // It is live: what the program does now shows.
    let start = Instant::now();
    loop {
        waiting.go();
        std::thread::sleep(Duration::from_millis(100));
        let shown = screen.tmux(&["capture-pane", "-p"]);
        let rate = shown
            .lines()
            .find_map(|line| line.split_once("flushes, ")?.1.split(' ').next()?.parse::<u64>().ok());
        if rate.is_some_and(|rate| rate > 0) {
            break;
        }
        assert!(start.elapsed() < Duration::from_mins(1), "no rate:\n{shown}");
    }
    screen.tmux(&["send-keys", "Space"]);
    screen.until("paused", |shown| shown.contains("(paused)"));
    screen.tmux(&["resize-window", "-x", "70", "-y", "12"]);
    screen.until("smaller", |shown| {
        shown.lines().count() <= 12 && shown.lines().last().is_some_and(|line| line.contains("F10 Quit"))
    });
    screen.tmux(&["send-keys", "q"]);
    screen.until("the end", |shown| shown.contains("over") && !shown.contains("F10 Quit"));
}
