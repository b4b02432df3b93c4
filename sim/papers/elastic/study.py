"""The study: the tables and the printed rows, compared request by request; its figure and page."""

from collections.abc import Iterator, Sequence
from math import isclose, isinf
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer
from matplotlib.figure import Figure
from pydantic.dataclasses import dataclass

from mezzotint.figures.palette import COLOURS, INK, house_style, panels, plain_numbers
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.elastic.tables import INPUTS, Policy, Request, Served, overrides, read_costs, serve
from mezzotint.sim.papers.rows import read_rows
from mezzotint.sim.papers.study import RESULTS, Check, Comparison, Output, Results, Study, committed

ORACLE = "tests/oracles/gf_dit"

SOURCE = "made by GF-DiT's policy simulator (SJTU-Liquid/GF-DiT at 442531e4, Apache-2.0), run unmodified"
"""Where the tables of a clone are from."""

PRINTED = ("S_met_pct", "S_p95_s", "M_met_pct", "M_p95_s", "L_met_pct", "L_p95_s", "makespan_s")


@dataclass(frozen=True, slots=True)
class PrintedRow:
    """A row as the authors printed it; ``rebuilt`` begins with "exact" if it can be replayed."""

    workload: str
    policy: str
    rebuilt: str
    S_met_pct: str = ""
    S_p95_s: str = ""
    M_met_pct: str = ""
    M_p95_s: str = ""
    L_met_pct: str = ""
    L_p95_s: str = ""
    makespan_s: str = ""


def compare(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help=f"folder with cost.csv, policies.csv and the workloads [default: {ORACLE}]"),
    ] = None,
    check: Check = False,
    output: Output = RESULTS,
) -> int:
    """Replay reference tables of elastic serving request by request, and write elastic.md, .json and .svg.

    DIR holds cost.csv, stages.csv, policies.csv, and for each workload a folder with workload.csv and a table for each
    policy; ``published`` in it holds printed results. A table that is absent is skipped. Each may be Parquet. Without
    DIR, a clone of the repository takes the tables that it holds.

    Raises:
        ConfigError: a file cannot be read or written, or there is no DIR outside of a clone.
    """
    tables = folder or committed(ORACLE, "reference tables", SOURCE)
    return STUDY.reproduce(
        lambda: {"tables": list(replay_tables(tables)), "published": list(replay_printed(tables))}, output, check=check
    )


def replay_tables(folder: Path) -> Iterator[dict[str, Any]]:
    """Replay the tables of ``folder``, and yield each comparison. Raises ConfigError if the folder cannot be read."""
    costs, stages = read_costs(folder)
    policies = read_rows(folder / "policies.csv", Policy)
    workloads = sorted({path.parent for end in ("csv", "parquet") for path in folder.glob(f"*/workload.{end}")})
    if not workloads:
        raise ConfigError(f"{folder}: found no WORKLOAD/workload.csv in it; name the folder of the reference tables")
    for workload in workloads:
        requests = read_rows(workload / "workload.csv", Request)
        for row in policies:
            table, is_staged = workload / f"{row.policy}.csv", row.policy.endswith("_stages")
            words, compared, skipped = overrides(row.policy, costs), compare_requests([], [], []), ""
            if row.agreement == "order":
                skipped = "for order only"
            elif not (table.is_file() or table.with_suffix(".parquet").is_file()):
                skipped = "no table"
            elif words is None:
                skipped = "no such policy here"
            elif is_staged and not stages:
                skipped = "no stages.csv"
            else:
                ours, cpu_s = serve(requests, words, costs, stages if is_staged else [])
                compared = compare_requests(requests, ours, read_rows(table, Served))
                compared["per_cpu_s"] = len(requests) / cpu_s
            names = {"workload": workload.name, "policy": row.policy, "agreement": row.agreement}
            yield names | compared | {"skipped": skipped}


def compare_requests(requests: Sequence[Request], ours: Sequence[Served], theirs: Sequence[Served]) -> dict[str, Any]:
    """Return the counts of requests whose start, finish and pauses are equal, and the first that differs.

    Of these ``same_groups`` have moves, changes of degree and GPU time that are equal too, where the table has them.
    """
    expected, same, same_groups = {row.request_id: row for row in theirs}, 0, 0
    differing: list[tuple[float, str]] = []
    for request, here in zip(requests, ours, strict=True):
        there = expected.get(request.request_id)
        if there is None:
            differing.append((request.arrival_ms, f"{request.request_id}: not in the table"))
        elif wrong := _differences(here, there, "start_ms", "finish_ms", "pauses"):
            start_ms = request.arrival_ms if isinf(there.start_ms) else there.start_ms
            differing.append((start_ms, f"{request.request_id}: {'; '.join(wrong)}"))
        else:
            same += 1
            same_groups += not _differences(here, there, "moves", "width_changes", "gpu_ms")
    return {
        "requests": len(requests),
        "same": same,
        "same_groups": same_groups,
        "first": min(differing)[1] if differing else "",
        "unfinished": sum(isinf(row.finish_ms) for row in ours),
        "per_cpu_s": 0.0,
    }


