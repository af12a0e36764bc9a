// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The default warning: one line on standard error per kind of event (K72), seen from outside the process.
#![cfg(all(not(loom), feature = "std"))]

use std::process::Command;

use fastpath_refcount::RefCount;

const CHILD: &str = "FASTPATH_REFCOUNT_WARN_CHILD";

/// Not a test of its own: what the child process of the next one does.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    for _ in 0..3 {
        RefCount::new(0).inc();
        assert!(!RefCount::new(0).dec_and_test());
    }
}

#[test]
fn one_line_per_kind_on_standard_error() {
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "child", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .expect("it starts");
    assert!(output.status.success());
    let text = String::from_utf8(output.stderr).expect("text");
    let mut lines: Vec<_> = text.lines().filter(|line| line.contains("refcount_t")).collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].starts_with("refcount_t: addition on 0; use-after-free (counter at 0x"), "{text}");
    assert!(lines[1].starts_with("refcount_t: underflow; use-after-free (counter at 0x"), "{text}");
    assert!(lines[0].ends_with("; further events of this kind are not reported"), "{text}");
    fastpath_testkit::case("K72", "standard error");
}
