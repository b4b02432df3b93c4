"""`mezzotint reproduce elastic`: GF-DiT's reference tables, replayed and compared request by request."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from mezzotint.sim.papers.study import RESULTS, Check, Output, committed, read_committed, report_lost
from mezzotint.sim.report.pages import write_study

NAME = "elastic"

ORACLE = "tests/oracles/gf_dit"

SOURCE = "GF-DiT's policy simulator (SJTU-Liquid/GF-DiT at 442531e4, Apache-2.0), run unmodified"
"""Where the tables of a clone are from."""


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
    from mezzotint.sim.papers.elastic import page, replay  # importing the simulator and matplotlib takes a second

    if folder is None:
        folder = committed(ORACLE, "reference tables")
        print(f"{ORACLE}: made by {SOURCE}")
    before = read_committed(output / f"{NAME}.json", replay.comparisons) if check else {}
    tables, rows = [], []
    for table in replay.tables(folder):
        print(page.line_of(asdict(table)))
        tables.append(asdict(table))
    for row in replay.published_rows(folder):
        print(page.line_of_row(asdict(row)))
        rows.append(asdict(row))
    facts = {"tables": tables, "published": rows}
    print(page.tally(facts))
    if check:
        return report_lost(before, replay.comparisons(facts))
    write_study(output, NAME, facts, page.render, page.draw)
    return 0
