// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What really ran: executed cases and counted skips.

use std::io::Write;

/// Records that the case `id` ran to its end on `backend`.
///
/// Call it as the last statement of a test, so that a failed test records nothing. `id` is `K1` to `K98` or `R1` to
/// `R25` of `docs/CASES.md`; `backend` is the name of what was under test (`rseq`, `locked`, `generic`, ...).
/// Appends one line to the file named by `FASTPATH_CASE_LOG`, and does nothing without it.
///
/// ```
/// fastpath_testkit::case("K8", "generic");
/// ```
///
/// # Panics
///
/// If `id` is no case number, or if the file cannot be written: a lost record would look like a gap.
pub fn case(id: &str, backend: &str) {
    let (family, number) = id.split_at(1);
    let last = match family {
        "K" => 98,
        "R" => 25,
        _ => panic!("{id}: a case is K1..K98 or R1..R25"),
    };
    let number: u32 = number.parse().unwrap_or(0);
    assert!((1..=last).contains(&number), "{id}: a case is K1..K98 or R1..R25");
    append("FASTPATH_CASE_LOG", &format!("{id} {backend}\n"));
}

/// Records that the test `name` cannot run on this machine, and why. The caller then returns.
///
/// Prints `SKIP name: reason` on the real standard error (the test harness does not capture it) and appends it to the
/// file named by `FASTPATH_SKIP_LOG`. `ci/allowed-skips.txt` lists the names that may appear, with the condition.
///
/// ```
/// let permitted = true;
/// if !permitted {
///     fastpath_testkit::skip("fifo-inversion", "SCHED_FIFO is not permitted here");
///     return;
/// }
/// ```
///
/// # Panics
///
/// If the file cannot be written.
pub fn skip(name: &str, reason: &str) {
    // Not `eprintln!`: the test harness would capture it and a skip would look like a pass.
    let _ = writeln!(std::io::stderr(), "SKIP {name}: {reason}");
    append("FASTPATH_SKIP_LOG", &format!("{name}: {reason}\n"));
}

/// Prints how many executions a model check explored, and requires at least `minimum`: a state machine that suddenly
/// explores next to nothing is a broken model, not a proof.
///
/// ```
/// fastpath_testkit::explored("two-increments", 6, 2);
/// ```
///
/// # Panics
///
/// If `executions` is below `minimum`.
pub fn explored(name: &str, executions: usize, minimum: usize) {
    let _ = writeln!(std::io::stderr(), "LOOM {name}: {executions} executions (at least {minimum} required)");
    assert!(executions >= minimum, "{name}: only {executions} executions explored, {minimum} required");
}

/// Appends `line` to the file the environment variable `variable` names, in one write so that lines stay whole.
fn append(variable: &str, line: &str) {
    let Some(path) = std::env::var_os(variable) else { return };
    let result = std::fs::OpenOptions::new().create(true).append(true).open(&path);
    let written = result.and_then(|mut file| file.write_all(line.as_bytes()));
    assert!(written.is_ok(), "{variable}={}: {written:?}", path.display());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "a case is K1..K98 or R1..R25")]
    fn a_number_outside_the_lists_is_refused() {
        case("K99", "none");
    }

    #[test]
    #[should_panic(expected = "a case is K1..K98 or R1..R25")]
    fn an_unknown_family_is_refused() {
        case("Q1", "none");
    }
}
