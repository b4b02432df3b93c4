"""Page of the scorecard: each target with its verdict, the reason of a miss, and the inputs behind the number."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_args

import mezzotint.figures.page
from mezzotint.figures.page import DASH, number, percent
from mezzotint.sim.papers.scorecard.measures.interpretations import SIZES
from mezzotint.sim.papers.scorecard.rows import Column, Row
from mezzotint.sim.papers.scorecard.verdict import Verdict

HEADINGS: Mapping[Verdict, str] = {
    "outside": "Outside the tolerance:",
    "not run": "Not run:",
    "inconsistent": "Inconsistent in the paper:",
}
"""Headings of the reasons, by verdict."""


def render(columns: Sequence[Column], form: str, figures: Mapping[str, Sequence[str]]) -> str:
    """Return the page in Markdown; a column has the targets of its layer.

    Args:
        figures: file names by system.
    """
    first_rows: dict[str, Row] = {}
    for column in columns:
        first_rows |= {row.id: row for row in column.rows if row.id not in first_rows}
    rows = list(first_rows.values())
    return mezzotint.figures.page.render(
        __package__,
        "page.md.jinja",
        form=form,
        columns=columns,
        verdicts=get_args(Verdict),
        systems=[_system(name, columns) for name in dict.fromkeys(row.system for row in rows)],
        figures=figures,
        tally=tally,
        allowed=allowed,
        outcome=_outcome,
        sizes=[f"{size:,}" for size in SIZES],
        inputs=_group_ids(rows, lambda row: row.fixed_by),
        tolerances=_group_ids(rows, lambda row: row.tolerance_from),
        bases=[(row.id, row.basis) for row in rows if row.basis is not None],
        commands=[
            f"{column.name}: {ids}: {command}"
            for column in columns
            for ids, command in _group_ids((row for row in column.rows if row.trace), _command)
        ],
    )


def tally(rows: Sequence[Row]) -> str:
    """Return a line with the number of scored rows within tolerance."""
    verdicts = [row.verdict for row in rows if row.verdict not in ("input", "inconsistent")]
    within, outside, not_run = (verdicts.count(verdict) for verdict in ("within tolerance", "outside", "not run"))
    return f"{within} of {len(verdicts)} scored rows within tolerance, {outside} outside, {not_run} not run"


def allowed(row: Row) -> str:
    """Return the tolerance in words."""
    if row.tolerance is None:
        return DASH
    ((kind, limit),) = row.tolerance.items()
    if kind == "rel":
        return f"± {100 * limit:.4g} %"
    return f"± {limit:.4g}" if kind == "abs" else f"{kind.replace('_', ' ')} {limit:.4g}"


def _system(name: str, columns: Sequence[Column]) -> dict[str, Any]:
    """Return a system's columns, the rows of each target by column, those with a spread, and the reasons."""
    lines: dict[str, dict[str, Row]] = {}
    for column in columns:
        for row in column.rows:
            if row.system == name:
                lines.setdefault(row.id, {})[column.name] = row
    names = [column.name for column in columns if any(column.name in line for line in lines.values())]
    reasons = {heading: _reasons(lines.values(), verdict) for verdict, heading in HEADINGS.items()}
    spreads = [(column, row) for line in lines.values() for column, row in line.items() if row.spread is not None]
    return {"name": name, "columns": names, "lines": list(lines.values()), "spreads": spreads, "reasons": reasons}


def _outcome(row: Row | None) -> str:
    """Return the cells of our value, the error and the verdict."""
    if row is None:
        return f"{DASH} | {DASH} | {DASH}"
    verdict = f"**{row.verdict}**" if row.verdict == "within tolerance" else row.verdict
    fit = " (fit)" if row.verdict == "input" and row.role == "fit" else ""
    errors = row.error if isinstance(row.error, list) else [] if row.error is None else [row.error]
    is_relative = "rel" in (row.tolerance or {})
    texts = [percent(error, sign=True) if is_relative else f"{error:+.3g}" for error in errors]
    return f"{number(row.ours)} | {' · '.join(texts) or DASH} | {verdict}{fit}"


def _reasons(lines: Iterable[Mapping[str, Row]], verdict: Verdict) -> list[tuple[str, str]]:
    """Return each reason with the ids of its rows, and with the columns' names if not all that have the row have it."""
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for line in lines:
        by_column = {name: row.reason for name, row in line.items() if row.verdict == verdict and row.reason}
        for reason in dict.fromkeys(by_column.values()):
            having = tuple(name for name, why in by_column.items() if why == reason)
            named = () if len(having) == len(line) else having
            groups.setdefault((reason, named), []).append(next(iter(line.values())).id)
    return [
        (reason, ", ".join(ids) + (f" ({', '.join(named)})" if named else ""))
        for (reason, named), ids in groups.items()
    ]


def _command(row: Row) -> str:
    digests = ", ".join(digest.removeprefix("sha256:")[:12] for digest in row.trace)
    return f"`{row.command}` ({row.requests:,} requests measured; trace {digests})"


def _group_ids(rows: Iterable[Row], key: Callable[[Row], str | None]) -> list[tuple[str, str]]:
    """Return the ids of rows of equal ``key``, and the key; rows without one are left out."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        if (text := key(row)) is not None:
            groups.setdefault(text, []).append(row.id)
    return [(", ".join(ids), text) for text, ids in groups.items()]
