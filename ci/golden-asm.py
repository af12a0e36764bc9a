#!/usr/bin/env python3
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares the instructions of the fast paths with what a checked-in file says they are.

Usage: ci/golden-asm.py EXPECTATIONS SECTION ASSEMBLY-FILE

A section of the expectations starts with `[name]` and has lines `function: what, what, ...`. Each `what` is a regular
expression that must match an instruction, in this order; with a leading `!` it must match none. The list is
deliberately not the whole function, so that register choice and address arithmetic may change.
Instructions are normalized: one space, no comments, a LOCK prefix in front of its instruction. `*: ...` holds for every
function of the section. A function that is missing, or that nothing describes, is an error.
"""
import re
import sys


def functions(path):
    """Instruction lists by symbol, with identical-code aliases resolved."""
    bodies, aliases, current, lock = {}, {}, None, False
    for line in open(path):
        text = re.split(r"//|;|@(?!\w*:)|\s#(?![-\d:])|##", line)[0].strip()
        alias = re.match(r"(?:\.set\s+)?(\w+)\s*(?:,|=)\s*(\w+)$", text)
        if alias and not re.match(r"^\.(?!set)", text):
            aliases[alias.group(1)] = alias.group(2)
            continue
        label = re.match(r"^([A-Za-z_]\w*):", text)
        if label:
            current = label.group(1)
            bodies[current] = []
        elif re.match(r"^\.Lfunc_end", text):
            current = None
        elif current and text and not text.startswith((".", "#")):
            text = re.sub(r"\s+", " ", text)
            if text == "lock":
                lock = True
                continue
            bodies[current].append(("lock " if lock else "") + text)
            lock = False
    for name, target in aliases.items():
        if target in bodies:
            bodies[name] = bodies[target]
    return bodies


def section(path, wanted):
    """The lines of one section as (function, [what, ...])."""
    lines, inside = [], False
    for line in open(path):
        line = line.split("#")[0].strip() if line.startswith("#") else line.strip()
        if line.startswith("["):
            inside = line[1:-1] == wanted
        elif inside and line:
            name, _, rest = line.partition(":")
            lines.append((name.strip(), [part.strip() for part in rest.split(",")]))
    if not lines:
        sys.exit(f"{path}: no section [{wanted}]")
    return lines


def check(body, whats):
    """What is wrong with `body`, or None."""
    position = 0
    for what in whats:
        if what.startswith("!"):
            hits = [line for line in body if re.search(what[1:], line)]
            if hits:
                return f"must not have `{what[1:]}`, has `{hits[0]}`"
            continue
        for position in range(position, len(body)):
            if re.search(what, body[position]):
                position += 1
                break
        else:
            return f"no `{what}` where it is expected"
    return None


expectations, wanted, assembly = sys.argv[1:]
bodies = functions(assembly)
lines = section(expectations, wanted)
everywhere = [what for name, whats in lines if name == "*" for what in whats]
failed = 0
checked = 0
for name, whats in lines:
    if name == "*":
        continue
    body = bodies.get(name)
    problem = "no such function" if body is None else check(body, whats + everywhere)
    checked += 1
    if problem:
        failed += 1
        print(f"GOLDEN {wanted} {name}: {problem}\n    " + "\n    ".join(body or []))
undescribed = set(bodies) - {name for name, _ in lines}
undescribed = {name for name in undescribed if not name.startswith(("_R", "_ZN", "anon", "rust_", "__"))}
if undescribed:
    failed += 1
    print(f"GOLDEN {wanted}: no expectation for {', '.join(sorted(undescribed))}")
print(f"GOLDEN {wanted}: {checked} fast paths checked, {failed} wrong")
sys.exit(1 if failed else 0)
