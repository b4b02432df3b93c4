"""Whether what was simulated is what the paper reports."""

from typing import Literal, NamedTuple

from sim.core.errors import ConfigError
from sim.papers.scorecard.targets import Target, Value

Verdict = Literal["held", "missed", "not run", "given", "contradicted"]

ROUNDING = 1e-9
"""What lies on the edge of a tolerance is inside, whatever the last bits of the subtraction say."""


class Judgement(NamedTuple):
    """The verdict of one target, and ours minus the paper's, relative where the tolerance is: a list of them for a
    list, None where nothing is compared."""

    error: float | list[float] | None
    verdict: Verdict


def judge(target: Target, ours: Value | None) -> Judgement:
    """Compare ``ours`` (None: not simulated) with ``target``.

    What was not simulated is neither held nor missed: nothing was compared. What is fitted on or taken as given is
    never scored, however near it lands, nor is what the paper itself contradicts. A list is held only as a whole.
    Raises ConfigError: ours is of another form than the target: a list of another length, a number for an ordering.
    """
    scored = target.role in ("predict", "order")
    unscored: Verdict = "contradicted" if target.role == "contradicted" else "given"
    if ours is None:
        return Judgement(None, "not run" if scored else unscored)
    if target.role == "order":
        if not isinstance(ours, bool):
            raise ConfigError(f"{target.id}: an ordering is true or false, measured was {ours!r}")
        return Judgement(None, "held" if ours else "missed")
    if target.paper is None:
        return Judgement(None, "missed" if scored else unscored)
    error, held = _compare(target, ours)
    return Judgement(error, unscored if not scored else "held" if held else "missed")


def _compare(target: Target, ours: Value) -> tuple[float | list[float], bool]:
    if isinstance(ours, bool) or isinstance(ours, list) != isinstance(target.value, list):
        raise ConfigError(f"{target.id}: the paper has {target.paper!r}, measured was {ours!r}")
    given = ours if isinstance(ours, list) else [ours]
    for limit, sign in ((target.at_least, 1), (target.at_most, -1)):
        if limit is not None:
            return given[0] - limit, sign * (given[0] - limit) >= -ROUNDING * abs(limit)
    if len(given) != len(target.values):
        raise ConfigError(f"{target.id}: the paper has {len(target.values)} values, measured were {len(given)}")
    errors = [mine - theirs for mine, theirs in zip(given, target.values, strict=True)]
    if "rel" in (target.tolerance or {}):
        errors = [error / abs(theirs) for error, theirs in zip(errors, target.values, strict=True)]
    allowed = next(iter((target.tolerance or {"abs": 0.0}).values()))
    held = all(abs(error) <= allowed + ROUNDING * max(1.0, allowed) for error in errors)
    return (errors if isinstance(ours, list) else errors[0]), held
