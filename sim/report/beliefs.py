"""Estimates of schedulers beside the seconds that the GPUs took (``scheduler=stages``)."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from mezzotint.backends.base import size_text
from mezzotint.sim.core.run_folder import REQUESTS
from mezzotint.sim.report.compare import cells
from mezzotint.sim.report.labels import natural
from mezzotint.sim.report.runs import Run, measured

NEEDED = ("arrival_s", "outcome", "width", "height", "estimate_s", "denoise_s", "decode_s")


@dataclass(frozen=True, slots=True)
class Belief:
    """The completed requests of one size in one series at one load.

    Attributes:
        size: WIDTHxHEIGHT, of a video WIDTHxHEIGHTxFRAMES.
        requests: their number.
        estimate_s: mean seconds that the scheduler believed a request to take on its GPUs.
        cost_s: mean seconds that it took.
    """

    series: str
    load: str
    size: str
    requests: int
    estimate_s: float
    cost_s: float

    @property
    def ratio(self) -> float:
        """Believed over true seconds."""
        return self.estimate_s / self.cost_s


def beliefs(runs: Sequence[Run]) -> list[Belief]:
    """Return what was believed of each size, by series and load; nothing of runs without estimates."""
    found = []
    for cell in sorted(cells(runs), key=lambda cell: (natural(cell.series), cell.load.order)):
        tables = [_requests(run) for run in cell.runs if _has_estimates(run)]
        if tables:
            for size, rows in pd.concat(tables).groupby("size", sort=False):
                means = rows[["estimate_s", "cost_s"]].mean()
                found.append(
                    Belief(cell.series, cell.load.label, str(size), len(rows), means["estimate_s"], means["cost_s"])
                )
    return sorted(found, key=lambda each: (natural(each.series), natural(each.load), each.cost_s))


def _has_estimates(run: Run) -> bool:
    return bool(run.config.get("estimates._target_")) and (run.path / REQUESTS).is_file()


def _requests(run: Run) -> pd.DataFrame:
    """Return size, estimate and cost [s] of the completed requests."""
    rows = measured(run, NEEDED, ("frames",))
    rows = rows[rows.outcome == "completed"]
    frames = rows.frames.fillna(1) if "frames" in rows else pd.Series(1, rows.index)
    shapes = zip(rows.width, rows.height, frames, strict=True)
    sizes = [size_text(int(width), int(height), int(count)) for width, height, count in shapes]
    return pd.DataFrame({"size": sizes, "estimate_s": rows.estimate_s, "cost_s": rows.denoise_s + rows.decode_s})
