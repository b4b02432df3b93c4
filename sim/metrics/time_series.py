"""Time series of the cluster: the table of cluster.parquet."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mezzotint.sim.core.plan import HIT, LOOKUPS, NO_DATABASE, NO_STORE
from mezzotint.sim.metrics.recorder import RunRecord
from mezzotint.sim.metrics.request_columns import RequestColumns

SERVICES = ("database_up", "store_up")
"""Columns of every cluster.parquet; null if no part declares the gauge."""


def series(record: RunRecord) -> pa.Table:
    """Return a row for every sampling instant from the first arrival on; an idle pause is one row.

    A row stands for ``seconds``: until the next row, or until the last request ends. ``busy`` counts busy GPUs.
    ``lookups``, ``hits`` and ``fallbacks`` (a service was down) count requests that have arrived. The gauges declared
    by the run's parts follow.
    """
    gauges = {name: gauge.values for name, gauge in record.gauges.items()}
    arrived = np.array(gauges.pop("arrived", []), np.int64)
    in_system = np.array(gauges.pop("in_system", []), np.int64)
    found = np.arange(len(LOOKUPS))
    counted = {"lookups": found > 0, "hits": found == HIT, "fallbacks": np.isin(found, (NO_DATABASE, NO_STORE))}
    sampled_s = np.frombuffer(record.sampled_s)
    record.release()
    end_s = record.request_columns["finish_s"].max(initial=0.0)
    up = {name: pa.array(gauges.pop(name, [None] * len(arrived)), pa.bool_()) for name in SERVICES}
    return pa.table(
        {
            "time_s": pa.array(sampled_s),
            "seconds": pa.array(np.diff(sampled_s, append=max(end_s, sampled_s[-1])) if len(sampled_s) else sampled_s),
            "arrived": pa.array(arrived),
            "ended": pa.array(arrived - in_system),
            "in_system": pa.array(in_system),
            "queued": pa.array(gauges.pop("queued", []), pa.int64()),
            "busy": pa.array(gauges.pop("busy", []), pa.int64()),
            **{name: pa.array(_counts(record.request_columns, arrived, of)) for name, of in counted.items()},
            **up,
            **{name: pa.array(values) for name, values in gauges.items()},
        }
    )


def _counts(columns: RequestColumns, arrived: NDArray[np.int64], of: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return how many of the first ``arrived`` requests, (n,) that never fall, have one of the outcomes ``of`` a
    lookup."""
    counts, total = np.zeros(len(arrived), np.int64), 0
    for block in columns.blocks():
        flags, begin = of[block["lookup"]], block.first - columns.first
        inside = slice(*np.searchsorted(arrived, (begin, begin + len(block)), "right"))
        so_far = np.append(total, total + np.cumsum(flags))
        # The rows after this block have at least as many, and are written again with the next one.
        counts[inside] = so_far[arrived[inside] - begin]
        total = int(so_far[-1])
        counts[inside.stop :] = total
    return counts
