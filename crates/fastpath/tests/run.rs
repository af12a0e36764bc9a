// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `fastpath run`: the program's end is ours, its children are served, nothing stays behind.
#![cfg(feature = "cli")]

mod command;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use command::{Outcome, fastpath};
use serde_json::Value;

/// Runs `fastpath run ARGS` with a private `TMPDIR`, and checks that it leaves nothing there.
#[track_caller]
fn run(args: &[&str]) -> Outcome {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().to_str().unwrap();
    let outcome = command::with(Path::new("/"), &[&["run"], args].concat(), &[("TMPDIR", folder)]);
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0, "something stayed behind: {outcome:?}");
    outcome
}

/// Compiles a C program with `options` into `folder`.
fn compiled(folder: &Path, name: &str, source: &str, options: &[&str]) -> String {
    let path = folder.join(name);
    let mut cc = Command::new("cc");
    cc.args(["-x", "c", "-", "-o"]).arg(&path).args(options);
    let mut child = cc.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "cc {options:?}");
    path.to_str().unwrap().to_owned()
}

#[test]
fn status_output_and_input_pass_through() {
    let outcome = run(&["--", "sh", "-c", "echo out; echo err >&2; exit 37"]);
    assert_eq!((outcome.status, outcome.out.as_str(), outcome.err.as_str()), (Some(37), "out\n", "err\n"));
    let mut child = command::command(Path::new("/"))
        .args(["run", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"through").unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"through");
}

#[test]
fn the_library_is_in_the_program_and_in_its_children() {
    let outcome = run(&[
        "--",
        "sh",
        "-c",
        "grep -c libfastpath /proc/self/maps; sh -c 'cat /proc/self/maps' | grep -c libfastpath",
    ]);
    let counts: Vec<u32> = outcome.out.lines().map(|line| line.parse().unwrap()).collect();
    assert!(counts.len() == 2 && counts.iter().all(|count| *count > 0), "{outcome:?}");
}

#[test]
fn a_signal_that_ends_the_program_ends_us() {
    for signal in [libc_signal("TERM"), libc_signal("KILL"), libc_signal("SEGV")] {
        let output = command::command(Path::new("/"))
            .args(["run", "--", "sh", "-c", &format!("kill -{signal} $$")])
            .output()
            .unwrap();
        assert_eq!(output.status.signal(), Some(signal), "{output:?}");
    }
}

fn libc_signal(name: &str) -> i32 {
    match name {
        "KILL" => 9,
        "SEGV" => 11,
        _ => 15,
    }
}

#[test]
fn signals_sent_to_us_reach_the_program() {
    for (signal, name) in [("-TERM", "term"), ("-INT", "int"), ("-USR1", "usr1"), ("-HUP", "hup")] {
        let script = "trap 'echo term; exit 3' TERM; trap 'echo int; exit 3' INT; trap 'echo usr1; exit 3' USR1; \
                      trap 'echo hup; exit 3' HUP; echo ready; for i in $(seq 600); do sleep 0.1; done; echo nothing came";
        // A test run in the background may have inherited ignored signals, which a shell cannot trap.
        let mut child = Command::new("env")
            .args([
                "--default-signal=HUP,INT,TERM,USR1",
                env!("CARGO_BIN_EXE_fastpath"),
                "run",
                "--",
                "sh",
                "-c",
                script,
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        assert_eq!(lines.next().unwrap().unwrap(), name);
        assert_eq!(child.wait().unwrap().code(), Some(3));
    }
}

#[test]
fn what_cannot_be_served_is_said() {
    run(&["--", "no-such-program-anywhere"]).failed(127, "no such program in PATH");
    run(&["--", "/no/such/program"]).failed(127, "/no/such/program");
    run(&["--", "/etc/passwd"]).failed(126, "not an executable file");
    run(&[]).failed(2, "required");
    run(&["--compare", "0", "--", "true"]).failed(2, "0");
    let folder = tempfile::tempdir().unwrap();
    let static_program = compiled(folder.path(), "static", "int main(void){return 0;}", &["-static"]);
    run(&["--", &static_program]).failed(1, "linked statically");
    let script = folder.path().join("script");
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    run(&["--", script.to_str().unwrap()]).failed(127, "/no/such/interpreter");
    fs::write(&script, format!("#!{static_program}\n")).unwrap();
    run(&["--", script.to_str().unwrap()]).failed(1, "linked statically");
}

#[test]
fn a_program_of_another_user_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "theirs", "int main(void){return 0;}", &[]);
    let nobody = Some(65534);
    if std::os::unix::fs::chown(&program, nobody, nobody).is_err() {
        fastpath_testkit::skip("run-set-user-id", "only root can make a program of another user");
        return;
    }
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    run(&["--", &program]).failed(1, "set-user-ID");
}

#[test]
fn a_program_with_its_own_malloc_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    let source = "#include <stddef.h>\nstatic char heap[1 << 20]; static size_t used;\n\
        void *malloc(size_t n) { void *p = heap + used; used += (n + 15) & ~(size_t)15; return p; }\n\
        void free(void *p) { (void)p; }\nint main(void) { return malloc(10) == NULL; }\n";
    let program = compiled(folder.path(), "own", source, &["-rdynamic", "-fno-builtin"]);
    let outcome = run(&["--", &program]);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    assert!(outcome.err.contains("brings its own malloc"), "{outcome:?}");
    assert!(run(&["--", "true"]).err.is_empty());
}

