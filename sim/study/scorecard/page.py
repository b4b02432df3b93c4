"""The scorecard as a page: what is held, what is missed and why, and what the numbers rest on."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import get_args

from conf.page import table
from sim.study.scorecard.columns import Column
from sim.study.scorecard.readings import ARGUMENT, CAPACITIES
from sim.study.scorecard.rows import Row
from sim.study.scorecard.targets import Value
from sim.study.scorecard.verdict import Verdict

DASH = "–"

HEADINGS: Mapping[Verdict, str] = {"missed": "Missed by", "not run": "Not run of", "contradicted": "Contradicted in"}
"""Verdicts that have reasons, and what these stand under."""


def render(columns: Sequence[Column], form: str, figure: str | None) -> str:
    """The page in Markdown.

    Args:
        columns: one for each trace, with a row for the same targets each.
        form: which form of the scorecard these rows are, for the first line.
        figure: the file name of the figure beside it.
    """
    systems = list(dict.fromkeys(row.system for row in columns[0].rows))
    parts = [
        "# Scorecard",
        f"What the papers report and what Mezzotint makes of it ({form}). *Held*: within the tolerance. *Given*: taken "
        "as an input, or used to fit one, and therefore never scored. *Contradicted*: no single reading of the paper "
        "gives it together with the paper's other rows, so it is shown and never scored. *Not run*: nothing was "
        "compared. What every row rests on is listed below.",
        "\n".join(f"- **{column.name}**: on {column.trace}" for column in columns),
        table(
            ("system", "trace", "held", "missed", "not run", "given", "contradicted"),
            [_count(name, column) for name in systems for column in columns],
        ),
    ]
    if figure is not None:
        parts.append(f"![Ours against the papers', in units of the tolerance]({figure})")
    for system in systems:
        of = {column.name: [row for row in column.rows if row.system == system] for column in columns}
        head = ("id", "what", "paper", "allowed", *(cell for name in of for cell in (name, "error", "verdict")))
        parts += [f"## {system}", table(head, [_cells(rows) for rows in zip(*of.values(), strict=True)])]
        for verdict, heading in HEADINGS.items():
            reasons = _by_column(of, verdict)
            if reasons:
                parts += [f"### {heading} {system}", "\n".join(f"- **{ids}**: {why}" for why, ids in reasons)]
    parts += _readings(columns)
    parts += _observations(columns)
    first = columns[0].rows
    rests = _grouped(first, lambda row: row.fixed_by)
    if rests:
        parts += ["## What the numbers rest on", table(("rows", "fixed by"), [(ids, by) for by, ids in rests])]
    bases = [(row.id, row.basis) for row in first if row.basis is not None]
    if bases:
        parts += ["## What is measured", table(("row", "measured as"), [(name, str(basis)) for name, basis in bases])]
    made = [
        f"- {column.name}: {ids}: {how}"
        for column in columns
        for how, ids in _grouped((row for row in column.rows if row.trace), _made)
    ]
    if made:
        parts += ["## How they were made", "\n".join(made)]
    return "\n\n".join(parts) + "\n"


def tally(rows: Sequence[Row]) -> str:
    """One line: how many of the scored rows are held."""
    verdicts = [row.verdict for row in rows if row.verdict not in ("given", "contradicted")]
    missed, absent = verdicts.count("missed"), verdicts.count("not run")
    return f"{verdicts.count('held')} of {len(verdicts)} scored rows held, {missed} missed, {absent} not run"


def number(value: Value | None, digits: int = 4) -> str:
    """A value as the page and the figure show it: in significant digits, a list in a row."""
    if value is None:
        return DASH
    if isinstance(value, bool):
        return "true" if value else "false"
    return " · ".join(f"{each:.{digits}g}" for each in (value if isinstance(value, list) else [value]))


def allowed(row: Row) -> str:
    """The tolerance in words."""
    if row.tolerance is None:
        return DASH
    ((kind, limit),) = row.tolerance.items()
    if kind == "rel":
        return f"± {100 * limit:.4g} %"
    return f"± {limit:.4g}" if kind == "abs" else f"{kind.replace('_', ' ')} {limit:.4g}"


def _count(system: str, column: Column) -> tuple[str, ...]:
    verdicts = [row.verdict for row in column.rows if row.system == system]
    return (system, column.name, *(str(verdicts.count(verdict)) for verdict in get_args(Verdict)))


def _cells(rows: Sequence[Row]) -> tuple[str, ...]:
    """A line: the target, then what each column has of it."""
    row = rows[0]
    cells = [row.id, f"{row.what} ({row.source})", number(row.paper), allowed(row)]
    for each in rows:
        verdict = {"held": "**held**", "given": f"given ({each.role})"}.get(each.verdict, each.verdict)
        cells += [number(each.ours), _error(each), verdict]
    return tuple(cells)


def _by_column(of: Mapping[str, Sequence[Row]], verdict: Verdict) -> list[tuple[str, str]]:
    """Reasons and whose they are: the ids, and, of a reason that not all columns have, the column's name."""
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for rows in zip(*of.values(), strict=True):
        said = {name: row.reason for name, row in zip(of, rows, strict=True) if row.verdict == verdict}
        for reason in dict.fromkeys(why for why in said.values() if why is not None):
            those = tuple(name for name, why in said.items() if why == reason)
            groups.setdefault((reason, those), []).append(rows[0].id)
    return [
        (reason, ", ".join(ids) + ("" if len(those) == len(of) else f" ({', '.join(those)})"))
        for (reason, those), ids in groups.items()
    ]


