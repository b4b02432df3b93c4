"""`mezzotint reproduce hardware`: replay, compare, write the page, the JSON and the figure."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from mezzotint.sim.papers.study import LOST, RESULTS, Check, Jobs, Output, Quick, RunsOn, read_committed, report_lost
from mezzotint.sim.report.pages import write_study

NAME = "hardware"

OWN = "of your own, a CSV as in conf/data, instead of all packaged ones"


def replay(
    runs: Annotated[Path | None, typer.Option(metavar="FILE", help=f"MLPerf SDXL server runs {OWN}")] = None,
    routing: Annotated[Path | None, typer.Option(metavar="FILE", help=f"runs of vLLM-Omni's mixes {OWN}")] = None,
    quick: Quick = False,
    check: Check = False,
    jobs: Jobs = 1,
    launcher: RunsOn = "joblib",
    output: Output = RESULTS,
) -> int:
    """Replay published runs of real machines, and write hardware.md, .json and .svg.

    Raises:
        ConfigError: a file cannot be read or written, or a row cannot be replayed.
    """
    from mezzotint.sim.papers.hardware import page, results  # importing matplotlib and scipy takes a second
    from mezzotint.sim.papers.hardware.rows import packaged_file, routed, submissions

    own = runs is not None or routing is not None
    before = read_committed(output / f"{NAME}.json", results.comparisons) if check and not own else {}
    served = packaged_file("mlperf-sdxl-server.csv") if not own else runs
    routes = packaged_file("llmd-routing.csv") if not own else routing
    facts = results.make(
        [] if served is None else submissions(served),
        [] if routes is None else routed(routes),
        quick=quick,
        with_sensitivity=not check,
        jobs=jobs,
        launcher=launcher,
    )
    print(page.tally(facts))
    if check:
        now = results.comparisons(facts)
        if own:  # no verdicts are committed: every routed run must be within tolerance
            now = results.route_comparisons(facts)
            before = {row: replace(each, within_tolerance=True) for row, each in now.items()}
        elif quick:
            before = {row: each for row, each in before.items() if row in now}
        status = report_lost(before, now)
        error = facts["errors"]["p99"]["median"]
        if error is not None and error > results.LIMIT:
            wrong = f"the median error of p99 is {error:.2%}, expected at most {results.LIMIT:.0%}"
            print(f"mezzotint: {wrong}", file=sys.stderr)
            return LOST
        return status
    write_study(output, f"{NAME}-quick" if quick else NAME, facts, page.render, page.draw)
    return 0
