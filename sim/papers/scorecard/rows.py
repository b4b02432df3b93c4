"""The rows of the scorecard: every target, with what was made of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sim.papers.scorecard.finished import Finished, Runs, Unmeasured
from sim.papers.scorecard.measures import Measured
from sim.papers.scorecard.targets import Role, Target, Targets, Value
from sim.papers.scorecard.verdict import Verdict, judge

NOT_YET = "not simulated yet"
NOT_OF_THIS = "says nothing of made-up prompts"
UNEXPLAINED = "reason not yet found"


@dataclass(frozen=True, slots=True)
class Row:
    """One target and ours beside it; what does not apply is None.

    Attributes:
        paper, ours: the paper's value or bound and ours; of an ordering, whether it holds.
        error: ours minus the paper's, relative where the tolerance is; a list for a list. Six significant digits, as
            ours.
        reason: why it is missed, or was not run, or what contradicts it.
        basis, fixed_by: as in ``Measured``.
        command: makes the runs again.
        requests, trace: how long the traces of its runs are, and their digests.
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


def score(
    targets: Targets,
    measures: Mapping[str, Measured],
    runs: Runs,
    reasons: Mapping[str, str],
    overrides: Mapping[str, Sequence[str]],
) -> list[Row]:
    """A row for each target, in their order; one without a measure is not simulated yet.

    Args:
        measures, reasons: by target id.
        runs: of all experiments that the measures read.
        overrides: experiment -> what was set beside its own settings, for the commands.
    """

    def row(system: str, target: Target) -> Row:
        measured = measures.get(target.id)
        ours: Value | None = None
        why = NOT_YET if measured is None else ""
        read: list[Finished] = []
        if measured is not None:
            its = runs.of(measured.experiments)
            if measured.real_prompts and not its.outcomes:
                why = NOT_OF_THIS
            read = its.finished()
            try:
                ours = measured.measure(its)
            except Unmeasured as absent:
                why = why or str(absent)
        if why in (NOT_YET, NOT_OF_THIS):
            known = reasons.get(target.id) if why == NOT_YET else None  # else it says why it is missed where it is run
            why = "; ".join([why, *filter(None, [known, target.needs and f"needs {target.needs}"])])
        return Row(
            id=target.id,
            system=system,
            ours=_rounded(ours),
            basis=(measured.basis or None) if measured else None,
            fixed_by=measured.fixed_by if measured else None,
            command=_command(system, measured, overrides) if measured else None,
            requests=max((run.summary["requests"]["arrived"] for run in read), default=None),
            trace=sorted({run.summary["trace"]["digest"] for run in read}),
            **_compared(target, ours, reasons, why),
        )

    return [row(system, target) for system, listed in targets.items() for target in listed]


def judged_again(row: Row, target: Target, reasons: Mapping[str, str]) -> Row:
    """A row of an earlier scorecard beside its target and the reasons as they are now: ours stays.

    Raises ConfigError: ours is of another form than the target.
    """
    return replace(row, **_compared(target, row.ours, reasons, row.reason if row.verdict == "not run" else None))


def _compared(target: Target, ours: Value | None, reasons: Mapping[str, str], not_run: str | None) -> dict[str, Any]:
    """Return the fields of a row that follow from its target; ``not_run`` is the reason where there is no value."""
    error, verdict = judge(target, ours)
    reason = not_run if verdict == "not run" else None
    if verdict in ("missed", "contradicted"):
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


def _command(system: str, measured: Measured, overrides: Mapping[str, Sequence[str]]) -> str:
    sweeps = [["mezzotint run -m", f"experiment={name}", *overrides.get(name, ())] for name in measured.experiments]
    return " && ".join(" ".join(words) for words in sweeps) or f"mezzotint scorecard {system}"


def _rounded(value: Value | None) -> Value | None:
    """In six significant digits; what is left of a subtraction of equals is 0."""
    if isinstance(value, list):
        return [float(f"{round(each, 12) + 0.0:.6g}") for each in value]
    return value if value is None or isinstance(value, bool) else float(f"{round(value, 12) + 0.0:.6g}")
