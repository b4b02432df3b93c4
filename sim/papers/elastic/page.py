"""Page and figure of the replayed reference tables: equal requests, and requests per CPU-second."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from matplotlib.figure import Figure

import mezzotint.figures.page
from mezzotint.figures.page import DASH
from mezzotint.figures.palette import COLOURS, INK, house_style, panels, plain_numbers
from mezzotint.sim.papers.study import Results

THEIRS = {"static_sp4": 25, "edf_best_fit": 18, "tetriserve_round": 14, "clean_edf_demote": 11}
"""Requests per CPU-second of GF-DiT's own simulator: 200 requests, decided step by step, one core."""


def line_of(table: Results) -> str:
    """Return the comparison of a table in a line."""
    name = f"{table['workload']} {table['policy']}"
    if table["skipped"]:
        return f"{name}: skipped, {table['skipped']}"
    line = f"{name}: {table['same']} of {table['requests']} requests equal, {table['per_cpu_s']:.0f} per CPU-second"
    if table["unfinished"]:
        line += f", {table['unfinished']} never finish"
    return f"{line}; first {table['first']}" if table["first"] else line


def line_of_row(row: Results) -> str:
    """Return the comparison of a printed row in a line."""
    wrong = [
        f"{name} {text}, ours {row['ours'][name]}" for name, text in row["printed"].items() if text != row["ours"][name]
    ]
    return f"published {row['workload']} {row['policy']}: {'; '.join(wrong) or 'every printed digit equal'}"


def tally(facts: Results) -> str:
    """Return the counts of equal tables and rows in a line."""
    tables, rows = compared(facts), facts["published"]
    equal = sum(each["same"] == each["requests"] for each in tables)
    same, of = (sum(each[name] for each in tables) for name in ("same", "requests"))
    exact = sum(each["printed"] == each["ours"] for each in rows)
    line = f"{equal} of {len(tables)} tables equal, {same} of {of} requests"
    return f"{line}; {exact} of {len(rows)} printed rows equal" if rows else line


def compared(facts: Results) -> list[Any]:
    """Return the tables that were replayed."""
    return [each for each in facts["tables"] if not each["skipped"]]


def render(facts: Results, image: str) -> str:
    """Fill the page with the JSON file's content; ``image`` is the figure's file name."""
    skipped: dict[str, list[str]] = {}
    for each in facts["tables"]:
        if each["skipped"]:
            skipped.setdefault(each["skipped"], []).append(f"{each['workload']} {each['policy']}")
    return mezzotint.figures.page.render(
        __package__,
        "page.md.jinja",
        tally=tally(facts),
        image=image,
        rows=[
            [
                *(each["workload"], each["policy"], each["requests"], each["same"], each["same_groups"]),
                *(each["unfinished"] or DASH, f"{each['per_cpu_s']:,.0f}", THEIRS.get(each["policy"], DASH)),
            ]
            for each in compared(facts)
        ],
        differing=[each for each in compared(facts) if each["first"]],
        skipped=skipped,
        published=[
            [each["workload"], each["policy"], "yes" if each["printed"] == each["ours"] else "no", _printed(each)]
            for each in facts["published"]
        ],
    )


def _printed(row: Results) -> str:
    pairs = ((name, text, row["ours"][name]) for name, text in row["printed"].items())
    return ", ".join(f"{name} {text}" if text == ours else f"{name} {text} (ours {ours})" for name, text, ours in pairs)


@house_style()
def draw(facts: Results) -> Figure:
    """Draw the requests per CPU-second of every policy, ours and GF-DiT's own."""
    speeds: dict[str, list[float]] = {}
    for each in compared(facts):
        speeds.setdefault(each["policy"], []).append(each["per_cpu_s"])
    names: Sequence[str] = sorted(speeds, key=lambda name: median(speeds[name]))
    figure, ((axes,),) = panels(1, width=8.0, height=1.4 + 0.24 * len(names))
    places = [place for place, name in enumerate(names) for _ in speeds[name]]
    values = [value for name in names for value in speeds[name]]
    axes.plot(values, places, "o", color=COLOURS[0], markersize=5, label="Mezzotint")
    theirs = [(THEIRS[name], place) for place, name in enumerate(names) if name in THEIRS]
    axes.plot(*zip(*theirs, strict=True) if theirs else ([], []), "D", color=INK, markersize=5, label="GF-DiT")
    axes.set(xscale="log", xlabel="requests of 50 steps per CPU-second", yticks=range(len(names)), yticklabels=names)
    axes.xaxis.set_major_formatter(plain_numbers())
    axes.legend(loc="lower right")
    return figure
