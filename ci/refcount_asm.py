#!/usr/bin/env python3
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reads `objdump -d -M intel` of crates/refcount/examples/asm_probe and checks what the design promises about it."""
import re
import sys

functions, current = {}, None
for line in sys.stdin:
    if head := re.match(r"[0-9a-f]+ <([a-z_]+_[18])>:", line):
        current = functions.setdefault(head[1], [])
    elif not line.strip():
        current = None
    elif current is not None and (code := re.match(r"\s*([0-9a-f]+):\t([0-9a-f ]+?)\s*(?:\t(.*))?$", line)):
        address, count, text = int(code[1], 16), len(code[2].split()), (code[3] or "").strip()
        if text.startswith("int3"):
            continue
        if text:
            current.append([address, count, text])
        else:
            current[-1][1] += count  # a long instruction goes on

failures = []


def check(condition, text):
    if not condition:
        failures.append(text)


def jumps(text):
    return re.match(r"j[a-z]+", text)


def hot_path(name):
    """The instructions up to the first return: what runs when nothing is wrong, if no branch is taken."""
    code = functions[name]
    end = next(i for i, (_, _, text) in enumerate(code) if text.startswith("ret"))
    return code[: end + 1], code[end + 1:]


# Forms with one counter: the exact shape.
for name, arithmetic in [("refcount_inc_1", 2), ("refcount_put_1", 1), ("refcount_dec_1", 1), ("refcount_dec_and_test_1", 2)]:
    hot, cold = hot_path(name)
    texts = [text for _, _, text in hot]
    locked = [text for text in texts if text.startswith("lock")]
    branches = [(address, text) for address, _, text in hot if jumps(text)]
    counted = [text for text in texts if re.match(r"(lea|add|sub|inc|dec|cmp|test|and|or|xor|neg|not|set\w+)\b", text)]
    print(f"{name}: " + "; ".join(re.sub(r"\s+", " ", re.sub(r"<.*>", "", text)).strip() for text in texts))
    check(len(locked) == 1, f"{name}: {len(locked)} locked instructions")
    check(len(branches) == 1, f"{name}: {len(branches)} branches on the hot path")
    check(all(int(re.search(r"\s([0-9a-f]+)", text)[1], 16) > address for address, text in branches),
          f"{name}: the branch goes backwards: predicted taken")
    check(len(counted) <= arithmetic, f"{name}: arithmetic {counted}")
    check(not any(text.startswith(("call", "push", "pop")) for text in texts), f"{name}: call or stack use on the hot path")
    calls = [text for _, _, text in cold if text.startswith("call") or (text.startswith("jmp") and "[rip" in text)]
    check(len(calls) == 1, f"{name}: {len(calls)} cold calls to the crate")
    # No message, no store of the saturated value: the warning is wholly out of line.
    check(not any("0xc0000000" in text for _, _, text in functions[name]), f"{name}: saturates inline")

inc, _ = hot_path("refcount_inc_1")
check(any(text.startswith("lock xadd") for _, _, text in inc), "refcount_inc_1: no lock xadd")

# Forms with eight counters: bytes of a site among other code. Taking off what an empty function has is left out: it is the same for all.
print(f"{'bytes per increment site':<34}{'hot':>8}{'with cold':>12}")
rows = [
    ("refcount_inc", "RefCount::inc"),
    ("hand_inc", "by hand, same checks"),
    ("legacy_inc", "by hand, sign only (before 2019)"),
    ("inline_warning_inc", "warnings at the site"),
    ("compare_loop_inc", "compare loop (before 2019)"),
    ("plain_inc", "plain atomic"),
]
sizes = {}
for name, title in rows:
    hot, cold = hot_path(name + "_8")
    sizes[name] = (sum(size for _, size, _ in hot) / 8, sum(size for _, size, _ in hot + cold) / 8)
    print(f"{title:<34}{sizes[name][0]:>8.1f}{sizes[name][1]:>12.1f}")
check(sizes["refcount_inc"][0] <= 26, "RefCount::inc: more than 26 hot bytes per site")
check(sizes["refcount_inc"][0] < sizes["compare_loop_inc"][0], "RefCount::inc: more hot bytes than the compare loop")
check(sizes["refcount_inc"][1] <= 60, "RefCount::inc: more than 60 bytes per site with its cold block")
check(sizes["refcount_inc"][1] <= 0.6 * sizes["inline_warning_inc"][1], "RefCount::inc: not much smaller than with warnings inline")

for failure in failures:
    print("FAILED:", failure)
sys.exit(bool(failures))
