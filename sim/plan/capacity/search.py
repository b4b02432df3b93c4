"""Bisection for the highest rate in every replication (seed), and the interval of its mean.

A replication has the same draws at every rate, so its gaps only scale, and in a queue in order no wait gets shorter as
the rate grows (Lindley's recursion): up to one rate it is carried. Where a controller or cache reacts to load, one of
the rates at which the share crosses is found. Replications are independent, so the interval is Student's. It is of the
rates, since the share of violations at one rate leaps from none to all near saturation and is far from normal. The
mean of the highest rates is a little below the rate of the mean share: the share at the answer is told beside it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from sim.core.errors import ConfigError
from sim.report.compare import Spread

CONFIDENCE = 0.95
DIGITS = 6
"""Of a rate: enough for any tolerance, and few enough that a rate names a folder."""


@dataclass(frozen=True, slots=True)
class Question:
    """Between ``from_rpm``, which is carried, and ``to_rpm``, which is not: at which rate is the share small enough?

    ``violations`` is the largest share of requests over the limit ``slo`` ("2x", "10s"), ``replications`` the seeds.
    Bisection ends where a rate that is not carried is above one that is by ``tolerance``, relative to it.
    """

    violations: float
    slo: str
    from_rpm: float
    to_rpm: float
    replications: int
    tolerance: float

    @property
    def bisections(self) -> int:
        """Rates between the two that each replication is run at, at most."""
        return max(0, math.ceil(math.log2(math.log(self.to_rpm / self.from_rpm) / math.log1p(self.tolerance))) + 1)


@dataclass(frozen=True, slots=True)
class Point:
    """One replication at one rate: the share of its requests over the limit, and whether its backlog grew."""

    replication: int
    rate_rpm: float
    violation_rate: float
    backlog_grows: bool

    def carried(self, most: float) -> bool:
        """Whether the rate is carried: a queue that grows is not, whatever share of a trace this long is late."""
        return not self.backlog_grows and self.violation_rate <= most


Measure = Callable[[Sequence[tuple[int, float]]], list[Point]]
"""(replication, rate in requests per minute) of each run asked for -> what came of each, in their order."""


@dataclass(frozen=True, slots=True)
class Found:
    """The answer, ``rate_rpm``: the mean of the highest rates that were carried.

    Its interval reaches from the lower end of theirs to the upper end of that of the lowest rates that were not, so it
    holds what bisection left open too. ``at_rate`` has all replications at the answer, ``violation_rate`` their share
    over the limit, ``points`` every run by replication and rate.
    """

    rate_rpm: Spread
    carried_rpm: tuple[float, ...]
    not_carried_rpm: tuple[float, ...]
    at_rate: tuple[Point, ...]
    violation_rate: Spread
    points: tuple[Point, ...]


def search(question: Question, measure: Measure) -> Found:
    """Bisect in every replication by ratio, in rounds, so that those of a round can run at once.

    All begin with the same two rates, whatever ``violations``: the larger it is, the higher the answer, or equal.
    Raises ConfigError where some replication does not carry the lower rate, or carries the upper one.
    """
    everyone = range(question.replications)
    low, high = _rounded(question.from_rpm), _rounded(question.to_rpm)
    points: list[Point] = []

    def run(asked: Sequence[tuple[int, float]]) -> list[Point]:
        found = measure(asked)
        points.extend(found)
        return found

    _check(question, run([(each, low) for each in everyone]), f"--from {question.from_rpm:g}", is_carried=True)
    _check(question, run([(each, high) for each in everyone]), f"--to {question.to_rpm:g}", is_carried=False)
    between = dict.fromkeys(everyone, (low, high))
    while asked := [
        (each, middle)
        for each, (below, above) in between.items()
        if above > below * (1 + question.tolerance) and below < (middle := _rounded(math.sqrt(below * above))) < above
    ]:
        for point in run(asked):
            below, above = between[point.replication]
            carried = point.carried(question.violations)
            between[point.replication] = (point.rate_rpm, above) if carried else (below, point.rate_rpm)
    carried_rpm, not_carried_rpm = zip(*between.values(), strict=True)
    inside, beyond = interval(carried_rpm), interval(not_carried_rpm)
    answer = _rounded(inside.mean)
    at_rate = run([(each, answer) for each in everyone])
    share = interval([point.violation_rate for point in at_rate])
    return Found(
        Spread(answer, max(0.0, inside.low), beyond.high, question.replications),
        carried_rpm,
        not_carried_rpm,
        tuple(at_rate),
        Spread(share.mean, max(0.0, share.low), min(1.0, share.high), question.replications),
        tuple(sorted(set(points), key=lambda point: (point.replication, point.rate_rpm))),
    )


def interval(values: Sequence[float]) -> Spread:
    """The mean of independent values and its interval by Student's t; of one value, itself."""
    mean, count, half = float(np.mean(values)), len(values), 0.0
    if count > 1:
        half = float(stats.t.ppf((1 + CONFIDENCE) / 2, count - 1) * np.std(values, ddof=1) / math.sqrt(count))
    return Spread(mean, mean - half, mean + half, count)


def _rounded(rate_rpm: float) -> float:
    return float(f"{rate_rpm:.{DIGITS}g}")


def _check(question: Question, points: Sequence[Point], end: str, *, is_carried: bool) -> None:
    wrong = [point for point in points if point.carried(question.violations) is not is_carried]
    if not wrong:
        return
    share = f"{wrong[0].violation_rate:.1%} of the requests are over {question.slo}"
    raise ConfigError(
        f"{end}: there {'the backlog grows' if wrong[0].backlog_grows else share} ({len(wrong)} of "
        f"{question.replications} replications; at most {question.violations:.1%} over {question.slo} is asked for); "
        f"{'lower --from, or take more GPUs' if is_carried else 'raise --to'}"
    )
