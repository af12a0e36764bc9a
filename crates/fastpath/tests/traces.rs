// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Random traces of C calls against a model, in every mode of libfastpath. `PROPTEST_CASES=10000` makes it a long run.

mod programs;

use programs::{FRONTS, build, library};
use proptest::prelude::*;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// A call: its letter, the slot, the size, the alignment.
type Call = (char, usize, usize, usize);

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        6 => 0_usize..300,
        3 => 300_usize..5000,
        2 => 5000_usize..70_000,
        1 => 70_000_usize..3_000_000,
        // Where classes, runs and mappings meet.
        2 => prop_oneof![Just(16), Just(128), Just(129), Just(32_768), Just(32_769), Just(65_536), Just(1 << 20)],
    ]
}

fn call() -> impl Strategy<Value = Call> {
    let letter = prop_oneof![
        5 => Just('m'), 2 => Just('c'), 1 => Just('a'), 1 => Just('p'), 4 => Just('r'), 4 => Just('f'), 1 => Just('t')
    ];
    (letter, 0_usize..64, size(), (0_u32..14).prop_map(|shift| 1 << shift))
}

/// A dozen unless the environment asks for more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_trace_of_calls_behaves_as_the_model(trace in proptest::collection::vec(call(), 1..600)) {
        let Some(program) = build("trace.c", "trace", &[]) else { return Ok(()) };
        let text = trace.iter().fold(String::new(), |mut text, (letter, slot, size, align)| {
            let _ = writeln!(text, "{letter} {slot} {size} {align}");
            text
        });
        for settings in FRONTS {
            let mut child = Command::new(&program)
                .env("LD_PRELOAD", library())
                .envs(settings.iter().copied())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
            let output = child.wait_with_output().unwrap();
            prop_assert!(output.status.success() && output.stdout == b"ok\n", "{:?}: {:?}", settings, output);
        }
    }
}