def _readings(columns: Sequence[Column]) -> list[str]:
    """What Table 3 becomes under other readings of the paper, and why the default is the default."""
    told = [column for column in columns if column.readings]
    if not told:
        return []
    sizes = " · ".join(f"{capacity:,}" for capacity in CAPACITIES)
    body = []
    for rows in zip(*(column.readings for column in told), strict=True):
        cells = [rows[0].reading, rows[0].policy]
        for one in rows:
            cells += [number(one.hit_rate), number(one.saving)]
        body.append(tuple(cells))
    absent = dict.fromkeys(
        f"- not run on {column.name}: {one.reason}" for column in told for one in column.readings if one.reason
    )
    head = ("reading", "policy", *(cell for column in told for cell in (f"{column.name}: hit rate", "saving")))
    parts = ["## What other readings give", ARGUMENT, f"Table 3 at {sizes} items:", table(head, body)]
    return [*parts, "\n".join(absent)] if absent else parts


def _observations(columns: Sequence[Column]) -> list[str]:
    """What NIRVANA saw in its traffic, in each of the traces; no targets."""
    told = {column.name: column.observations for column in columns if column.observations}
    if not told:
        return []
    lines = [
        f"- {seen[0].what}\n" + "\n".join(f"  - {name}: {one.sentence()}" for name, one in zip(told, seen, strict=True))
        for seen in zip(*told.values(), strict=True)
    ]
    return [
        "## What NIRVANA saw in its traffic",
        "No targets: the paper draws these and prints no number. Cosines are those of hashed n-grams.",
        "\n".join(lines),
    ]


def _error(row: Row) -> str:
    if row.error is None:
        return DASH
    errors = row.error if isinstance(row.error, list) else [row.error]
    relative = "rel" in (row.tolerance or {})
    return " · ".join(f"{100 * error:+.1f} %" if relative else f"{error:+.3g}" for error in errors)


def _made(row: Row) -> str | None:
    digests = ", ".join(digest.removeprefix("sha256:")[:12] for digest in row.trace)
    return f"`{row.command}` ({row.requests:,} requests measured; trace {digests})"


def _grouped(rows: Iterable[Row], key: Callable[[Row], str | None]) -> list[tuple[str, str]]:
    """Rows that say the same, as (what they say, their ids)."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        if (said := key(row)) is not None:
            groups.setdefault(said, []).append(row.id)
    return [(said, ", ".join(ids)) for said, ids in groups.items()]
