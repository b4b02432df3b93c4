"""The cluster over time: the table of cluster.parquet."""

import numpy as np
import pyarrow as pa

from sim.core.request import HIT, NO_DATABASE, NO_STORE
from sim.metrics.recorder import Record

SERVICES = ("database_up", "store_up")
"""Columns that every cluster.parquet has; null where no part declares such a gauge."""


def series(record: Record) -> pa.Table:
    """A row for every sampling instant from the first arrival on; a pause in which nothing happens is one row.

    A row stands for ``seconds``: until the next one, or until the last request ends. ``busy`` are GPUs at work;
    ``lookups``, ``hits`` and ``fallbacks`` (a service was down) are of the requests that arrived so far. Whatever
    gauges the run's parts declared follow.
    """
    gauges = {name: gauge.values for name, gauge in record.gauges.items()}
    arrived = np.array(gauges.pop("arrived", []), np.int64)
    in_system = np.array(gauges.pop("in_system", []), np.int64)
    lookup = record.request_columns["lookup"]
    so_far = {"lookups": lookup > 0, "hits": lookup == HIT, "fallbacks": np.isin(lookup, (NO_DATABASE, NO_STORE))}
    sampled_s = np.frombuffer(record.sampled_s)
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
            **{name: pa.array(np.append(0, np.cumsum(those))[arrived]) for name, those in so_far.items()},
            **up,
            **{name: pa.array(values) for name, values in gauges.items()},
        }
    )
