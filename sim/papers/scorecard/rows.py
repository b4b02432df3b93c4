"""Rows of the scorecard: each target with the simulated value and the verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mezzotint.sim.papers.runs import Finished, Runs, Unmeasured
from mezzotint.sim.papers.scorecard.alternatives import Alternatives
from mezzotint.sim.papers.scorecard.measures.formulas import TargetMeasure
from mezzotint.sim.papers.scorecard.targets import Layers, Role, Target, Targets, Value
from mezzotint.sim.papers.scorecard.verdict import Verdict, judge, judge_share, share_within

NOT_YET = "not simulated yet"
NEEDS_REAL_PROMPTS = "needs prompts that people wrote"
UNEXPLAINED = "reason not yet found"
CHANGED = "its target has changed since; make the column again"


@dataclass(frozen=True, slots=True)
class Spread:
    """A row's values under a choice that the paper leaves open.

    Attributes:
        alternatives: how many were evaluated.
        share: share of them within tolerance, which decides the verdict.
        lowest, highest: the extremes; None of an ordering.
    """

    alternatives: int
    share: float
    lowest: Value | None
    highest: Value | None


@dataclass(frozen=True, slots=True)
class Row:
    """One target with the simulated value; fields that do not apply are None.

    Attributes:
        paper, ours: the paper's value or bound and the simulated one; True or False of an ordering.
        error: ours minus the paper's, relative if the tolerance is; a list for a list. Six significant digits, as ours.
        reason: why the row is outside, not run or inconsistent.
        basis, fixed_by: as in ``TargetMeasure``.
        command: the command that makes the runs.
        requests, trace: length of the longest trace of its runs, and the digests of the traces.
        layer: mechanism, ground or both, with the reason.
        tolerance_from: where the tolerance comes from.
        spread: of a row that depends on a free choice; ours is then the median, or what most choices give.
    """

    id: str
    system: str
    what: str
    paper: Value | None
    ours: Value | None
    error: Value | None
    tolerance: dict[str, float] | None
    role: Role
    verdict: Verdict
    reason: str | None
    basis: str | None
    fixed_by: str | None
    command: str | None
    requests: int | None
    trace: list[str]
    source: str
    layer: str = "mechanism"
    tolerance_from: str | None = None
    spread: Spread | None = None


def score(
    targets: Targets,
    measures: Mapping[str, TargetMeasure],
    runs: Runs,
    reasons: Mapping[str, str],
    overrides: Mapping[str, Sequence[str]],
    layers: Layers,
    tolerances: Mapping[str, str],
) -> list[Row]:
    """Return a row for each target, in order; a target without a measure is not run.

    Args:
        measures, reasons, tolerances: by target id; a tolerance has the text of where it comes from.
        runs: of all experiments that the measures read.
        overrides: by experiment, the settings added to its own, for the commands.
    """

    def row(system: str, target: Target) -> Row:
        measured = measures.get(target.id)
        ours: Value | None = None
        spread: Spread | None = None
        why = NOT_YET if measured is None else ""
        read: list[Finished] = []
        if measured is not None:
            its = runs.of(measured.experiments)
            if measured.real_prompts and not its.outcomes:
                why = NEEDS_REAL_PROMPTS
            read = its.finished()
            try:
                found = measured.measure(its)
                spread = _spread(target, found) if isinstance(found, Alternatives) else None
                ours = _rounded(found.typical() if isinstance(found, Alternatives) else found)
            except Unmeasured as error:
                why = why or str(error)
        if why in (NOT_YET, NEEDS_REAL_PROMPTS):
            # of a row that needs real prompts, the text explains the value on another trace
            reason = reasons.get(target.id) if why == NOT_YET else None
            why = "; ".join([why, *filter(None, [reason, target.needs and f"needs {target.needs}"])])
        return Row(
            id=target.id,
            system=system,
            ours=ours,
            basis=(measured.basis or None) if measured else None,
            fixed_by=measured.fixed_by if measured else None,
            command=_command(system, measured, overrides) if measured else None,
            requests=max((run.summary["requests"]["arrived"] for run in read), default=None),
            trace=sorted({run.summary["trace"]["digest"] for run in read}),
            layer=layers.described(target.id),
            tolerance_from=tolerances.get(target.id),
            spread=spread,
            **_compared(target, ours, reasons, why, spread),
        )

    return [row(system, target) for system, listed in targets.items() for target in listed]


def rejudge(row: Row, target: Target, reasons: Mapping[str, str]) -> Row:
    """Judge a row of an earlier scorecard by the present target and reasons, with the same simulated value.

    The alternatives of a row are not kept. So a row that has some is not run if its target has changed.

    Raises ConfigError: the value has another form than the target.
    """
    if row.spread is not None and (row.paper, row.tolerance) != (target.paper, target.tolerance):
        return replace(row, ours=None, spread=None, **_compared(target, None, reasons, CHANGED))
    not_run = row.reason if row.verdict == "not run" else None
    return replace(row, **_compared(target, row.ours, reasons, not_run, row.spread))


def _spread(target: Target, found: Alternatives) -> Spread:
    share = round(share_within(target, found), 6)
    return Spread(len(found.values), share, _rounded(found.lowest()), _rounded(found.highest()))


def _compared(
    target: Target, ours: Value | None, reasons: Mapping[str, str], not_run: str | None, spread: Spread | None = None
) -> dict[str, Any]:
    """Return the fields of a row that depend on its target; ``not_run`` is the reason if there is no value."""
    if spread is not None and ours is not None:
        error, verdict = judge_share(target, ours, spread.share)
    else:
        error, verdict = judge(target, ours)
    reason = not_run if verdict == "not run" else None
    if verdict in ("outside", "inconsistent"):
        reason = reasons.get(target.id, UNEXPLAINED)
    return {
        "what": target.what,
        "paper": target.paper,
        "error": _rounded(error),
        "tolerance": target.tolerance,
        "role": target.role,
        "verdict": verdict,
        "reason": reason,
        "source": target.source,
    }


def _command(system: str, measured: TargetMeasure, overrides: Mapping[str, Sequence[str]]) -> str:
    sweeps = [["mezzotint run -m", f"experiment={name}", *overrides.get(name, ())] for name in measured.experiments]
    return " && ".join(" ".join(words) for words in sweeps) or f"mezzotint reproduce {system}"


def _rounded(value: Value | None) -> Value | None:
    """Round to six significant digits, and the rest of a subtraction of equals to 0."""
    if isinstance(value, list):
        return [float(f"{round(each, 12) + 0.0:.6g}") for each in value]
    return value if value is None or isinstance(value, bool) else float(f"{round(value, 12) + 0.0:.6g}")
