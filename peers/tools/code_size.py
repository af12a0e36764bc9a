# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `inline` with fat LTO does to the size of one large program (src/bin/parser.rs)."""
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
    for name in ("system", "fastpath", "fastpath-inline"):
        path = candidates.worker(name, "parser")
        if path and (size := text(path)):
            values["parser", name] = [size / 1024]
    return [family("peers-code-size", "Code of one large program, fat LTO", time.time() - begun,
                   [table("text", "Section .text", "kibibytes", "program", values)],
                   ["a parser and printer of Rust, JSON, TOML and regular expressions (peers/src/bin/parser.rs)"])]
