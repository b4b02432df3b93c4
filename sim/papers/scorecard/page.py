"""The scorecard as a page: what is held, what is missed and why, and what the numbers rest on."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_args

import conf.page
from conf.page import DASH, number, percent
from sim.papers.scorecard.columns import Column
from sim.papers.scorecard.readings import CAPACITIES
from sim.papers.scorecard.rows import Row
from sim.papers.scorecard.verdict import Verdict

HEADINGS: Mapping[Verdict, str] = {"missed": "Missed by", "not run": "Not run of", "contradicted": "Contradicted in"}
"""Verdicts that have reasons, and what these stand under."""


def render(columns: Sequence[Column], form: str, figure: str | None) -> str:
    """The page in Markdown; the columns have a row for the same targets each, ``figure`` is the name of its file."""
    first = columns[0].rows
    systems = list(dict.fromkeys(row.system for row in first))
    read = [column for column in columns if column.readings]
    seen = [column for column in columns if column.observations]
    return conf.page.render(
        __package__,
        "page.md.jinja",
        form=form,
        figure=figure,
        columns=columns,
        verdicts=list(get_args(Verdict)),
        counts=[[name, column.name, *_counts(name, column)] for name in systems for column in columns],
        systems=[_system(name, columns) for name in systems],
        read=read,
        capacities=[f"{capacity:,}" for capacity in CAPACITIES],
        reading_head=["reading", "policy", *(cell for each in read for cell in (f"{each.name}: hit rate", "saving"))],
        readings=[
            [each[0].reading, each[0].policy, *(number(cell) for one in each for cell in (one.hit_rate, one.saving))]
            for each in zip(*(column.readings for column in read), strict=True)
        ],
        unread=list(dict.fromkeys((each.name, one.reason) for each in read for one in each.readings if one.reason)),
        seen=seen,
        observations=list(zip(*(column.observations for column in seen), strict=True)),
        rests=[(ids, by) for by, ids in _grouped(first, lambda row: row.fixed_by)],
        bases=[(row.id, row.basis) for row in first if row.basis is not None],
        made=[
            f"{column.name}: {ids}: {how}"
            for column in columns
            for how, ids in _grouped((row for row in column.rows if row.trace), _made)
        ],
    )


def tally(rows: Sequence[Row]) -> str:
    """One line: how many of the scored rows are held."""
    verdicts = [row.verdict for row in rows if row.verdict not in ("given", "contradicted")]
    missed, absent = verdicts.count("missed"), verdicts.count("not run")
    return f"{verdicts.count('held')} of {len(verdicts)} scored rows held, {missed} missed, {absent} not run"


def _counts(system: str, column: Column) -> list[int]:
    found = Counter(row.verdict for row in column.rows if row.system == system)
    return [found[verdict] for verdict in get_args(Verdict)]


def allowed(row: Row) -> str:
    """The tolerance in words."""
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
        "reasons": {heading: _reasons(list(of), lines, verdict) for verdict, heading in HEADINGS.items()},
    }


def _cells(rows: Sequence[Row]) -> list[str]:
    row = rows[0]
    cells = [row.id, f"{row.what} ({row.source})", number(row.paper), allowed(row)]
    for each in rows:
        verdict = {"held": "**held**", "given": f"given ({each.role})"}.get(each.verdict, each.verdict)
        cells += [number(each.ours), _error(each), verdict]
    return cells


def _reasons(names: Sequence[str], lines: Iterable[Sequence[Row]], verdict: Verdict) -> list[tuple[str, str]]:
    """Reasons and whose they are: the ids, and, of a reason that not all columns have, the column's name."""
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for rows in lines:
        said = {name: row.reason for name, row in zip(names, rows, strict=True) if row.verdict == verdict}
        for reason in dict.fromkeys(why for why in said.values() if why is not None):
            those = tuple(name for name, why in said.items() if why == reason)
            groups.setdefault((reason, those), []).append(rows[0].id)
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


def _made(row: Row) -> str:
    digests = ", ".join(digest.removeprefix("sha256:")[:12] for digest in row.trace)
    return f"`{row.command}` ({row.requests:,} requests measured; trace {digests})"


def _grouped(rows: Iterable[Row], key: Callable[[Row], str | None]) -> list[tuple[str, str]]:
    """Rows that say the same, as (what they say, their ids)."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        if (said := key(row)) is not None:
            groups.setdefault(said, []).append(row.id)
    return [(said, ", ".join(ids)) for said, ids in groups.items()]
