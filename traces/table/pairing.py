"""A synthetic pairing: the prompts of one trace with the arrivals and models of another."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from traces.error import TraceError
from traces.table.columns import SCHEMA
from traces.table.trace import Trace, make

TAKEN = {
    "arrivals": "arrival_s",
    "users": "user_id",
    "steps": "steps",
    "images": "images",
    "base_model": "base_model",
    "controlnets": "controlnets",
    "loras": "loras",
}
"""What can be taken from the second trace -> its column."""

USUAL = ("arrivals", "base_model", "controlnets", "loras")
"""What is taken unless told otherwise, as far as the second trace has it."""

Rows = npt.NDArray[np.int64]


def pair(
    prompts: Trace, arrivals: Trace, *, take: Sequence[str] | None = None, repeat: bool = False, name: str | None = None
) -> Trace:
    """Lay the requests of one trace on those of another, the first on the first and so on.

    Prompt, size, seed and names are those of `prompts`, and whatever `take` does not name. The two have nothing to do
    with each other in truth: the result is marked as synthetic, and its notes tell what came from where.

    Args:
        take: what `arrivals` gives, some of `TAKEN`; None takes the columns of `USUAL` that it has.
        repeat: go through the shorter trace again; otherwise it decides how many requests there are. Repeated arrivals
            go on one mean gap after the last; repeated requests get "#2", "#3" and so on behind their names.
        name: what reports call the result; both names if None.

    Raises:
        TraceError: `take` is empty, or names something twice, something unknown, or a column that `arrivals` has no
            values in; arrivals to be repeated are all at one time.
    """
    taken = _taken(arrivals, take)
    count = (max if repeat else min)(len(prompts), len(arrivals))
    row, other = np.arange(count) % len(prompts), np.arange(count) % len(arrivals)
    columns: dict[str, Any] = {}
    for column in SCHEMA.names:
        trace, rows = (arrivals, other) if column in taken else (prompts, row)
        columns[column] = trace.table.column(column).take(pa.array(rows))
    del columns["gen_s"]  # nobody generated these pairs
    timed = arrivals if "arrival_s" in taken else prompts
    columns["arrival_s"] = _repeated_times(timed, count)
    columns["request_id"] = _repeated_names(columns["request_id"], np.arange(count) // len(prompts))
    what = ", ".join(taken)
    traces = {"prompts": _about(prompts), "arrivals": _about(arrivals)}
    notes: dict[str, Any] = {
        "synthetic": True,
        "pairing": {**traces, "columns_of_arrivals": taken, "repeat": repeat},
    }
    if "arrival_s" in timed.notes:
        notes["arrival_s"] = timed.notes["arrival_s"]
    return make(
        columns,
        name=name or f"{prompts.name}+{arrivals.name}",
        source=f"synthetic pairing: {prompts.source}; with {what} of {arrivals.source}",
        notes=notes,
        where=f"pairing of {prompts.name} and {arrivals.name}",
    )


def _taken(arrivals: Trace, take: Sequence[str] | None) -> list[str]:
    """The columns to take, in the order of `SCHEMA`."""
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
    columns = {TAKEN[what] for what in wanted}
    return [column for column in SCHEMA.names if column in columns]


def _repeated_times(trace: Trace, count: int) -> npt.NDArray[np.float64]:
    """The first `count` arrivals of a trace that goes on and on, (count,) seconds."""
    own = trace.arrival_s
    if count <= len(own):
        return own[:count]
    if not trace.span_s > 0:
        raise TraceError(f"pairing: the arrivals of {trace.name} are all at one time, which cannot be repeated")
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
