"""Routers: choose the worker whose queue an arriving request joins."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from mezzotint.sim.core.request import Request
from mezzotint.sim.core.streams import ROUTER
from mezzotint.sim.protocols import Router, Run, Worker
from mezzotint.sim.scheduling.typical_latency import TypicalLatency

Ties = Literal["first", "random"]
"""The choice among workers of equal load."""


@dataclass(slots=True)
class RandomWorker(Router):
    """Choose a worker uniformly at random, whatever its load."""

    _rng: np.random.Generator = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        self._rng = run.rng(ROUTER)

    def choose(self, request: Request, workers: Sequence[Worker], now_s: float) -> Worker:
        return workers[int(self._rng.integers(len(workers)))]


@dataclass(slots=True)
class RoundRobin(Router):
    """Choose the workers of a request's model in turn."""

    _turns: dict[str | None, int] = field(init=False, default_factory=dict, repr=False)

    def choose(self, request: Request, workers: Sequence[Worker], now_s: float) -> Worker:
        turn = self._turns.get(request.model, 0)
        self._turns[request.model] = turn + 1
        return workers[turn % len(workers)]


@dataclass(slots=True)
class LeastOutstanding(Router):
    """Choose the worker with the least outstanding load, waiting or running; no profile is needed.

    Args:
        of: load of a request. ``requests`` counts 1, ``pixels`` the pixels of all its frames (PatchedServe, 8.1),
            ``declared-cost`` steps x pixels, as llm-d's router for diffusion serving, which breaks ties at random
            (llm-d-router, 2053).
        ties: of workers with the same load, the ``first`` by number or a ``random`` one.
    """

    of: Literal["requests", "pixels", "declared-cost"] = "requests"
    ties: Ties = "first"
    _load: "OutstandingLoad" = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        self._load = OutstandingLoad(run, self.ties)

    def choose(self, request: Request, workers: Sequence[Worker], now_s: float) -> Worker:
        return self._load.min_by(workers)

    def sent(self, worker: Worker, request: Request, now_s: float) -> None:
        self._load.add(worker, request, self._load_of(request))

    def left(self, worker: Worker, request: Request, now_s: float) -> None:
        self._load.remove(worker, request)

    def _load_of(self, request: Request) -> int:
        if self.of == "requests":
            return 1
        return request.pixels if self.of == "pixels" else request.steps * request.pixels


@dataclass(slots=True)
class LeastWorkLeft(Router):
    """Choose the worker whose outstanding requests end first, each taking its standalone latency.

    A running request counts with its remaining seconds. Latencies are the profile's typical ones, of the steps that a
    plan runs after skipping.

    Raises ConfigError for a live backend, which cannot tell the duration of a request beforehand.
    """

    ties: Ties = "first"
    _load: "OutstandingLoad" = field(init=False, repr=False)
    _until_s: dict[Worker, float] = field(init=False, default_factory=dict, repr=False)
    _typical: TypicalLatency = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        remedy = "choose router=least-requests or router=least-declared-cost"
        self._typical = TypicalLatency(run, "router: least-work-left", remedy)
        self._load = OutstandingLoad(run, self.ties)

    def choose(self, request: Request, workers: Sequence[Worker], now_s: float) -> Worker:
        return self.min_by(workers, lambda worker: self.left_s(worker, now_s))

    def min_by(self, workers: Sequence[Worker], value: Callable[[Worker], float]) -> Worker:
        return self._load.min_by(workers, value)

    def sent(self, worker: Worker, request: Request, now_s: float, loading_s: float = 0.0) -> None:
        """Add ``request`` to the load of ``worker``, with ``loading_s`` seconds on top of its standalone latency."""
        nanoseconds = self._typical.ns(worker, request) + round(loading_s * 1e9)
        # From what is left now: an idle worker's end lies in the past.
        self._until_s[worker] = now_s + self.left_s(worker, now_s) + nanoseconds / 1e9
        self._load.add(worker, request, nanoseconds)

    def left(self, worker: Worker, request: Request, now_s: float) -> None:
        self._load.remove(worker, request)

    def left_s(self, worker: Worker, now_s: float) -> float:
        """Return the seconds to the end of what is outstanding on ``worker``, at most the sum of its latencies."""
        outstanding_s = self._load.total(worker) / 1e9
        # At most the sum: the end was expected, and requests may have ended earlier than that.
        return min(max(self._until_s.get(worker, now_s) - now_s, 0.0), outstanding_s)


class WorkAndLoads:
    """The work left on each worker and the loads that a request would add, as ``least-work-left`` counts work.

    Args:
        load_weight: seconds of waiting that a second of loading counts as.
        missing_load_s: worker, request -> seconds of loading what the worker will lack.

    Attributes:
        outstanding: the requests that were sent to each worker and have not ended.
    """

    __slots__ = ("_load_weight", "_missing_load_s", "_work", "outstanding")

    def __init__(
        self, run: Run, ties: Ties, load_weight: float, missing_load_s: Callable[[Worker, Request], float]
    ) -> None:
        self._work = LeastWorkLeft(ties)
        self._work.bind(run)
        self._load_weight, self._missing_load_s = load_weight, missing_load_s
        self.outstanding: dict[Worker, deque[Request]] = {}

    def choose(self, request: Request, workers: Sequence[Worker], now_s: float) -> Worker:
        return self._work.min_by(
            workers,
            lambda worker: self._work.left_s(worker, now_s) + self._load_weight * self._missing_load_s(worker, request),
        )

    def sent(self, worker: Worker, request: Request, now_s: float) -> None:
        # Before it is outstanding itself, or it would find its own assets there.
        self._work.sent(worker, request, now_s, self._missing_load_s(worker, request))
        self.outstanding.setdefault(worker, deque()).append(request)

    def left(self, worker: Worker, request: Request, now_s: float) -> None:
        self.outstanding[worker].remove(request)
        self._work.left(worker, request, now_s)


class OutstandingLoad:
    """The load of each worker: the sum of whole numbers over its outstanding requests."""

    __slots__ = ("_loads", "_rng", "_totals")

    def __init__(self, run: Run, ties: Ties) -> None:
        self._rng = run.rng(ROUTER) if ties == "random" else None
        self._totals: dict[Worker, int] = {}
        self._loads: dict[Request, int] = {}

    def total(self, worker: Worker) -> int:
        return self._totals.get(worker, 0)

    def add(self, worker: Worker, request: Request, load: int) -> None:
        self._totals[worker] = self.total(worker) + load
        self._loads[request] = load

    def remove(self, worker: Worker, request: Request) -> None:
        self._totals[worker] -= self._loads.pop(request)

    def min_by(self, workers: Sequence[Worker], value: Callable[[Worker], Any] | None = None) -> Worker:
        if self._rng is None:
            return min(workers, key=value or self.total)
        values = [(value or self.total)(worker) for worker in workers]
        lowest = min(values)
        tied = [worker for worker, load in zip(workers, values, strict=True) if load == lowest]
        # No draw without a tie, so that the stream depends on ties alone.
        return tied[0] if len(tied) == 1 else tied[int(self._rng.integers(len(tied)))]
