"""One paired run of two commits: ``python -m tests.identity.speed BEFORE [AFTER]``.

Each round runs every case in a fresh process of each commit, both at once on one CPU where that can be chosen: it
alternates between the two every few milliseconds, so that whatever else the machine does slows both alike. What is
timed is the engine's own run, the CPU-seconds that summary.json holds, with embeddings and neighbours cached.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from statistics import median

from tqdm import tqdm

from tests.identity.cases import Case
from tests.identity.trees import HERE, Failed, Tree, checkout

CASES = {
    Case("vanilla", "system=vanilla arrivals=poisson arrivals.rate_rpm=10"): 200_000,
    Case("nirvana-no-predictor", "system=nirvana-no-predictor arrivals=poisson arrivals.rate_rpm=10"): 50_000,
    Case("modm-throughput", "system=modm-throughput arrivals=poisson arrivals.rate_rpm=20"): 50_000,
    Case("a long queue", "system=vanilla arrivals=poisson arrivals.rate_rpm=20"): 200_000,
    Case(
        "continuous batching", "executor=continuous-batching cluster=h100 arrivals=poisson arrivals.rate_rpm=400"
    ): 20_000,
}
"""The timed configuration, on 16 MI210, and the requests of its trace."""


def main() -> int:
    """Print a line for every case: the median of both commits, and their ratio pair by pair."""
    args = _options()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory(prefix="speed-") as temporary:
        try:
            found = _timed(args, Path(temporary))
        except Failed as failure:
            print(failure, file=sys.stderr)
            return 2
    print(f"CPU-seconds of the engine's run in {args.rounds} pairs: A is {args.before}, B is {args.after}")
    print(f"{'':20} {'requests':>8} {'A':>7} {'B':>7} {'B / A':>7} (range), medians")
    for case, pairs in found.items():
        a, b = (median(times) for times in zip(*pairs, strict=True))
        ratios = [second / first for first, second in pairs]
        spread = f"({min(ratios):.3f} to {max(ratios):.3f})"
        print(f"{case.name:20} {CASES[case]:8,} {a:7.3f} {b:7.3f} {median(ratios):7.3f} {spread}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.identity.speed", description="Time two commits in pairs.")
    parser.add_argument("before", metavar="BEFORE", help="a commit")
    parser.add_argument("after", metavar="AFTER", nargs="?", default=HERE, help="a commit; else the working tree")
    parser.add_argument("--rounds", metavar="N", type=int, default=7, help="pairs of each case (default: 7)")
    return parser.parse_args()


def _timed(args: argparse.Namespace, temporary: Path) -> dict[Case, list[tuple[float, ...]]]:
    """Return the CPU-seconds of both commits in every round, by case."""
    trees = [checkout(r, temporary / side) for r, side in ((args.before, "before"), (args.after, "after"))]
    before, after = trees
    for rows in set(CASES.values()):
        before.mezzotint("trace", "synth", "-o", f"{rows}.parquet", "--requests", str(rows), "--seed", "1")
    bar = tqdm(total=2 * len(CASES) * (args.rounds + 1), unit="run", disable=None)
    with bar:
        for tree in trees:  # the first runs of each fill the disk cache for the others; the second finds neighbours
            for case in CASES:
                for _ in range(2):
                    _cpu_s(tree, case)
                bar.update()
            if tree is before:
                for folder in ("work", "remembered"):
                    shutil.copytree(temporary / "before" / folder, temporary / "after" / folder, dirs_exist_ok=True)
        found: dict[Case, list[tuple[float, ...]]] = {case: [] for case in CASES}
        with ThreadPoolExecutor(len(trees)) as both:
            for turn in range(args.rounds):
                for case, pairs in found.items():
                    order = trees if turn % 2 else trees[::-1]
                    times = dict(zip(order, both.map(_cpu_s, order, repeat(case)), strict=True))
                    pairs.append((times[before], times[after]))
                    bar.update(2)
    return found


def _cpu_s(tree: Tree, case: Case) -> float:
    """Return the CPU-seconds of the engine in one run of ``case``."""
    trace = ("trace=file", f"trace.path={CASES[case]}.parquet")
    tree.mezzotint("run", *case.overrides(tree.form), *trace, "run.dir=run")
    seconds: float = json.loads((tree.work / "run" / "summary.json").read_text(encoding="utf-8"))["wall"]["cpu_s"]
    return seconds


if __name__ == "__main__":
    sys.exit(main())
