"""What the tenants of runs waited, where some run tells them apart."""

from collections.abc import Sequence

import pandas as pd

from mezzotint.sim.core.tenant import USER
from mezzotint.sim.report.compare import cells
from mezzotint.sim.report.labels import natural
from mezzotint.sim.report.runs import Run

NO_USER = "(no user)"


def tenants(runs: Sequence[Run]) -> pd.DataFrame:
    """Return the tenants that the summaries name, of the first seed of each series and load.

    Returns:
        Columns series, load, user_id, requests, discarded, gpu_s, slowdown, p50, p95 and p99 (latencies in seconds);
        empty if every run serves the tenants alike.
    """
    if not any(USER in (run.summary["trace"] or {}).get("columns", {}).get("used", ()) for run in runs):
        return pd.DataFrame(columns=["series", "load"])
    rows = [
        {"series": cell.series, "load": cell.load.label, "user_id": row["user_id"] or NO_USER}
        | {"requests": row["requests"], "discarded": row["discarded_by_limit"]}
        | {"gpu_s": row["gpu_s"], "slowdown": row["slowdown"], **row["latency_s"]}
        for cell in sorted(cells(runs), key=lambda cell: (natural(cell.series), cell.load.order))
        for row in cell.runs[0].summary.get("tenants", {}).get("rows", ())
    ]
    return pd.DataFrame(rows, columns=None if rows else ["series", "load"])
