"""Pairing: a synthetic trace of the prompts of one trace and the arrivals and models of another."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mezzotint.traces.error import TraceError
from mezzotint.traces.table.columns import SCHEMA
from mezzotint.traces.table.trace import Trace, make

TAKEN = {
    "arrivals": "arrival_s",
    "users": "user_id",
    "steps": "steps",
    "images": "images",
    "base_model": "base_model",
    "controlnets": "controlnets",
    "loras": "loras",
    "deadlines": "slo_s",
    "priority": "priority",
}
"""Name of what can be taken from the second trace -> its column."""

USUAL = ("arrivals", "base_model", "controlnets", "loras")
"""Columns taken by default, if the second trace has them."""

Rows = npt.NDArray[np.int64]


def pair(
    prompts: Trace, arrivals: Trace, *, take: Sequence[str] | None = None, repeat: bool = False, name: str | None = None
) -> Trace:
    """Combine the requests of two traces in order, the first with the first and so on.

    Columns not named by `take` come from `prompts`. The two traces are unrelated, so the result is marked as synthetic,
    and its notes name the origin of the columns.

    Args:
        take: columns from `arrivals`, some of `TAKEN`; None takes the columns of `USUAL` that it has.
        repeat: repeat the shorter trace; otherwise it decides the number of requests. Repeated arrivals go on one mean
            gap after the last. Repeated requests get "#2", "#3" and so on behind their names.
        name: name of the result in reports; None is both names.

    Raises:
        TraceError: `take` is empty, or names a column twice, an unknown column, or one that is all null in `arrivals`;
            arrivals to be repeated are all at one time.
    """
    taken = _columns_to_take(arrivals, take)
    count = (max if repeat else min)(len(prompts), len(arrivals))
    row, other = np.arange(count) % len(prompts), np.arange(count) % len(arrivals)
    columns = dict(zip(SCHEMA.names, prompts.table.take(row).columns, strict=True))
    columns |= dict(zip(taken, arrivals.table.select(taken).take(other).columns, strict=True))
    del columns["gen_s"]  # no service generated these pairs
    timed = arrivals if "arrival_s" in taken else prompts
    columns["arrival_s"] = _repeated_times(timed, count)
    columns["request_id"] = _repeated_names(columns["request_id"], np.arange(count) // len(prompts))
    traces = {"prompts": _about(prompts), "arrivals": _about(arrivals)}
    notes: dict[str, Any] = {"synthetic": True, "pairing": {**traces, "columns_of_arrivals": taken, "repeat": repeat}}
    if "arrival_s" in timed.notes:
        notes["arrival_s"] = timed.notes["arrival_s"]
    return make(
        columns,
        name=name or f"{prompts.name}+{arrivals.name}",
        source=f"synthetic pairing: {prompts.source}; with {', '.join(taken)} of {arrivals.source}",
        notes=notes,
        where=f"pairing of {prompts.name} and {arrivals.name}",
    )


def _columns_to_take(arrivals: Trace, take: Sequence[str] | None) -> list[str]:
    """Return the columns to take, in the order of `SCHEMA`."""
    empty = {what for what, column in TAKEN.items() if arrivals.table.column(column).null_count == len(arrivals)}
    wanted = [what for what in USUAL if what not in empty] if take is None else list(take)
    for what in wanted:
        if what not in TAKEN:
            raise TraceError(f"pairing: cannot take {what!r}, expected some of {', '.join(TAKEN)}")
        if what in empty:
            raise TraceError(
                f"pairing: cannot take {what}, trace {arrivals.name} has no value in its column {TAKEN[what]}; leave it"
                " out, or name another trace"
            )
    if not wanted or len(set(wanted)) != len(wanted):
        raise TraceError(f"pairing: take={','.join(wanted)!r}, expected some of {', '.join(TAKEN)}, each once")
    return sorted((TAKEN[what] for what in wanted), key=SCHEMA.get_field_index)


def _repeated_times(trace: Trace, count: int) -> npt.NDArray[np.float64]:
    """Return the first `count` arrivals of the trace repeated without end, (count,) seconds."""
    own = trace.arrival_s
    if count <= len(own):
        return own[:count]
    if not trace.span_s > 0:
        raise TraceError(
            f"pairing: the arrivals of {trace.name} are all at one time and cannot be repeated; leave out --repeat"
        )
    period_s = trace.span_s * len(own) / (len(own) - 1)
    turn, row = np.divmod(np.arange(count), len(own))
    return np.maximum.accumulate(own[row] + turn * period_s)  # rounding may put a turn before its predecessor


def _repeated_names(names: pa.ChunkedArray, turn: Rows) -> pa.ChunkedArray:
    if not turn.any():
        return names
    marks = pc.binary_join_element_wise(names, pa.array(turn + 1).cast(pa.string()), "#")
    return pc.if_else(pa.array(turn > 0), marks, names)


def _about(trace: Trace) -> dict[str, Any]:
    about = {key: getattr(trace, key) for key in ("name", "source", "digest")}
    return {**about, "requests": len(trace), "notes": trace.notes}
