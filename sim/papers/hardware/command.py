"""`mezzotint scorecard hardware`: replay, compare, write the page, the JSON and the figure."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from sim.papers.scorecard.options import RESULTS, Check, Jobs, Output, Quick
from sim.papers.verdicts import LOST, checked, committed
from sim.report.pages import write_page

NAME = "hardware"

OWN = "of your own, a CSV as conf/data has, in the place of all shipped ones"


def replay(
    runs: Annotated[Path | None, typer.Option(metavar="FILE", help=f"MLPerf SDXL server runs {OWN}")] = None,
    routing: Annotated[Path | None, typer.Option(metavar="FILE", help=f"runs of vLLM-Omni's mixes {OWN}")] = None,
    quick: Quick = False,
    check: Check = False,
    jobs: Jobs = 1,
    output: Output = RESULTS,
) -> int:
    """Replay published runs of real machines, and write hardware.md, .json and .png.

    Raises:
        ConfigError: a file that cannot be read or written, a row that cannot be replayed.
    """
    from sim.papers.hardware import card, page  # what draws and fits takes a second to import
    from sim.papers.hardware.rows import routed, shipped, submissions

    own = runs is not None or routing is not None
    before = committed(output / f"{NAME}.json", card.judged) if check and not own else {}
    served = shipped("mlperf-sdxl-server.csv") if not own else runs
    routes = shipped("llmd-routing.csv") if not own else routing
    facts = card.make(
        [] if served is None else submissions(served),
        [] if routes is None else routed(routes),
        quick=quick,
        moved=not check,
        jobs=jobs,
    )
    print(page.tally(facts))
    if check:
        now = card.judged(facts)
        if own:  # nothing is committed of them: every routed run has to hold
            now = card.judged_routes(facts)
            before = {row: replace(each, held=True) for row, each in now.items()}
        elif quick:
            before = {row: each for row, each in before.items() if row in now}
        status = checked(before, now)
        error = facts["errors"]["p99"]["median"]
        if error is not None and error > card.LIMIT:
            far = f"the median error of p99 is {error:.2%}, expected at most {card.LIMIT:.0%}"
            print(f"mezzotint: {far}", file=sys.stderr)
            return LOST
        return status
    name = f"{NAME}-quick" if quick else NAME
    figure, image = page.draw(facts), f"{name}.png"
    write_page(output, name, facts, page.render(facts, image if figure else None), {image: figure})
    return 0
