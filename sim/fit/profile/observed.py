"""Size, steps and generation seconds of every request of a log, in order of arrival."""

import sys
from collections import Counter
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

KIND = ("images", "base_model", "guidance", "strength", "input_images", "controlnets", "loras")
"""Columns that tell the kind of a request's work beside its size and steps."""

SHAPE = ["width", "height", "steps", "frames"]


def observe(trace: Trace) -> pd.DataFrame:
    """Return arrival_s, width, height, steps, seconds, frames and pixels (of all frames) of requests that have them.

    A profile has the cost of one kind of request: of one image, and of the commonest model, guidance, strength, add-ons
    and input images. Says on standard error how many others are left out. Raises ConfigError for fewer than two.
    """
    names = {"arrival_s": "arrival_s", "width": "width", "height": "height", "steps": "steps", "gen_s": "seconds"}
    seen = pd.DataFrame({name: trace.column(column) for column, name in names.items()})
    seen["frames"] = np.maximum(trace.column("frames"), 1)
    seen["pixels"] = seen["width"] * seen["height"] * seen["frames"]
    known = (seen[["width", "height", "steps", "seconds"]] > 0).all(axis=1)
    said = f"{int(known.sum()):,} of {len(trace):,} requests have a size, steps and seconds (gen_s)"
    if 2 <= known.sum() < len(trace):
        print(f"mezzotint: trace {trace.name}: {said}; left out: the others", file=sys.stderr)
    if known.sum() >= 2:
        known &= _are_alike(trace, known)
    if known.sum() < 2:
        lacking = [name for name in ("width", "height", "steps", "gen_s") if not trace.has(name)]
        lacks = f"; none has {', '.join(lacking)}" if lacking else ""
        raise ConfigError(f"trace {trace.name}: {said}{lacks}, expected 2 or more of one kind; take a log with them")
    return seen[known]


def _are_alike(trace: Trace, known: pd.Series) -> pd.Series:
    """Return which of the ``known`` requests are of one image, and else of the commonest kind."""
    alike, left_out = known.copy(), []
    for name in KIND:
        if trace.has(name) and alike.any():
            cells = _deciding(name, trace.table.column(name).to_pandas())
            usual = 1 if name == "images" else Counter(cells[alike]).most_common(1)[0][0]
            if others := int((alike & (cells != usual)).sum()):
                left_out.append(f"{others:,} of {'several images' if name == 'images' else f'other {name}'}")
                alike &= cells == usual
    if left_out:
        said = f"{int(alike.sum()):,} of {int(known.sum()):,} requests are of one kind; left out: {', '.join(left_out)}"
        print(f"mezzotint: trace {trace.name}: {said}", file=sys.stderr)
    return alike


def _deciding(name: str, cells: pd.Series) -> pd.Series:
    """Return a column without nulls, as far as it decides the work: of a guidance scale, whether it is above 1."""
    if name == "guidance":
        cells = (cells > 1.0).where(cells.notna())
    elif name in ("controlnets", "loras"):
        cells = cells.map(lambda names: "+".join(sorted(names)), na_action="ignore")
    return cells.astype(object).where(cells.notna(), 1 if name == "images" else "")


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

    Raises TraceError for a result of aggregates alone, or with too few quiet requests.
    """
    trace = open_result(path)
    if isinstance(trace, dict):
        raise TraceError(f"{path}: has aggregates alone, expected the requests; run the client so that it lists them")
    latency_s = trace.column("latency_s")
    is_quiet = quiet(trace.arrival_s, latency_s)
    if is_quiet.sum() < FEWEST_QUIET:
        raise TraceError(
            f"{path}: {int(is_quiet.sum())} of {len(trace)} requests began when no other was in flight, expected"
            f" {FEWEST_QUIET} or more to fit to; measure at a lower rate too"
        )
    table = trace.table.drop_columns("gen_s").append_column("gen_s", pa.array(latency_s, mask=~is_quiet))
    source = f"{trace.source}, {int(is_quiet.sum())} requests that began when no other was in flight"
    return make(table, name=trace.name, source=source, notes=trace.notes, where=str(path))
