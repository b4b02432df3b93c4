"""Size, steps and generation seconds of every request of a log, in order of arrival."""

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.fit.measured.statistics import quiet
from mezzotint.traces.error import TraceError
from mezzotint.traces.sources.result import open_result
from mezzotint.traces.table.trace import Trace, make

FEWEST_QUIET = 3
"""Fewest quiet requests for the median of a size and number of steps: a result of a benchmark has few of them."""

SHAPE = ["width", "height", "steps", "frames"]


def observe(trace: Trace) -> pd.DataFrame:
    """Return arrival_s, width, height, steps, seconds, frames and pixels (of all frames) of requests that have them.

    Raises ConfigError for fewer than two.
    """
    names = {"arrival_s": "arrival_s", "width": "width", "height": "height", "steps": "steps", "gen_s": "seconds"}
    seen = pd.DataFrame({name: trace.column(column) for column, name in names.items()})
    seen["frames"] = np.maximum(trace.column("frames"), 1)
    seen["pixels"] = seen["width"] * seen["height"] * seen["frames"]
    known = (seen[["width", "height", "steps", "seconds"]] > 0).all(axis=1)
    if known.sum() < 2:
        raise ConfigError(
            f"trace {trace.name}: {int(known.sum())} of {len(trace)} requests have a size, steps and seconds, "
            "expected 2 or more; take a trace with generation seconds (mezzotint trace import sd-beta)"
        )
    return seen[known]


def period(seen: pd.DataFrame, begins: datetime | None) -> str:
    """Return the times of the first and last request in words: dates, or hours of the trace without ``begins``."""
    ends_s = seen["arrival_s"].iloc[[0, -1]].tolist()
    if begins is None:
        first, last = (f"{seconds / 3600:.1f}" for seconds in ends_s)
        return f"hours {first} to {last} of the trace"
    first, last = (f"{begins + timedelta(seconds=seconds):%Y-%m-%d %H:%M}" for seconds in ends_s)
    return f"{first} to {last}"


def first_arrival(trace: Trace) -> datetime | None:
    """Return the time of the first request from the trace's notes; None if they lack it."""
    try:
        return datetime.fromisoformat(trace.notes.get("first_arrival"))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


def quiet_seconds(path: Path) -> Trace:
    """Return the requests of a benchmark's result; gen_s is the latency of the quiet ones, and null in the others.

    Raises TraceError for a result of aggregates alone, or without a quiet request.
    """
    trace = open_result(path)
    if isinstance(trace, dict):
        raise TraceError(f"{path}: has aggregates alone, expected the requests; run the client so that it lists them")
    latency_s = trace.column("latency_s")
    is_quiet = quiet(trace.arrival_s, latency_s)
    table = trace.table.drop_columns("gen_s").append_column("gen_s", pa.array(latency_s, mask=~is_quiet))
    source = f"{trace.source}, {int(is_quiet.sum())} requests that began when no other was in flight"
    return make(table, name=trace.name, source=source, notes=trace.notes, where=str(path))
