"""Paired runs of two commits: ``python -m tests.identity.speed [BEFORE [AFTER]]``.

Without BEFORE, each row compares with its anchor: changes of 5 % each add up, so speed is judged against a commit that
stays. Each round runs every row in a fresh process of each commit, both at once on one CPU where that can be chosen: it
alternates between the two every few milliseconds, so that whatever else the machine does slows both alike. What is
timed is the engine's own run, the CPU-seconds that summary.json holds, with embeddings and neighbours cached; of some
rows the whole command without its imports, with nothing cached.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import repeat
from pathlib import Path
from statistics import median

from tqdm import tqdm

from tests.identity.cases import Case
from tests.identity.trees import HERE, Failed, Tree, checkout

ANCHOR = "e667d195"
"""The fastest commit when it was written down, in November 2026; a faster one may take its place, here alone."""

HITS, GROUPS = "1468620f", "69d52afe"
"""The first commits with declared hits and with these group policies, which the anchor does not have."""


@dataclass(frozen=True, slots=True)
class Row:
    """What is timed: ``requests`` of the built-in trace, or, with ``own_trace``, of that which ``case`` names."""

    case: Case
    requests: int
    anchor: str = ANCHOR
    own_trace: bool = False
    whole: bool = False
    flags: tuple[str, ...] = ()

    def words(self, tree: Tree, requests: int) -> list[str]:
        trace = [f"trace.requests={requests}"] if self.own_trace else ["trace=file", f"trace.path={requests}.parquet"]
        return [*self.flags, *self.case.overrides(tree.form), *trace]


BATCHES = "executor=continuous-batching cluster=h100 arrivals=poisson arrivals.rate_rpm=400"
ROUTED = "scheduler=per-worker cluster.count=4096 arrivals=poisson arrivals.rate_rpm=2000"
DECLARED = "system=nirvana hits=nirvana arrivals=poisson arrivals.rate_rpm=10"
SIZES = "experiment=tetriserve-evaluation slo_by_size=null slo=[5] cluster.count=8 arrivals.rate_rpm=56"
FIRST = "system=nirvana-no-predictor arrivals=poisson arrivals.rate_rpm=10"

ROWS = (
    Row(Case("vanilla", "system=vanilla arrivals=poisson arrivals.rate_rpm=10"), 200_000),
    Row(Case("nirvana-no-predictor", "system=nirvana-no-predictor arrivals=poisson arrivals.rate_rpm=10"), 50_000),
    Row(Case("modm-throughput", "system=modm-throughput arrivals=poisson arrivals.rate_rpm=20"), 50_000),
    Row(Case("a long queue", "system=vanilla arrivals=poisson arrivals.rate_rpm=20"), 200_000),
    Row(Case("continuous batching", BATCHES), 20_000),
    Row(Case("4,096 workers, requests", f"{ROUTED} router=least-requests"), 20_000),
    Row(Case("4,096 workers, work", f"{ROUTED} router=least-work-left"), 20_000),
    Row(Case("declared hits", DECLARED), 50_000, HITS),
    Row(Case("groups, edf", f"{SIZES} system=edf-best-fit"), 1000, GROUPS, own_trace=True),
    Row(Case("groups, tetriserve", f"{SIZES} system=tetriserve"), 1000, GROUPS, own_trace=True),
    Row(Case("first use", FIRST), 10_000, whole=True),
    Row(Case("ten points of a sweep", "seed=1,2,3,4,5,6,7,8,9,10"), 1000, own_trace=True, whole=True, flags=("-m",)),
)
"""On 16 MI210 where nothing else is said."""


def main() -> int:
    """Print a line for every row: the median of both commits, and their ratio pair by pair."""
    args = _options()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(f"CPU-seconds in {args.rounds} pairs, medians: A is BEFORE, B is {args.after}")
    print(f"{'':24} {'requests':>8} {'BEFORE':>8} {'A':>8} {'B':>8} {'B / A':>7} (range)")
    rows = [row for row in ROWS if fnmatch(row.case.name, args.rows)]
    try:
        for row, before, pairs in timed(rows, args.before, args.after, args.rounds, args.scale):
            a, b, ratio, low, high = medians(pairs)
            what = f"{row.case.name:24} {row.requests // args.scale:8,} {before:>8}"
            print(f"{what} {a:8.3f} {b:8.3f} {ratio:7.3f} ({low:.3f} to {high:.3f})", flush=True)
    except Failed as failure:
        print(failure, file=sys.stderr)
        return 2
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.identity.speed", description="Time two commits in pairs.")
    parser.add_argument("before", metavar="BEFORE", nargs="?", help="a commit; else the anchor of each row")
    parser.add_argument("after", metavar="AFTER", nargs="?", default=HERE, help="a commit; else the working tree")
    parser.add_argument("--rounds", metavar="N", type=int, default=7, help="pairs of each row (default: 7)")
    parser.add_argument("--rows", metavar="GLOB", default="*", help="only the rows of such names")
    parser.add_argument("--scale", metavar="N", type=int, default=1, help="divide all requests by N (default: 1)")
    return parser.parse_args()


def medians(pairs: Sequence[tuple[float, float]]) -> tuple[float, float, float, float, float]:
    """Return the median of both sides, and the median, the least and the greatest of their ratios."""
    a, b = (median(times) for times in zip(*pairs, strict=True))
    ratios = [second / first for first, second in pairs]
    return a, b, median(ratios), min(ratios), max(ratios)


def timed(
    rows: Sequence[Row], before: str | None, after: str, rounds: int, scale: int = 1
) -> Iterator[tuple[Row, str, list[tuple[float, float]]]]:
    """Yield each row with the commit that it compares with, and the CPU-seconds of both in every round."""
    with tempfile.TemporaryDirectory(prefix="speed-") as temporary, ThreadPoolExecutor(2) as both:
        for turn, revision in enumerate(dict.fromkeys(before or row.anchor for row in rows)):
            folder = Path(temporary, str(turn))
            first, second = trees = [checkout(r, folder / side) for r, side in ((revision, "a"), (after, "b"))]
            for row in [row for row in rows if revision == (before or row.anchor)]:
                requests = row.requests // scale
                if not row.own_trace and not (second.work / f"{requests}.parquet").exists():
                    first.mezzotint("trace", "synth", "-o", f"{requests}.parquet", "--requests", str(requests))
                    shutil.copy2(first.work / f"{requests}.parquet", second.work)
                for tree in trees:  # the first runs of each fill the cache; the second finds neighbours
                    for _ in range(1 if row.whole else 2):
                        _cpu_s(tree, row, requests)
                    shutil.copytree(first.remembered, second.remembered, dirs_exist_ok=True)
                pairs = []
                for number in tqdm(range(rounds), row.case.name, unit="pair", disable=None):
                    order = trees if number % 2 else trees[::-1]
                    times = dict(zip(order, both.map(_cpu_s, order, repeat(row), repeat(requests)), strict=True))
                    pairs.append((times[first], times[second]))
                yield row, revision, pairs


def _cpu_s(tree: Tree, row: Row, requests: int) -> float:
    """Return the CPU-seconds of the engine in one run of ``row``, or of the whole command."""
    shutil.rmtree(tree.work / "run", ignore_errors=True)
    if row.whole:
        shutil.rmtree(tree.remembered)
        tree.remembered.mkdir()
    command_s = tree.mezzotint("run", *row.words(tree, requests), "run.dir=run")
    if row.whole:
        return command_s
    summary = json.loads((tree.work / "run" / "summary.json").read_text(encoding="utf-8"))
    return float(summary["wall"]["cpu_s"])


if __name__ == "__main__":
    sys.exit(main())
