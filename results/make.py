"""Write the pages and figures of this folder anew from the numbers in its JSON files: ``python -m results.make``.

It takes seconds. The numbers take up to hours: each page names the command that makes them. The figure of workload.md
needs a log that is not part of this project, and is left as it is.
"""

import json
import sys
from pathlib import Path

from mezzotint.sim.papers.addons import STUDY as ADDONS
from mezzotint.sim.papers.autoscaling.study import STUDY as AUTOSCALING
from mezzotint.sim.papers.cascade import STUDY as CASCADE
from mezzotint.sim.papers.compositions import STUDY as COMPOSITIONS
from mezzotint.sim.papers.disaggregated import STUDY as DISAGGREGATED
from mezzotint.sim.papers.elastic.study import STUDY as ELASTIC
from mezzotint.sim.papers.fleets import STUDY as FLEETS
from mezzotint.sim.papers.hardware.study import STUDY as HARDWARE
from mezzotint.sim.papers.scaling import STUDY as SCALING
from mezzotint.sim.papers.scorecard import scorecard
from mezzotint.sim.papers.scorecard.rows import read_columns
from mezzotint.sim.papers.scorecard.study import load_study
from mezzotint.sim.papers.stages import STUDY as STAGES
from mezzotint.sim.papers.video.study import STUDY as VIDEO

FOLDER = Path(__file__).parent

STUDIES = (ADDONS, AUTOSCALING, CASCADE, COMPOSITIONS, DISAGGREGATED, ELASTIC, FLEETS, HARDWARE, SCALING, STAGES, VIDEO)


def make(folder: Path) -> None:
    """Write all pages, their data and their figures in ``folder``."""
    for study in STUDIES:
        study.write(json.loads((FOLDER / f"{study.name}.json").read_text(encoding="utf-8")), folder)
    scorecard.write(read_columns(FOLDER / "scorecard.json"), load_study(None, quick=False), folder, "scorecard")


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
