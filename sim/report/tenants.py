"""Latencies of the tenants of runs, where some run tells tenants apart."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from mezzotint.sim.core.run_folder import REQUESTS
from mezzotint.sim.core.tenant import USER
from mezzotint.sim.report.compare import cells
from mezzotint.sim.report.labels import natural
from mezzotint.sim.report.runs import Floats, Run, read_measured

NAMELESS = "(no user)"
"""Tenant of the requests without a user."""


def tenants(runs: Sequence[Run]) -> pd.DataFrame:
    """Return the tenants that the summaries name, of the first seed of each series and load.

    Returns:
        Columns series, load, user_id, requests, discarded, gpu_s, slowdown, p50, p95 and p99 (latencies in seconds);
        empty if every run serves the tenants alike.
    """
    if not are_told_apart(runs):
        return pd.DataFrame(columns=["series", "load"])
    rows = [
        {"series": cell.series, "load": cell.load.label, "user_id": row["user_id"] or NAMELESS}
        | {"requests": row["requests"], "discarded": row["discarded_by_limit"]}
        | {"gpu_s": row["gpu_s"], "slowdown": row["slowdown"], **row["latency_s"]}
        for cell in sorted(cells(runs), key=lambda cell: (natural(cell.series), cell.load.order))
        for row in cell.runs[0].summary.get("tenants", {}).get("rows", ())
    ]
    return pd.DataFrame(rows, columns=None if rows else ["series", "load"])


def are_told_apart(runs: Sequence[Run]) -> bool:
    """Return True if some run does not serve its tenants alike."""
    return any(USER in (run.summary["trace"] or {}).get("columns", {}).get("used", ()) for run in runs)


def tail_latencies(run: Run) -> Floats | None:
    """Return the p95 of the latency (s) of every tenant with a completed request, rising; None if it is not known."""
    if not (run.path / REQUESTS).is_file():
        return None
    rows = read_measured(run, ("arrival_s", "finish_s", "outcome"), (USER,))
    if USER not in rows:
        return None
    rows = rows[rows.outcome == "completed"]
    users = rows[USER].fillna(NAMELESS)
    return np.sort((rows.finish_s - rows.arrival_s).groupby(users).quantile(0.95).to_numpy())
