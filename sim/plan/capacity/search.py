"""Bisection for the highest sustained rate of every replication (seed), and the interval of their mean.

A replication has the same draws at every rate, so its gaps only scale. In a FIFO queue no wait then gets shorter as the
rate grows (Lindley's recursion), so the replication sustains every rate up to one. Where a controller or cache reacts
to load, the search finds one of the rates at which the violations cross their bound. Replications are independent, so
the interval is Student's. It is an interval of rates: the share of violations at one rate leaps from none to all near
saturation and is far from normal. The mean of the highest rates lies a little below the rate of the mean share, so the
share at the answer is reported beside it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.report.compare import Spread

CONFIDENCE = 0.95
DIGITS = 6
"""Significant digits of a rate: enough for any tolerance, and few enough for the name of a folder."""


@dataclass(frozen=True, slots=True)
class CapacitySpec:
    """The target of a capacity search, and the bracket in which the search looks.

    Attributes:
        violations: largest share of requests over the limit ``slo`` ("2x", "10s").
        from_rpm, to_rpm: the bracket: a sustained rate, and one that is not.
        replications: number of seeds.
        tolerance: bisection ends when its two rates differ by at most this share of the lower one.
    """

    violations: float
    slo: str
    from_rpm: float
    to_rpm: float
    replications: int
    tolerance: float

    @property
    def bisections(self) -> int:
        """Most rates within the bracket at which one replication runs."""
        return max(0, math.ceil(math.log2(math.log(self.to_rpm / self.from_rpm) / math.log1p(self.tolerance))) + 1)


@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome of one replication at one rate: the share of its requests over the limit, and its backlog."""

    replication: int
    rate_rpm: float
    violation_rate: float
    backlog_grows: bool

    def is_sustained(self, max_violations: float) -> bool:
        """Return True if the backlog stays bounded and at most ``max_violations`` of the requests are over the limit.

        While a backlog grows, the share of late requests only shows how short the trace is.
        """
        return not self.backlog_grows and self.violation_rate <= max_violations


Measure = Callable[[Sequence[tuple[int, float]]], list[Trial]]
"""(replication, rate in requests per minute) of each run -> its trial, in the same order."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The result of a search: ``rate_rpm`` is the mean over replications of the highest sustained rate.

    Attributes:
        rate_rpm: its interval reaches from the lower end of the sustained rates' interval to the upper end of the
            unsustained rates' one, so it includes what bisection left open.
        sustained_rpm, unsustained_rpm: the last two rates of each replication's bisection.
        at_rate: every replication at ``rate_rpm``, with ``violation_rate`` over all of them.
        trials: every run, by replication and rate.
    """

    rate_rpm: Spread
    sustained_rpm: tuple[float, ...]
    unsustained_rpm: tuple[float, ...]
    at_rate: tuple[Trial, ...]
    violation_rate: Spread
    trials: tuple[Trial, ...]


def search(spec: CapacitySpec, measure: Measure) -> Capacity:
    """Bisect every replication by ratio, in rounds whose runs can go in parallel.

    All replications begin with the same two rates, so a larger ``violations`` never gives a lower capacity.

    Raises:
        ConfigError: some replication does not sustain the lower rate, or sustains the upper one.
    """
    replications = range(spec.replications)
    low, high = _rounded(spec.from_rpm), _rounded(spec.to_rpm)
    trials: list[Trial] = []

    def run(requested: Sequence[tuple[int, float]]) -> list[Trial]:
        measured = measure(requested)
        trials.extend(measured)
        return measured

    _check(spec, run([(each, low) for each in replications]), f"--from {spec.from_rpm:g}", expected=True)
    _check(spec, run([(each, high) for each in replications]), f"--to {spec.to_rpm:g}", expected=False)
    brackets = dict.fromkeys(replications, (low, high))
    while requested := [
        (each, middle)
        for each, (below, above) in brackets.items()
        if above > below * (1 + spec.tolerance) and below < (middle := _rounded(math.sqrt(below * above))) < above
    ]:
        for trial in run(requested):
            below, above = brackets[trial.replication]
            is_sustained = trial.is_sustained(spec.violations)
            brackets[trial.replication] = (trial.rate_rpm, above) if is_sustained else (below, trial.rate_rpm)
    sustained_rpm, unsustained_rpm = zip(*brackets.values(), strict=True)
    sustained, unsustained = interval(sustained_rpm), interval(unsustained_rpm)
    rate_rpm = _rounded(sustained.mean)
    at_rate = run([(each, rate_rpm) for each in replications])
    share = interval([trial.violation_rate for trial in at_rate])
    return Capacity(
        Spread(rate_rpm, max(0.0, sustained.low), unsustained.high, spec.replications),
        sustained_rpm,
        unsustained_rpm,
        tuple(at_rate),
        Spread(share.mean, max(0.0, share.low), min(1.0, share.high), spec.replications),
        tuple(sorted(set(trials), key=lambda trial: (trial.replication, trial.rate_rpm))),
    )


def interval(values: Sequence[float]) -> Spread:
    """Return the mean of independent values with its Student's t interval; a single value has width 0."""
    mean, count, half = float(np.mean(values)), len(values), 0.0
    if count > 1:
        half = float(stats.t.ppf((1 + CONFIDENCE) / 2, count - 1) * np.std(values, ddof=1) / math.sqrt(count))
    return Spread(mean, mean - half, mean + half, count)


def _rounded(rate_rpm: float) -> float:
    return float(f"{rate_rpm:.{DIGITS}g}")


def _check(spec: CapacitySpec, trials: Sequence[Trial], end: str, *, expected: bool) -> None:
    wrong = [trial for trial in trials if trial.is_sustained(spec.violations) is not expected]
    if not wrong:
        return
    share = f"{wrong[0].violation_rate:.1%} of the requests are over {spec.slo}"
    raise ConfigError(
        f"{end}: at this rate {'the backlog grows' if wrong[0].backlog_grows else share} ({len(wrong)} of "
        f"{spec.replications} replications; the target is at most {spec.violations:.1%} over {spec.slo}); "
        f"{'lower --from, or take more GPUs' if expected else 'raise --to'}"
    )
