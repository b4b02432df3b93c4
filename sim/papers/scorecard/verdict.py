"""Judge a simulated value by the paper's."""

from typing import Literal, NamedTuple

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.scorecard.alternatives import MIN_SHARE, Alternatives
from mezzotint.sim.papers.scorecard.targets import Target, Value

Verdict = Literal["within tolerance", "outside", "not run", "input", "inconsistent"]

ROUNDING = 1e-9
"""Slack at the edge of a tolerance, for the rounding of the subtraction."""


class Judgement(NamedTuple):
    """The verdict of one target, and the error: ours minus the paper's, relative if the tolerance is.

    A list has a list of errors; without a comparison the error is None.
    """

    error: float | list[float] | None
    verdict: Verdict


def judge(target: Target, ours: Value | None) -> Judgement:
    """Compare ``ours`` (None: not simulated) with ``target``.

    Inputs, fitted values and inconsistent rows are never scored. A list is within tolerance only as a whole.

    Raises:
        ConfigError: ours has another form than the target, such as a list of another length.
    """
    scored = target.role in ("predict", "order")
    unscored: Verdict = "inconsistent" if target.role == "inconsistent" else "input"
    if ours is None:
        return Judgement(None, "not run" if scored else unscored)
    if target.role == "order":
        if not isinstance(ours, bool):
            raise ConfigError(f"{target.id}: found {ours!r}, expected true or false for an ordering")
        return Judgement(None, "within tolerance" if ours else "outside")
    if target.paper is None:
        return Judgement(None, "outside" if scored else unscored)
    error, is_within = _compare(target, ours)
    return Judgement(error, unscored if not scored else "within tolerance" if is_within else "outside")


def share_within(target: Target, alternatives: Alternatives) -> float:
    """Return the share of the alternatives at which ``target``, which is scored, would be within tolerance."""
    verdicts = [judge(target, value).verdict for value in alternatives.values.tolist()]
    return verdicts.count("within tolerance") / len(verdicts)


def judge_share(target: Target, typical: Value, share: float) -> Judgement:
    """Judge a row by the share of its alternatives within tolerance; the error is that of the ``typical`` value."""
    return judge(target, typical)._replace(verdict="within tolerance" if share >= MIN_SHARE else "outside")


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
