"""What is measured of finished runs, in the words of the targets: pure functions of their summaries and requests."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from sim.papers.scorecard.finished import Finished, Runs, mean
from sim.papers.scorecard.targets import Value, read_data

Measure = Callable[[Runs], Value]
Number = Callable[[Runs], float]
Numbers = Callable[[Runs], list[float]]


@dataclass(frozen=True, slots=True)
class Measured:
    """How one target is measured.

    Attributes:
        experiments: names in conf/experiment; their runs are what ``measure`` is given.
        basis: what is measured, where the target's own words leave it open.
        fixed_by: what the number rests on that was not simulated: the inputs, each with where it is from, or, of a
            fit, the input that this target has fixed.
        real_prompts: whether it says something of prompts that people wrote alone, and is left out of the built-in
            trace's column.
    """

    experiments: tuple[str, ...]
    measure: Measure
    fixed_by: str
    basis: str = ""
    real_prompts: bool = False


def load_measures(path: Path, measures: Mapping[str, Measure]) -> dict[str, Measured]:
    """Read how each target is measured, and add the arithmetic: by target id, in the order of ``measures``."""
    said = read_data(path, dict[str, dict[str, Any]])
    words: dict[str, str] = {}
    for name, text in said["words"].items():
        words[name] = text.format(**words)
    found = {}
    for target, measure in measures.items():
        row = said["measures"][target]
        texts = {key: row[key].format(**words) for key in ("fixed_by", "basis") if key in row}
        experiments = tuple(row.get("experiments", ()))
        found[target] = Measured(experiments, measure, real_prompts=row.get("real_prompts", False), **texts)
    return found


def latency_s(system: str, statistic: str = "mean") -> Number:
    """Seconds from arrival to the image: mean or a percentile."""
    return lambda runs: runs.where(system=system).mean("latency_s", statistic)


def over_median(system: str, percentile: str) -> Number:
    """A percentile of the latency over its median."""
    return lambda runs: mean(
        [run.number("latency_s", percentile) / run.number("latency_s", "p50") for run in runs.where(system=system)]
    )


def compute_saving(system: str) -> Number:
    """1 - GPU step-seconds over those of every request in full."""
    return lambda runs: runs.where(system=system).mean("cache", "compute_saving")


def hit_rate(system: str) -> Number:
    """Hits over all requests: what a match predictor keeps from being looked up counts as a miss."""
    return lambda runs: mean([hits(run) for run in runs.where(system=system)])


def served_at(system: str, k: int) -> Number:
    """The share of all requests that started from the state after step ``k``."""
    return lambda runs: mean([hits(run) * _share(run, k) for run in runs.where(system=system)])


def reduction(system: str, against: str, *keys: str) -> Number:
    """1 - a number of one system over the same of another."""
    return lambda runs: 1 - ratio(system, against, *keys)(runs)


def ratio(system: str, against: str, *keys: str) -> Number:
    """A number of one system over the same of another."""
    return lambda runs: runs.where(system=system).mean(*keys) / runs.where(system=against).mean(*keys)


def per_size(of: Callable[[Finished], float], eviction: str, capacities: Sequence[int]) -> Numbers:
    """A number of the runs under one eviction policy, for each capacity of the cache in items."""
    return lambda runs: [
        mean([of(run) for run in runs.where(eviction=eviction, capacity=capacity)]) for capacity in capacities
    ]


def crossing(at: Mapping[float, float], limit: float, *, rises: bool) -> float | None:
    """Return the rate at which a number passes ``limit``, on the line between two rates that were run, or None.

    Args:
        at: the number by rate, from the lowest rate on, where it has not passed the limit.
        rises: whether a number above the limit has passed it, or one below.
    """
    for (low, before), (high, after) in pairwise(at.items()):
        if after > limit if rises else after < limit:
            return low + (high - low) * (limit - before) / (after - before)
    return None


def hits(run: Finished) -> float:
    """Hits over all requests of the measured window."""
    return run.number("cache", "hits") / run.number("requests", "arrived")


def saving(run: Finished) -> float:
    """The compute saving of one run."""
    return run.number("cache", "compute_saving")


def _share(run: Finished, k: int) -> float:
    """The share of the hits that skipped ``k`` steps, 0 where none did."""
    known = run.summary["cache"]["hit_share_by_k"] or {}
    return run.number("cache", "hit_share_by_k", str(k)) if str(k) in known else 0.0
