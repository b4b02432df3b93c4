"""Page of the scorecard: each target with its verdict, the reason of a miss, and the inputs behind the number."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_args

import mezzotint.figures.page
from mezzotint.figures.page import DASH, number, percent
from mezzotint.sim.papers.scorecard.columns import Column
from mezzotint.sim.papers.scorecard.measures.interpretations import CAPACITIES
from mezzotint.sim.papers.scorecard.rows import Row
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
    rows = _by_target(columns)
    systems = list(dict.fromkeys(row.system for row in rows))
    interpreted = [column for column in columns if column.readings]
    observed = [column for column in columns if column.observations]
    return mezzotint.figures.page.render(
        __package__,
        "page.md.jinja",
        form=form,
        columns=columns,
        verdicts=list(get_args(Verdict)),
        tallies=[(column, tally(column.rows)) for column in columns],
        counts=[
            [name, column.name, column.layer, *_counts(name, column)]
            for name in systems
            for column in columns
            if any(row.system == name for row in column.rows)
        ],
        systems=[_system(name, columns) | {"figures": figures.get(name, [])} for name in systems],
        interpreted=interpreted,
        capacities=[f"{capacity:,}" for capacity in CAPACITIES],
        reading_head=[
            "reading",
            "policy",
            *(cell for each in interpreted for cell in (f"{each.name}: hit rate", "saving")),
        ],
        readings=[
            [each[0].reading, each[0].policy, *(number(cell) for one in each for cell in (one.hit_rate, one.saving))]
            for each in zip(*(column.readings for column in interpreted), strict=True)
        ],
        unmeasured=list(
            dict.fromkeys((each.name, one.reason) for each in interpreted for one in each.readings if one.reason)
        ),
        observed=observed,
        observations=list(zip(*(column.observations for column in observed), strict=True)),
        inputs=[(ids, by) for by, ids in _grouped(rows, lambda row: row.fixed_by)],
        tolerances=[(ids, text) for text, ids in _grouped(rows, lambda row: row.tolerance_from)],
        bases=[(row.id, row.basis) for row in rows if row.basis is not None],
        commands=[
            f"{column.name}: {ids}: {how}"
            for column in columns
            for how, ids in _grouped((row for row in column.rows if row.trace), _command)
        ],
    )


def _by_target(columns: Sequence[Column]) -> list[Row]:
    """Return one row of each target, from the first column that has it."""
    found: dict[str, Row] = {}
    for row in (row for column in columns for row in column.rows):
        found.setdefault(row.id, row)
    return list(found.values())


def tally(rows: Sequence[Row]) -> str:
    """Return a line with the number of scored rows within tolerance."""
    verdicts = [row.verdict for row in rows if row.verdict not in ("input", "inconsistent")]
    within, outside, not_run = (verdicts.count(each) for each in ("within tolerance", "outside", "not run"))
    return f"{within} of {len(verdicts)} scored rows within tolerance, {outside} outside, {not_run} not run"


def _counts(system: str, column: Column) -> list[int]:
    found = Counter(row.verdict for row in column.rows if row.system == system)
    return [found[verdict] for verdict in get_args(Verdict)]


def allowed(row: Row) -> str:
    """Return the tolerance in words."""
    if row.tolerance is None:
        return DASH
    ((kind, limit),) = row.tolerance.items()
    if kind == "rel":
        return f"± {100 * limit:.4g} %"
    return f"± {limit:.4g}" if kind == "abs" else f"{kind.replace('_', ' ')} {limit:.4g}"


def _system(name: str, columns: Sequence[Column]) -> dict[str, Any]:
    of = {column.name: {row.id: row for row in column.rows if row.system == name} for column in columns}
    of = {column: rows for column, rows in of.items() if rows}
    lines = [
        [rows.get(each) for rows in of.values()] for each in dict.fromkeys(id for rows in of.values() for id in rows)
    ]
    head = [
        "id",
        "what",
        "layer",
        "paper",
        "allowed",
        *(cell for column in of for cell in (column, "error", "verdict")),
    ]
    return {
        "name": name,
        "head": head,
        "rows": [_cells(rows) for rows in lines],
        "spreads": [cells for rows in lines for cells in _spreads(list(of), rows)],
        "reasons": {heading: _reasons(list(of), lines, verdict) for verdict, heading in HEADINGS.items()},
    }


def _cells(rows: Sequence[Row | None]) -> list[str]:
    row = next(each for each in rows if each is not None)
    cells = [row.id, f"{row.what} ({row.source})", row.layer, number(row.paper), allowed(row)]
    for each in rows:
        if each is None:
            cells += [DASH, DASH, DASH]
            continue
        verdict = f"**{each.verdict}**" if each.verdict == "within tolerance" else each.verdict
        verdict += " (fit)" if each.verdict == "input" and each.role == "fit" else ""
        cells += [number(each.ours), _error(each), verdict]
    return cells


def _spreads(names: Sequence[str], rows: Sequence[Row | None]) -> list[list[str]]:
    """Return the cells of a row's values over a free choice, a line for each column that has any."""
    return [
        [
            row.id,
            name,
            f"{row.spread.alternatives:,}",
            percent(row.spread.share),
            *(number(each) for each in (row.ours, row.spread.lowest, row.spread.highest)),
        ]
        for name, row in zip(names, rows, strict=True)
        if row is not None and row.spread is not None
    ]


def _reasons(names: Sequence[str], lines: Iterable[Sequence[Row | None]], verdict: Verdict) -> list[tuple[str, str]]:
    """Return each reason with the ids of its rows, and with the columns' names if not all that have the row have it."""
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for rows in lines:
        having_row = {name: row for name, row in zip(names, rows, strict=True) if row is not None}
        by_column = {name: row.reason for name, row in having_row.items() if row.verdict == verdict}
        for reason in dict.fromkeys(why for why in by_column.values() if why is not None):
            having = tuple(name for name, why in by_column.items() if why == reason)
            named = () if len(having) == len(having_row) else having
            groups.setdefault((reason, named), []).append(next(iter(having_row.values())).id)
    return [
        (reason, ", ".join(ids) + (f" ({', '.join(those)})" if those else ""))
        for (reason, those), ids in groups.items()
    ]


def _error(row: Row) -> str:
    if row.error is None:
        return DASH
    errors = row.error if isinstance(row.error, list) else [row.error]
    relative = "rel" in (row.tolerance or {})
    return " · ".join(percent(error, sign=True) if relative else f"{error:+.3g}" for error in errors)


def _command(row: Row) -> str:
    digests = ", ".join(digest.removeprefix("sha256:")[:12] for digest in row.trace)
    return f"`{row.command}` ({row.requests:,} requests measured; trace {digests})"


def _grouped(rows: Iterable[Row], key: Callable[[Row], str | None]) -> list[tuple[str, str]]:
    """Group the ids of rows by ``key``; rows without one are left out."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        if (text := key(row)) is not None:
            groups.setdefault(text, []).append(row.id)
    return [(text, ", ".join(ids)) for text, ids in groups.items()]
