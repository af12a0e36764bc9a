#!/usr/bin/env python3
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Prints the matrix case x backend from the records of this CI run, and fails on a gap without a reason.

Every case of docs/CASES.md must have run at least once. `ci/case-backends.txt` says on which backends a range of cases
must have run; `ci/case-gaps.txt` lists, with the reason, each `CASE BACKEND` that cannot.
Usage: ci/cases.py RECORDS
"""
import collections
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
ran = collections.defaultdict(collections.Counter)
for line in pathlib.Path(sys.argv[1]).read_text().splitlines():
    case, backend = line.split(" ", 1)
    ran[case][backend] += 1

cases = re.findall(r"^\| ([KR]\d+) \|", (root / "docs/CASES.md").read_text(), re.M)


def lines(name):
    for line in (root / "ci" / name).read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            yield [field.strip() for field in line.split("|")]


def expand(text):
    for part in text.replace(",", " ").split():
        first, _, last = part.partition("-")
        family, low = first[0], int(first[1:])
        high = int(last[1:]) if last else low
        yield from (f"{family}{n}" for n in range(low, high + 1))


expected = collections.defaultdict(set)
for case_range, backends in lines("case-backends.txt"):
    for case in expand(case_range):
        expected[case].update(backends.split())
gaps = {}
for case_range, backends, reason in lines("case-gaps.txt"):
    for case in expand(case_range):
        for backend in backends.split():
            gaps[case, backend] = reason

status = 0
used = set()
for case in cases:
    row = [f"{backend} x{count}" for backend, count in sorted(ran[case].items())]
    for backend in sorted(expected[case] - set(ran[case])):
        if (case, backend) in gaps:
            row.append(f"({backend}: {gaps[case, backend]})")
            used.add((case, backend))
        else:
            row.append(f"GAP {backend}")
            status = 1
    if not ran[case]:
        if (case, "*") in gaps:
            row.append(f"({gaps[case, '*']})")
            used.add((case, "*"))
        else:
            row.append("NEVER RAN")
            status = 1
    print(f"{case:4} {', '.join(row)}")
for key in sorted(set(gaps) - used):
    print(f"stale entry in ci/case-gaps.txt: {key[0]} {key[1]}")
    status = 1
unknown = set(ran) - set(cases)
if unknown:
    print(f"records of unknown cases: {sorted(unknown)}")
    status = 1
print(f"cases: {len(cases)}, ran: {sum(1 for c in cases if ran[c])}, records: {sum(sum(r.values()) for r in ran.values())}")
sys.exit(status)
