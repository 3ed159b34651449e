#!/usr/bin/env python3
"""Measures what crisweep promises to be quick and light at, beside its peers in the same run, and prints a table.

    sudo benches/table.py [scrape | planning | instructions | lists | clear | throttled | network]...

It measures the program of the `dist` profile, which the image and packages hold, or the one that CRISWEEP names.
All parts take about 40 minutes with the builds; `instructions` only prints its counts. A row says which goal it has and
whether this run met it: read ratios, because machines are shared. What each part needs stands at the head of its bench
(docs/dev/performance.md).
"""

import os
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
MILLISECONDS = {"ns": 1e-6, "µs": 1e-3, "ms": 1, "s": 1e3}


def bench(*arguments):
    return ["cargo", "bench", "--locked", "--bench", *arguments]


COMMANDS = {
    "scrape": bench("scrape"),
    "planning": bench("scale", "--", "planning"),
    "instructions": [HERE / "instructions.sh"],
    "lists": bench("big_lists", "--", "17000:16"),
    "clear": [HERE / "pacing.sh", "clear"],
    "throttled": [HERE / "pacing.sh", "throttled"],
    "network": [HERE / "pacing.sh", "network"],
}


def main():
    parts = sys.argv[1:] or list(COMMANDS)
    if unknown := [part for part in parts if part not in COMMANDS]:
        sys.exit(f"table.py: {unknown[0]} is none of {', '.join(COMMANDS)}")
    if "scrape" in parts and not shutil.which(os.environ.get("NODE_EXPORTER", "prometheus-node-exporter")):
        sys.exit("table.py: scrape needs node_exporter: apt install prometheus-node-exporter, or NODE_EXPORTER=PATH")
    if "CRISWEEP" not in os.environ:
        subprocess.run(["cargo", "build", "--locked", "--profile", "dist"], cwd=HERE.parent, check=True)
        os.environ["CRISWEEP"] = str(HERE.parent / "target/dist/crisweep")
    rows = []
    for part in parts:
        output = run(part)
        for row in ROWS[part]:
            rows.append(line(*row, output))
    print("\n| what | this run | peer in this run | ratio | goal | met |\n|---|---|---|---|---|---|")
    print("\n".join(rows))


