#!/usr/bin/env python3
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Applies each patch of mutants/ to a copy of the tree and requires the test it names to fail.

A patch starts with lines `Rule: ...` (the rule it breaks) and `Test: ...` (arguments of `cargo test`; with a leading
`loom ` the test is built with --cfg loom; with a leading `sh ` the rest is a shell command). The unbroken tree must
pass the same test: that is the other lanes' business. A mutant that does not compile is a failure of this lane.
Usage: ci/mutants.py [NAME-PART...]
"""
import os
import pathlib
import subprocess
import sys
import time

root = pathlib.Path(__file__).resolve().parent.parent
copy = root / "target" / "mutants" / "tree"
env = dict(os.environ, CARGO_TARGET_DIR=str(root / "target" / "mutants" / "build"))
# Built once and run once: quick to build matters more than quick to run.
env.update(CARGO_PROFILE_DEV_OPT_LEVEL="0", CARGO_PROFILE_DEV_DEBUG="0", CARGO_PROFILE_RELEASE_DEBUG="0")
env.pop("FASTPATH_CASE_LOG", None)
env.pop("FASTPATH_SKIP_LOG", None)


def run(command, **kw):
    return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **kw)


def sync():
    copy.mkdir(parents=True, exist_ok=True)
    files = set(filter(None, run(["git", "ls-files", "-z"], cwd=root).stdout.split("\0")))
    for path in list(copy.rglob("*")):
        if (path.is_symlink() or path.is_file()) and str(path.relative_to(copy)) not in files:
            path.unlink()
    for name in sorted(files):
        source, target = root / name, copy / name
        if not source.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            if not target.is_symlink():
                target.unlink(missing_ok=True)
                target.symlink_to(os.readlink(source))
        elif target.is_symlink():
            target.unlink()
            target.write_bytes(source.read_bytes())
        elif not target.exists() or target.read_bytes() != source.read_bytes():
            target.write_bytes(source.read_bytes())
            target.chmod(source.stat().st_mode)


def header(patch, key):
    for line in patch.read_text().splitlines():
        if line.startswith(key + ": "):
            return line[len(key) + 2:]
    sys.exit(f"{patch}: no line '{key}: '")


wanted = sys.argv[1:]
patches = [p for p in sorted((root / "mutants").rglob("*.patch")) if not wanted or any(w in str(p.relative_to(root)) for w in wanted)]
if not patches:
    sys.exit("no mutants found")
# Mutants of one crate follow each other, and loom builds come apart, so that little is rebuilt in between.
patches.sort(key=lambda p: (header(p, "Test").startswith("loom "), p.parent.name, p.name))
survivors = []
for patch in patches:
    name = f"{patch.parent.name}/{patch.stem}"
    test = header(patch, "Test")
    header(patch, "Rule")
    sync()
    applied = run(["git", "apply", "--unsafe-paths", f"--directory={copy.relative_to(root)}", str(patch)], cwd=root)
    if applied.returncode != 0:
        print(f"MUTANT {name}: does not apply\n{applied.stdout}", flush=True)
        survivors.append(name)
        continue
    mine, start = dict(env), time.time()
    if test.startswith("sh "):
        command, built = ["bash", "-c", test[3:]], None
    else:
        if test.startswith("loom "):
            test = test[5:]
            mine["RUSTFLAGS"] = "--cfg loom"
            mine["CARGO_TARGET_DIR"] += "-loom"
        arguments = test.split()
        flags = arguments[: arguments.index("--")] if "--" in arguments else arguments
        command = ["cargo", "test", "--quiet", *arguments]
        built = run(["cargo", "test", "--quiet", "--no-run", *flags], cwd=copy, env=mine)
    if built is not None and built.returncode != 0:
        print(f"MUTANT {name}: does not compile\n{built.stdout[-3000:]}", flush=True)
        survivors.append(name)
        continue
    try:
        result = run(command, cwd=copy, env=mine, timeout=300)
        caught, how = result.returncode != 0, f"exit {result.returncode}"
        if caught and built is not None and "0 passed; 0 failed" in result.stdout and "FAILED" not in result.stdout:
            caught = "signal" in result.stdout
    except subprocess.TimeoutExpired:
        caught, how = True, "hung (300 s)"
    if not caught:
        survivors.append(name)
        print(result.stdout[-1500:])
    elif built is not None and how != "hung (300 s)" and "running 0 tests" in result.stdout and "running 1" not in result.stdout and "failed" not in result.stdout and "signal" not in result.stdout:
        survivors.append(name)
        print(f"MUTANT {name}: the named test does not exist")
    print(f"MUTANT {name}: {'caught' if caught else 'SURVIVED'} ({how}, {time.time() - start:.0f} s)", flush=True)
sync()
print(f"mutants: {len(patches)} applied, {len(survivors)} survived")
sys.exit(1 if survivors else 0)
