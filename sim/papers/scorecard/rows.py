"""Results of the scorecard: columns of rows, each row a target with the simulated value and the verdict."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.runs import NOT_YET, Runs, Unmeasured
from mezzotint.sim.papers.scorecard.columns import ColumnTrace, Layer
from mezzotint.sim.papers.scorecard.measures.interpretations import Interpretation
from mezzotint.sim.papers.scorecard.measures.observations import Observation
from mezzotint.sim.papers.scorecard.study import Entry, Study
from mezzotint.sim.papers.scorecard.targets import Role, Target, Value
from mezzotint.sim.papers.scorecard.verdict import (
    Alternatives,
    Interval,
    Kind,
    Spread,
    Verdict,
    judge,
    over_seeds,
    round_value,
)
from mezzotint.sim.papers.study import unreadable

NEEDS_REAL_PROMPTS = "needs prompts that people wrote"
UNEXPLAINED = "reason not yet found"
CHANGED = "its target has changed since; make the column again"
LATER = "the column is older than the row; make it again"


@dataclass(frozen=True, slots=True)
class Row:
    """One target with the simulated value; fields that do not apply are None.

    Attributes:
        paper, ours: the paper's value or bound and the simulated one; True or False of an ordering.
        error: ours minus the paper's, relative if the tolerance is; a list for a list. Six significant digits, as ours.
        reason: why the row is outside, not run or inconsistent.
        basis, fixed_by: as in ``Entry``.
        command: the command that makes the runs.
        requests, trace: length of the longest trace of its runs, and the digests of the traces.
        layer: mechanism, ground or both, with the reason.
        tolerance_from: where the tolerance comes from.
        spread: of a row that depends on a free choice; ours is then the median, or what most choices give.
        interval: over the seeds of its runs, of which ours is the mean; None if one value is all there is.
        kind: what the row shows.
        made: of a row that is older than its column, when it was measured, and the digest of code and settings.
        because: of a row of algebra, how it follows; of an unprinted input, which and what another value gives;
            of a row without information, why.
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
    interval: Interval | None = None
    kind: Kind = "predicted"
    because: str = ""
    made: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """Results on one trace: a row for each target of a layer; readings and observations in the full form only.

    Attributes:
        trace: which trace it is, in words.
        follows_from: digest of code, settings and form. Columns of one digest may be compared.
        made: the date on which its runs were compared, and the commit if it is known; older rows have their own.
    """

    name: str
    trace: str
    follows_from: str
    rows: list[Row]
    layer: Layer = "ground"
    made: str = ""
    readings: list[Interpretation] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)


def read_columns(path: Path) -> list[Column]:
    """Read the columns of a scorecard's JSON. Raises ConfigError: the file is missing, or is no scorecard."""
    try:
        return TypeAdapter(dict[Literal["columns"], list[Column]]).validate_json(path.read_bytes())["columns"]
    except OSError as error:
        raise unreadable(path, error) from None
    except (ValidationError, KeyError):
        wrong = "found no scorecard of this version; move it away, and make it again without --check"
        raise ConfigError(f"{path}: {wrong}") from None


def score(study: Study, column: ColumnTrace, runs: Runs) -> list[Row]:
    """Return a row for each target of a column, in order; a target without a measure is not run.

    Args:
        runs: of all experiments that the measures read.
    """
    return [
        _row(study, column, system, target, runs.of(study.entry(target.id).experiments))
        for system, listed in study.in_column(column).items()
        for target in listed
    ]


def _row(study: Study, column: ColumnTrace, system: str, target: Target, runs: Runs) -> Row:
    entry, finished = study.entry(target.id), runs.finished()
    reason = entry.reason_in(column.name)
    ours, spread, interval, not_run = _measure(entry, target, reason, runs)
    return Row(
        **_known(system, target, entry),
        ours=ours,
        command=None if entry.measure is None else _command(system, entry.experiments, column, study),
        requests=max((run.summary["requests"]["arrived"] for run in finished), default=None),
        trace=sorted({run.summary["trace"]["digest"] for run in finished}),
        spread=spread,
        interval=interval,
        **_compare(target, entry, ours, spread, interval, reason, not_run and column.without_path(not_run)),
    )


