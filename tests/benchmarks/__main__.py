"""Run the benchmarks at full size and write results/benchmarks.md: `make bench`.

`python -m tests.benchmarks EXPRESSION` times those alone whose names pytest's -k selects, and puts their rows in the
place of those that the page has. `python -m tests.benchmarks --sections [--scale N]` makes alone what follows the rows:
the comparison with the anchor (tests/identity/speed.py), the growth of costs (tests/benchmarks/growth.py) and other
simulators (tests/benchmarks/peers.py).
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.benchmarks import growth, peers
from tests.benchmarks.yardstick import AT_BUDGETS, customers_per_cpu_s
from tests.identity import speed
from tests.identity.trees import HERE

PAGE = Path("results/benchmarks.md")

PASSES = 2
"""Rounds of everything. A shared machine is slow for minutes at a time, so consecutive rounds would all be slow."""


def timings(environment: dict[str, str], report: Path, chosen: list[str]) -> list[dict[str, Any]]:
    """Run every benchmark, or the chosen ones, once, and return the report of pytest-benchmark."""
    timing = [f"--benchmark-json={report}", "--benchmark-timer=time.process_time", *chosen]
    command = [sys.executable, "-m", "pytest", "tests/benchmarks", "-p", "no:xdist", *timing]
    subprocess.run(command, env=environment, check=True)
    rows: list[dict[str, Any]] = json.loads(report.read_text())["benchmarks"]
    return rows


def table(passes: list[list[dict[str, Any]]]) -> list[str]:
    """Return a row of the page for each benchmark."""
    lines = []
    for row, *again in zip(*passes, strict=True):
        count = row["extra_info"]["requests"]
        best = min((row, *again), key=lambda each: each["stats"]["min"])
        seconds, yard = best["stats"]["min"], best["extra_info"]["yardstick"] / AT_BUDGETS
        slowest = max(each["stats"]["max"] for each in (row, *again))
        name = row["name"].removeprefix("test_").replace("_", " ").replace("[", " [")
        budget = row["extra_info"]["budget"]
        asked = f"{budget:,}" if budget else ""
        if "recall" in row["extra_info"]:
            name += f", recall@1 {row['extra_info']['recall']:.4f}"
        peak = f"{row['extra_info']['peak_mb']:,.0f}" if "peak_mb" in row["extra_info"] else ""
        each_us = 1e6 * seconds / count
        rates = f"{count / seconds:,.0f} | {count / slowest:,.0f}"
        there = f"{yard:.2f} | {count / seconds / yard:,.0f}"
        lines.append(f"| {name} | {count:,} | {rates} | {each_us:.1f} | {asked} | {there} | {peak} |")
    return lines


ANCHOR, GROWTH, BESIDE = "## Beside the anchor", "## As it grows", "## Beside peers"


def with_sections(page: str, scale: int) -> str:
    """Return ``page`` with what follows its rows made anew, each section with the yardstick of its minutes."""
    sections: dict[str, Callable[[], Iterator[str]]] = {
        ANCHOR: lambda: beside_anchor(scale),
        GROWTH: lambda: growth.table(scale=scale),
        BESIDE: lambda: peers.table(peers.REQUESTS // scale),
    }
    for heading, lines in sections.items():
        before = customers_per_cpu_s()
        made = [*lines()]
        yard = f"Yardstick before and after: {before / AT_BUDGETS:.2f}, {customers_per_cpu_s() / AT_BUDGETS:.2f}."
        if scale > 1:
            yard += f" All requests divided by {scale}."
        head, _, tail = page.partition(f"\n{heading}\n")
        _, mark, tail = tail.partition("\n## ")
        page = "\n".join([head.rstrip("\n"), "", heading, "", yard, "", *made, ""]) + mark + tail
    return page


def beside_anchor(scale: int) -> Iterator[str]:
    """Yield a table of the working tree beside the anchor of each row."""
    yield "| what | requests | anchor | its CPU-s | CPU-s now | now / anchor (range) |"
    yield "|---|---:|---|---:|---:|---:|"
    for row, revision, pairs in speed.timed(speed.ROWS, None, HERE, 3 if scale == 1 else 1, scale):
        a, b, ratio, low, high = speed.medians(pairs)
        what = f"{row.case.name} | {row.requests // scale:,} | {revision}"
        yield f"| {what} | {a:.3f} | {b:.3f} | {ratio:.2f} ({low:.2f} to {high:.2f}) |"


def main() -> int:
    """Make the page, or part of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description="Make the page of benchmarks.")
    parser.add_argument("expressions", metavar="EXPRESSION", nargs="*", help="only the rows that pytest's -k selects")
    parser.add_argument("--sections", action="store_true", help="only the anchor, the growth and the peers")
    parser.add_argument("--scale", metavar="N", type=int, default=1, help="divide the requests of these by N")
    args = parser.parse_args()
    if not args.sections:
        time_rows(args.expressions)
    if args.sections or not args.expressions:
        PAGE.write_text(with_sections(PAGE.read_text(), args.scale))
    print(PAGE)
    return 0


def time_rows(expressions: list[str]) -> None:
    """Measure the memory of 2 million requests in a process of its own, then time all benchmarks in CPU-seconds."""
    environment = {**os.environ, "MEZZOTINT_BENCH": "full", "OMP_NUM_THREADS": "1"}
    chosen = ["-k", " or ".join(f"({each})" for each in expressions)] if expressions else []
    with tempfile.TemporaryDirectory() as folder:
        if not chosen:
            run = ["trace.requests=2000000", f"run.dir={folder}/run"]
            subprocess.run([sys.executable, "-m", "mezzotint.sim.cli", "run", *run], env=environment, check=True)
            peak_gib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        rows = table([timings(environment, Path(folder, "report.json"), chosen) for _ in range(PASSES)])
    if chosen:
        made = {row.split(" | ")[0]: row for row in rows}
        PAGE.write_text("".join(f"{made.get(line.split(' | ')[0], line)}\n" for line in PAGE.read_text().splitlines()))
        return
    lines = [
        "# Speed",
        "",
        "Requests per CPU-second of one core in the fastest round: what else a machine does only slows one. All is",
        f"timed {PASSES} times, many minutes apart, in two rounds each (five where one takes a second or two, one",
        "where a million are replayed or made). Only the simulation itself is timed, from caches that are full.",
        f"With CPython {platform.python_version()}, simpy {version('simpy')}, numpy {version('numpy')}; `make bench`.",
        "The budget is the design's. Peak MB: the most that one round allocates at a time, beside its input.",
        "Yardstick: what the machine made just before and after of a queue of four servers in plain SimPy, as a share",
        f"of the {AT_BUDGETS:,} customers per CPU-second where budgets were set; there: the fastest round over that.",
        "",
        "| what | requests | per CPU-second | slowest round | us each | budget | yardstick | there | peak MB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += rows
    lines += ["", f"Peak memory of `mezzotint run trace.requests=2000000`: {peak_gib:.2f} GiB (budget 4).", ""]
    PAGE.write_text("\n".join(lines))


if __name__ == "__main__":
    sys.exit(main())