#[test]
fn statistics_cover_the_process_tree() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stats.json");
    // One child ends normally, one by a signal.
    let outcome = run(&[
        "--stats",
        "--stats-json",
        file.to_str().unwrap(),
        "--",
        "sh",
        "-c",
        "ls / >/dev/null; sh -c 'kill -KILL $$'; exit 5",
    ]);
    assert_eq!(outcome.status, Some(5), "{outcome:?}");
    assert!(outcome.err.contains("processes served") && outcome.err.contains("ls"), "{outcome:?}");
    let stats: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!((&stats["format"], &stats["version"]), (&Value::from("fastpath-stats"), &Value::from(1)));
    let processes = stats["processes"].as_array().unwrap();
    let named = |name: &str| processes.iter().filter(|process| process["name"] == name).count();
    assert!(named("sh") >= 2 && named("ls") >= 1, "{stats}");
    assert!(
        processes.iter().any(|process| process["allocations_at_least"].as_u64().unwrap() > 10),
        "{stats}"
    );
}

#[test]
fn compare_prints_one_output_and_a_table() {
    let outcome = run(&["--compare", "2", "--", "sh", "-c", "echo once; echo note >&2; exit 4"]);
    assert_eq!((outcome.status, outcome.out.as_str()), (Some(4), "once\n"), "{outcome:?}");
    assert_eq!(outcome.err.matches("note").count(), 1, "{outcome:?}");
    for row in ["wall", "user", "sys", "peak RSS", "page faults", "medians of 2 runs each"] {
        assert!(outcome.err.contains(row), "{row}: {outcome:?}");
    }
    let narrow =
        command::with(Path::new("/"), &["run", "--compare", "1", "--", "true"], &[("COLUMNS", "40")]);
    assert!(narrow.err.lines().all(|line| line.chars().count() <= 40), "{}", narrow.err);
}

#[test]
fn compare_finds_what_differs() {
    let served = "grep -q libfastpath /proc/self/maps";
    let outcome =
        run(&["--compare", "1", "--", "sh", "-c", &format!("{served} && echo ours || echo theirs")]);
    assert_eq!((outcome.status, outcome.out.as_str()), (Some(1), "theirs\n"), "{outcome:?}");
    assert!(
        outcome.err.contains("standard output differs between the system's allocator and ours"),
        "{outcome:?}"
    );
    let outcome = run(&["--compare", "1", "--", "sh", "-c", &format!("{served} && exit 9; exit 8")]);
    assert_eq!(outcome.status, Some(1));
    assert!(outcome.err.contains("exit status differs"), "{outcome:?}");
    let outcome = run(&["--compare", "2", "--", "sh", "-c", "cat /proc/sys/kernel/random/uuid"]);
    assert_eq!(outcome.status, Some(1));
    assert!(outcome.err.contains("varies by itself"), "{outcome:?}");
}

#[test]
fn compare_gives_every_run_the_same_input() {
    let mut child = command::command(Path::new("/"))
        .args(["run", "--compare", "2", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"input\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"input\n"[..]), "{output:?}");
}

#[test]
fn a_killed_run_is_cleaned_up_by_the_next() {
    let temporary = tempfile::tempdir().unwrap();
    let mut child = command::command(Path::new("/"))
        .env("TMPDIR", temporary.path())
        .args(["run", "--", "sh", "-c", "echo ready; exec sleep 1000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    let left = || fs::read_dir(temporary.path()).unwrap().count();
    assert_eq!(left(), 1, "the library while the program runs");
    let quick = [("TMPDIR", temporary.path().to_str().unwrap())];
    // One that runs beside it must not take it away.
    assert_eq!(command::with(Path::new("/"), &["run", "--", "true"], &quick).status, Some(0));
    assert_eq!(left(), 1, "the other's library is still there");
    let program = fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap_or_default();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(left(), 1, "killed: nobody could clean up");
    assert_eq!(command::with(Path::new("/"), &["run", "--", "true"], &quick).status, Some(0));
    assert_eq!(left(), 0, "the next run did");
    for pid in program.split_whitespace() {
        let _ = Command::new("kill").arg(pid).status();
    }
}

#[test]
fn it_works_from_any_folder_and_with_unusable_temporary_folders() {
    let folder = tempfile::tempdir().unwrap();
    let moved = folder.path().join("elsewhere");
    fs::copy(env!("CARGO_BIN_EXE_fastpath"), &moved).unwrap();
    let blank = folder.path().join("a blank");
    fs::create_dir(&blank).unwrap();
    for temporary in [blank.as_path(), Path::new("/no/such/folder"), Path::new("/proc")] {
        // A program that is still being written by somebody cannot be started: wait a little for others' forks.
        let start = Instant::now();
        let output = loop {
            let mut command = Command::new(&moved);
            command.current_dir(folder.path()).env("TMPDIR", temporary).args([
                "run",
                "--",
                "grep",
                "-c",
                "libfastpath",
                "/proc/self/maps",
            ]);
            match command.output() {
                Err(error)
                    if error.kind() == std::io::ErrorKind::ExecutableFileBusy
                        && start.elapsed() < Duration::from_secs(30) =>
                {
                    std::thread::sleep(Duration::from_millis(20));
                }
                other => break other.unwrap(),
            }
        };
        assert!(output.status.success(), "{temporary:?}: {output:?}");
    }
    assert_eq!(fs::read_dir(&blank).unwrap().count(), 0);
    assert_eq!(fastpath(folder.path(), &["run", "--", "true"]).status, Some(0));
}
