"""What is in a trace: the numbers that decide how caches and schedulers will fare on it."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from traces.schema import SCHEMA, Trace

SESSION_GAP_S = 1800.0
"""A longer pause of a user begins a new session."""

SHOWN = 6
"""How many sizes and step counts are listed."""


def describe(trace: Trace) -> dict[str, Any]:
    """Facts about a trace, JSON-able; a fact whose column the source lacks is None.

    Returns:
        name, source, digest; requests; span_s; rate_rpm (requests per minute over the span); users{count,
        requests_mean, requests_max, top_ten_share, unknown_share}; sessions{count, requests_mean,
        gap_s} (a user's requests with pauses up to `SESSION_GAP_S`); prompts{distinct, repeat_share,
        repeat_same_user_share} (a repeat is a prompt that came before); sizes and steps, the most
        frequent first, with their shares; null_columns; notes.
    """
    count = len(trace)
    span_s = trace.span_s
    users = _codes(trace.table.column("user_id"))
    return {
        "name": trace.name,
        "source": trace.source,
        "digest": trace.digest,
        "requests": count,
        "span_s": span_s,
        "rate_rpm": (count - 1) / span_s * 60.0 if span_s > 0 else None,
        "users": _users(users),
        "sessions": _sessions(users, trace.arrival_s),
        "prompts": _prompts(_codes(trace.prompts()), users),
        "sizes": _sizes(trace),
        "steps": _shares(trace.table.column("steps").drop_null().cast(pa.string()), count),
        "null_columns": [name for name in SCHEMA.names if trace.table.column(name).null_count == count],
        "notes": trace.notes,
    }


def render(facts: dict[str, Any]) -> str:
    """`describe`'s facts as aligned lines of text."""
    users, sessions, prompts = facts["users"], facts["sessions"], facts["prompts"]
    rate = "" if facts["rate_rpm"] is None else f", {facts['rate_rpm']:.3g} requests/min"
    lines = [
        ("trace", facts["name"]),
        ("source", facts["source"]),
        ("requests", f"{facts['requests']:,}"),
        ("span", f"{facts['span_s']:,.1f} s ({facts['span_s'] / 3600:.2f} h){rate}"),
        ("users", "unknown"),
        ("sessions", "unknown"),
        ("prompts", "none"),
    ]
    if users:
        lines[4] = (
            "users",
            f"{users['count']:,}; requests each: mean {users['requests_mean']:.1f}, most"
            f" {users['requests_max']:,}; the ten most active make {users['top_ten_share']:.1%};"
            f" {users['unknown_share']:.1%} of requests without a user",
        )
        lines[5] = (
            "sessions",
            f"{sessions['count']:,} (pauses up to {sessions['gap_s'] / 60:.0f} min);"
            f" {sessions['requests_mean']:.1f} requests each",
        )
    if prompts:
        same = prompts["repeat_same_user_share"]
        by_whom = "" if same is None else f", {same:.1%} of them by the same user"
        lines[6] = (
            "prompts",
            f"{prompts['distinct']:,} distinct; {prompts['repeat_share']:.1%} repeat an earlier one{by_whom}",
        )
    for what in ("sizes", "steps"):
        values = ", ".join(f"{value} {share:.1%}" for value, share in facts[what]["most"].items())
        more = facts[what]["distinct"] - len(facts[what]["most"])
        lines.append((what, (values or "unknown") + (f", and {more} more" if more > 0 else "")))
    lines.append(("null columns", ", ".join(facts["null_columns"]) or "none"))
    lines.append(("digest", facts["digest"]))
    lines.extend((f"note {key}", str(value)) for key, value in facts["notes"].items())
    width = max(len(label) for label, _ in lines)
    return "\n".join(f"{label:<{width}}  {text}" for label, text in lines)


def _codes(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """A number for each distinct text, (n,), -1 for null."""
    coded = column.dictionary_encode().unify_dictionaries()
    codes = [chunk.indices.fill_null(-1).to_numpy() for chunk in coded.chunks]
    joined: npt.NDArray[np.int64] = np.concatenate(codes).astype(np.int64)
    return joined


def _users(users: npt.NDArray[np.int64]) -> dict[str, Any] | None:
    known = users[users >= 0]
    if not known.size:
        return None
    each = np.sort(np.bincount(known))[::-1]
    return {
        "count": len(each),
        "requests_mean": float(each.mean()),
        "requests_max": int(each[0]),
        "top_ten_share": float(each[:10].sum() / known.size),
        "unknown_share": 1.0 - known.size / users.size,
    }


def _sessions(users: npt.NDArray[np.int64], arrival_s: npt.NDArray[np.float64]) -> dict[str, Any] | None:
    rows = np.flatnonzero(users >= 0)
    if not rows.size:
        return None
    rows = rows[np.argsort(users[rows], kind="stable")]
    opens = np.diff(users[rows]) != 0
    opens |= np.diff(arrival_s[rows]) > SESSION_GAP_S
    count = 1 + int(opens.sum())
    return {"count": count, "requests_mean": rows.size / count, "gap_s": SESSION_GAP_S}


def _prompts(prompts: npt.NDArray[np.int64], users: npt.NDArray[np.int64]) -> dict[str, Any] | None:
    rows = np.flatnonzero(prompts >= 0)
    if not rows.size:
        return None
    distinct, first = np.unique(prompts[rows], return_index=True)
    repeats = rows.size - distinct.size
    same = None
    if repeats and (users[rows] >= 0).any():
        # a repeat is by the same user if this pair of user and prompt came before
        again = np.ones(rows.size, np.bool_)
        again[first] = False
        pairs = prompts[rows] * (users.max() + 2) + users[rows] + 1
        _, first_pair = np.unique(pairs, return_index=True)
        by_same = again & (users[rows] >= 0)
        by_same[first_pair] = False
        same = float(by_same.sum() / repeats)
    return {
        "distinct": int(distinct.size),
        "repeat_share": repeats / rows.size,
        "repeat_same_user_share": same,
    }


def _sizes(trace: Trace) -> dict[str, Any]:
    width, height = trace.table.column("width"), trace.table.column("height")
    sizes = pc.binary_join_element_wise(width.cast(pa.string()), height.cast(pa.string()), "x")
    return _shares(sizes.drop_null(), len(trace))


def _shares(values: pa.ChunkedArray, count: int) -> dict[str, Any]:
    tally = sorted(
        ((entry["values"], entry["counts"]) for entry in pc.value_counts(values).to_pylist()),
        key=lambda pair: (-pair[1], pair[0]),
    )
    return {"distinct": len(tally), "most": {value: number / count for value, number in tally[:SHOWN]}}
