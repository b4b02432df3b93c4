"""The verdict on the load of random systems against their capacity.

``python -m tests.sim.laws.test_load_verdict 198`` prints the share of right, wrong and open verdicts by system.
"""

import sys
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

from mezzotint.sim.run.simulate import Outcome
from tests.sim.lab import simulated

SDXL = ("models=sdxl", "cluster=h100")
GROUPS = ("experiment=tetriserve-evaluation", "images=first")
SYSTEMS: Mapping[str, tuple[str, ...]] = {
    "one GPU": (*SDXL, "system=vanilla", "cluster.count=1"),
    "16 GPUs": (*SDXL, "system=vanilla", "cluster.count=16"),
    "static batches": (*SDXL, "system=static-batches", "cluster.count=4"),
    "continuous batching": ("experiment=patchedserve-evaluation", "system=orca", "cluster.count=4"),
    "groups of two": (*GROUPS, "system=fixed-groups", "group_policy.groups=4x2"),
    "any idle GPUs": (*GROUPS, "system=xdit", "group_policy.degree=4"),
    "paused in groups": (*GROUPS, "system=fixed-groups", "group_policy.groups=2x4", "group_policy.order=srtf"),
    "declared hits": (
        *SDXL, "system=nirvana", "cluster.count=8", "hits=declared", "hits.hit_rate=0.5", "hits.mean_k=15",
    ),
    "discards": (
        *SDXL, "system=static-batches", "cluster.count=4", "scheduler=random-dispatch",
        "+scheduler.max_batch.large=4",
        "~scheduler.max_batch.light", "~scheduler.max_batch.heavy", "executor.max_batch=4",
        "scheduler.drop_after=2", "slo=[5]",
    ),
}  # fmt: skip
"""Systems under Poisson arrivals: executors, batches, groups, caches, discards."""


def served(words: tuple[str, ...], rate_rpm: float, requests: int, seed: int) -> Outcome:
    return simulated(
        *words, f"arrivals.rate_rpm={rate_rpm}", f"trace.requests={requests}", f"seed={seed}", "arrivals=poisson"
    )


@cache
def capacity_rpm(kind: str) -> float:
    """Return the requests a minute that the system completes if every GPU is busy, as in overload."""
    summary = served(SYSTEMS[kind], 400.0, 2000, 0).summary
    gpu = summary["gpu"]
    return float(60 * gpu["count"] * summary["requests"]["completed"] / (gpu["busy_fraction"] * gpu["seconds"]))


def drawn(seed: int) -> tuple[str, float, float, int, dict[str, Any]]:
    """Return kind, ratio of the rate to the capacity, that of what was offered, requests, and the summary."""
    rng = np.random.default_rng(seed)
    kind = list(SYSTEMS)[seed % len(SYSTEMS)]
    ratio, requests = float(rng.uniform(0.9, 1.1)), int(rng.choice([1000, 2000, 3000]))
    summary = served(SYSTEMS[kind], ratio * capacity_rpm(kind), requests, seed).summary
    return kind, ratio, summary["load"]["offered_rpm"] / capacity_rpm(kind), requests, summary


def outcome(ratio: float, verdict: str) -> str:
    """Return ``right``, ``wrong`` or ``open``."""
    if verdict == "undecided":
        return "open"
    return "right" if (verdict == "overloaded") is (ratio > 1) else "wrong"


@pytest.mark.parametrize("kind", [kind for kind in SYSTEMS if kind != "groups of two"])
def test_verdict_is_right_away_from_the_capacity(kind: str) -> None:
    for ratio, verdict in ((0.6, "below"), (1.25, "overloaded")):
        assert served(SYSTEMS[kind], ratio * capacity_rpm(kind), 1000, 1).summary["load"]["verdict"] == verdict


def test_verdict_is_hardly_ever_wrong_near_the_capacity() -> None:
    """Of 198 systems 2 % are wrong, all within 1.1 % of a load of 1, and about two in five are open."""
    found = [drawn(seed) for seed in range(9)]
    clear = [(offered, summary["load"]["verdict"]) for _, _, offered, _, summary in found if abs(offered - 1) > 0.015]
    results = Counter(outcome(*each) for each in clear)
    assert results["wrong"] == 0
    assert results["right"] >= 0.4 * len(clear)


if __name__ == "__main__":
    by_rate, by_offer = Counter[str](), Counter[tuple[str, str]]()
    for number in range(int(sys.argv[1])):
        name, rate_ratio, offer_ratio, count, found = drawn(number)
        of_load = found["load"]
        by_rate[outcome(rate_ratio, of_load["verdict"])] += 1
        by_offer[name, outcome(offer_ratio, of_load["verdict"])] += 1
        by_offer["all", outcome(offer_ratio, of_load["verdict"])] += 1
        if outcome(offer_ratio, of_load["verdict"]) == "wrong":
            print(f"{number} {name}: {rate_ratio:.3f}, offered {offer_ratio:.3f}, {count}, {of_load}")
            print(found["requests"], found["gpu"]["busy_fraction"])
    print(sorted(by_rate.items()), sorted(by_offer.items()), sep="\n")
