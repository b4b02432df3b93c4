"""The scorecard as a page: what is held, what is missed and why, and what the numbers rest on."""

from collections.abc import Callable, Iterable, Sequence
from typing import get_args

from sim.study.scorecard.rows import Row
from sim.study.scorecard.targets import Value
from sim.study.scorecard.verdict import Verdict

DASH = "–"


def render(rows: Sequence[Row], form: str, figure: str | None) -> str:
    """The page in Markdown.

    Args:
        form: which form of the scorecard these rows are, for the first line.
        figure: the file name of the figure beside it.
    """
    systems = list(dict.fromkeys(row.system for row in rows))
    parts = [
        "# Scorecard",
        f"What the papers report and what Mezzotint makes of it ({form}). *Held*: within the tolerance. *Given*: taken "
        "as an input, or used to fit one, and therefore never scored. *Contradicted*: no single reading of the paper "
        "gives it together with the paper's other rows, so it is shown and never scored. *Not run*: nothing was "
        "compared. What every row rests on is listed below.",
        _table(
            ("system", "held", "missed", "not run", "given", "contradicted"), [_count(name, rows) for name in systems]
        ),
    ]
    if figure is not None:
        parts.append(f"![Ours against the papers', in units of the tolerance]({figure})")
    for system in systems:
        of = [row for row in rows if row.system == system]
        parts += [f"## {system}", _table(HEAD, [_cells(row) for row in of])]
        for verdict, heading in (
            ("missed", "Missed by"),
            ("not run", "Not run of"),
            ("contradicted", "Contradicted in"),
        ):
            reasons = _grouped((row for row in of if row.verdict == verdict), lambda row: row.reason)
            if reasons:
                parts += [f"### {heading} {system}", "\n".join(f"- **{ids}**: {why}" for why, ids in reasons)]
    rests = _grouped(rows, lambda row: row.fixed_by)
    if rests:
        parts += ["## What the numbers rest on", _table(("rows", "fixed by"), [(ids, by) for by, ids in rests])]
    bases = [(row.id, row.basis) for row in rows if row.basis is not None]
    if bases:
        parts += ["## What is measured", _table(("row", "measured as"), [(name, str(basis)) for name, basis in bases])]
    made = _grouped((row for row in rows if row.trace), _made)
    if made:
        parts += ["## How they were made", "\n".join(f"- {ids}: {how}" for how, ids in made)]
    return "\n\n".join(parts) + "\n"


HEAD = ("id", "what", "paper", "ours", "error", "allowed", "verdict")


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


def _count(system: str, rows: Sequence[Row]) -> tuple[str, ...]:
    of = [row for row in rows if row.system == system]
    verdicts = [row.verdict for row in of]
    return (system, *(str(verdicts.count(verdict)) for verdict in get_args(Verdict)))


def _cells(row: Row) -> tuple[str, ...]:
    verdict = {"held": "**held**", "given": f"given ({row.role})"}.get(row.verdict, row.verdict)
    return (
        row.id,
        f"{row.what} ({row.source})",
        number(row.paper),
        number(row.ours),
        _error(row),
        allowed(row),
        verdict,
    )


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


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
