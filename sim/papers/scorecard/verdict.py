"""Judge a simulated value by the paper's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.scorecard.targets import Target, Value

Verdict = Literal["within tolerance", "outside", "undecided", "not run", "input", "inconsistent"]
SCORED: tuple[Verdict, ...] = ("within tolerance", "outside", "undecided")
"""Verdicts of a row that was compared."""

Kind = Literal["predicted", "unprinted", "uninformed", "fitted", "algebra", "input", "inconsistent"]
"""What a row shows: a prediction; one that hangs on an input that nobody printed; one that equals another row by the
declared inputs; an input fitted to the row; a number that follows from inputs without a simulation."""

CONFIDENCE = 0.95
"""Of the interval over seeds."""

ROUNDING = 1e-9
"""Slack at the edge of a tolerance, for the rounding of the subtraction."""

MIN_SHARE = 0.5
"""Share of the alternatives within tolerance from which the row is within tolerance."""


class Judgement(NamedTuple):
    """The verdict of one target, and the error: ours minus the paper's, relative if the tolerance is.

    A list has a list of errors; without a comparison the error is None.
    """

    error: float | list[float] | None
    verdict: Verdict


@dataclass(frozen=True, slots=True, eq=False)
class Alternatives:
    """Values of one target under equally plausible forms of a choice that the paper leaves open.

    Attributes:
        values: one for each alternative, or one row for each if the target is a list; booleans of an ordering.
    """

    values: NDArray[np.float64] | NDArray[np.bool_]

    def typical(self) -> Value:
        """Return the median, of each number of a list on its own; of an ordering, True if at least half are true."""
        if self.values.dtype == np.bool_:
            return bool(self.values.mean() >= MIN_SHARE)
        median: Value = np.median(self.values, axis=0).tolist()
        return median

    def spread(self, target: Target) -> "Spread":
        """Return how many of the alternatives are within tolerance, and their range."""
        verdicts = [judge(target, value).verdict for value in self.values.tolist()]
        share = round(verdicts.count("within tolerance") / len(verdicts), 6)
        if self.values.dtype == np.bool_:
            return Spread(len(verdicts), share, None, None)
        low, high = (round_value(edge.tolist()) for edge in (self.values.min(axis=0), self.values.max(axis=0)))
        return Spread(len(verdicts), share, low, high)


@dataclass(frozen=True, slots=True)
class Spread:
    """A row's values under a choice that the paper leaves open.

    Attributes:
        alternatives: how many were evaluated.
        share: share of them within tolerance, which decides the verdict.
        lowest, highest: the extremes, of each number of a list on its own; None of an ordering.
    """

    alternatives: int
    share: float
    lowest: Value | None
    highest: Value | None


@dataclass(frozen=True, slots=True)
class Interval:
    """A row's values over the seeds of its runs.

    Attributes:
        seeds: number of seeds.
        low, high: ends of Student's interval of the mean, of each number of a list; None of an ordering.
        share: of an ordering, the share of the seeds in which it is true.
    """

    seeds: int
    low: float | list[float] | None
    high: float | list[float] | None
    share: float | None = None


def over_seeds(values: Sequence[Value]) -> tuple[Value, Interval | None]:
    """Return the mean of the values of several seeds, and their interval; None if all values are equal.

    An ordering is true if it is so in most seeds.
    """
    first = values[0]
    if isinstance(first, bool):
        share = sum(map(bool, values)) / len(values)
        return share >= MIN_SHARE, Interval(len(values), None, None, share)
    table = np.array(values, dtype=np.float64)
    mean = table.mean(axis=0)
    if len(values) == 1 or (table == table[0]).all():
        return first, None
    half = stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1) * table.std(axis=0, ddof=1) / len(values) ** 0.5
    low, high = (round_value(edge.tolist()) for edge in (mean - half, mean + half))
    ours: Value = mean.tolist()
    return ours, Interval(len(values), low, high)


def judge(
    target: Target, ours: Value | None, spread: Spread | None = None, interval: Interval | None = None
) -> Judgement:
    """Compare ``ours`` (None: not simulated) with ``target``.

    Inputs and inconsistent rows are never scored. A list is within tolerance only as a whole.

    Args:
        spread: decides by its share of alternatives.
        interval: decides if it lies in the tolerance or beside it, of any number of a list. Else, and if it contradicts
            the spread, the row is undecided.

    Raises:
        ConfigError: ours has another form than the target, such as a list of another length.
    """
    is_scored = target.role in ("predict", "order", "fit")
    unscored: Verdict = "inconsistent" if target.role == "inconsistent" else "input"
    if ours is None:
        return Judgement(None, "not run" if is_scored else unscored)
    if target.role == "order":
        if not isinstance(ours, bool):
            raise ConfigError(f"{target.id}: found {ours!r}, expected true or false for an ordering")
        error, is_within = None, ours
    elif target.paper is None:
        error, is_within = None, False
    else:
        error, is_within = _compare(target, ours)
    verdict: Verdict = "within tolerance" if is_within else "outside"
    if interval is not None:
        verdict = _judge_interval(target, interval)
    if spread is not None:
        of_spread: Verdict = "within tolerance" if spread.share >= MIN_SHARE else "outside"
        verdict = of_spread if interval is None or verdict == of_spread else "undecided"
    return Judgement(error, verdict if is_scored else unscored)


def _judge_interval(target: Target, interval: Interval) -> Verdict:
    """Return the verdict of an interval: it lies in the tolerance, beside it, or across an edge."""
    if interval.share is not None:
        verdicts: dict[float, Verdict] = {0.0: "outside", 1.0: "within tolerance"}
        return verdicts.get(interval.share, "undecided")
    allowed = _band(target)
    edges = [np.atleast_1d(np.array(edge, dtype=np.float64)) for edge in (interval.low, interval.high)]
    low, high = np.minimum(*edges), np.maximum(*edges)
    lowest, highest = allowed
    if ((high < lowest) | (low > highest)).any():
        return "outside"
    return "within tolerance" if ((low >= lowest) & (high <= highest)).all() else "undecided"


def _band(target: Target) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the lowest and highest values that are within tolerance, of each number."""
    for limit, is_lower in ((target.at_least, True), (target.at_most, False)):
        if limit is not None:
            edge = np.array([limit])
            return (edge, np.array([np.inf])) if is_lower else (np.array([-np.inf]), edge)
    papers = np.array(target.values)
    ((kind, allowed),) = (target.tolerance or {"abs": 0.0}).items()
    half = allowed * np.abs(papers) if kind == "rel" else np.full(len(papers), allowed)
    slack = ROUNDING * np.maximum(1.0, half)
    return papers - half - slack, papers + half + slack


