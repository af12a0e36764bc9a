#!/usr/bin/env python3
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
"""The rules no lint can see: where assembly, system calls and orderings may appear, and that proofs are proofs."""
import pathlib
import re
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parent.parent
files = subprocess.run(["git", "ls-files", "-z", "*.rs"], cwd=root, text=True, capture_output=True).stdout.split("\0")
problems = []
# Folders and files that may contain assembly. Elsewhere it would escape the review that assembly gets.
ASM = re.compile(
    r"/(arch|interrupt|rseq|sheaf)/|/arch\.rs$|/arch_|/(interrupt|boot|mode|start|sections?|weak|timing|tsc|cycles)[^/]*\.rs$"
    r"|^kernels/|^peers/|/tests/|/benches/|^crates/sys/src/|^crates/malloc/src/"
)
# Files outside fastpath-sys that still call Linux themselves. The list may only shrink.
KNOW_LINUX = {
    "crates/alloc/src/heap.rs",
    "crates/alloc/src/os.rs",
    "crates/alloc/src/report.rs",
    "crates/alloc/src/stats.rs",
    "crates/rtmutex/src/linux/backend.rs",
    "crates/rtmutex/src/linux/shared.rs",
}
PLACEHOLDER = re.compile(r"SAFETY: *(untriaged|todo|fixme|see above|trust me|ok\b|fine\b|\?+|\.\.\.)", re.I)
for name in filter(None, files):
    path = root / name
    if not path.exists():
        continue
    text = path.read_text()
    code = "\n".join(line.split("//")[0] for line in text.splitlines())
    if re.search(r"\b(global_|naked_)?asm!\s*[({]", code) and not ASM.search("/" + name) and not ASM.search(name):
        problems.append(f"{name}: assembly outside the architecture folders")
    if re.search(r"^use (rustix|libc)\b|\b(rustix|libc)::", code, re.M) and re.match(
        r"crates/(cmpxchg|percpu|slub|refcount|rtmutex|alloc)/src/", name
    ) and name not in KNOW_LINUX:
        problems.append(f"{name}: only fastpath-sys knows Linux")
    for number, line in enumerate(text.splitlines(), 1):
        if PLACEHOLDER.search(line):
            problems.append(f"{name}:{number}: placeholder proof")
        if re.search(r"\b(TODO|FIXME|XXX)\b", line) and not re.search(r"#\d+", line):
            problems.append(f"{name}:{number}: a note to self without an issue number")
    if re.search(r"/(utils?|common|misc|helpers?)(\.rs|/)", "/" + name):
        problems.append(f"{name}: a name that says nothing")
# Documents must not name files that are not there.
documents = subprocess.run(["git", "ls-files", "-z", "*.md"], cwd=root, text=True, capture_output=True).stdout.split("\0")
for name in filter(None, documents):
    if not (root / name).exists():
        continue
    for path in re.findall(r"`((?:crates|ci|docs|mutants|kernels|peers|vm|examples|\.ci)/[\w./-]+)`", (root / name).read_text()):
        if not (root / path).exists():
            problems.append(f"{name}: names {path}, which is not there")
print("\n".join(problems) if problems else f"tidy: {len(files) - 1} files, no problems")
sys.exit(1 if problems else 0)
