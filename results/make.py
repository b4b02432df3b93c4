"""Write the pages and figures of this folder anew from the numbers in its JSON files: ``python -m results.make``.

It takes seconds. The numbers take up to hours: each page names the command that makes them. The figure of workload.md
needs a log that is not part of this project, and is left as it is.
"""

import json
import sys
from pathlib import Path
from types import ModuleType

from mezzotint.sim.papers.addons import page as addons
from mezzotint.sim.papers.apart import page as apart
from mezzotint.sim.papers.autoscaling import page as autoscaling
from mezzotint.sim.papers.cascade import STUDY as CASCADE
from mezzotint.sim.papers.compositions import page as compositions
from mezzotint.sim.papers.elastic import page as elastic
from mezzotint.sim.papers.hardware import page as hardware
from mezzotint.sim.papers.scorecard import scorecard
from mezzotint.sim.papers.scorecard.rows import read_columns
from mezzotint.sim.papers.stages import page as stages
from mezzotint.sim.papers.video import page as video
from mezzotint.sim.report.pages import write_page, write_study

FOLDER = Path(__file__).parent

STUDIES = (CASCADE,)

ONE_FIGURE: dict[str, ModuleType] = {
    "apart": apart,
    "autoscaling": autoscaling,
    "compositions": compositions,
    "elastic": elastic,
    "hardware": hardware,
    "video": video,
}
"""Modules with ``render`` and ``draw``, by the name of the study's files."""


def make(folder: Path) -> None:
    """Write all pages, their data and their figures in ``folder``."""
    for study in STUDIES:
        study.write(_facts(study.name), folder)
    for name, page in ONE_FIGURE.items():
        write_study(folder, name, _facts(name), page.render, page.draw)
    addons.write(folder, "addons", _facts("addons"))
    write_page(folder, "swiftdiffusion", (facts := _facts("swiftdiffusion")), stages.render(facts), {})
    scorecard.write(read_columns(FOLDER / "scorecard.json"), "in full", folder, "scorecard")


def _facts(name: str) -> dict[str, object]:
    facts: dict[str, object] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return facts


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
