# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a pair costs while more and more threads that used the allocator wait: instructions under callgrind (where no allocator
has restartable sequences: ours runs its fallback), and ticks natively. Blocks of 64 bytes, 1000 allocated, then freed."""
import json
import os
import re
import shutil
import subprocess
import tempfile
import time

import candidates
from tables import family, table

BATCH, LOOPS = 1000, 5
PAIRS = (3 + 20 * LOOPS) * BATCH  # as c/pair.c does it


def command(pair, threads, loops=LOOPS):
    return [str(pair), "count", str(loops), "64", str(BATCH), str(threads)]


def environment(library):
    plain = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    return dict(plain, LD_PRELOAD=str(library)) if library else plain


def instructions(pair, library, threads, prefix=()):
    if not shutil.which("valgrind"):
        return None
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        try:
            done = subprocess.run([*prefix, "valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--toggle-collect=measured",
                                   "--max-threads=2000", *command(pair, threads)], env=environment(library), capture_output=True, timeout=60)
        except subprocess.TimeoutExpired:
            return None
        found = re.search(r"^(?:summary|totals): (\d+)", open(out).read(), re.M) if done.returncode == 0 and os.path.exists(out) else None
    return int(found[1]) / PAIRS if found else None


def ticks(pair, library, threads):
    """Ticks per pair and resident KiB, or None."""
    done = subprocess.run(command(pair, threads, 30), env=environment(library), text=True, capture_output=True)
    return json.loads(done.stdout) if done.returncode == 0 and done.stdout.startswith("{") else None


def measure(libraries, quick, may_install):
    begun = time.time()
    if may_install and not shutil.which("valgrind"):
        candidates.install(["valgrind"])
    pair = candidates.pair_program()
    counted, timed, resident = {}, {}, {}
    chosen = {name: libraries[name] for name in ("fastpath", "system", "mimalloc3", "debian-jemalloc") if name in libraries}
    for threads in (1, 100) if quick else (1, 10, 100, 1000):
        for name in ("fastpath", "system"):
            if name in libraries and (value := instructions(pair, libraries[name], threads)):
                counted[str(threads), name] = [value]
    cpus = {}
    allowed = sorted(os.sched_getaffinity(0))
    for number in sorted({1, 2, len(allowed)}):
        if number <= len(allowed) and "fastpath" in libraries and shutil.which("taskset"):
            mask = ["taskset", "-c", ",".join(map(str, allowed[:number]))]
            if value := instructions(pair, libraries["fastpath"], 1, mask):
                cpus[str(number), "fastpath"] = [value]
    for _ in range(1 if quick else 3):
        for threads in (1, 100, 1000) if quick else (1, 10, 100, 1000, 10000):
            for name, library in chosen.items():
                if value := ticks(pair, library, threads):
                    timed.setdefault((str(threads), name), []).append(value["ticks"])
                    resident.setdefault((str(threads), name), []).append(float(value["rss_kib"]))
    return [family("peers-scaling", "A pair while other threads wait", time.time() - begun, [
        table("instructions", "Instructions per pair (callgrind; without restartable sequences)", "instructions", "threads", counted, log=True),
        table("cpus", "Instructions per pair by the CPUs allowed (callgrind)", "instructions", "CPUs", cpus, log=True),
        table("ticks", "Per pair, natively", "cycles", "threads", timed, log=True),
        table("resident", "Resident memory while they wait", "kibibytes", "threads", resident, log=True),
    ], ["blocks of 64 bytes, 1000 allocated, then freed"])]
