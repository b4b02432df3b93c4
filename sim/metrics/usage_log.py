"""Usage log: one record for every span in which a GPU was busy, written by the cluster alone."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint.sim.core.worker import OFF, STARTING

SWAPS = {"load": "profile", "load-host": "host", "load-disk": "disk"}
"""Kinds of busy time that load a model, and where its weights came from: in the seconds of its profile, or from host
memory or disk where those are told apart."""

_FIELDS = ("from_s", "until_s", "joules", "row", "worker", "batch", "kind", "model")
SPAN = np.dtype({"names": _FIELDS, "formats": ["f8"] * 3 + ["i4"] * 2 + ["u2"] * 3})
PACK = Struct("=dddiiHHH").pack
"""Pack a span for the buffer, to which the cluster appends."""


class UsageLog:
    """Busy spans in the order of recording, end to end in ``buffer``; ``kinds`` and ``models`` map names to codes.

    ``rentals`` are the spans in which a GPU was ``off`` or ``starting``: its number, which of both, and the seconds.
    """

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.kinds: dict[str, int] = {}
        self.models: dict[str, int] = {}
        self.rentals: list[tuple[int, str, float, float]] = []
        self._away: dict[int, tuple[str, float]] = {}

    def state_changed(self, gpu: int, state: str, now_s: float) -> None:
        """Note that ``gpu`` is in ``state`` from ``now_s`` on, and log the rental that ends, if it was one."""
        rental, since_s = self._away.pop(gpu, ("", now_s))
        if since_s < now_s:
            self.rentals.append((gpu, rental, since_s, now_s))
        if state in (OFF, STARTING):
            self._away[gpu] = state, now_s

    def spans(self) -> NDArray[Any]:
        """Return all spans, (n,) of SPAN."""
        # A copy: a view would keep the buffer from growing.
        return np.frombuffer(bytes(self.buffer), SPAN)

    def cut(self, worker: int, now_s: float) -> None:
        """End at ``now_s`` the spans of ``worker`` that were recorded ahead, their joules in proportion; O(spans)."""
        spans = self.spans().copy()
        ahead = (spans["worker"] == worker) & (spans["until_s"] > now_s)
        begun = ahead & (spans["from_s"] < now_s)
        from_s, until_s = spans["from_s"][begun], spans["until_s"][begun]
        # Before ``until_s`` is cut, which the share is taken of.
        spans["joules"][begun] *= (now_s - from_s) / (until_s - from_s)
        spans["until_s"][begun] = now_s
        # Spans that have not begun go altogether; the others keep their order.
        self.buffer[:] = spans[begun | ~ahead].tobytes()

    def renumber(self, row_of: NDArray[np.int64]) -> None:
        """Give every span of a row the number that ``row_of`` has for it."""
        spans = self.spans().copy()
        spans["row"] = np.where(spans["row"] >= 0, row_of[np.maximum(spans["row"], 0)], spans["row"])
        self.buffer[:] = spans.tobytes()

    def off_s(self, start_s: float, end_s: float, gpus_per_instance: int = 1) -> float:
        """Return the GPU-seconds in [start_s, end_s] of instances that were off, so that nobody paid for them."""
        inside_s = [
            max(min(until_s, end_s) - max(from_s, start_s), 0.0)
            for gpu, rental, from_s, until_s in self.rentals
            if rental == OFF and gpu % gpus_per_instance == 0
        ]
        # fsum: the order in which GPUs came and went must not change the price.
        return gpus_per_instance * math.fsum(inside_s)

    def idle_s(self, edges: NDArray[np.float64], gpu_counts: Sequence[int], gpus: int) -> NDArray[np.float64]:
        """Return the GPU-seconds from the first of ``edges`` to each in which the GPUs were neither busy nor away.

        Args:
            edges: ascending times.
            gpu_counts: GPUs of each worker, by number.
            gpus: GPUs of the cluster.
        """
        spans = self.spans()
        rented = np.array([(from_s, until_s) for _, _, from_s, until_s in self.rentals]).reshape(-1, 2)
        from_s, until_s = (
            np.concatenate([spans[name], rented[:, column]]) for column, name in enumerate(("from_s", "until_s"))
        )
        weight = np.concatenate([np.asarray(gpu_counts)[spans["worker"]], np.ones(len(rented))])
        idle: NDArray[np.float64] = gpus * (edges - edges[0])
        return idle - _overlap_s(edges, from_s, weight) + _overlap_s(edges, until_s, weight)

    def busy_s_by_gpu(self, start_s: float, end_s: float, gpus_of: Callable[[int], Sequence[int]]) -> dict[int, float]:
        """Return the busy seconds of each GPU in the window; ``gpus_of`` returns the GPUs of a worker or group."""
        spans = self.spans()
        inside_s = np.clip(spans["until_s"], start_s, end_s) - np.clip(spans["from_s"], start_s, end_s)
        found: dict[int, float] = {}
        for worker, seconds in enumerate(np.bincount(spans["worker"], inside_s).tolist()):
            if seconds:
                for gpu in gpus_of(worker):
                    found[gpu] = found.get(gpu, 0.0) + seconds
        return found

    def inside(
        self, start_s: float, end_s: float, gpu_counts: Sequence[int], counted: Sequence[bool] | None = None
    ) -> "GpuUsage":
        """Return the usage in the window [start_s, end_s].

        Args:
            gpu_counts: GPUs of each worker, by number.
            counted: True for each worker that counts; None counts all.
        """
        spans = self.spans()
        if counted is not None:
            spans = spans[np.asarray(counted)[spans["worker"]]]
        took_s = spans["until_s"] - spans["from_s"]
        inside_s = np.clip(spans["until_s"], start_s, end_s) - np.clip(spans["from_s"], start_s, end_s)
        share = np.divide(inside_s, took_s, out=np.zeros_like(inside_s), where=took_s > 0)
        joules = float((share * spans["joules"]).sum())
        loads = np.isin(spans["kind"], [self.kinds.get(kind, -1) for kind in SWAPS])
        gpu_s = inside_s * np.asarray(gpu_counts)[spans["worker"]]
        served = np.isin(spans["kind"], [self.kinds.get(kind, -1) for kind in ("serve", "steps")])
        served_s = float(gpu_s[served].sum())
        return GpuUsage(
            busy_s=float(gpu_s.sum()),
            joules=None if np.isnan(joules) else joules,
            switches=int((loads & (spans["from_s"] >= start_s) & (spans["from_s"] <= end_s)).sum()),
            switch_s=float(gpu_s[loads].sum()),
            batch_mean=float((gpu_s * spans["batch"])[served].sum()) / served_s if served_s > 0 else None,
        )


def _overlap_s(
    edges: NDArray[np.float64], at_s: NDArray[np.float64], weight: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the sum of ``weight`` x the seconds since ``at_s`` at each edge, counted from the first edge."""
    after_s = np.maximum(at_s, edges[0]) - edges[0]
    bins = np.searchsorted(edges, at_s)
    counts, sums = (np.cumsum(np.bincount(bins, of, len(edges) + 1))[:-1] for of in (weight, weight * after_s))
    seconds: NDArray[np.float64] = counts * (edges - edges[0]) - sums
    return seconds


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """Totals over a window.

    Attributes:
        busy_s: busy GPU-seconds; a group's seconds count for each of its GPUs.
        joules: energy of the busy time; None if the power is not known.
        switches, switch_s: model loads that began in the window, and their GPU-seconds.
        batch_mean: mean batch size over the serving GPU-seconds; None if there are none.
    """

    busy_s: float
    joules: float | None
    switches: int
    switch_s: float
    batch_mean: float | None
