"""The search itself: bisection in every replication, and what the replications together say.

Every replication (a seed: its arrivals and, of a made trace, its prompts) has a highest rate of its own, found by
bisection with common random numbers: at every rate the same seed, so the same exponential draws, scaled. Then what
changes between two rates of a replication is the rate alone, and of a queue in order (Lindley's recursion) no wait
gets shorter by it, so there is one rate up to which the replication is carried, and bisection finds it. (Where
a controller or a cache acts on what it sees, a slightly higher rate may be late less often; then it finds one of the
rates at which the share crosses the one asked for. Replications cross at different ones, which the interval shows.) The
replications are independent, so their highest rates are too, and the interval of their mean is Student's.

Why not an interval of the share of violations at one rate: near saturation that share leaps from none to all within a
few percent of the rate, so over seeds it is anything but normal, while the rate at which it leaps is nearly so; and a
replication whose backlog grows has no share that a mean could be taken of, only that it is not carried. The price is
that the mean of the highest rates is not quite the rate at which the mean share is the one asked for (the share rises
ever more steeply, so there it is a little higher), which is why all replications are run at the answer in the end and
their share is told beside it. Longer traces bring both together; who wants to be sure takes the lower end.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from sim.errors import ConfigError
from sim.study.compare import Spread

CONFIDENCE = 0.95
DIGITS = 6
"""Of a rate: enough for any tolerance, and few enough that a rate names a folder."""


class NotBracketed(ConfigError):
    """The rate that is searched for does not lie between the two given; the message says on which side."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: between two rates, the highest at which the share of requests over a limit is small enough.

    Attributes:
        violations: the largest share of requests over the limit, 0 to 1.
        slo: the limit, by its name in a summary ("2x", "10s").
        from_rpm, to_rpm: requests per minute; the first has to be carried, the second not.
        replications: seeds.
        tolerance: bisection ends where a rate that is not carried is this much above one that is, relative to it.
    """

    violations: float
    slo: str
    from_rpm: float
    to_rpm: float
    replications: int
    tolerance: float

    @property
    def bisections(self) -> int:
        """How many rates between the two each replication is run at, at most."""
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
    """The answer.

    Attributes:
        rate_rpm: the mean of the highest rates that were carried. The interval reaches from the lower end of theirs
            to the upper end of that of the lowest rates that were not, so it holds what bisection left open too.
        carried_rpm, not_carried_rpm: both, by replication.
        at_rate: all replications at the answer.
        violation_rate: their share of requests over the limit.
        points: every run, by replication and rate.
    """

    rate_rpm: Spread
    carried_rpm: tuple[float, ...]
    not_carried_rpm: tuple[float, ...]
    at_rate: tuple[Point, ...]
    violation_rate: Spread
    points: tuple[Point, ...]


def search(question: Question, measure: Measure) -> Found:
    """Bisect in every replication, in rounds, so that those of a round can run at once.

    Rates are halved by ratio. All replications begin with the same two, and so does every ``violations`` asked for:
    the larger it is, the higher the answer, or equal, whatever the runs say.

    Raises NotBracketed where some replication does not carry the lower rate, or carries the upper one.
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
    while asked := [(each, _middle(*ends)) for each, ends in between.items() if _open(*ends, question.tolerance)]:
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


def _open(low: float, high: float, tolerance: float) -> bool:
    return high > low * (1 + tolerance) and low < _middle(low, high) < high


def _middle(low: float, high: float) -> float:
    return _rounded(math.sqrt(low * high))


def _rounded(rate_rpm: float) -> float:
    return float(f"{rate_rpm:.{DIGITS}g}")


def _check(question: Question, points: Sequence[Point], end: str, *, is_carried: bool) -> None:
    """Raise NotBracketed unless every replication carries the rate of one ``end``, or none does."""
    wrong = [point for point in points if point.carried(question.violations) is not is_carried]
    if not wrong:
        return
    share = f"{wrong[0].violation_rate:.1%} of the requests are over {question.slo}"
    raise NotBracketed(
        f"{end}: there {'the backlog grows' if wrong[0].backlog_grows else share} ({len(wrong)} of "
        f"{question.replications} replications; at most {question.violations:.1%} over {question.slo} is asked for); "
        f"{'lower --from, or take more GPUs' if is_carried else 'raise --to'}"
    )
