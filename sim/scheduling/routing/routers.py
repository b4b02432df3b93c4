"""Routers: choose the worker whose queue an arriving request joins."""

from abc import abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf, nextafter, ulp
from typing import Literal

import numpy as np

from mezzotint.settings.ranges import Seconds
from mezzotint.sim.core.request import Request
from mezzotint.sim.core.streams import ROUTER
from mezzotint.sim.protocols import Router, Run, Worker
from mezzotint.sim.scheduling.routing.lowest import LowestWorkers, Ties, rank_of
from mezzotint.sim.scheduling.typical_latency import TypicalLatency


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
    _lowest: LowestWorkers = field(init=False, repr=False)
    _rng: np.random.Generator | None = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        self._load, self._rng = OutstandingLoad(), _rng_of(self.ties, run)
        self._lowest = LowestWorkers(run, self.ties, self._load.total)

    def choose(self, request: Request, workers: Sequence[Worker], now_s: float) -> Worker:
        return workers[self._lowest.among(workers).pick(self._rng)]

    def sent(self, worker: Worker, request: Request, now_s: float) -> None:
        self._lowest.set(worker, self._load.add(worker, request, self._load_of(request)))

    def left(self, worker: Worker, request: Request, now_s: float) -> None:
        self._lowest.set(worker, self._load.remove(worker, request))

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
    """When the work of a worker is expected to end; absent if none is left."""
    _sum_s: dict[Worker, float] = field(init=False, default_factory=dict, repr=False)
    """The sum of a worker's latencies, where that is less than what is left until the expected end."""
    _ends: list[tuple[float, int]] = field(init=False, default_factory=list, repr=False)
    """A heap of expected ends and workers, outdated ones among them."""
    _earliest: LowestWorkers = field(init=False, repr=False)
    _least: LowestWorkers = field(init=False, repr=False)
    _run: Run = field(init=False, repr=False)
    _typical: TypicalLatency = field(init=False, repr=False)
    _rng: np.random.Generator | None = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        remedy = "choose router=least-requests or router=least-declared-cost"
        self._typical = TypicalLatency(run, "router: least-work-left", remedy)
        self._run, self._load, self._rng = run, OutstandingLoad(), _rng_of(self.ties, run)
        self._earliest = LowestWorkers(run, self.ties, lambda worker: self._until_s.get(worker, -inf))
        self._least = LowestWorkers(run, self.ties, lambda worker: self._sum_s.get(worker, inf))

    def choose(self, request: Request, workers: Sequence[Worker], now_s: float) -> Worker:
        self._expire(now_s)
        earliest, least = self._earliest.among(workers), self._least.among(workers)
        until_s: float = earliest.low
        sum_s: float = least.low
        left_s = max(until_s - now_s, 0.0)
        if sum_s < left_s:
            return workers[least.pick(self._rng)]
        # The next later end may be as many seconds away, after rounding.
        bound_s = until_s
        while left_s and nextafter(bound_s, inf) - now_s == left_s:
            bound_s = nextafter(bound_s, inf)
        if sum_s > left_s and bound_s == until_s:
            return workers[earliest.pick(self._rng)]
        if self._rng is None:
            return workers[min(earliest.first(bound_s), least.first(left_s) if sum_s == left_s else len(workers))]
        tied: list[int] = sorted({*earliest.up_to(bound_s), *(least.up_to(left_s) if sum_s == left_s else ())})
        return workers[tied[rank_of(len(tied), self._rng)]]

    def _expire(self, now_s: float) -> None:
        """Forget the ends that were expected until now."""
        ends = self._ends
        while ends and ends[0][0] <= now_s:
            until_s, number = heappop(ends)
            worker = self._run.cluster.worker(number)
            if self._until_s.get(worker) == until_s:
                self._set(worker)

    def _set(self, worker: Worker, until_s: float = -inf, sum_s: float = inf) -> None:
        if self._until_s.get(worker, -inf) != until_s:
            self._until_s[worker] = until_s
            self._earliest.set(worker, until_s)
        if self._sum_s.get(worker, inf) != sum_s:
            self._sum_s[worker] = sum_s
            self._least.set(worker, sum_s)

    def sent(self, worker: Worker, request: Request, now_s: float, loading_s: float = 0.0) -> None:
        """Add ``request`` to the load of ``worker``, with ``loading_s`` seconds on top of its standalone latency."""
        self._expire(now_s)
        nanoseconds = self._typical.ns(worker, request) + round(loading_s * 1e9)
        # From what is left now: an idle worker's end lies in the past.
        until_s = now_s + self.left_s(worker, now_s) + nanoseconds / 1e9
        self._expect(worker, until_s, self._load.add(worker, request, nanoseconds), now_s)
        heappush(self._ends, (until_s, worker.id))

    def left(self, worker: Worker, request: Request, now_s: float) -> None:
        self._expect(worker, self._until_s.get(worker, -inf), self._load.remove(worker, request), now_s)

    def _expect(self, worker: Worker, until_s: float, total_ns: int, now_s: float) -> None:
        total_s = total_ns / 1e9
        # What is left until the end only shrinks: where it is not more than the sum now, it never is.
        self._set(worker, until_s if total_s else -inf, total_s if 0.0 < total_s < until_s - now_s else inf)

    def min_left_s(self, workers: Sequence[Worker], now_s: float) -> float:
        """Return the fewest seconds that are left on one of ``workers``."""
        self._expire(now_s)
        until_s: float = self._earliest.among(workers).low
        sum_s: float = self._least.among(workers).low
        return min(max(until_s - now_s, 0.0), sum_s)

    def within(self, workers: Sequence[Worker], seconds: float, now_s: float) -> Iterator[int]:
        """Yield the positions of the workers that have at most ``seconds`` left, and perhaps of some others.

        Those whose last request is expected to end by then come first, by position; one may come twice.
        """
        until_s = now_s + seconds
        # A difference of two times is rounded, so an end may lie a little after the bound.
        yield from self._earliest.among(workers).each_up_to(until_s + 2 * ulp(until_s))
        yield from self._least.among(workers).each_up_to(seconds)

    def left_s(self, worker: Worker, now_s: float) -> float:
        """Return the seconds to the end of what is outstanding on ``worker``, at most the sum of its latencies."""
        outstanding_s = self._load.total(worker) / 1e9
        # At most the sum: the end was expected, and requests may have ended earlier than that.
        return min(max(self._until_s.get(worker, -inf) - now_s, 0.0), outstanding_s)


