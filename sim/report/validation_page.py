"""The page of a validation: errors of the simulation, and its latencies beside those of the real server."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from mezzotint.figures.page import number, percent, render
from mezzotint.sim.report.figures.palette import SeriesStyle
from mezzotint.sim.report.interactive import Chart, PageFigure, page

Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""Title, head and rows of a table."""

_CAPTION = "Point at a line or at its name to see it alone; a click on its name hides it."


def validation_page(
    facts: Mapping[str, Any],
    charts: Sequence[Chart],
    styles: Mapping[str, SeriesStyle],
    tables: Iterable[Table],
    about: Sequence[tuple[str, str]],
    remarks: Sequence[str] = (),
) -> str:
    """Return the HTML page of a validation.

    Args:
        facts: the content of validation.json.
        about: what was compared, by name.
        remarks: what a reader must know beside the tables.
    """
    body = render("mezzotint.sim.report", "validation.html.jinja", tables=list(tables), remarks=remarks)
    return page(
        f"{facts['system']}: a simulation against a real server",
        answer(facts["rows"]),
        [PageFigure("Simulated and real latency", _CAPTION, charts)],
        styles,
        Markup(body),  # the template has escaped it
        generator="mezzotint validate",
        facts=about,
    )


def answer(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the errors of the mean and of the highest percentile in a sentence."""
    known = [row for row in rows if row["error"] is not None and row["what"].removeprefix("latency ")[:1] in "mp"]
    if not known:
        return "No latency of both sides is known."
    real, words = "live" if "live" in known[0] else "measured", []
    for row in known[:1] if len(known) == 1 else (known[0], known[-1]):
        name, error = row["what"].removeprefix("latency ").removesuffix(" [s]"), percent(row["error"], sign=True)
        seconds = f"{number(row['simulated'], 3)} s against {number(row[real], 3)} s {real}"
        words.append(f"the simulated {name} latency is {seconds} ({error})")
    text = ", and ".join(words)
    return f"{text[:1].upper()}{text[1:]}."
