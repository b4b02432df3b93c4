"""Pages of the scorecard: the counts, a page for each paper, and one for each paper's rows of the ground."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_args

import mezzotint.figures.page
from mezzotint.figures.page import DASH, number, percent
from mezzotint.sim.papers.scorecard.columns import MECHANISM, SYNTHETIC
from mezzotint.sim.papers.scorecard.curves import compare
from mezzotint.sim.papers.scorecard.measures.interpretations import SIZES
from mezzotint.sim.papers.scorecard.rows import Column, Row
from mezzotint.sim.papers.scorecard.study import Curve, Study
from mezzotint.sim.papers.scorecard.verdict import SCORED, Kind, Verdict

HEADINGS: Mapping[Verdict, str] = {
    "outside": "Outside the tolerance",
    "undecided": "Undecided",
    "not run": "Not run",
    "inconsistent": "Inconsistent in the paper",
}
"""Headings of the reasons, by verdict."""

KINDS: Mapping[Kind, str] = {
    "predicted": "Predicted",
    "unprinted": "On an input that nobody printed",
    "uninformed": "Without information",
    "fitted": "Fitted",
    "algebra": "Algebra on inputs",
    "input": "Inputs",
    "inconsistent": "Inconsistent in the paper",
}
"""Headings of the tables, by kind; those of `COUNTED` are counted, each for itself."""

COUNTED: tuple[Kind, ...] = ("predicted", "unprinted", "fitted", "algebra")

MAX_SHOWN = 4
"""Numbers of a list up to which a cell has each."""


def render(
    columns: Sequence[Column], study: Study, name: str, figures: Mapping[str, Sequence[str]]
) -> tuple[str, dict[str, str]]:
    """Return the page of the counts, and the papers' pages by file name, in Markdown.

    Args:
        study: gives the form and the declared inputs.
        name: of the page of the counts; the others are named after it.
        figures: file names by system.
    """
    systems = list(dict.fromkeys(row.system for column in columns for row in column.rows))
    pages: dict[str, str] = {}
    for system in systems:
        mechanism = [column for column in columns if column.layer == "mechanism" and _of(column, system)]
        ground = [column for column in columns if column.layer == "ground" and _of(column, system)]
        is_ground = {False: mechanism, True: ground}
        for of_ground, listed in is_ground.items():
            if listed:
                images = [image for image in figures.get(system, []) if ("-ground" in image) is of_ground]
                stem = f"{name}-{system}{'-ground' if of_ground else ''}"
                pages[f"{stem}.md"] = _paper(system, listed, study, images, name, of_ground)
    text = mezzotint.figures.page.render(
        __package__,
        "page.md.jinja",
        form=study.form,
        columns=columns,
        digest=columns[0].follows_from if columns else "",
        summary=summary(columns),
        pages=pages,
    )
    return text, pages


def summary(columns: Sequence[Column]) -> str:
    """Return the table of the counts: a row for each paper, the least flattering column first."""
    ground = [column for column in columns if column.layer == "ground"]
    mechanism = [column for column in columns if column.layer == "mechanism"]
    systems = list(dict.fromkeys(row.system for column in [*mechanism, *ground] for row in column.rows))
    heads = ["paper", "ground, logs", "ground, synthetic", "unprinted input", "predicted", "fitted", "algebra"]
    lines = []
    for system in [*systems, "all"]:
        logs, synthetic, rows = (
            [row for column in listed for row in column.rows if system in ("all", row.system)]
            for listed in (
                [column for column in ground if column.name != SYNTHETIC],
                [column for column in ground if column.name == SYNTHETIC],
                mechanism,
            )
        )
        found = [count(row for row in listed if row.kind == "predicted") for listed in (logs, synthetic)]
        kinds = ("unprinted", "predicted", "fitted", "algebra")
        lines.append([system, *found, *(count(row for row in rows if row.kind == kind) for kind in kinds)])
    return mezzotint.figures.page.table(heads, lines)


def count(rows: Iterable[Row]) -> str:
    """Return how many of the compared rows are within tolerance, and how many are undecided."""
    verdicts = [row.verdict for row in rows if row.verdict in SCORED]
    if not verdicts:
        return DASH
    undecided = verdicts.count("undecided")
    text = f"{verdicts.count('within tolerance')} of {len(verdicts)}"
    return f"{text}, {undecided} undecided" if undecided else text


def tally(rows: Sequence[Row]) -> str:
    """Return a line with the number of rows within tolerance: of the predictions first, then of the other kinds."""
    parts = []
    for kind in COUNTED:
        listed = [row for row in rows if row.kind == kind]
        if listed:
            not_run = sum(row.verdict == "not run" for row in listed)
            counted = count(listed).replace(DASH, "0 of 0")
            parts.append(f"{kind} {counted}" + (f" ({not_run} not run)" if not_run else ""))
    return "within tolerance: " + "; ".join(parts)


def _of(column: Column, system: str) -> list[Row]:
    return [row for row in column.rows if row.system == system]


def _age(column: Column, rows: Sequence[Row]) -> str:
    """Return when ``rows`` of a column were made, with the digest of code and settings if it is not the column's."""
    return ", ".join(dict.fromkeys(row.made or column.made or "no date" for row in rows))


