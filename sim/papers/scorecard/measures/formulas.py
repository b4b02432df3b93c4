"""Measures of finished runs: pure functions of their summaries and requests, in the terms of the targets."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from mezzotint.sim.papers.runs import Finished, Runs, mean
from mezzotint.sim.papers.scorecard.alternatives import Alternatives
from mezzotint.sim.papers.scorecard.targets import Value
from mezzotint.sim.papers.study import read_data

Measure = Callable[[Runs], Value | Alternatives]
Number = Callable[[Runs], float]
Numbers = Callable[[Runs], list[float]]


@dataclass(frozen=True, slots=True)
class TargetMeasure:
    """The measure of one target.

    Attributes:
        experiments: names in conf/experiment; ``measure`` gets their runs.
        basis: the exact quantity, if the target's own words leave it open.
        fixed_by: the inputs that the number depends on, each with its source, or the input that a fit has fixed.
        real_prompts: True if only prompts that people wrote count, so that the built-in trace has no such row.
    """

    experiments: tuple[str, ...]
    measure: Measure
    fixed_by: str
    basis: str = ""
    real_prompts: bool = False


def load_measures(path: Path, measures: Mapping[str, Measure]) -> dict[str, TargetMeasure]:
    """Read the measures' texts and experiments, and add the functions ``measures``, by target id in their order."""
    texts_by_target = read_data(path, dict[str, dict[str, Any]])
    words: dict[str, str] = {}
    for name, text in texts_by_target["words"].items():
        words[name] = text.format(**words)
    found = {}
    for target, measure in measures.items():
        row = texts_by_target["measures"][target]
        texts = {key: row[key].format(**words) for key in ("fixed_by", "basis") if key in row}
        experiments = tuple(row.get("experiments", ()))
        found[target] = TargetMeasure(experiments, measure, real_prompts=row.get("real_prompts", False), **texts)
    return found


def latency_s(system: str, statistic: str = "mean") -> Number:
    """Measure the seconds from arrival to the image: mean or a percentile."""
    return lambda runs: runs.where(system=system).mean("latency_s", statistic)


def over_median(system: str, percentile: str) -> Number:
    """Measure a percentile of the latency over its median."""
    return lambda runs: mean(
        [run.number("latency_s", percentile) / run.number("latency_s", "p50") for run in runs.where(system=system)]
    )


def compute_saving(system: str) -> Number:
    """Measure 1 - GPU step-seconds over those without a cache."""
    return lambda runs: runs.where(system=system).mean("cache", "compute_saving")


def hit_rate(system: str) -> Number:
    """Measure hits over all requests; a request that the match predictor keeps from the search counts as a miss."""
    return lambda runs: mean([hits(run) for run in runs.where(system=system)])


def served_at(system: str, k: int) -> Number:
    """Measure the share of all requests that skipped ``k`` steps."""
    return lambda runs: mean([hits(run) * _share(run, k) for run in runs.where(system=system)])


def reduction(system: str, against: str, *keys: str) -> Number:
    """Measure 1 - a number of one system over that of another."""
    return lambda runs: 1 - ratio(system, against, *keys)(runs)


def ratio(system: str, against: str, *keys: str) -> Number:
    """Measure a number of one system over that of another."""
    return lambda runs: runs.where(system=system).mean(*keys) / runs.where(system=against).mean(*keys)


def per_size(of: Callable[[Finished], float], eviction: str, capacities: Sequence[int]) -> Numbers:
    """Measure a number under one eviction policy, for each capacity of the cache in items."""
    return lambda runs: [
        mean([of(run) for run in runs.where(eviction=eviction, capacity=capacity)]) for capacity in capacities
    ]


def crossing(at: Mapping[float, float], limit: float, *, rises: bool) -> float | None:
    """Return the rate at which a number passes ``limit``, interpolated between two simulated rates, or None.

    Args:
        at: the number by rate, ascending; at the lowest rate it has not passed the limit.
        rises: True if a number above the limit has passed it, False if one below.
    """
    for (low, before), (high, after) in pairwise(at.items()):
        if after > limit if rises else after < limit:
            return low + (high - low) * (limit - before) / (after - before)
    return None


def hits(run: Finished) -> float:
    """Return hits over all requests of the measured window."""
    return run.number("cache", "hits") / run.number("requests", "arrived")


def saving(run: Finished) -> float:
    """Return the compute saving of one run."""
    return run.number("cache", "compute_saving")


def _share(run: Finished, k: int) -> float:
    """Return the share of the hits that skipped ``k`` steps, 0 if none did."""
    shares = run.summary["cache"]["hit_share_by_k"] or {}
    return run.number("cache", "hit_share_by_k", str(k)) if str(k) in shares else 0.0
