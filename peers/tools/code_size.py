# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
"""What our allocator, and `inline` with fat LTO, do to the size of one large program (src/bin/parser.rs)."""
import subprocess
import time

import candidates
from tables import family, table


def text(path):
    """Bytes of code."""
    done = subprocess.run(["size", "-A", str(path)], text=True, capture_output=True)
    for line in done.stdout.splitlines():
        words = line.split()
        if words and words[0] == ".text":
            return int(words[1])
    return None


def measure():
    begun, values = time.time(), {}
    for profile, title in (("release", "default profile"), ("fat", "fat LTO")):
        for name in ("system", "fastpath", "fastpath-inline"):
            if profile == "release" and name == "fastpath-inline":
                continue
            path = candidates.worker(name, "parser", profile)
            if path and (size := text(path)):
                values[title, name] = [size / 1024]
    return [family("peers-code-size", "Code of one large program", time.time() - begun,
                   [table("text", "Section .text", "kibibytes", "profile", values)],
                   ["a parser and printer of Rust, JSON, TOML and regular expressions (peers/src/bin/parser.rs)"])]