def _paper(
    system: str, columns: Sequence[Column], study: Study, images: Sequence[str], name: str, is_ground: bool
) -> str:
    """Return the page of a paper's rows in one layer."""
    rows = {column.name: _of(column, system) for column in columns}
    flat = list({row.id: row for listed in rows.values() for row in listed}.values())
    by_kind = {
        heading: [row for row in rows.get(MECHANISM, []) if row.kind == kind]
        for kind, heading in KINDS.items()
        if not is_ground
    }
    return mezzotint.figures.page.render(
        __package__,
        "ground.md.jinja" if is_ground else "paper.md.jinja",
        system=system,
        form=study.form,
        name=name,
        images=images,
        columns=columns,
        rows=rows,
        by_kind={heading: listed for heading, listed in by_kind.items() if listed},
        counted=[KINDS[kind] for kind in COUNTED],
        declared=study.declared.get(system, []),
        tally=tally,
        age=_age,
        line=line,
        ground_lines=_ground_lines,
        reasons={heading: _reasons(rows, verdict) for verdict, heading in HEADINGS.items()},
        because=_group_ids((row for row in flat if row.because), lambda row: row.because),
        spreads=[row for row in flat if row.spread is not None],
        behind=[f"**{ids}**: {text}" for ids, text in _group_ids(flat, _behind) if text],
        curves=_curves(rows, study.curves.get(system, [])),
        plotted=study.plotted.get(system, ""),
        sizes=[f"{size:,}" for size in SIZES],
        commands=[
            f"{column.name}: {ids}: {command}"
            for column in columns
            for ids, command in _group_ids((row for row in rows[column.name] if row.trace), _command)
        ],
        verdicts=get_args(Verdict),
    )


def line(row: Row) -> str:
    """Return the cells of a row: id, what, paper, allowed, ours, interval, error and verdict."""
    verdict = f"**{row.verdict}**" if row.verdict == "within tolerance" else row.verdict
    cells = [*_paper_cells(row), _values(row.ours), _interval(row), error(row), verdict]
    return f"| {' | '.join(cells)} |"


def _paper_cells(row: Row) -> list[str]:
    return [row.id, f"{row.what} ({row.source})".replace("|", "\\|"), _values(row.paper), allowed(row)]


def _ground_lines(columns: Mapping[str, Sequence[Row]]) -> tuple[list[str], list[str]]:
    """Return two lines for each target: the paper's value and ours by column, and the errors with the verdict."""
    values, errors = [], []
    for name, each in _by_id(columns).items():
        first = next(iter(each.values()))
        ours = [_values(row.ours) for row in each.values()]
        values.append(f"| {' | '.join([*_paper_cells(first), *ours])} |")
        kind = f"{name} ({first.kind})" if first.kind != "predicted" else name
        judged = [f"{error(row)}{_mark(row)}" for row in each.values()]
        errors.append(f"| {' | '.join([kind, *judged])} |")
    return values, errors


def _by_id(columns: Mapping[str, Sequence[Row]]) -> dict[str, dict[str, Row]]:
    """Return the rows of each target by column."""
    found: dict[str, dict[str, Row]] = {}
    for name, rows in columns.items():
        for row in rows:
            found.setdefault(row.id, {})[name] = row
    return found


def _mark(row: Row) -> str:
    return ", **within**" if row.verdict == "within tolerance" else "" if error(row) != DASH else f" {row.verdict}"


