// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `fastpath metrics`: the heap of a running process for a scraper.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fastpath_alloc::text;

use crate::args::MetricsArgs;
use crate::failure::Failure;
use crate::terminal;
use crate::watched::Watched;

/// Prints the text, or serves it.
pub(crate) fn run(args: &MetricsArgs) -> Result<ExitCode, Failure> {
    let watched = Watched::find(args.pid)?;
    let gone = |error| Failure::operation(format!("process {}", args.pid), error);
    let Some(address) = &args.listen else {
        terminal::print(&metrics(&watched).map_err(gone)?)?;
        return Ok(ExitCode::SUCCESS);
    };
    let cannot = |error| Failure::operation(format!("cannot listen at {address}"), error);
    let listener = TcpListener::bind(address).map_err(cannot)?;
    listener.set_nonblocking(true).map_err(cannot)?;
    terminal::print(&format!("http://{}/metrics\n", listener.local_addr().map_err(cannot)?))?;
    let busy = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        loop {
            match listener.accept() {
                Ok((stream, _)) if busy.load(Relaxed) < CLIENTS => {
                    busy.fetch_add(1, Relaxed);
                    let (watched, busy) = (&watched, &busy);
                    scope.spawn(move || {
                        // A scraper that goes away in the middle is its own affair.
                        let _ = answer(stream, watched);
                        busy.fetch_sub(1, Relaxed);
                    });
                }
                Ok((stream, _)) => drop(refuse(stream)),
                // Nobody there; or one that went away at once, or no descriptors at the moment.
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
            if watched.look().is_err() {
                return Ok(ExitCode::SUCCESS);
            }
        }
    })
}

/// Clients that are served at a time: one that says nothing must not keep the others waiting.
const CLIENTS: usize = 64;
/// How long a client may take over its request.
const PATIENCE: Duration = Duration::from_secs(5);

/// Tells one client too many to come again.
fn refuse(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.write_all(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
}

fn metrics(watched: &Watched) -> io::Result<String> {
    let page = watched.fresh()?;
    let mut out = vec![0; text::open_metrics_of(&page, &mut [])];
    text::open_metrics_of(&page, &mut out);
    String::from_utf8(out).map_err(io::Error::other)
}

/// Answers one request.
fn answer(mut stream: TcpStream, watched: &Watched) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let start = Instant::now();
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.windows(4).any(|four| four == b"\r\n\r\n") && request.len() < 8192 {
        let left = PATIENCE.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => break,
            count => request.extend_from_slice(&part[..count]),
        }
    }
    let line = String::from_utf8_lossy(&request).lines().next().unwrap_or("").to_owned();
    let words: Vec<&str> = line.split(' ').collect();
    let (status, kind, body) = match (words.first(), words.get(1)) {
        (Some(&("GET" | "HEAD")), Some(&("/metrics" | "/"))) => match metrics(watched) {
            Ok(text) => ("200 OK", "application/openmetrics-text; version=1.0.0; charset=utf-8", text),
            Err(error) => ("503 Service Unavailable", "text/plain", format!("{error}\n")),
        },
        (Some(&("GET" | "HEAD")), Some(_)) => ("404 Not Found", "text/plain", "see /metrics\n".to_owned()),
        _ => ("400 Bad Request", "text/plain", "GET /metrics\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    if words.first() != Some(&"HEAD") {
        stream.write_all(body.as_bytes())?;
    }
    stream.flush()
}