def run(part):
    """Runs a part, shows what it prints, and returns that."""
    print(f"# {part}", flush=True)
    command = COMMANDS[part]
    lines = []
    with subprocess.Popen(command, cwd=HERE.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as it:
        for text in it.stdout:
            print(text, end="", flush=True)
            lines.append(text)
    if it.returncode:
        sys.exit(f"table.py: {part} failed")
    return "".join(lines)


def line(what, goal, read, output):
    """Writes a row of the table; `goal` bounds the ratio where there is one, else the figure."""
    try:
        figure, peer, ratio = read(output)
    except (AttributeError, IndexError, ValueError, statistics.StatisticsError):
        return f"| {what} | not found in the output | | | {goal} | |"
    measured = figure if ratio is None else ratio
    met = "" if goal is None else ("yes" if measured <= goal else "no")
    cells = [what, number(figure), number(peer), number(ratio), number(goal), met]
    return f"| {' | '.join(cells)} |"


def number(value):
    return "" if value is None else f"{value:.3g}"


def scraped(size, what):
    """Reads a row of the scrape bench: crisweep, node_exporter, and their ratio."""

    def read(output):
        table = output.split(f"\n{size} containers\n")[1].split(" containers\n")[0]
        row = re.search(rf"^{re.escape(what)} *\| *([\d.]+) \| *([\d.]+) \| ([\d.]+)$", table, re.M)
        return tuple(map(float, row.groups()))

    return read


def grown(what):
    """Compares a row of the scrape bench at 10,000 containers with the same at 1,500."""

    def read(output):
        small, large = (scraped(size, what)(output)[0] for size in (1500, 10000))
        return large, small, large / small

    return read


def median_ms(output, name, size):
    """Reads a median of divan's table."""
    rows = re.split(rf"[├╰]─ {name}\s", output)[1]
    row = re.search(rf"[├╰]─ {size} [^\n]*", rows).group()
    value, unit = row.split("│")[2].split()
    return float(value) * MILLISECONDS[unit]


def planned(size):
    return lambda output: (median_ms(output, "plan", size) + median_ms(output, "check", size), None, None)


# Containers of nodes with so many objects: a third are sandboxes.
OBJECTS_10_000_AND_100_000 = (6670, 66670)


def planning_grows(output):
    small, large = (planned(size)(output)[0] for size in OBJECTS_10_000_AND_100_000)
    return large, small, large / small


def look(told, which):
    def read(output):
        return float(re.search(rf"\| {told} +\| {which} +\| +([\d.]+) \|", output).group(1)), None, None

    return read


def seconds(output, what):
    return statistics.median(map(float, re.findall(rf"{what}: \d+ gone in ([\d.]+) s", output)))


def cleared(peer):
    """Compares a pass with a peer; of the fixed numbers at a time the best counts."""

    def read(output):
        ours, theirs = seconds(output, "a pass"), min(seconds(output, it) for it in peer)
        return ours, theirs, ours / theirs

    return read


def at(iops, beside, group):
    """Reads how much longer a pod takes to start beside removals than alone."""

    def read(output):
        part = output.split(f"the disk may do {iops} IOPS")[1].split("the disk may do")[0]
        row = rf"{beside}: \d+ pod starts, median [\d.]+ s \(([\d.]+) times alone\), p95 [\d.]+ s \(([\d.]+) times\)"
        ours = float(re.search(row, part).group(group))
        theirs = float(re.search(row.replace(beside, "beside 1 at a time, fixed"), part).group(group))
        return ours, theirs, None

    return read


def removed_at(iops):
    def read(output):
        part = output.split(f"the disk may do {iops} IOPS")[1].split("the disk may do")[0]
        rate = lambda what: float(re.search(rf"{what}: .*, ([\d.]+) per second", part).group(1))
        one, ours = rate("beside 1 at a time, fixed"), rate("the pass")
        # A goal bounds from above: how much longer a removal takes than one at a time.
        return ours, one, one / ours

    return read


def beside_network(output):
    times = [float(it) for it in re.findall(r"\(([\d.]+) times\) beside", output)]
    return statistics.median(times), None, None


FRESH, SHARED = "processor ms of a scrape, a new look each", "processor ms of a scrape, a shared look"
LOGS = "processor ms of the same, on a node with logs"
FIXED = [f"{count} at a time, fixed" for count in (4, 8, 16)]
ROWS = {
    "scrape": [
        ("processor ms of a scrape with a new look, 1,500 containers", 0.7, scraped(1500, FRESH)),
        ("the same on a node with logs", None, scraped(1500, LOGS)),
        ("the same at 10,000 without logs, beside 1,500", 5, grown(FRESH)),
        ("processor ms of a scrape of a shared look, 1,500", 0.2, scraped(1500, SHARED)),
        ("p99 ms of a scrape of a shared look", 0.4, scraped(1500, "p99 ms of a scrape, a shared look")),
        ("MiB resident, idle", 0.6, scraped(1500, "MiB resident, idle")),
        ("MiB resident after 20 scrapes", 0.5, scraped(1500, "MiB resident after 20 scrapes, a new look each")),
        ("ms from exec to ready", 2, scraped(1500, "ms from exec to ready")),
    ],
    "planning": [
        ("ms of plan and check, 100,000 objects", 100, planned(OBJECTS_10_000_AND_100_000[1])),
        ("the same, beside 10,000", 12, planning_grows),
    ],
    "instructions": [],
    "lists": [
        ("s of a look at two lists over 16 MiB, sent compressed", 5, look("all", "first look")),
        ("s of the same from a runtime that cannot compress, ids told", 5, look("ids", "first look")),
        ("s of the same, only links to logs tell ids", 5, look("links", "first look")),
        ("s of the same, nothing tells ids", 5, look("pods", "first look")),
        ("s of the second dry run (two looks), nothing tells ids", 5, look("pods", "second dry run")),
    ],
    "clear": [
        ("s to clear 300 containers and 200 sandboxes, beside the best fixed number", 1.1, cleared(FIXED)),
        ("the same beside the kubelet's way", 1, cleared(["the kubelet's way"])),
    ],
    "throttled": [
        ("pod start at 300 IOPS, median times alone (peer: one at a time)", 1.5, at(300, "beside a pass", 1)),
        ("removals a second at 300 IOPS, beside one at a time", 1, removed_at(300)),
        ("pod start at 3,000 IOPS, median times alone", 1.3, at(3000, "beside a pass", 1)),
        ("pod start at 3,000 IOPS, p95 times alone", 2, at(3000, "beside a pass", 2)),
    ],
    "network": [("healthy sandboxes beside slow networks, times alone", 1.3, beside_network)],
}

if __name__ == "__main__":
    main()
