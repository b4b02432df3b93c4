"""Usage log: one record for every span in which a GPU was busy, written by the cluster alone."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from struct import Struct
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mezzotint.files.scratch import CHUNK_BYTES, MEMORY_BYTES, Scratch
from mezzotint.sim.core.worker import OFF, STARTING

SWAPS = {"load": "profile", "load-host": "host", "load-disk": "disk"}
"""Kinds of busy time that load a model, and where its weights came from: in the seconds of its profile, or from host
memory or disk where those are told apart."""

_FIELDS = ("from_s", "until_s", "joules", "row", "worker", "batch", "kind", "model")
SPAN = np.dtype({"names": _FIELDS, "formats": ["f8"] * 3 + ["i4"] * 2 + ["u2"] * 3})
ROWS = 1 << 16
"""Spans that are looked at together once a run is over."""

PACK = Struct("=dddiiHHH").pack
"""Pack a span for the buffer, to which the cluster appends."""


class UsageLog:
    """Busy spans in the order of recording, end to end in ``buffer``; ``kinds`` and ``models`` map names to codes.

    ``rentals`` are the spans in which a GPU was ``off`` or ``starting``: its number, which of both, and the seconds.
    """

    def __init__(self, scratch: Scratch | None = None) -> None:
        self.buffer = bytearray()
        self._scratch = Scratch() if scratch is None else scratch
        self._file: IO[bytes] | None = None
        self._spans: NDArray[Any] | None = None
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

    def spill(self) -> None:
        """Move the spans of a long run from the buffer to a file."""
        if len(self.buffer) >= (MEMORY_BYTES // 2 if self._file is None else CHUNK_BYTES):
            self._file = self._scratch.file() if self._file is None else self._file
            self._spans = None
            self._file.write(self.buffer)
            self.buffer.clear()

    def spans(self) -> NDArray[Any]:
        """Return all spans, (n,) of SPAN."""
        if self._file is None:
            # A copy: a view would keep the buffer from growing.
            return np.frombuffer(bytes(self.buffer), SPAN)
        if self.buffer or self._spans is None:
            self._file.write(self.buffer)
            self.buffer.clear()
            self._spans = self._scratch.mapped(self._file, SPAN)
        return self._spans

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Yield all spans, `ROWS` at a time."""
        spans = self.spans()
        for start in range(0, len(spans), ROWS):
            yield spans[start : start + ROWS]
            self._scratch.release()

    def between(self, covers: NDArray[np.float64], from_s: float, until_s: float) -> NDArray[Any]:
        """Return the spans of those blocks that have spans in [from_s, until_s].

        Args:
            covers: first begin and last end in each block, (blocks, 2).
        """
        spans = self.spans()
        if len(covers) == 1:
            return spans
        found = np.flatnonzero((covers[:, 1] >= from_s) & (covers[:, 0] <= until_s))
        return np.concatenate([spans[:0], *(spans[block * ROWS : (block + 1) * ROWS] for block in found.tolist())])

    def _of_each(self, value: Callable[[NDArray[Any]], NDArray[Any]]) -> NDArray[np.float64]:
        """Return ``value`` of all spans, computed block by block; of a block it may have fewer numbers."""
        found = self._scratch.growing(len(self.spans()), np.float64)
        for block in self.blocks():
            found.append(value(block))
        return found.array()

    def _replace(self, spans: NDArray[Any]) -> None:
        self._file = self._spans = None
        self.buffer[:] = spans.tobytes()

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
        self._replace(spans[begun | ~ahead])

    def renumber(self, row_of: NDArray[np.int64]) -> None:
        """Give every span of a row the number that ``row_of`` has for it."""
        spans = self.spans().copy()
        spans["row"] = np.where(spans["row"] >= 0, row_of[np.maximum(spans["row"], 0)], spans["row"])
        self._replace(spans)

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
        begun, ended, counts = _Overlap(edges), _Overlap(edges), np.asarray(gpu_counts)
        for spans in self.blocks():
            weight = counts[spans["worker"]]
            begun.add(spans["from_s"], weight)
            ended.add(spans["until_s"], weight)
        rented = np.array([(from_s, until_s) for _, _, from_s, until_s in self.rentals]).reshape(-1, 2)
        begun.add(rented[:, 0], np.ones(len(rented)))
        ended.add(rented[:, 1], np.ones(len(rented)))
        idle: NDArray[np.float64] = gpus * (edges - edges[0])
        return idle - begun.seconds() + ended.seconds()

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
        swaps, serves = ([self.kinds.get(kind, -1) for kind in kinds] for kinds in (tuple(SWAPS), ("serve", "steps")))
        counts, switches = np.asarray(gpu_counts), 0

        def inside_s(spans: NDArray[Any]) -> NDArray[np.float64]:
            found: NDArray[np.float64]
            found = np.clip(spans["until_s"], start_s, end_s) - np.clip(spans["from_s"], start_s, end_s)
            return found

        def of(spans: NDArray[Any], kinds: Sequence[int] | None = None) -> NDArray[Any]:
            if counted is not None:
                spans = spans[np.asarray(counted)[spans["worker"]]]
            return spans if kinds is None else spans[np.isin(spans["kind"], kinds)]

        def joules_of(spans: NDArray[Any]) -> NDArray[np.float64]:
            spans = of(spans)
            took_s, share = spans["until_s"] - spans["from_s"], inside_s(spans)
            share = np.divide(share, took_s, out=np.zeros_like(share), where=took_s > 0)
            joules: NDArray[np.float64] = share * spans["joules"]
            return joules

        def gpu_s(spans: NDArray[Any]) -> NDArray[np.float64]:
            found: NDArray[np.float64] = inside_s(spans) * counts[spans["worker"]]
            return found

        for spans in map(of, self.blocks(), repeat(swaps)):
            switches += int(((spans["from_s"] >= start_s) & (spans["from_s"] <= end_s)).sum())
        # One sum over all spans for each total: sums of blocks would differ in the last bit.
        joules = float(self._of_each(joules_of).sum())
        served_s = float(self._of_each(lambda spans: gpu_s(of(spans, serves))).sum())
        batch_s = float(self._of_each(lambda spans: gpu_s(of(spans, serves)) * of(spans, serves)["batch"]).sum())
        return GpuUsage(
            busy_s=float(self._of_each(lambda spans: gpu_s(of(spans))).sum()),
            joules=None if np.isnan(joules) else joules,
            switches=switches,
            switch_s=float(self._of_each(lambda spans: gpu_s(of(spans, swaps))).sum()),
            batch_mean=batch_s / served_s if served_s > 0 else None,
        )


class _Overlap:
    """Sum of weight x the seconds since events at each edge, counted from the first edge."""

    def __init__(self, edges: NDArray[np.float64]) -> None:
        self._edges = edges
        self._counts, self._sums = np.zeros(len(edges) + 1), np.zeros(len(edges) + 1)

    def add(self, at_s: NDArray[np.float64], weight: NDArray[Any]) -> None:
        """Add events at ``at_s``. One by one, as if all were added at once: the sums are the same to the bit."""
        bins = np.searchsorted(self._edges, at_s)
        np.add.at(self._counts, bins, weight)
        np.add.at(self._sums, bins, weight * (np.maximum(at_s, self._edges[0]) - self._edges[0]))

    def seconds(self) -> NDArray[np.float64]:
        """Return the sum at each edge."""
        counts, sums = (np.cumsum(of)[:-1] for of in (self._counts, self._sums))
        found: NDArray[np.float64] = counts * (self._edges - self._edges[0]) - sums
        return found


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