@dataclass(slots=True)
class WorkAndLoads(Router):
    """Choose the worker with the least work left, counting the loads that a request would add as work.

    Loads are computed only for workers with no more work left than the best has with its loads, since no other can be
    chosen. What a worker will hold changes as it loads and evicts, of which a router is not told, so there is no index
    of that. Where many GPUs are idle and none holds what a request needs, all idle ones are asked.

    Args:
        load_weight: seconds of waiting that a second of loading counts as; 0 is ``least-work-left``.
        ties: of workers with the same work left, the ``first`` by number or a ``random`` one.

    Raises ConfigError for a live backend, which cannot tell the duration of a request beforehand.
    """

    load_weight: Seconds = 1.0
    ties: Ties = "first"
    _run: Run = field(init=False, repr=False)
    _work: LeastWorkLeft = field(init=False, default_factory=LeastWorkLeft, repr=False)
    _outstanding: dict[Worker, deque[Request]] = field(init=False, default_factory=dict, repr=False)
    """The requests that were sent to each worker and have not ended."""
    _rng: np.random.Generator | None = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        self._work.bind(run)
        self._run, self._rng = run, _rng_of(self.ties, run)

    @abstractmethod
    def missing_load_s(self, worker: Worker, request: Request) -> float:
        """Return the seconds of loading what ``request`` needs and ``worker`` will not hold by then."""

    def choose(self, request: Request, workers: Sequence[Worker], now_s: float) -> Worker:
        values: dict[int, float] = {}
        low, bound_s = inf, self._work.min_left_s(workers, now_s)
        # Those with the least work left first: what the best of them has with its loads bounds the work of the others.
        for _ in range(2):
            for position in self._work.within(workers, bound_s, now_s):
                worker = workers[position]
                left_s = self._work.left_s(worker, now_s)
                if left_s > low or position in values:
                    continue
                values[position] = value = left_s + self.load_weight * self.missing_load_s(worker, request)
                if value == 0.0 and self._rng is None:
                    return worker  # idle workers come in the order of ties, and none has less
                low = min(low, value)
            bound_s = low
        tied = sorted(position for position, value in values.items() if value == low)
        return workers[tied[rank_of(len(tied), self._rng)]]

    def sent(self, worker: Worker, request: Request, now_s: float) -> None:
        # Before it is outstanding itself, or it would find its own assets there.
        self._work.sent(worker, request, now_s, self.missing_load_s(worker, request))
        self._outstanding.setdefault(worker, deque()).append(request)

    def left(self, worker: Worker, request: Request, now_s: float) -> None:
        self._outstanding[worker].remove(request)
        self._work.left(worker, request, now_s)


class OutstandingLoad:
    """The load of each worker: the sum of whole numbers over its outstanding requests."""

    __slots__ = ("_loads", "_totals")

    def __init__(self) -> None:
        self._totals: dict[Worker, int] = {}
        self._loads: dict[Request, int] = {}

    def total(self, worker: Worker) -> int:
        return self._totals.get(worker, 0)

    def add(self, worker: Worker, request: Request, load: int) -> int:
        """Return the new total of ``worker``."""
        self._loads[request] = load
        total = self._totals[worker] = self._totals.get(worker, 0) + load
        return total

    def remove(self, worker: Worker, request: Request) -> int:
        """Return the new total of ``worker``."""
        total = self._totals[worker] = self._totals[worker] - self._loads.pop(request)
        return total


def _rng_of(ties: Ties, run: Run) -> np.random.Generator | None:
    return run.rng(ROUTER) if ties == "random" else None
