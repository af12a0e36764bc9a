# SPDX-FileCopyrightText: The fastpath developers
# SPDX-License-Identifier: MIT OR Apache-2.0
"""The targets, each a function of a report. Ratios are of medians; the best other allocator is the one that is best in that very cell."""
from tables import Look, mean

OURS = {"fastpath", "fastpath-inline"}
MIB = 1024


def peers(row):
    return {name: value for name, value in row.items() if name not in OURS | {"empty"}}


def ratios(rows, ours, rivals=None):
    """{row: (ratio to the best other, who that is)} for the rows where both are."""
    found = {}
    for row, cells in rows.items():
        others = {name: value for name, value in peers(cells).items() if value > 0 and (not rivals or name in rivals)}
        if others and cells.get(ours):
            best = min(others, key=others.get)
            found[row] = (cells[ours] / others[best], best)
    return found


def small(rows):
    return {row: cells for row, cells in rows.items() if float(row) <= 1024}


def worst(found):
    row = max(found, key=lambda row: found[row][0])
    return found[row][0], row, found[row][1]


def judge(report):
    """(targets in the form of the schema, what there are no figures for)"""
    look, verdicts, unjudged = Look(report), [], []

    def target(name, title, value, limit, lower=True, note=""):
        verdicts.append({"name": name, "title": title + (f" [{note}]" if note else ""), "value": round(float(value), 4), "limit": float(limit),
                         "better": "lower" if lower else "higher", "met": bool(value <= limit if lower else value >= limit)})

    def with_ratios(name, title, found, limit, what="size"):
        if not found:
            unjudged.append(f"{name}: {title}")
            return
        value, row, best = worst(found)
        target(name, title, value, limit, note=f"worst {what} {row}, {best}; geometric mean {mean([ratio for ratio, _ in found.values()]):.3f}")

    # (a)
    pair = small(look.medians("peers-global", "pair"))
    with_ratios("a-inline", "pair as GlobalAlloc, inline and fat LTO, to 1 KiB, over the best peer", ratios(pair, "fastpath-inline"), 0.75)
    with_ratios("a-default", "pair as GlobalAlloc, default profile, to 1 KiB, over the best peer", ratios(pair, "fastpath"), 1.0)
    # (b)
    pair = small(look.medians("peers-preload", "pair"))
    over_empty = {row: (cells["fastpath"] / cells["empty"], "empty") for row, cells in pair.items() if cells.get("fastpath") and cells.get("empty")}
    with_ratios("b-empty", "preloaded pair over the empty pair", over_empty, 1.08)
    with_ratios("b-peers", "preloaded pair over the best peer (not a target; beside it)", ratios(pair, "fastpath"), 1.0)
    # (c)
    for kind in ("global", "preload"):
        found = ratios(look.medians(f"peers-{kind}", "batch"), "fastpath")
        if not found:
            unjudged.append(f"c: 10,000 then 10,000, {kind}")
            continue
        good = sum(ratio <= 1.03 for ratio, _ in found.values())
        value, row, best = worst(found)
        target(f"c-{kind}-cells", f"10,000 then 10,000, {kind}: share of cells within 1.03 x the best peer", good / len(found), 0.9, lower=False,
               note=f"{good} of {len(found)}")
        target(f"c-{kind}-worst", f"10,000 then 10,000, {kind}: worst cell over the best peer", value, 1.15, note=f"size {row}, {best}")
        to_page = [ratio for row, (ratio, _) in found.items() if float(row) <= 1024]
        target(f"c-{kind}-mean", f"10,000 then 10,000, {kind}: geometric mean over the best peer", mean([ratio for ratio, _ in found.values()]), 0.9,
               note=f"to 1 KiB {mean(to_page):.3f}; best other by cell: " + ", ".join(sorted({best for _, best in found.values()})))
    # (d)
    for kind in ("global", "preload"):
        found = ratios({row: cells for row, cells in look.medians(f"peers-{kind}", "cost").items() if row == "producer-consumer"}, "fastpath")
        with_ratios(f"d-{kind}", f"two threads, remote frees, {kind}: time over the best peer", found, 1.0, "workload")
    # (e)
    cpu, peak = look.medians("peers-programs", "cpu"), look.medians("peers-programs", "peak")

    def program_mean(table, name):
        rows = [cells for cells in table.values() if len(cells) > 1]
        shared = [cells for cells in rows if cells.get(name) and cells.get("system")]
        return mean([cells[name] / cells["system"] for cells in shared]) if shared and len(shared) == len(rows) else None

    names = sorted({name for cells in cpu.values() for name in cells})
    times = {name: value for name in names if (value := program_mean(cpu, name)) is not None}
    sizes = {name: value for name in names if (value := program_mean(peak, name)) is not None}
    if "fastpath" in times and peers(times):
        best = min(peers(times), key=times.get)
        target("e-time", f"{len(cpu)} real programs: geometric mean of CPU time over the best peer's", times["fastpath"] / times[best], 1.0,
               note=f"{best}; over the system's: ours {times['fastpath']:.3f}, {best} {times[best]:.3f}")
    else:
        unjudged.append("e: CPU time of real programs")
    if "fastpath" in sizes and "snmalloc" in sizes:
        target("e-peak", f"{len(peak)} real programs: geometric mean of peak memory over snmalloc's", sizes["fastpath"] / sizes["snmalloc"], 1.0,
               note=f"over the system's: ours {sizes['fastpath']:.3f}, snmalloc {sizes['snmalloc']:.3f}")
    else:
        unjudged.append("e: peak memory of real programs")
    # (f), (h), (i)
    for kind in ("global", "preload"):
        memory, counts = look.medians(f"peers-memory-{kind}", "memory"), look.medians(f"peers-memory-{kind}", "counts")

        def figure(row, table=memory, who="fastpath"):
            return table.get(row, {}).get(who)

        if (value := figure("idle-threads, idle-extra")) is not None:
            target(f"f-{kind}", f"idle thread that used all small sizes, {kind}: KiB above one that never allocated", value, 0.5,
                   note=f"a bare thread {figure('idle-threads, bare-thread'):.1f} KiB")
        else:
            unjudged.append(f"f: idle threads, {kind}")
        if kind == "preload":
            for row, title, limit in [("hello, resident", "extra resident MiB", 1), ("hello, address space", "extra address space MiB", 256)]:
                ours, system = figure(row), figure(row, who="system")
                if ours is not None and system is not None:
                    target(f"h-{row.split(', ')[1].replace(' ', '-')}", f"hello world, preloaded: {title}", (ours - system) / MIB, limit)
                else:
                    unjudged.append(f"h: {row}")
        mappings = {row: cells["fastpath"] for row, cells in counts.items() if row.startswith("mappings") and "fastpath" in cells and "idle" not in row}
        if mappings:
            row = max(mappings, key=mappings.get)
            target(f"h-mappings-{kind}", f"most mappings of any workload, {kind}", mappings[row], 300, note=row.removeprefix("mappings, "))
        for part, title in [("at-last-free", "at the last free"), ("3-seconds-later", "three seconds later")]:
            value = figure(f"give-back, {part}")
            if value is None:
                unjudged.append(f"i: give-back, {kind}")
            else:
                target(f"i-{part}-{kind}", f"200 MB of small blocks freed, {kind}: resident MiB {title}", value / MIB, 50)
        if (value := figure("give-back, after-trim")) is not None:
            target(f"i-trim-{kind}", f"the same, {kind}: resident after a trim over before it", value / figure("give-back, 3-seconds-later"), 1.0,
                   note=f"{value / MIB:.1f} MiB")
        if (value := counts.get("resident-over-live", {}).get("fastpath")) is not None:
            target(f"i-free-only-{kind}", f"a thread that only frees, {kind}: resident over live", value, 1.5)
        found = ratios({row: cells for row, cells in look.medians(f"peers-{kind}", "cost").items() if row == "large"}, "fastpath",
                       {"mimalloc2", "mimalloc3", "debian-mimalloc"})
        with_ratios(f"i-large-{kind}", f"blocks of 5 to 25 MiB, {kind}: time over the quickest mimalloc", found, 1.1, "workload")
    # (g)
    entry = {kind: look.medians("peers-entry-points", kind) for kind in ("instructions", "calls", "locked")}
    for name, limit in (("malloc", 20), ("free", 24)):
        ours = entry["instructions"].get(name, {}).get("fastpath")
        if ours is None:
            unjudged.append(f"g: instructions of {name}")
            continue
        target(f"g-{name}", f"instructions of {name}", ours, limit)
        target(f"g-{name}-pure", f"calls and locked instructions of {name}",
               sum(entry[kind][name]["fastpath"] for kind in ("calls", "locked")), 0)
    # (j)
    for table, title in [("instructions", "instructions per pair by threads (no rseq)"), ("cpus", "instructions per pair by CPUs (no rseq)"),
                         ("ticks", "ticks per pair by threads")]:
        rows = {int(row): cells["fastpath"] for row, cells in look.medians("peers-scaling", table).items() if cells.get("fastpath")}
        if len(rows) > 1:
            target(f"j-{table}", f"{title}: most over least", max(rows.values()) / min(rows.values()), 1.05 if table != "ticks" else 1.25,
                   note=f"{min(rows)} to {max(rows)}")
        else:
            unjudged.append(f"j: {title}")
    return verdicts, unjudged


def line(target):
    sign = "<=" if target["better"] == "lower" else ">="
    return f"{'met   ' if target['met'] else 'MISSED'} {target['value']:>9.3f} {sign} {target['limit']:<7g} {target['name']}: {target['title']}"