def _behind(row: Row) -> str | None:
    """Return what stands behind a row's number; None if nothing is known."""
    parts = {"measured as": row.basis, "inputs": row.fixed_by, "tolerance": row.tolerance_from}
    return "; ".join(f"*{name}* {text}" for name, text in parts.items() if text) or None


def _values(value: Any) -> str:
    """Return a value; of a long list only how many there are."""
    return f"{len(value)} values" if isinstance(value, list) and len(value) > MAX_SHOWN else number(value)


def _interval(row: Row) -> str:
    """Return the interval over seeds."""
    found = row.interval
    if found is None:
        return DASH
    if found.share is not None:
        return f"true in {round(found.share * found.seeds)} of {found.seeds}"
    lows, highs = (edge if isinstance(edge, list) else [edge] for edge in (found.low, found.high))
    if len(lows) > MAX_SHOWN:
        return f"{found.seeds} seeds"
    return " · ".join(f"{number(low)} to {number(high)}" for low, high in zip(lows, highs, strict=True))


def allowed(row: Row) -> str:
    """Return the tolerance in per cent of the paper's value, the smallest and largest of a list; or the bound."""
    if row.tolerance is None:
        return DASH
    ((kind, limit),) = row.tolerance.items()
    if kind.startswith("at"):
        return f"{kind.replace('_', ' ')} {limit:.4g}"
    papers = row.paper if isinstance(row.paper, list) else [row.paper]
    if kind == "abs" and not all(papers):
        return f"± {limit:.4g}"
    shares = [limit if kind == "rel" else limit / abs(float(paper or 0)) for paper in papers]
    low, high = (f"{100 * share:.2g}" for share in (min(shares), max(shares)))
    return f"± {low} %" if low == high else f"± {low} to {high} %"


def error(row: Row) -> str:
    """Return ours minus the paper's in per cent of the paper's; of a long list the largest and the mean of sizes."""
    if row.ours is None or isinstance(row.ours, bool) or row.paper is None:
        return DASH
    ours, papers = (value if isinstance(value, list) else [value] for value in (row.ours, row.paper))
    if not all(papers):
        return DASH
    errors = [(value - float(paper)) / abs(float(paper)) for value, paper in zip(ours, papers, strict=True)]
    if len(errors) <= MAX_SHOWN:
        return " · ".join(percent(each, sign=True) for each in errors)
    mean = sum(map(abs, errors)) / len(errors)
    return f"mean size {percent(mean)}, largest {percent(max(errors, key=abs), sign=True)}"


def _curves(columns: Mapping[str, Sequence[Row]], listed: Sequence[Curve]) -> list[list[str]]:
    """Return the cells of each curve: where, what, the points, and the mean size of the error in each column."""
    lines: dict[str, list[str]] = {}
    for name, rows in columns.items():
        for curve in compare(listed, {row.id: row for row in rows}):
            key = f"{curve.of.figure}: {curve.of.what}"
            ours = "" if len(columns) > 1 else f"{number(curve.ours, 3)}"
            cells = [key, ", ".join(curve.of.x), number(curve.paper, 3), *([ours] if ours else [])]
            error = percent(curve.error) if len(columns) == 1 else f"{name} {percent(curve.error)}"
            lines.setdefault(key, cells).append(error)
    return list(lines.values())


def _reasons(columns: Mapping[str, Sequence[Row]], verdict: Verdict) -> list[tuple[str, str]]:
    """Return each reason with the ids of its rows, and with the columns' names if not all that have the row have it."""
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for each in _by_id(columns).values():
        by_column = {name: row.reason for name, row in each.items() if row.verdict == verdict and row.reason}
        for reason in dict.fromkeys(by_column.values()):
            having = tuple(name for name, why in by_column.items() if why == reason)
            named = () if len(having) == len(each) else having
            groups.setdefault((reason, named), []).append(next(iter(each.values())).id)
    return [
        (reason, ", ".join(ids) + (f" ({', '.join(named)})" if named else ""))
        for (reason, named), ids in groups.items()
    ]


def _command(row: Row) -> str:
    return f"`{row.command}` ({row.requests:,} requests measured)"


def _group_ids(rows: Iterable[Row], key: Callable[[Row], str | None]) -> list[tuple[str, str]]:
    """Return the ids of rows of equal ``key``, and the key; rows without one are left out."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        if (text := key(row)) is not None:
            groups.setdefault(text, []).append(row.id)
    return [(", ".join(ids), text) for text, ids in groups.items()]
