"""Speed of the group policies, commit by commit: ``python -m tests.identity.group_speed [COMMIT ...]``.

FLUX.1-dev on H100, with requests of four sizes and 50 steps, at 8 and at 64 GPUs. What is timed is the engine's own
run, in CPU-seconds. Two commits that print the same digest end every request at the same time.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from itertools import chain
from pathlib import Path
from typing import Any

from tests.identity.cases import Case
from tests.identity.trees import HERE, Failed, Tree, checkout

SCRIPT = Path(__file__).with_name("group_run.py")

CLASSES = "system=preempt-class group_policy.urgent_sizes=[256x256] group_policy.preemptible_sizes=[2048x2048]"

POLICIES = (
    Case("edf best fit", "system=edf-best-fit"),
    Case("edf greedy", "system=edf-best-fit group_policy=edf-greedy"),
    Case("preempt-class demote", CLASSES),
    Case("preempt-class pause", f"{CLASSES} group_policy.give_way=pause group_policy.late_share=1"),
    Case("tetriserve", "system=tetriserve"),
    Case("rounds", "system=rounds"),
    Case("fixed-groups fifo", "system=fixed-groups group_policy.assignment=least-backlog"),
    Case("fixed-groups srtf", "system=fixed-groups group_policy.assignment=least-backlog group_policy.order=srtf"),
    Case("fixed-degree", "system=xdit"),
    Case("tridentserve", "system=tridentserve"),
    Case("colocated", "system=colocated"),
    Case("central-pull", "system=central-pull"),
    Case("super-p95", "system=super-p95"),
)

GPUS = 8, 64

QUEUES = 100, 200, 400, 800

QUEUED = {
    "late": f"slo=[5] trace.requests={max(QUEUES) + 100} arrivals.rate_rpm=1000000 cluster.count=8",
    "in time": f"slo=[1000] trace.requests={max(QUEUES) + 100} arrivals.rate_rpm=1000000 cluster.count=8",
}
"""Requests that all arrive at once: with a deadline that most of them miss, and with one that all can keep."""


def main() -> int:
    """Print a table for every commit. Returns 2 if one cannot be run."""
    args = _options()
    with tempfile.TemporaryDirectory(prefix="group-speed-") as temporary:
        for number, revision in enumerate(args.commits):
            try:
                tree = checkout(revision, Path(temporary) / str(number))
                print(f"{revision}: {args.requests} requests, {args.rate:g} a minute and GPU {args.overrides}")
                for line in chain(speeds(tree, args), queues(tree, args)):
                    print(line, flush=True)
            except Failed as failure:
                print(failure, file=sys.stderr)
                return 2
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.identity.group_speed", description="Time group policies.")
    parser.add_argument("commits", metavar="COMMIT", nargs="*", default=[HERE], help="default: the working tree")
    parser.add_argument("--policies", metavar="GLOB", default="*", help="policies to run, such as 'edf*'")
    parser.add_argument("--requests", metavar="N", type=int, default=1000, help="default: 1000")
    parser.add_argument("--rate", metavar="RPM", type=float, default=7.0, help="a minute and GPU (default: 7)")
    parser.add_argument("--limit", metavar="S", type=float, default=60.0, help="seconds of a run at most (default: 60)")
    parser.add_argument("--overrides", metavar="WORDS", default="", help="further overrides of all runs")
    return parser.parse_args()


def speeds(tree: Tree, args: argparse.Namespace) -> Iterator[str]:
    """Yield a line for every policy and number of GPUs."""
    yield f"{'GPUs':>4} {'':20} {'requests/s':>10} {'launches':>8} {'us/launch':>9} {'decisions':>9} digest"
    cases = [(gpus, policy) for gpus in GPUS for policy in POLICIES if fnmatch(policy.name, args.policies)]
    words = [
        f"slo=[5] trace.requests={args.requests} arrivals.rate_rpm={args.rate * gpus} cluster.count={gpus}"
        for gpus, _ in cases
    ]
    runs = _runs(tree, args, [(policy, load) for (_, policy), load in zip(cases, words, strict=True)])
    for (gpus, policy), run in zip(cases, runs, strict=True):
        requests, launches = run["requests"], run["launches"]
        us = 1e6 * run["cpu_s"] / max(1, launches)
        if run["digest"]:
            counts = f"{requests / run['cpu_s']:10,.0f} {launches / requests:8.2f} {us:9.1f}"
            yield f"{gpus:4} {policy.name:20} {counts} {run['decisions'] / requests:9.2f} {run['digest']}"
        else:
            yield f"{gpus:4} {policy.name:20} {'':19} {us:9.1f} {'':9} more than {args.limit:g} s"


def queues(tree: Tree, args: argparse.Namespace) -> Iterator[str]:
    """Yield a line for every policy of rounds, with the milliseconds of a decision by requests that wait."""
    policies = [policy for policy in POLICIES if policy.name in ("tetriserve", "rounds")]
    cases = [(policy, load) for policy in policies if fnmatch(policy.name, args.policies) for load in QUEUED]
    if cases:
        yield f"ms a decision that launches, of requests {'':10} {''.join(f'{queue:8}' for queue in QUEUES)} waiting"
    runs = _runs(tree, args, [(policy, QUEUED[load]) for policy, load in cases], QUEUES)
    for (policy, load), run in zip(cases, runs, strict=True):
        times = "".join(f"{1e3 * run['decision_s'].get(str(queue), float('nan')):8.3f}" for queue in QUEUES)
        stopped = "" if run["digest"] else f" more than {args.limit:g} s"
        yield f"   8 {policy.name:20} {load:25} {times}{stopped}"


def _runs(
    tree: Tree, args: argparse.Namespace, cases: Sequence[tuple[Case, str]], timed: Sequence[int] = ()
) -> Iterator[dict[str, Any]]:
    """Yield the result of each run, a policy and its load, one after another."""
    order = []
    for policy, load in cases:
        words = f"experiment=tetriserve-evaluation slo_by_size=null {policy.words} {load} {args.overrides}"
        order.append((Case(policy.name, words).overrides(tree.form), args.limit, timed))
    return map(json.loads, tree.script(SCRIPT, order=json.dumps(order)))


if __name__ == "__main__":
    sys.exit(main())
