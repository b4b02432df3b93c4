"""Traces that the runs of one process share: making or reading one may take longer than replaying it."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from mezzotint.sim.core.streams import TRACE, stream
from mezzotint.sim.engine import attribute_errors
from mezzotint.sim.run.config.build import build
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.run_key import by_content
from mezzotint.traces.sources import Source
from mezzotint.traces.table.trace import Trace, make

MAX_ROWS = 1_000_000
"""Rows of the traces that a process keeps; the last one is kept whatever its length."""


@attribute_errors({})
def shared_trace(config: Mapping[str, Any], repeats: int = 1) -> Trace:
    """Return the trace of a resolved configuration, and keep it for the next runs of this process.

    A file is read again once its content has changed. Raises what ``check`` and the source raise.

    Args:
        repeats: the requests come so many times over, for a longer run at drawn times.
    """
    kept, settings = kept_traces(), check(config)
    key = json.dumps([settings.trace, by_content(settings.trace), settings.seed, repeats], default=str)
    trace = kept.pop(key, None)
    if trace is None and repeats > 1:
        trace = repeat(shared_trace(config), repeats)
    elif trace is None:
        source: Source = build(settings.trace, "trace", Source)
        trace = source.load(stream(settings.seed, TRACE))
    kept[key] = trace  # the last used comes last
    while len(kept) > 1 and sum(map(len, kept.values())) > MAX_ROWS:
        del kept[next(iter(kept))]
    return trace


@cache
def kept_traces() -> dict[str, Trace]:
    """Return the traces that this process keeps."""
    return {}


def repeat(trace: Trace, repeats: int) -> Trace:
    """Return a trace of the same requests, ``repeats`` times over, one pass after another."""
    ids = np.char.mod("%d", np.arange(len(trace) * repeats))
    shift_s = np.repeat(np.arange(repeats) * (float(trace.arrival_s[-1]) + 1.0), len(trace))
    taken = trace.take(np.tile(np.arange(len(trace)), repeats))
    table = taken.known
    for name, values in (("request_id", ids), ("arrival_s", np.tile(trace.arrival_s, repeats) + shift_s)):
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(values))
    return make(table, name=trace.name, source=trace.source, notes=trace.notes, late=taken.late)
