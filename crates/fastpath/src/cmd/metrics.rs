// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `fastpath metrics`: the heap of a running process for a scraper.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

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
    loop {
        match listener.accept() {
            // A scraper that goes away in the middle is its own affair.
            Ok((stream, _)) => drop(answer(stream, &watched)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(error) => return Err(cannot(error)),
        }
        if watched.look().is_err() {
            return Ok(ExitCode::SUCCESS);
        }
    }
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
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.windows(4).any(|four| four == b"\r\n\r\n") && request.len() < 8192 {
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
