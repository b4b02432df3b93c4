"""Measures of TetriServe's evaluation (section 6) that no formula states."""

from typing import Any

import numpy as np

from mezzotint.sim.papers.runs import Runs
from mezzotint.sim.papers.scorecard.measures.formulas import Formula

MIN_LEAD = 0.005
"""Smallest difference of the shares in time that counts: one or two requests of a run."""


def full_system_is_best(runs: Runs) -> bool:
    """Return True if no variant of Table 5 has a larger share than the full system, and the schedule a smaller one."""
    deadlines = sorted({run.point.choices["slo_by_size"] for run in runs})

    def late(placement: str, scale_up: str) -> Any:
        shares = Formula(
            value="slo.own.violation_rate",
            of={"placement": placement, "scale_up": scale_up},
            by={"trace": ["tetriserve-uniform", "tetriserve-skewed"], "slo_by_size": [*deadlines]},
        )
        return np.array(shares(runs))

    schedule, placement, full = late("False", "False"), late("True", "False"), late("True", "True")
    return bool((full <= np.minimum(schedule, placement)).all() and (full < schedule - MIN_LEAD).all())
