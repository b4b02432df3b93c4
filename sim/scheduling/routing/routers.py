"""Routers: to which of several workers a request goes when it comes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from backends.base import standalone_cost
from sim.core.errors import ConfigError
from sim.core.request import Request
from sim.core.streams import ROUTER
from sim.protocols import Router, Run, Worker

Ties = Literal["first", "random"]
"""Which of several equal workers is chosen."""


@dataclass(slots=True)
class Random(Router):
    """A uniform choice, whatever the workers do."""

    _rng: np.random.Generator = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        self._rng = run.rng(ROUTER)

    def choose(self, request: Request, workers: Sequence[Worker], now_s: float) -> Worker:
        return workers[int(self._rng.integers(len(workers)))]


@dataclass(slots=True)
class RoundRobin(Router):
    """Each in turn; of several models, each model's workers in their own turn."""

    _turns: dict[str | None, int] = field(init=False, default_factory=dict, repr=False)

    def choose(self, request: Request, workers: Sequence[Worker], now_s: float) -> Worker:
        turn = self._turns.get(request.model, 0)
        self._turns[request.model] = turn + 1
        return workers[turn % len(workers)]


@dataclass(slots=True)
class LeastOutstanding(Router):
    """The worker with the least outstanding, waiting or running: what runs counts in full. It needs no profile.

    Args:
        of: what a request counts. ``requests``: one; ``pixels``: PatchedServe's (8.1); ``declared-cost``: steps x
            pixels, as llm-d's router for diffusion serving does (llm-d-router, 2053), which breaks ties at random.
    """

    of: Literal["requests", "pixels", "declared-cost"] = "requests"
    ties: Ties = "first"
    _tally: "OutstandingWork" = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        self._tally = OutstandingWork(run, self.ties)

    def choose(self, request: Request, workers: Sequence[Worker], now_s: float) -> Worker:
        return self._tally.least(workers)

    def sent(self, worker: Worker, request: Request, now_s: float) -> None:
        self._tally.add(worker, request, self._count(request))

    def left(self, worker: Worker, request: Request, now_s: float) -> None:
        self._tally.remove(worker, request)

    def _count(self, request: Request) -> int:
        if self.of == "requests":
            return 1
        pixels = request.width * request.height
        return pixels if self.of == "pixels" else request.steps * pixels


@dataclass(slots=True)
class LeastWorkLeft(Router):
    """The worker that would be done first with what it has, if each request took what its profile says alone on it.

    What runs counts with what is left of it. Seconds are the typical ones of the steps that a plan really runs; of
    several, ``ties`` says who is chosen.

    Raises ConfigError for a live backend, which cannot say beforehand what a request takes.
    """

    ties: Ties = "first"
    _run: Run = field(init=False, repr=False)
    _tally: "OutstandingWork" = field(init=False, repr=False)
    _until_s: dict[Worker, float] = field(init=False, default_factory=dict, repr=False)
    _known_ns: dict[tuple[object, ...], int] = field(init=False, default_factory=dict, repr=False)

    def bind(self, run: Run) -> None:
        if run.backend.live:
            raise ConfigError(
                "router: least-work-left asks a profile what a request will take, and a live backend has none; choose "
                "least-requests or least-declared-cost"
            )
        self._run, self._tally = run, OutstandingWork(run, self.ties)

    def choose(self, request: Request, workers: Sequence[Worker], now_s: float) -> Worker:
        return self.least(workers, lambda worker: self.left_s(worker, now_s))

    def least(self, workers: Sequence[Worker], value: Callable[[Worker], float]) -> Worker:
        return self._tally.least(workers, value)

    def sent(self, worker: Worker, request: Request, now_s: float, more_s: float = 0.0) -> None:
        """``more_s`` are seconds that it takes beside what its profile says."""
        nanoseconds = self._expected_ns(request) + round(more_s * 1e9)
        self._until_s[worker] = now_s + self.left_s(worker, now_s) + nanoseconds / 1e9
        self._tally.add(worker, request, nanoseconds)

    def left(self, worker: Worker, request: Request, now_s: float) -> None:
        self._tally.remove(worker, request)

    def left_s(self, worker: Worker, now_s: float) -> float:
        """Until all would be done, and no more than all that is outstanding."""
        outstanding_s = self._tally.of(worker) / 1e9
        return min(max(self._until_s.get(worker, now_s) - now_s, 0.0), outstanding_s)

    def _expected_ns(self, request: Request) -> int:
        """Whole nanoseconds, whose sums have no rounding in them."""
        key = (
            request.model,
            request.width,
            request.height,
            request.steps,
            request.skipped,
            request.refine,
            request.addons,
        )
        found = self._known_ns.get(key)
        if found is None:
            work = self._run.work(request)
            work.row = -1  # a typical one
            alone = standalone_cost(self._run.backend, work)
            found = self._known_ns[key] = round((alone.denoise_s + alone.other_s) * 1e9)
        return found


class OutstandingWork:
    """A whole number for each worker: the sum over what is outstanding on it."""

    __slots__ = ("_counted", "_rng", "_sums")

    def __init__(self, run: Run, ties: Ties) -> None:
        self._rng = run.rng(ROUTER) if ties == "random" else None
        self._sums: dict[Worker, int] = {}
        self._counted: dict[Request, int] = {}

    def of(self, worker: Worker) -> int:
        return self._sums.get(worker, 0)

    def add(self, worker: Worker, request: Request, count: int) -> None:
        self._sums[worker] = self.of(worker) + count
        self._counted[request] = count

    def remove(self, worker: Worker, request: Request) -> None:
        self._sums[worker] -= self._counted.pop(request)

    def least(self, workers: Sequence[Worker], value: Callable[[Worker], Any] | None = None) -> Worker:
        if self._rng is None:
            return min(workers, key=value or self.of)
        values = [(value or self.of)(worker) for worker in workers]
        least = min(values)
        tied = [worker for worker, found in zip(workers, values, strict=True) if found == least]
        return tied[0] if len(tied) == 1 else tied[int(self._rng.integers(len(tied)))]
