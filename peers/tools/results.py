#!/usr/bin/env python3
# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
"""The text of a run, from its JSON: peers/tools/results.py [FILE] [RESULTS.md]   (default: peers/results.json peers/RESULTS.md)"""
import json
import pathlib
import sys

import judge
from tables import Look, mean

# Why a target is missed, as far as it is known. By the target's name; printed only where it is missed.
REASONS = json.loads((pathlib.Path(__file__).resolve().parent / "reasons.json").read_text())


def number(value):
    if value >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def grid(table, scale=1.0, columns=None):
    """A table with the best of each row in bold; half the distance of the quartiles beside it if it is 3 % and more."""
    cells = {(cell["row"], cell["column"]): cell for cell in table["cells"]}
    columns = [name for name in (columns or [column["name"] for column in table["columns"]]) if any(key[1] == name for key in cells)]
    lines = [f"| {table['axis']} | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    for row in [row["name"] for row in table["rows"]]:
        here = {name: cells[row, name] for name in columns if (row, name) in cells}
        rivals = {name: cell["median"] for name, cell in here.items() if name != "empty"}
        texts = []
        for name in columns:
            if name not in here:
                texts.append("-")
                continue
            text = number(here[name]["median"] / scale)
            if rivals.get(name) == min(rivals.values()):
                text = f"**{text}**"
            if here[name]["spread"] >= 0.06:
                text += f" ±{here[name]['spread'] / 2:.0%}"
            texts.append(text)
        lines.append(f"| {row} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def means(table, base="system"):
    """One line of geometric means over the base, over the rows that have them all."""
    rows = {}
    for cell in table["cells"]:
        rows.setdefault(cell["row"], {})[cell["column"]] = cell["median"]
    rows = [row for row in rows.values() if row.get(base)]
    values = {}
    for name in [column["name"] for column in table["columns"]]:
        shared = [row[name] / row[base] for row in rows if row.get(name)]
        if shared and len(shared) == len(rows):
            values[name] = mean(shared)
    return "Geometric means over the system's: " + ", ".join(f"{name} {value:.3f}" for name, value in sorted(values.items(), key=lambda item: item[1])) + "."


def text(report):
    look, machine = Look(report), report["machine"]
    verdicts, unjudged = judge.judge(report)
    missed = [target for target in verdicts if not target["met"] and target["name"] != "b-peers"]
    judged = [target for target in verdicts if target["name"] != "b-peers"]
    spreads = sorted(cell["spread"] / 2 for family in report["families"] for table in family["tables"]
                     if table["unit"] in ("cycles", "nanoseconds", "seconds") for cell in table["cells"] if cell["rounds"] > 1)
    noise = (f"half the distance of the quartiles is {spreads[len(spreads) // 2]:.1%} of the median in the middle cell and "
             f"{spreads[len(spreads) * 9 // 10]:.1%} in the tenth worst of a hundred" if spreads else "one round only: no spread")
    out = ["<!-- SPDX-FileCopyrightText: The fastpath developers -->", "<!-- SPDX-License-Identifier: MIT OR Apache-2.0 -->", "",
           "# Against the peers", "",
           "Made by `peers/measure`; do not edit. `peers/tools/results.py` writes it anew from `peers/results.json`.", "",
           f"{report['started']}: {machine['cpu']}, CPUs {machine['allowed']}, Linux {machine['kernel']}, load {machine['load']:.1f} before the run. "
           f"Noise: {noise}.", ""]
    if report["quick"]:
        out += ["**A quick run: few rounds of small workloads. A first impression, no more.**", ""]
    out += [f"## Missed: {len(missed)} of {len(judged)}", "", "| target | reached | wanted | why |", "|---|---:|---:|---|"]
    for target in missed:
        sign = "≤" if target["better"] == "lower" else "≥"
        out.append(f"| {target['title']} | {target['value']:.3f} | {sign} {target['limit']:g} | {REASONS.get(target['name'], '')} |")
    out += ["", "## Met", "", "| target | reached | wanted |", "|---|---:|---:|"]
    for target in judged:
        if target["met"]:
            out.append(f"| {target['title']} | {target['value']:.3f} | {'≤' if target['better'] == 'lower' else '≥'} {target['limit']:g} |")
    for line in unjudged:
        out += ["", f"No figure in this run: {line}."]
    out += ["", "## Figures", "",
            "Medians; the best of a row is bold. Each figure comes from processes of their own, in rounds whose order is drawn anew. "
            "± is half the distance of the quartiles, where it is 3 % and more."]
    plans = [("peers-global", ["pair", "batch", "batch-alloc", "batch-free", "cost"]), ("peers-preload", ["pair", "batch", "batch-alloc", "batch-free", "cost"]),
             ("peers-programs", ["cpu", "peak"]), ("peers-memory-global", ["memory", "counts"]), ("peers-memory-preload", ["memory", "counts"]),
             ("peers-entry-points", ["instructions", "branches", "loads", "stores"]), ("peers-scaling", ["instructions", "cpus", "ticks"]),
             ("peers-code-size", ["text"])]
    for name, tables in plans:
        family = look.family(name)
        if not family or not family["tables"]:
            continue
        out += ["", f"### {family['title']}"]
        for table in filter(None, (look.table(name, wanted) for wanted in tables)):
            unit = {"kibibytes": "MiB" if name == "peers-programs" else "KiB", "cycles": "TSC cycles"}.get(table["unit"], table["unit"])
            out += ["", f"{table['title']}, {unit}:", "", grid(table, 1024.0 if unit == "MiB" else 1.0)]
            if name == "peers-programs":
                out += ["", means(table)]
        if family["notes"]:
            out += ["", "Notes: " + "; ".join(family["notes"]) + "."]
    targets = look.family("peers-targets")
    out += ["", "## Versions, and what was not compared", ""] + [f"* {note}" for note in (targets or {"notes": []})["notes"]]
    out += ["", "## Commands", "", "```sh", "peers/measure --install        # everything, about 10 minutes on two idle CPUs",
            "peers/measure --quick          # 2 minutes", "peers/targets                  # the verdicts of peers/results.json",
            "peers/tools/results.py         # this file anew from peers/results.json",
            "peers/tools/entry_points.py LIBRARY...   # the counts of any allocator's library", "```", ""]
    return "\n".join(out)


if __name__ == "__main__":
    here = pathlib.Path(__file__).resolve().parent.parent
    source = sys.argv[1] if len(sys.argv) > 1 else here / "results.json"
    target = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else here / "RESULTS.md")
    target.write_text(text(json.load(open(source))))