def _differences(here: Served, there: Served, *names: str) -> list[str]:
    pairs = ((name, getattr(here, name), getattr(there, name)) for name in names)
    return [
        f"{name} {theirs}, ours {ours}"
        for name, ours, theirs in pairs
        if theirs is not None and not isclose(ours, theirs, rel_tol=0, abs_tol=INPUTS.tolerance_ms)
    ]


def replay_printed(folder: Path) -> Iterator[dict[str, Any]]:
    """Replay the printed rows of ``folder`` that are marked as exact, and yield each comparison."""
    inner = folder / "published"
    if not (inner / "rows.csv").is_file():
        return
    costs, stages = read_costs(inner)
    for row in read_rows(inner / "rows.csv", PrintedRow):
        words = overrides(row.policy, costs)
        if row.rebuilt.startswith("exact") and words is not None:
            requests = read_rows(inner / f"workload_{row.workload}.csv", Request)
            served, _ = serve(requests, [*words, *INPUTS.published], costs, stages)
            printed = {name: text for name in PRINTED if (text := getattr(row, name))}
            ours = _as_printed(printed, requests, served)
            yield {"workload": row.workload, "policy": row.policy, "printed": printed, "ours": ours}


def _as_printed(printed: Results, requests: Sequence[Request], served: Sequence[Served]) -> dict[str, str]:
    """Return our values of what is printed, to as many digits."""
    finish = np.array([row.finish_ms for row in served])
    arrival, deadline = np.array([(request.arrival_ms, request.deadline_ms) for request in requests]).T
    classes = np.array([request.size_class for request in requests])
    values = {"makespan_s": finish.max() / 1000}
    for name in INPUTS.priorities:
        of_class = classes == name
        if of_class.any():
            values[f"{name}_met_pct"] = 100 * (finish <= deadline)[of_class].mean()
            values[f"{name}_p95_s"] = np.percentile((finish - arrival)[of_class], 95) / 1000
    return {name: f"{values[name]:.{len(text.partition('.')[2])}f}" for name, text in printed.items()}


def comparisons(facts: Results) -> dict[str, Comparison]:
    """Compare every table and every printed row of the JSON file."""
    rows = {}
    for table in compared(facts):
        ours = f"{table['same']} equal" + (f"; first {table['first']}" if table["first"] else "")
        rows[f"{table['workload']} {table['policy']}"] = Comparison(
            f"{table['requests']} requests equal", ours, table["same"] == table["requests"]
        )
    for row in facts["published"]:
        printed, ours = (", ".join(f"{name} {text}" for name, text in row[of].items()) for of in ("printed", "ours"))
        rows[f"published {row['workload']} {row['policy']}"] = Comparison(printed, ours, printed == ours)
    return rows


def compared(facts: Results) -> list[Any]:
    """Return the tables that were replayed."""
    return [table for table in facts["tables"] if not table["skipped"]]


def tally(facts: Results) -> str:
    """Return the counts of equal tables and rows in a line."""
    tables, rows = compared(facts), facts["published"]
    equal = sum(table["same"] == table["requests"] for table in tables)
    same, requests = (sum(table[name] for table in tables) for name in ("same", "requests"))
    exact = sum(row["printed"] == row["ours"] for row in rows)
    line = f"{equal} of {len(tables)} tables equal, {same} of {requests} requests"
    return f"{line}; {exact} of {len(rows)} printed rows equal" if rows else line


@house_style()
def draw(facts: Results) -> dict[str, Figure]:
    """Draw the requests per CPU-second of every policy, ours and GF-DiT's own."""
    speeds: dict[str, list[float]] = {}
    for table in compared(facts):
        speeds.setdefault(table["policy"], []).append(table["per_cpu_s"])
    names = sorted(speeds, key=lambda name: median(speeds[name]))
    figure, ((axes,),) = panels(1, width=8.0, height=1.4 + 0.24 * len(names))
    ours = [(speed, row) for row, name in enumerate(names) for speed in speeds[name]]
    known = INPUTS.theirs_per_cpu_s
    theirs = [(known[name], row) for row, name in enumerate(names) if name in known]
    for points, marker, colour, label in ((ours, "o", COLOURS[0], "Mezzotint"), (theirs, "D", INK, "GF-DiT")):
        axes.plot(*np.array(points).reshape(-1, 2).T, marker, color=colour, markersize=5, label=label)
    axes.set(xscale="log", xlabel="requests of 50 steps per CPU-second", yticks=range(len(names)), yticklabels=names)
    axes.xaxis.set_major_formatter(plain_numbers())
    axes.legend(loc="lower right")
    return {"": figure}


def values(facts: Results) -> Results:
    """Return the replayed tables, and what the page counts."""
    return {"tables": compared(facts), "tally": tally(facts), "theirs": INPUTS.theirs_per_cpu_s}


STUDY = Study("elastic", comparisons, draw, values)
