"""`mezzotint reproduce video DIR`: replay logged runs of video requests, write page, JSON and figure."""

from pathlib import Path
from typing import Annotated

import typer

from sim.papers.scorecard.options import RESULTS, Output
from sim.report.pages import write_page

NAME = "video"


def replay(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="folder of the runs' logs, profiles and statistics")],
    output: Output = RESULTS,
) -> int:
    """Replay logged runs of Wan2.2 on eight NPUs, and write video.md, .json and .png.

    DIR holds a log per run, named as 4xusp2_n50_r0.05_costdamped.csv (groups x degree, requests, requests a second,
    policy), the profiles by parallel degree, and a table of published statistics.

    Raises:
        ConfigError: a file cannot be read or written, or a run cannot be replayed.
    """
    from sim.papers.video import page, results  # importing matplotlib and scipy takes a second

    facts = results.make(folder)
    for run in facts["runs"]:
        print(page.line_of(run))
    image = f"{NAME}.png"
    write_page(output, NAME, facts, page.render(facts, image), {image: page.draw(facts)})
    return 0