def _compare(target: Target, ours: Value) -> tuple[float | list[float], bool]:
    if isinstance(ours, bool) or isinstance(ours, list) != isinstance(target.value, list):
        raise ConfigError(f"{target.id}: found {ours!r}, expected a value such as the paper's {target.paper!r}")
    values = ours if isinstance(ours, list) else [ours]
    for limit, sign in ((target.at_least, 1), (target.at_most, -1)):
        if limit is not None:
            return values[0] - limit, sign * (values[0] - limit) >= -ROUNDING * abs(limit)
    if len(values) != len(target.values):
        raise ConfigError(f"{target.id}: found {len(values)} values, expected the paper's {len(target.values)}")
    errors = [value - paper for value, paper in zip(values, target.values, strict=True)]
    if "rel" in (target.tolerance or {}):
        errors = [error / abs(paper) for error, paper in zip(errors, target.values, strict=True)]
    allowed = next(iter((target.tolerance or {"abs": 0.0}).values()))
    is_within = all(abs(error) <= allowed + ROUNDING * max(1.0, allowed) for error in errors)
    return (errors if isinstance(ours, list) else errors[0]), is_within


def round_value(value: Any) -> Any:
    """Round to six significant digits, and the rest of a subtraction of equals to 0; a list one by one."""
    if isinstance(value, list):
        return [round_value(number) for number in value]
    return value if value is None or isinstance(value, bool) else float(f"{round(value, 12) + 0.0:.6g}")