def _measure(
    entry: Entry, target: Target, reason: str | None, runs: Runs
) -> tuple[Value | None, Spread | None, Interval | None, str | None]:
    """Return the value, its spread, its interval, and why there is no value."""
    try:
        if entry.measure is None:
            raise Unmeasured(NOT_YET)
        if entry.real_prompts and not runs.outcomes:
            raise Unmeasured(NEEDS_REAL_PROMPTS)
        try:
            of_seeds = [entry.evaluate(one) for one in runs.by_seed()]
        except Unmeasured:  # the curve of one seed may end too early, where that of all does not
            of_seeds = [entry.evaluate(runs)]
        ours = entry.evaluate(runs) if isinstance(of_seeds[0], Alternatives) and len(of_seeds) > 1 else of_seeds[0]
    except Unmeasured as error:
        why = str(error)
        if why in (NOT_YET, NEEDS_REAL_PROMPTS):
            # of a row that needs real prompts, the reason explains the value on another trace
            needs = target.needs and f"needs {target.needs}"
            why = "; ".join(filter(None, [why, reason if why == NOT_YET else None, needs]))
        return None, None, None, why
    mean, interval = over_seeds([one.typical() if isinstance(one, Alternatives) else one for one in of_seeds])
    if isinstance(ours, Alternatives):
        return round_value(ours.typical()), ours.spread(target), interval, None
    return round_value(mean), None, interval, None


def rejudge(row: Row, target: Target, entry: Entry, reason: str | None) -> Row:
    """Judge a row of an earlier scorecard by the present target and reason, with the same simulated value.

    The alternatives of a row are not kept. So a row that has some is not run if its target has changed.

    Raises ConfigError: the value has another form than the target.
    """
    if row.spread is not None and (row.paper, row.tolerance) != (target.paper, target.tolerance):
        return replace(row, ours=None, spread=None, **_compare(target, entry, None, None, None, reason, CHANGED))
    return replace(row, **_compare(target, entry, row.ours, row.spread, row.interval, reason, row.reason))


def not_made(system: str, target: Target, entry: Entry) -> Row:
    """Return the row of a target that an earlier column lacks."""
    return Row(
        **_known(system, target, entry),
        ours=None,
        command=None,
        requests=None,
        trace=[],
        **_compare(target, entry, None, None, None, None, LATER),
    )


def _known(system: str, target: Target, entry: Entry) -> dict[str, Any]:
    """Return what a row has before anything is measured."""
    return {
        "id": target.id,
        "system": system,
        "basis": entry.basis or None,
        "fixed_by": entry.fixed_by or None,
        "layer": entry.layer,
        "tolerance_from": entry.tolerance,
    }


def _compare(
    target: Target,
    entry: Entry,
    ours: Value | None,
    spread: Spread | None,
    interval: Interval | None,
    reason: str | None,
    not_run: str | None,
) -> dict[str, Any]:
    """Return the fields of a row that depend on its target; ``not_run`` is the reason if there is no value."""
    error, verdict = judge(target, ours, spread, interval)
    explained = {
        "outside": reason or (None if target.role == "fit" else UNEXPLAINED),
        "undecided": reason,
        "inconsistent": reason or UNEXPLAINED,
        "not run": not_run,
    }
    return {
        "what": target.what,
        "paper": target.paper,
        "error": round_value(error),
        "tolerance": target.tolerance,
        "role": target.role,
        "verdict": verdict,
        "reason": explained.get(verdict),
        "source": target.source,
        "kind": entry.kind(target.role),
        "because": entry.uninformed or entry.algebra or entry.unprinted,
    }


def _command(system: str, experiments: Sequence[str], column: ColumnTrace, study: Study) -> str:
    sweeps = [" ".join(["mezzotint run -m", f"experiment={name}", *study.added(name, column)]) for name in experiments]
    return column.without_path(" && ".join(sweeps)) or f"mezzotint reproduce {system}"
