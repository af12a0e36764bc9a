// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! A server of a kind: it answers requests, and its memory grows. Is it the allocator?
//!
//! `growing-rss [REQUESTS]` answers that many requests (20,000 unless said otherwise) and ends;
//! `growing-rss REQUESTS wait` then goes on at a slow pace until its standard input ends.

use std::collections::HashMap;
use std::io::Read as _;
use std::time::Duration;

/// What a session needs to know. 1 KiB each.
struct Session {
    _state: Vec<u8>,
}

/// The sessions of everybody who ever asked. Nobody removes one: this is the leak.
#[derive(Default)]
struct Server {
    sessions: HashMap<u64, Session>,
}

#[inline(never)]
fn open_session(number: u64) -> Session {
    Session { _state: vec![number as u8; 1000] }
}

/// Makes an answer: much memory, but not for long.
#[inline(never)]
fn render(number: u64) -> usize {
    let lines: Vec<String> = (0..20).map(|line| format!("line {line} of answer {number}")).collect();
    lines.join("\n").len()
}

impl Server {
    #[inline(never)]
    fn handle(&mut self, number: u64) -> usize {
        self.sessions.insert(number, open_session(number));
        render(number)
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let requests = arguments.first().and_then(|text| text.parse().ok()).unwrap_or(20_000);
    let mut server = Server::default();
    let mut bytes = 0;
    for number in 0..requests {
        bytes += server.handle(number);
    }
    println!("{requests} requests, {bytes} bytes of answers, {} sessions", server.sessions.len());
    if arguments.get(1).is_some_and(|word| word == "wait") {
        let waiter = std::thread::spawn(|| std::io::stdin().read_to_end(&mut Vec::new()));
        let mut number = requests;
        while !waiter.is_finished() {
            for _ in 0..200 {
                server.handle(number);
                number += 1;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    // A server does not tidy up.
    std::mem::forget(server);
}
