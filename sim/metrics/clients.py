"""The clients' side of a run: what they saw of their requests, and what viewers saw of streaming sessions."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mezzotint.sim.core.errors import SimulationError
from mezzotint.sim.core.slo import Limit, is_late
from mezzotint.sim.metrics.spread import Reals, ratio, spread

SEEN = "due_s", "sent_s", "answered_s", "tries", "hedges", "standalone_s"
"""The columns of Client.seen."""


def check_seen(seen: Mapping[str, Reals], who: str) -> None:
    """Raise SimulationError, naming the client ``who``, if ``seen`` is not what Client.seen says."""
    if not seen or "stalls" in seen:
        return
    expected = f"expected {', '.join(SEEN)} of each request that was due, or an empty mapping"
    if seen.keys() != set(SEEN) or len({np.shape(column) for column in seen.values()}) > 1:
        shapes = ", ".join(f"{name} of shape {np.shape(column)}" for name, column in seen.items())
        raise SimulationError(f"{who} returned {shapes} from seen; {expected}")
    due_s, sent_s, answered_s = (np.asarray(seen[name]) for name in SEEN[:3])
    if not (due_s >= 0).all() or (sent_s < due_s).any() or (answered_s < sent_s).any():
        raise SimulationError(
            f"{who} returned from seen a request that was sent before it was due, or answered before it was sent; "
            f"{expected}, in seconds of the run"
        )


def sessions(seen: Mapping[str, Reals], start_s: float) -> dict[str, Any]:
    """Return what the viewers of streaming sessions saw, of those that were due from ``start_s`` on.

    Args:
        seen: as of Streaming.seen.
    """
    measured = seen["due_s"] >= start_s
    due_s, sent_s, first_chunk_s, chunks, stalls, stall_s = (column[measured] for column in seen.values())
    began = chunks > 0
    return {
        "count": len(due_s),
        "refused": int(np.isnan(sent_s).sum()),
        "first_chunk_s": spread(first_chunk_s[began]),
        "held_back_s": spread((sent_s - due_s)[~np.isnan(sent_s)]),
        "without_stall": ratio(int((began & (stalls == 0)).sum()), int(began.sum())),
        "stalls_per_session": ratio(float(stalls.sum()), int(began.sum())),
        "stall_s": spread(stall_s[began]),
        "late_chunks": ratio(float(stalls.sum()), float((chunks - 1)[began].sum())),
    }


def requests(seen: Mapping[str, Reals], window_s: tuple[float, float], slo: Sequence[Limit]) -> dict[str, Any]:
    """Return what clients saw of the requests whose first try is measured; a try is a request of the server.

    Latencies, shares over a limit and goodput count from the instant at which a request was due.

    Args:
        seen: as of Client.seen.
        window_s: begin and end of the measured window.
    """
    measured = seen["sent_s"] >= window_s[0]
    due_s, sent_s, answered_s, tries, hedges, standalone_s = (seen[name][measured] for name in SEEN)
    answered = np.isfinite(answered_s)
    latency_s, span_s = answered_s - due_s, window_s[1] - float(due_s.min())
    limits = {}
    for limit in slo:
        good = answered & ~is_late(latency_s, limit.seconds(standalone_s))
        limits[str(limit)] = {
            "violation_rate": float(1 - good.mean()), "goodput_rpm": ratio(60 * int(good.sum()), span_s),
        }  # fmt: skip
    return {
        "requests": len(due_s),
        "answered": int(answered.sum()),
        "retries": int((tries - hedges - 1).sum()),
        "hedges": int(hedges.sum()),
        "tries_per_request": float(tries.mean()),
        "latency_s": spread(latency_s[answered]),
        "held_back_s": spread(sent_s - due_s),
        "answered_rpm": ratio(60 * int(answered.sum()), span_s),
        "slo": limits,
    }
