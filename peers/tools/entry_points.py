#!/usr/bin/env python3
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Instructions, branches, loads and stores of the exported entry points: peers/tools/entry_points.py LIBRARY... [--check]

Counted in the disassembly of a built library, from the entry to the first return, past direct jumps that leave the
function (tail calls), the same for every library. That is the fast path of functions that lay it out first and leave
it for anything rare, as ours and the quickest peers do; of others it is a part of it. Calls and locked instructions on
that way are counted too. --check fails unless each LIBRARY keeps our limits.
"""
import os
import pathlib
import re
import subprocess
import sys
import time

# At most this; and no call, nothing locked.
LIMITS = {"malloc": {"instructions": 20, "branches": 3, "loads": 10, "stores": 2}, "free": {"instructions": 24, "branches": 3, "loads": 7, "stores": 3}}
ENTRIES = ["malloc", "free", "calloc", "realloc", "aligned_alloc"]
KINDS = ["instructions", "branches", "loads", "stores", "calls", "locked"]
LINE = re.compile(r"^\s*([0-9a-f]+):\t(.*?)\s*(?:#.*)?$")
MEMORY = re.compile(r"(?:%[a-z]s:)?-?(?:0x[0-9a-f]+)?\((?:%[a-z0-9]+)?(?:,%[a-z0-9]+,?[0-9]?)?\)|%[fg]s:(?:-?0x[0-9a-f]+)?")
READ_ONLY = ("cmp", "test", "bt ", "prefetch", "jmp", "push", "nop", "comis", "ucomis", "vucomis")
READ_WRITE = ("add", "sub", "inc", "dec", "and", "or", "xor", "not", "neg", "xchg", "cmpxchg", "xadd", "shl", "shr", "sar", "adc", "sbb")


def disassemble(library, name):
    """Address to instruction of one function; None if it is not there."""
    done = subprocess.run(["objdump", "-d", "--no-show-raw-insn", f"--disassemble={name}", str(library)], text=True, capture_output=True)
    found = {}
    for line in done.stdout.splitlines():
        if match := LINE.match(line):
            found[int(match[1], 16)] = match[2]
    return found


def whole(library):
    """Every instruction of the library by address: for jumps that leave a function."""
    done = subprocess.run(["objdump", "-d", "--no-show-raw-insn", str(library)], text=True, capture_output=True)
    return {int(match[1], 16): match[2] for line in done.stdout.splitlines() if (match := LINE.match(line))}


def entries(library):
    """Name to address of the exported functions."""
    done = subprocess.run(["nm", "-D", "--defined-only", str(library)], text=True, capture_output=True)
    found = {}
    for line in done.stdout.splitlines():
        words = line.split()
        if len(words) == 3 and words[1] in "TWi" and (name := words[2].split("@")[0]) in ENTRIES:
            found[name] = int(words[0], 16)
    return found


def way(code, address):
    """The instructions from there to the first return."""
    order = sorted(code)
    position = {at: index for index, at in enumerate(order)}
    found = []
    while address in position and len(found) < 400:
        text = re.sub(r"^(?:notrack|bnd|rep|data16|cs)\s+", "", code[address])
        index = position[address]
        following = order[index + 1] if index + 1 < len(order) else None
        if text.startswith("ret"):
            return [*found, text]
        jump = re.match(r"jmp\s+([0-9a-f]+)\b", text)
        if not text.startswith(("nop", "endbr", "xchg   %ax,%ax", "data16")):
            found.append(text)
        if text.startswith(("ud2", "hlt")) or text.startswith("jmp") and not jump:
            return found
        address = int(jump[1], 16) if jump else following
    return found


def count(instructions):
    totals = dict.fromkeys(KINDS, 0)
    for text in instructions:
        totals["instructions"] += 1
        locked = text.startswith("lock")
        text = re.sub(r"^lock\s+", "", text)
        mnemonic, _, operands = text.partition(" ")
        operands = operands.strip()
        if mnemonic.startswith("j"):
            totals["branches"] += 1
        if mnemonic.startswith("call"):
            totals["calls"] += 1
        memory = list(MEMORY.finditer(operands))
        if locked or mnemonic.startswith("xchg") and memory:
            totals["locked"] += 1
        if mnemonic.startswith("push"):
            totals["stores"] += 1
        if mnemonic.startswith("pop"):
            totals["loads"] += 1
        if not memory or mnemonic.startswith(("lea", "nop")):
            continue
        last = memory[-1].end() == len(operands)
        if text.startswith(READ_ONLY) or not last:
            totals["loads"] += 1
        elif mnemonic.startswith(READ_WRITE):
            totals["loads"] += 1
            totals["stores"] += 1
        elif "," not in MEMORY.sub("", operands) and not mnemonic.startswith("set"):
            totals["loads"] += 1  # one operand: mul, div and their like read it
        else:
            totals["stores"] += 1
    return totals


def measure(library):
    """{entry: {kind: number}}"""
    library = pathlib.Path(library).resolve()
    code = whole(library)
    return {name: count(way(code, address)) for name, address in sorted(entries(library).items(), key=lambda item: ENTRIES.index(item[0]))}


def glibc():
    """Where the C library is."""
    for line in open("/proc/self/maps"):
        if line.rstrip().endswith(("/libc.so.6", "/libc-2.31.so")):
            return line.split()[-1]
    return None


def report(libraries):
    """The family of the report. `libraries`: {name: path}"""
    from tables import family, table
    begun = time.time()
    values = {kind: {} for kind in KINDS}
    for name, path in libraries.items():
        for entry, totals in measure(path).items():
            for kind, number in totals.items():
                values[kind][entry, name] = [float(number)]
    for kind in KINDS:
        values[kind] = dict(sorted(values[kind].items(), key=lambda item: ENTRIES.index(item[0][0])))
    return [family("peers-entry-points", "Exported entry points, counted in the built libraries", time.time() - begun,
                   [table(kind, kind.capitalize(), "count", "entry point", values[kind]) for kind in KINDS],
                   ["from the entry to the first return in the order of addresses, direct jumps followed"])]


def main():
    check = "--check" in sys.argv
    libraries = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    if not libraries:
        raise SystemExit(__doc__)
    failed = False
    for library in libraries:
        found = measure(library)
        for entry, totals in found.items():
            print(f"{os.path.basename(library)} {entry}: " + ", ".join(f"{number} {kind}" for kind, number in totals.items()))
        for entry, limits in LIMITS.items() if check else ():
            totals = found.get(entry)
            limits = {**limits, "calls": 0, "locked": 0}
            if not totals or totals["instructions"] < 10 or any(totals[kind] > most for kind, most in limits.items()):
                print(f"{library}: {entry} is to have at most {limits}; it has {totals}", file=sys.stderr)
                failed = True
    sys.exit(failed)


if __name__ == "__main__":
    main()
