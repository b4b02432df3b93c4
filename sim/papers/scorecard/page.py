"""Page of the scorecard: each target with its verdict, the reason of a miss, and the inputs behind the number."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_args

import conf.page
from conf.page import DASH, number, percent
from sim.papers.scorecard.columns import Column
from sim.papers.scorecard.measures.interpretations import CAPACITIES
from sim.papers.scorecard.rows import Row
from sim.papers.scorecard.verdict import Verdict

HEADINGS: Mapping[Verdict, str] = {
    "outside": "Outside the tolerance:",
    "not run": "Not run:",
    "inconsistent": "Inconsistent in the paper:",
}
"""Headings of the reasons, by verdict."""


def render(columns: Sequence[Column], form: str, figure: str | None) -> str:
    """Return the page in Markdown; the columns have the same targets, and ``figure`` is the figure's file name."""
    first = columns[0].rows
    systems = list(dict.fromkeys(row.system for row in first))
    interpreted = [column for column in columns if column.readings]
    observed = [column for column in columns if column.observations]
    return conf.page.render(
        __package__,
        "page.md.jinja",
        form=form,
        figure=figure,
        columns=columns,
        verdicts=list(get_args(Verdict)),
        counts=[[name, column.name, *_counts(name, column)] for name in systems for column in columns],
        systems=[_system(name, columns) for name in systems],
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
        inputs=[(ids, by) for by, ids in _grouped(first, lambda row: row.fixed_by)],
        bases=[(row.id, row.basis) for row in first if row.basis is not None],
        commands=[
            f"{column.name}: {ids}: {how}"
            for column in columns
            for how, ids in _grouped((row for row in column.rows if row.trace), _command)
        ],
    )


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
    of = {column.name: [row for row in column.rows if row.system == name] for column in columns}
    lines = list(zip(*of.values(), strict=True))
    return {
        "name": name,
        "head": ["id", "what", "paper", "allowed", *(cell for trace in of for cell in (trace, "error", "verdict"))],
        "rows": [_cells(rows) for rows in lines],
        "spreads": [cells for rows in lines for cells in _spreads(list(of), rows)],
        "reasons": {heading: _reasons(list(of), lines, verdict) for verdict, heading in HEADINGS.items()},
    }


def _cells(rows: Sequence[Row]) -> list[str]:
    row = rows[0]
    cells = [row.id, f"{row.what} ({row.source})", number(row.paper), allowed(row)]
    for each in rows:
        verdict = f"**{each.verdict}**" if each.verdict == "within tolerance" else each.verdict
        verdict += " (fit)" if each.verdict == "input" and each.role == "fit" else ""
        cells += [number(each.ours), _error(each), verdict]
    return cells


def _spreads(names: Sequence[str], rows: Sequence[Row]) -> list[list[str]]:
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
        if row.spread is not None
    ]


def _reasons(names: Sequence[str], lines: Iterable[Sequence[Row]], verdict: Verdict) -> list[tuple[str, str]]:
    """Return each reason with the ids of its rows, and with the columns' names if not all columns have it."""
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for rows in lines:
        by_column = {name: row.reason for name, row in zip(names, rows, strict=True) if row.verdict == verdict}
        for reason in dict.fromkeys(why for why in by_column.values() if why is not None):
            having = tuple(name for name, why in by_column.items() if why == reason)
            groups.setdefault((reason, having), []).append(rows[0].id)
    return [
        (reason, ", ".join(ids) + ("" if len(those) == len(names) else f" ({', '.join(those)})"))
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
