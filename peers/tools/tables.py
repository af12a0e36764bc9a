# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Results in the format of `fastpath bench --json` (docs/bench-schema.json), and how to look into them."""
import json
import math
import os
import platform
import statistics


def table(name, title, unit, axis, values, log=False):
    """`values`: {(row, column): [a value for each round]}, in the order of rows and columns."""
    rows = list(dict.fromkeys(row for row, _ in values))
    columns = list(dict.fromkeys(column for _, column in values))
    cells = []
    for (row, column), rounds in values.items():
        q1, median, q3 = statistics.quantiles(rounds, n=4, method="inclusive") if len(rounds) > 1 else [rounds[0]] * 3
        cells.append({"row": row, "column": column, "median": median, "min": min(rounds), "q1": q1, "q3": q3, "max": max(rounds),
                      "spread": (q3 - q1) / median if median else 0.0, "rounds": len(rounds), "batch": 1})
    if log:
        rows = [{"name": row, "x": float(row)} for row in rows]
    else:
        rows = [{"name": row} for row in rows]
    return {"name": name, "title": title, "unit": unit, "better": "lower", "axis": axis, "scale": "log" if log else "category",
            "rows": rows, "columns": [{"name": column, "title": column} for column in columns], "cells": cells}


def family(name, title, seconds, tables, notes, targets=()):
    return {"name": name, "title": title, "seconds": round(seconds, 1), "tables": [table for table in tables if table["cells"]],
            "targets": list(targets), "notes": list(notes)}


def machine():
    text = open("/proc/cpuinfo").read()
    cpu = next((line.split(":")[1].strip() for line in text.splitlines() if line.startswith("model name")), platform.machine())
    hertz = next((float(line.split(":")[1]) * 1e6 for line in text.splitlines() if line.startswith("cpu MHz")), 1e9)
    counter = platform.machine() == "x86_64"
    return {"cpu": cpu, "arch": platform.machine(), "online": open("/sys/devices/system/cpu/online").read().strip(),
            "allowed": ",".join(map(str, sorted(os.sched_getaffinity(0)))), "kernel": platform.release(),
            "virtual_machine": " hypervisor" in text, "counter": "tsc" if counter else "clock_monotonic",
            "counter_hz": hertz if counter else 1e9, "counter_is_cycles": counter, "load": os.getloadavg()[0]}


def dump(report):
    """The report as text: a line per cell, five digits per figure."""

    def short(value):
        if isinstance(value, float):
            return float(f"{value:.5g}")
        if isinstance(value, dict):
            return {key: short(inner) for key, inner in value.items()}
        return [short(inner) for inner in value] if isinstance(value, list) else value

    text = json.dumps(short(report), separators=(",", ":"))
    for mark in ('{"row":', '{"name":'):
        text = text.replace("," + mark, ",\n" + mark)
    return text + "\n"


class Look:
    """Reads a report."""

    def __init__(self, report):
        self.report = report

    def family(self, name):
        return next((family for family in self.report["families"] if family["name"] == name), None)

    def table(self, family, name):
        return next((table for table in (self.family(family) or {"tables": []})["tables"] if table["name"] == name), None)

    def medians(self, family, name):
        """{row: {column: median}}"""
        found = {}
        for cell in (self.table(family, name) or {"cells": []})["cells"]:
            found.setdefault(cell["row"], {})[cell["column"]] = cell["median"]
        return found


def mean(values):
    """The geometric mean."""
    values = [max(value, 1e-9) for value in values]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan
