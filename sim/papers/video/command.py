"""`mezzotint reproduce video DIR`: replay logged runs of video requests, write page, JSON and figure."""

from pathlib import Path
from typing import Annotated

import typer

from mezzotint.sim.papers.study import RESULTS, Output, committed
from mezzotint.sim.report.pages import write_study

NAME = "video"

ORACLE = "tests/oracles/wan22_npu"

SOURCE = "the authors of HpSuda/vllm-omni (benchmarks/diffusion, July 2026, Apache-2.0) on 8 Ascend 910B2"
"""Where the logs of a clone are from."""


def replay(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help=f"folder of the runs' logs, profiles and statistics [default: {ORACLE}]"),
    ] = None,
    output: Output = RESULTS,
) -> int:
    """Replay logged runs of Wan2.2 on eight NPUs, and write video.md, .json and .svg.

    DIR holds a log per run, named as 4xusp2_n50_r0.05_costdamped.csv (groups x degree, requests, requests a second,
    policy), the profiles by parallel degree, and a table of published statistics. What cannot be replayed is skipped
    and named. Without DIR, a clone of the
    repository takes the logs that it holds.

    Raises:
        ConfigError: a file cannot be read or written, no run can be replayed, or there is no DIR outside of a clone.
    """
    from mezzotint.sim.papers.video import page, results  # importing matplotlib and scipy takes a second

    if folder is None:
        folder = committed(ORACLE, "logged runs")
        print(f"{ORACLE}: measured by {SOURCE}")
    facts = results.make(folder)
    for run in facts["runs"]:
        print(page.line_of(run))
    for each in facts["skipped"]:
        print(f"skipped: {each}")
    print(f"{len(facts['runs'])} runs replayed, {len(facts['skipped'])} skipped")
    write_study(output, NAME, facts, page.render, page.draw)
    return 0
