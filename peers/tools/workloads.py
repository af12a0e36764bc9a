# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Our own workloads, each allocator in a process of its own, round by round; no allocator always follows the same one."""
import concurrent.futures
import json
import os
import random
import subprocess
import time

import candidates
from tables import family, table

TIMED = ["pairs", "batch", "producer-consumer", "all-to-all", "server", "survival", "growth", "large"]
MEMORY = ["idle-threads", "fragmentation", "give-back", "free-only", "hello"]


def start(command, library, percent=None):
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    if library:
        environment["LD_PRELOAD"] = str(library)
    try:
        done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, timeout=120)
    except subprocess.TimeoutExpired:
        return None
    lines = done.stdout.splitlines()
    return json.loads(lines[-1]) if done.returncode == 0 and lines else None


def jobs(kind, found, pair, empty, system):
    """{(candidate, workload): (command without the scale, library, words after the scale)}"""
    made = {}
    for name, path in found.items():
        for workload in TIMED + MEMORY:
            if kind == "global":
                made[name, workload] = ([str(path), workload], None, [])
            elif workload == "pairs":  # both loops of a C program
                made[name, "pairs"] = ([str(pair)], path, [])
            elif workload != "batch":
                made[name, workload] = ([str(system), workload], path, [])
    if kind == "preload":
        made["empty", "pairs"] = ([str(pair)], empty, ["pairs"])
    return made


def measure(kind, found, rounds, percent, only, system):
    """The families of one kind: `global` or `preload`."""
    begun = time.time()
    made = jobs(kind, found, candidates.pair_program(), candidates.empty_library(), system)
    made = {key: job for key, job in made.items() if not only or key[1] in only}
    samples, failed = {}, []

    def once(key):
        command, library, words = made[key]
        return start([*command, str(percent), *words], library)

    def keep(key, result):
        if result is None:
            failed.append(f"{key[0]} failed {key[1]}")
            candidates.say(f"{kind}: {failed[-1]}")
        else:
            samples.setdefault(key, []).append(result)

    order = random.Random(5)
    for turn in range(rounds):
        for workload in TIMED:
            names = [name for name, known in made if known == workload]
            order.shuffle(names)
            for name in names:
                keep((name, workload), once((name, workload)))
        candidates.say(f"{kind}: round {turn + 1} of {rounds}, {time.time() - begun:.0f} s")
    # Memory does not depend on the load, and most of the time is waiting: several at once.
    quiet = [key for key in made if key[1] in MEMORY]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for key, result in zip(quiet, pool.map(once, quiet)):
            keep(key, result)

    def gather(workloads, what):
        values = {}
        for workload in workloads:
            for name in dict.fromkeys(name for name, _ in made):
                rounds = [value for sample in samples.get((name, workload), []) if (value := what(sample)) is not None]
                if rounds:
                    values[workload, name] = rounds
        return values

    def parts(prefix):
        values = {}
        for (name, _), results in samples.items():
            for result in results:
                for part, value in result["parts"].items():
                    if part.startswith(prefix + "/"):
                        values.setdefault((part.removeprefix(prefix + "/"), name), []).append(value)
        return dict(sorted(values.items(), key=lambda item: (int(item[0][0]), list(found).index(item[0][1]) if item[0][1] in found else 99)))

    timed = [workload for workload in TIMED if workload not in ("pairs", "batch")]
    where = "as Rust global allocators" if kind == "global" else "preloaded, called from C"
    tables = [
        table("pair", f"Allocated and freed at once, {where}", "cycles", "size", parts("pair"), log=True),
        table("batch", f"10,000 allocated, then freed: both together, {where}", "cycles", "size", parts("batch"), log=True),
        table("batch-alloc", f"10,000 allocated, then freed: the allocation, {where}", "cycles", "size", parts("batch-alloc"), log=True),
        table("batch-free", f"10,000 allocated, then freed: the free, {where}", "cycles", "size", parts("batch-free"), log=True),
        table("cost", "Time per operation", "nanoseconds", "workload", gather(timed, lambda result: result.get("ns"))),
        table("cpu", "CPU time of the process", "seconds", "workload", gather(timed, lambda result: result.get("cpu_s"))),
        table("peak", "Peak resident memory", "kibibytes", "workload", gather(timed + MEMORY, lambda result: result.get("peak_kib"))),
    ]
    memory, counts = {}, {}
    for (name, workload), results in samples.items():
        for result in results:
            if "mappings" in result:
                counts.setdefault(("mappings, " + workload, name), []).append(max(result["mappings"], result["parts"].get("mappings-in-holes", 0)))
            if workload not in MEMORY:
                continue
            if workload == "hello":
                memory.setdefault(("hello, resident", name), []).append(result["rss_kib"])
                memory.setdefault(("hello, address space", name), []).append(result["virtual_kib"])
            elif workload == "fragmentation":
                memory.setdefault(("fragmentation, 3 seconds later", name), []).append(result["rss_kib"])
            for part, value in result["parts"].items():
                if part == "resident-over-live":
                    counts.setdefault((part, name), []).append(value)
                elif part != "mappings-in-holes":
                    memory.setdefault((f"{workload}, {part}", name), []).append(value)
    notes = [f"{rounds} rounds, workloads at {percent} % of their size, order drawn anew in every round", *failed]
    families = [
        family(f"peers-{kind}", f"Allocators {where}", time.time() - begun, tables, notes),
        family(f"peers-memory-{kind}", f"Memory, {where}", 0,
               [table("memory", "Memory at the point in question", "kibibytes", "question", memory),
                table("counts", "Counts and ratios", "count", "question", counts)], ["memory does not depend on the load: one round"]),
    ]
    return families
