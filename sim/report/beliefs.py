"""Estimates of schedulers beside the seconds that the GPUs took (``executor=stages``)."""

from collections.abc import Sequence

import pandas as pd

from mezzotint.backends.base import size_text
from mezzotint.sim.core.run_folder import REQUESTS
from mezzotint.sim.report.compare import cells
from mezzotint.sim.report.labels import natural
from mezzotint.sim.report.runs import Run, read_measured

NEEDED = ("arrival_s", "outcome", "width", "height", "estimate_s", "denoise_s", "decode_s")


def beliefs(runs: Sequence[Run]) -> pd.DataFrame:
    """Return what was believed of each size, by series and load; an empty frame for runs without estimates.

    Returns:
        Columns series, load, size, requests, estimate_s, cost_s and ratio. A size is WIDTHxHEIGHT, of a video
        WIDTHxHEIGHTxFRAMES. The scheduler believed a completed request to take estimate_s on its GPUs, and it took
        cost_s (means in seconds); ratio is believed over true.
    """
    parts = []
    for cell in sorted(cells(runs), key=lambda cell: (natural(cell.series), cell.load.order)):
        tables = [_requests(run) for run in cell.runs if _has_estimates(run)]
        if tables:
            sizes = pd.concat(tables).groupby("size")
            means = sizes.mean().assign(series=cell.series, load=cell.load.label, requests=sizes.size())
            parts.append(means.sort_values("cost_s").reset_index())
    rows = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["estimate_s", "cost_s"])
    return rows.assign(ratio=rows.estimate_s / rows.cost_s)


def _has_estimates(run: Run) -> bool:
    return bool(run.config.get("estimates._target_")) and (run.path / REQUESTS).is_file()


def _requests(run: Run) -> pd.DataFrame:
    """Return size, estimate and cost [s] of the completed requests."""
    rows = read_measured(run, NEEDED, ("frames",))
    rows = rows[rows.outcome == "completed"]
    frames = rows.frames.fillna(1) if "frames" in rows else pd.Series(1, rows.index)
    shapes = zip(rows.width, rows.height, frames, strict=True)
    sizes = [size_text(int(width), int(height), int(count)) for width, height, count in shapes]
    return pd.DataFrame({"size": sizes, "estimate_s": rows.estimate_s, "cost_s": rows.denoise_s + rows.decode_s})
